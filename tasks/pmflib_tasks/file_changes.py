"""Raw files of two runs compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pmflib.base.json_records import JsonRecord
from pmflib.store.run_records import InputFile


@dataclass(frozen=True)
class ChangedFile:
    """A raw file whose bytes differ between two runs: name, and digest and number of bytes in each run."""

    name: str
    digest_first: str
    bytes_first: int | None
    digest_second: str
    bytes_second: int | None


@dataclass(frozen=True)
class FileChanges(JsonRecord):
    """Raw files of two runs, by name.

    Parameters
    ----------
    added, removed
        Files that only the second run, or only the first run, read.
    changed
        Files whose content differs.
    n_same
        Number of files with the same content.
    """

    added: list[InputFile]
    removed: list[InputFile]
    changed: list[ChangedFile]
    n_same: int


def compare_files(first: Sequence[InputFile], second: Sequence[InputFile]) -> FileChanges:
    """Compare the raw files of two runs."""
    before, after = ({file.name: file for file in files} for files in (first, second))
    shared = [name for name in after if name in before]
    other = [name for name in shared if after[name].digest != before[name].digest]
    return FileChanges(
        [after[name] for name in after if name not in before],
        [before[name] for name in before if name not in after],
        [
            ChangedFile(
                name,
                before[name].digest,
                before[name].bytes,
                after[name].digest,
                after[name].bytes,
            )
            for name in other
        ],
        len(shared) - len(other),
    )
