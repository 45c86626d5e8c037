"""Lists of the spills of a dataset: what is assembled refers to one artefact, however many files there are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pmflib.errors import StoreError
from pmflib.json_files import parse_json
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import FileStep
from pmflib.store.file_digests import read_checked

SPILL_LIST = "spill-list"
"""Kind of the artefact."""
LIST = "spills.json"
"""Its file: name of the file and reference of each spill, in order."""
VERSION = 1
"""Version of the artefact: raised when its content changes."""


def list_spills(store: Store, steps: Sequence[FileStep]) -> Entry:
    """Build the list of the spills of files; its inputs are the spills, so that lineage leads through it.

    Parameters
    ----------
    store
        The store.
    steps
        Files and their spills, in the order in which rows are compared: by file, then by row.
    """
    names, spills = [step.name for step in steps], [step.step for step in steps]

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        content = [[name, asdict(spill)] for name, spill in zip(names, spills, strict=True)]
        (folder / LIST).write_text(json.dumps(content, ensure_ascii=False), "utf-8")
        return {"files": len({*names}), "spills": len(spills)}

    return store.build(
        SPILL_LIST,
        inputs=number_inputs("spill", spills),
        options={"names": names},
        version=VERSION,
        write=write,
    )


def read_spill_list(store: Store, spills: Reference) -> tuple[list[Path], list[str]]:
    """Read the folders of listed spills, and the names of their files.

    Raises
    ------
    StoreError
        If the list or a spill is not in the store, or the list is damaged.
    """
    file = store.locate(spills) / LIST
    try:
        content = parse_json(read_checked(file))
        found = [(str(name), Reference.from_json(spill)) for name, spill in content]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"list of spills {spills.digest[:12]} is damaged ({error}); run the pipeline again"
        ) from error
    return store.locate_all([spill for _, spill in found]), [name for name, _ in found]


def number_inputs(role: str, references: Sequence[Reference]) -> dict[str, Reference]:
    """References by role and place."""
    return {f"{role} {place:05}": reference for place, reference in enumerate(references)}
