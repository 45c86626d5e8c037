"""Counts of a dataset from those of another one: what it holds more is added, what it holds less is taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pmflib.counting.cell_changes import CellChanges, count_changes, merge_changes
from pmflib.counting.counting_tasks import count_folds_ahead, cut_fold
from pmflib.counting.counts_writers import CountsWriter, DifferenceWriter
from pmflib.counting.fold_counting import count_folds, load_changes, save_changes
from pmflib.counting.increments import Increment
from pmflib.counting.stored_tables import BELOW_ZERO, StoredTables
from pmflib.errors import StoreError
from pmflib.running.clients import Client, count_threads
from pmflib.running.grouping import (
    BLOCK_COST,
    COUNTING_COARSENESS,
    MIN_GROUP,
)
from pmflib.running.maps import PendingResult, start_maps
from pmflib.store.dataset_changes import DatasetChange
from pmflib.store.sample_blocks import BlockReference


def needs_workers(change: DatasetChange) -> bool:
    """Whether a change is worth more than one task: less is counted sooner than it is sent."""
    cost = change.n_observed + BLOCK_COST * change.n_blocks
    return cost > MIN_GROUP * COUNTING_COARSENESS


def count_stored_changes(
    client: Client,
    increment: Increment,
    path: Path,
    checkpoints: Path,
    on_fold: Callable[[int, int], None] | None = None,
    *,
    in_full: bool = False,
) -> dict[str, Any]:
    """Count the pairs of samples that come or go, and write the counts that they lead to.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the counts are the same.
    increment
        Counts to start from, and what comes and goes.
    path
        Folder of the new Zarr group; must not exist. Changed cells go beside it.
    checkpoints
        Folder for a checkpoint of each fold. Folds that have one there are not counted again.
    on_fold
        Called with the number of folds done and the number of samples counted in them, after each one that changes.
    in_full
        Whether full tables are written in any case: counts that do without those that they were found from.

    Returns
    -------
    Facts, plain JSON types: samples in all folds, samples added and removed, cells that change, and how many
    differences lead from full tables to these counts (0 where these are full themselves).

    Raises
    ------
    StoreError
        If the samples or the base cannot be read, or more samples would go than were counted.
    """
    base, change = increment.tables, increment.change
    offsets = base.schema.offsets
    added, removed = (_split(blocks, base.n_folds) for blocks in (change.added, change.removed))

    n_threads = count_threads(client)

    def cut(fold: int) -> list[tuple[int, list[BlockReference]]]:
        return [
            (sign, run)
            for sign, blocks in ((1, added[fold]), (-1, removed[fold]))
            if blocks
            for run in cut_fold(blocks, max(1, len(changed)), n_threads)
        ]

    def start(folds: Sequence[int]) -> list[PendingResult[CellChanges]]:
        return start_maps(
            client,
            count_changes,
            {f"fold-{fold:02}": cut(fold) for fold in folds},
            merge_changes,
            offsets,
            result_bytes=8 * base.schema.n_levels**2,
        )

    n_rows = [_count_rows(added[fold]) - _count_rows(removed[fold]) for fold in range(base.n_folds)]
    changed = [fold for fold in range(base.n_folds) if added[fold] or removed[fold]]

    def count() -> Iterator[CellChanges]:
        """Count the folds that change, or read their checkpoints."""
        n_ahead = 1
        if client is not None:
            n_ahead = count_folds_ahead(max(1, len(changed)), n_threads, base.schema.n_levels)
        return count_folds(changed, start, checkpoints, load_changes, save_changes, n_ahead)

    n_cells = n_counted = 0
    for fold, changes in zip(changed, count(), strict=True):
        n_cells += changes.n_cells
        n_counted += _count_rows(added[fold]) + _count_rows(removed[fold])
        if on_fold is not None:
            on_fold(fold + 1, n_counted)
    # only now it is known which of the two takes less
    chain = None if in_full else base.chain.extend(increment.counts.digest, n_cells)
    counted = count()
    by_fold = (
        (fold, next(counted) if fold in changed else CellChanges.zero())
        for fold in range(base.n_folds)
    )
    if chain is not None:
        _write_differences(DifferenceWriter(path, base, chain), by_fold, n_rows)
    else:
        _write_full(CountsWriter(path, base.schema, base.n_folds), base, by_fold, n_rows)
    return {
        "samples": int(base.n_rows.sum()) + sum(n_rows),
        "samples_added": _count_rows(change.added),
        "samples_removed": _count_rows(change.removed),
        "changed_cells": n_cells,
        "differences": 0 if chain is None else len(chain.digests),
    }


def _write_differences(
    writer: DifferenceWriter, by_fold: Iterable[tuple[int, CellChanges]], n_rows: Sequence[int]
) -> None:
    for fold, changes in by_fold:
        writer.write(fold, changes, n_rows[fold])
    writer.close()


def _write_full(
    writer: CountsWriter,
    base: StoredTables,
    by_fold: Iterable[tuple[int, CellChanges]],
    n_rows: Sequence[int],
) -> None:
    for fold, changes in by_fold:
        table, total = base.read(fold), int(base.n_rows[fold]) + n_rows[fold]
        if not changes.add_to(table) or total < 0:
            raise StoreError(f"counts {str(base.path.parent)!r}: {BELOW_ZERO}")
        writer.write(fold, table, total)
    writer.close()


def _split(blocks: Iterable[BlockReference], n_folds: int) -> list[list[BlockReference]]:
    """Blocks of each fold, in order."""
    by_fold: list[list[BlockReference]] = [[] for _ in range(n_folds)]
    for block in blocks:
        by_fold[block.fold].append(block)
    return by_fold


def _count_rows(blocks: Iterable[BlockReference]) -> int:
    return sum(block.n_rows for block in blocks)
