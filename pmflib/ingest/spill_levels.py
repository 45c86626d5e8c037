"""Names of a spill's levels, where its rows were encoded with a part of the schema."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.arrays import IntArray
from pmflib.errors import StoreError
from pmflib.json_files import parse_json
from pmflib.schema import Schema
from pmflib.store.file_digests import holds, read_checked

LEVELS_FILE = "levels.json"
"""Variable and label of each level, where the rows were encoded with a part of the schema."""


def write_levels(folder: Path, part: Schema) -> None:
    """Write the names of a spill's levels beside it: it is encoded with a part of the schema that it is read with."""
    (folder / LEVELS_FILE).write_text(json.dumps(_name_levels(part), ensure_ascii=False), "utf-8")


def find_levels(folder: Path, schema: Schema) -> IntArray | None:
    """Find a schema's levels for those of a spill.

    Parameters
    ----------
    folder
        Folder of the spill.
    schema
        Schema that its rows will be read with.

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
    if levels.null_count:
        unknown = names.filter(levels.is_null())[0].as_py()
        raise StoreError(
            f"spill {folder.name!r} was encoded with {unknown}, which the schema lacks; spill its file again"
        )
    return np.append(levels.to_numpy().astype(np.int64), -1)


def _name_levels(schema: Schema) -> list[str]:
    """Variable and label of every level, as one text that no other pair has."""
    return [
        json.dumps([variable.name, label], ensure_ascii=False)
        for variable in schema
        for label in variable.levels
    ]
