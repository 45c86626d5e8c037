"""What was written outside a store from what it holds, so that an erasure can name it: pages, tables, labels."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pmflib.core.errors import StoreError
from pmflib.core.json_records import from_json
from pmflib.store.artefacts import Store, refuse_unwritable
from pmflib.store.file_digests import digest_file, seal, unseal
from pmflib.store.run_records import now

EXPORTS = "exports"
"""Folder of a store with a file for each output that was written outside it."""

State = Literal["as written", "changed", "gone", "on another host"]
"""What has become of an output: its files have their digests, or not, or none is there; or they are out of reach."""


@dataclass(frozen=True)
class Export:
    """One output, as it was last written.

    Parameters
    ----------
    kind
        What it holds, in a word: report, figures, predictions, answers, quarantine, labels.
    path
        File or folder, absolute.
    host
        Name of the machine that wrote it.
    written
        Time in UTC, ISO 8601.
    files
        SHA-256 of each file, by its absolute path.
    """

    kind: str
    path: str
    host: str
    written: str
    files: dict[str, str]

    def find_state(self) -> State:
        """Compare its files with what was written; each is read once."""
        paths = [path for path in self.files if os.path.exists(path)]
        if not paths:
            return "gone" if self.host == platform.node() else "on another host"
        with suppress(OSError):
            if len(paths) == len(self.files) and all(
                digest_file(Path(path)) == digest for path, digest in self.files.items()
            ):
                return "as written"
        return "changed"


def remember_export(store: Store, kind: str, output: Path, paths: Iterable[Path]) -> None:
    """Remember what was written outside a store; a store that this user cannot write remembers nothing.

    Parameters
    ----------
    store
        The store that it was written from.
    kind, output
        As in `Export`; what was remembered of the same output is replaced.
    paths
        Its files.
    """
    files = {str(path.resolve()): digest_file(path) for path in sorted(paths)}
    export = Export(kind, str(output.resolve()), platform.node(), now(), files)
    name = hashlib.sha256(os.fsencode(f"{export.host}\0{export.path}")).hexdigest()
    # whoever reads the store of somebody else has the page all the same; names that are no text cannot be kept
    with suppress(StoreError, UnicodeEncodeError), refuse_unwritable(store.root):
        store.objects.put(f"{EXPORTS}/{name}.json", seal(asdict(export)))


def list_exports(store: Store) -> list[Export]:
    """List what is known to have been written outside a store, by path.

    Raises
    ------
    StoreError
        If what is remembered of one does not read, or was edited.
    """
    found = []
    for metadata in store.objects.list_objects(EXPORTS):
        try:
            found.append(read_export(store, metadata.name))
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{metadata.name} of store {store.name!r} is damaged ({error}); take it from a copy of the store, or "
                "delete it: no certificate names then what it is of"
            ) from error
    return sorted(found, key=lambda export: (export.path, export.host))


def read_export(store: Store, name: str) -> Export:
    """Read what is remembered of one output; a `ValueError` if it is damaged."""
    return from_json(Export, unseal(store.objects.read(name)[0]))
