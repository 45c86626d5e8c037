"""Folds counted one after the other, a few at a time, with a checkpoint of each: a file of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from pmflib.arrays import IntArray
from pmflib.counting.cell_changes import CellChanges
from pmflib.running.maps import PendingResult
from pmflib.store.checkpoints import load_arrays, save_arrays

R = TypeVar("R")


def count_folds(
    folds: Sequence[int],
    start: Callable[[Sequence[int]], Sequence[PendingResult[R]]],
    folder: Path,
    load: Callable[[Path], R | None],
    save: Callable[[Path, R], None],
    n_ahead: int,
) -> Iterator[R]:
    """Count folds in order, or read their checkpoints.

    Parameters
    ----------
    folds
        Folds to count.
    start
        Starts to count some folds.
    folder
        Folder of the checkpoints.
    load, save
        Read a checkpoint, None if there is none that can be used, and write it.
    n_ahead
        Number of folds under way at a time, as `count_folds_ahead` has it.

    Yields
    ------
    What was counted of each fold.
    """
    pending: dict[int, PendingResult[R]] = {}
    for place, fold in enumerate(folds):
        missing = [
            ahead
            for ahead in folds[place : place + n_ahead]
            if ahead not in pending and not _name_checkpoint(folder, ahead).exists()
        ]
        if missing:
            pending.update(zip(missing, start(missing), strict=True))
        checkpoint = _name_checkpoint(folder, fold)
        counted = None if fold in pending else load(checkpoint)
        if counted is None:
            # without either, another run of the same work finished and removed the checkpoints
            counted = (pending.pop(fold) if fold in pending else start([fold])[0]).wait()
            save(checkpoint, counted)
        yield counted


def save_table(path: Path, table: IntArray) -> None:
    """Save the counts of a fold: the cells that are not zero where these are few, as in wide schemas."""
    arrays = {"shape": np.array(table.shape)}
    places = np.flatnonzero(table)
    if 2 * places.size < table.size:
        arrays |= {"places": places, "counts": table.flat[places]}
    else:
        arrays["table"] = table
    save_arrays(path, arrays)


def load_table(path: Path) -> IntArray | None:
    """Read what `save_table` wrote; None if there is none that can be used."""
    arrays = load_arrays(path)
    if arrays is None:
        return None
    if "table" in arrays:
        return arrays["table"]
    table = np.zeros(arrays["shape"], np.int64)
    table.flat[arrays["places"]] = arrays["counts"]
    return table


def save_changes(path: Path, changes: CellChanges) -> None:
    """Save the changes of a fold."""
    save_arrays(path, {"places": changes.places, "changes": changes.changes})


def load_changes(path: Path) -> CellChanges | None:
    """Read what `save_changes` wrote; None if there is none that can be used."""
    arrays = load_arrays(path)
    return None if arrays is None else CellChanges(arrays["places"], arrays["changes"])


def _name_checkpoint(folder: Path, fold: int) -> Path:
    return folder / f"fold-{fold}.npz"
