"""Lists of the spills of a dataset, and the names of a spill's levels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.core.arrays import IntArray
from pmflib.core.errors import StoreError
from pmflib.core.json_files import parse_json
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store, number_inputs
from pmflib.store.dataset import FileStep
from pmflib.store.file_digests import holds, read_checked

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


LEVELS_FILE = "levels.json"
"""Variable and label of each level, where the rows were encoded with a part of the schema."""


def write_levels(folder: Path, part: Schema) -> None:
    """Write the names of a spill's levels beside it: it is encoded with a part of the schema that it is read with."""
    (folder / LEVELS_FILE).write_text(json.dumps(_name_levels(part), ensure_ascii=False), "utf-8")


def find_levels(folder: Path, schema: Schema, *, strict: bool = True) -> IntArray | None:
    """Find a schema's levels for those of a spill.

    Parameters
    ----------
    folder
        Folder of the spill.
    schema
        Schema that its rows will be read with.
    strict
        Whether the schema must have all of them; else those that it lacks are missing.

    Returns
    -------
    int64 of shape (n_part_levels + 1,), the last -1, which is missing; None where the spill names no levels: then it
    must have been encoded with the schema.

    Raises
    ------
    StoreError
        If the names do not read, or the schema lacks one of them.
    """
    path = folder / LEVELS_FILE
    if not holds(path):
        return None
    try:
        names = pa.array(parse_json(read_checked(path)), pa.string())
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StoreError(
            f"spill {folder.name!r} cannot be read ({error}); spill its file again"
        ) from error
    levels = pc.index_in(names, pa.array(_name_levels(schema), pa.string()))
    if levels.null_count and strict:
        unknown = names.filter(levels.is_null())[0].as_py()
        raise StoreError(
            f"spill {folder.name!r} was encoded with {unknown}, which the schema lacks; spill its file again"
        )
    return np.append(levels.fill_null(-1).to_numpy().astype(np.int64), -1)


def _name_levels(schema: Schema) -> list[str]:
    """Variable and label of every level, as one text that no other pair has."""
    return [
        json.dumps([variable.name, label], ensure_ascii=False)
        for variable in schema
        for label in variable.levels
    ]
