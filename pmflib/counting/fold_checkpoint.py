"""Checkpoint of counting: the counts of one fold in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pmflib.arrays import IntArray
from pmflib.store.checkpoints import load_arrays, save_arrays


def save_table(path: Path, table: IntArray, n_rows: int) -> None:
    """Save the counts of a fold: the cells that are not zero where these are few, as in wide schemas."""
    arrays = {"shape": np.array(table.shape), "n_rows": np.array(n_rows)}
    places = np.flatnonzero(table)
    if 2 * places.size < table.size:
        arrays |= {"places": places, "counts": table.flat[places]}
    else:
        arrays["table"] = table
    save_arrays(path, arrays)


def load_table(path: Path) -> tuple[IntArray, int] | None:
    """Read what `save_table` wrote; None if there is none that can be used."""
    arrays = load_arrays(path)
    if arrays is None:
        return None
    n_rows = int(arrays["n_rows"])
    if "table" in arrays:
        return arrays["table"], n_rows
    table = np.zeros(arrays["shape"], np.int64)
    table.flat[arrays["places"]] = arrays["counts"]
    return table, n_rows
