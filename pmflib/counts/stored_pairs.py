"""Pair counts of stored samples, fold by fold on workers; interrupted runs resume from checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import IntArray, choose_count_type
from pmflib.cluster.clients import Client, count_threads
from pmflib.cluster.maps import PendingResult, start_maps
from pmflib.cluster.memory import MemoryPlan
from pmflib.cluster.task_plans import TaskPlan, plan_tasks
from pmflib.counts.block_counting import add_blocks
from pmflib.counts.cell_changes import CellChanges
from pmflib.counts.selection import narrow_block, narrow_offsets
from pmflib.counts.zarr_tables import CountsWriter
from pmflib.store.checkpoints import load_arrays, save_arrays
from pmflib.store.sample_blocks import (
    BLOCK_BYTES,
    COUNTING_COARSENESS,
    BlockGroup,
    BlockReference,
    add_fold_sums,
    group_blocks,
    iterate_blocks,
    weigh_blocks,
)

R = TypeVar("R")


def count_stored_folds(
    folds: Sequence[int],
    start: Callable[[Sequence[int]], Sequence[PendingResult[R]]],
    folder: Path,
    load: Callable[[Path], R | None],
    save: Callable[[Path, R], None],
    n_ahead: int,
) -> Iterator[R]:
    """Count folds in order, or load their checkpoints.

    Parameters
    ----------
    folds
        Folds to count.
    start
        Starts counting some folds.
    folder
        Folder of the checkpoints.
    load, save
        Load a checkpoint (None if there is no usable one), and save one.
    n_ahead
        Number of folds in progress at a time, from `count_folds_ahead`.

    Yields
    ------
    Counts of each fold.
    """
    pending: dict[int, PendingResult[R]] = {}
    for index, fold in enumerate(folds):
        missing = [
            ahead
            for ahead in folds[index : index + n_ahead]
            if ahead not in pending and not _name_checkpoint(folder, ahead).exists()
        ]
        if missing:
            pending.update(zip(missing, start(missing), strict=True))
        checkpoint = _name_checkpoint(folder, fold)
        counted = None if fold in pending else load(checkpoint)
        if counted is None:
            # without either, another run of the same work has finished and removed the checkpoints
            counted = (pending.pop(fold) if fold in pending else start([fold])[0]).wait()
            save(checkpoint, counted)
        yield counted


def save_table(path: Path, table: IntArray) -> None:
    """Save the counts of a fold, compressed as the smallest integers that hold them."""
    small = table.astype(choose_count_type(int(table.max(initial=0))))
    content = pa.Codec("zstd", compression_level=1).compress(small, asbytes=True)
    packed = np.frombuffer(content, np.uint8)
    arrays = {"shape": np.array(table.shape), "type": np.array(small.dtype.str), "packed": packed}
    save_arrays(path, arrays)


def load_table(path: Path) -> IntArray | None:
    """Load counts written by `save_table`; None if there are no usable ones."""
    arrays = load_arrays(path)
    if arrays is None:
        return None
    shape, dtype = arrays["shape"], np.dtype(str(arrays["type"]))
    n_bytes = int(shape.prod()) * dtype.itemsize
    content = pa.Codec("zstd").decompress(arrays["packed"], decompressed_size=n_bytes)
    return np.frombuffer(content, dtype).reshape(shape).astype(np.int64)


def save_changes(path: Path, changes: CellChanges) -> None:
    """Save the changes of a fold."""
    save_arrays(path, {"places": changes.positions, "changes": changes.changes})


def load_changes(path: Path) -> CellChanges | None:
    """Load changes written by `save_changes`; None if there are no usable ones."""
    arrays = load_arrays(path)
    return None if arrays is None else CellChanges(arrays["places"], arrays["changes"])


def _name_checkpoint(folder: Path, fold: int) -> Path:
    return folder / f"fold-{fold}.npz"


BUSY_SHARE = 0.9
"""Minimum share of the time that all threads are busy, if all runs of blocks took equally long."""
FOLDS_AHEAD = 4
"""Minimum number of folds in progress; a table waiting to be written takes as much memory as one being counted."""
AHEAD_BYTES = 8 << 20
"""Total size in bytes of the tables in progress up to which all folds are counted at once."""


def choose_n_runs(n_folds: int, n_threads: int) -> int:
    """Choose the number of runs of blocks per fold; each run is one task with one table.

    It is the smallest number that keeps the threads busy, since each run makes a table that must be sent and merged.

    Parameters
    ----------
    n_folds
        Number of folds to count, at least 1.
    n_threads
        Number of counting threads.
    """
    n_runs = max(1, n_threads // n_folds)
    while n_runs * n_folds < BUSY_SHARE * n_threads * -(-n_runs * n_folds // n_threads):
        n_runs += 1
    return n_runs


def count_folds_ahead(n_folds: int, n_threads: int, n_levels: int) -> int:
    """Return the number of folds in progress: all if tables are small, else enough to keep threads busy.

    Folds counted together need few messages, and no thread waits between folds.

    Parameters
    ----------
    n_folds, n_threads
        As for `choose_n_runs`.
    n_levels
        Number of levels of all variables.
    """
    busy = 1 + -(-n_threads // choose_n_runs(n_folds, n_threads))
    return min(n_folds, max(FOLDS_AHEAD + count_small_tables(n_levels), busy))


def count_small_tables(n_levels: int) -> int:
    """Return the number of tables that may wait to be written besides ``FOLDS_AHEAD``; 0 for large tables."""
    return max(0, AHEAD_BYTES // (8 * max(n_levels, 1) ** 2) - FOLDS_AHEAD)


def plan_fold_runs(costs: Sequence[int], n_groups: int, n_folds: int, n_threads: int) -> TaskPlan:
    """Split the blocks of a fold into runs, each counted into one table by one task.

    Tables contain integers, so their sum has the same bits wherever runs are split. Runs are split between any two
    blocks, to make them equal, rather than between groups, which are as large as a worthwhile task.

    Parameters
    ----------
    costs
        Cost of each block of the fold, at least one, from `pmflib.store.sample_blocks.weigh_blocks`.
    n_groups
        Number of groups that `pmflib.store.sample_blocks.group_blocks` makes for counting; an upper bound for the
        number of runs.
    n_folds, n_threads
        As for `choose_n_runs`.

    Returns
    -------
    A plan of which only the runs are used; see `plan_fold_merges`.
    """
    return plan_tasks(costs, min(n_groups, choose_n_runs(n_folds, n_threads)))


def split_fold_blocks(
    blocks: Sequence[BlockReference], n_folds: int, n_threads: int
) -> list[list[BlockReference]]:
    """Split the blocks of a fold, at least one, into the runs of `plan_fold_runs`."""
    n_groups = len(group_blocks(blocks, COUNTING_COARSENESS))
    plan = plan_fold_runs([weigh_blocks([each]) for each in blocks], n_groups, n_folds, n_threads)
    return [list(blocks[start:stop]) for start, stop in plan.runs]


def plan_fold_merges(n_runs: int, n_levels: int) -> TaskPlan:
    """Plan the tasks of a fold: one per run, and those that merge the tables.

    Parameters
    ----------
    n_runs
        Number of runs of the fold, at least 1.
    n_levels
        Number of levels of all variables; a table takes 8 bytes per pair of levels.
    """
    return plan_tasks([1] * n_runs, n_runs, 8 * n_levels**2)


def count_stored_pairs(
    client: Client,
    blocks_by_fold: Mapping[int, Sequence[BlockReference]],
    writer: CountsWriter,
    checkpoints: Path,
    on_fold: Callable[[int, int], None] | None = None,
) -> int:
    """Count the pairs of levels of stored samples, and write the counts of each fold.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the counts are the same.
    blocks_by_fold
        Blocks of each fold, 0 to n_folds - 1 in order; a fold may be empty.
    writer
        Writer of the counts, whose weights are set to those of the samples; closed by the caller.
    checkpoints
        Folder for a checkpoint of each fold. Folds with a checkpoint are not counted again.
    on_fold
        Called after each fold with the numbers of folds and samples written.

    Returns
    -------
    Number of samples in all folds.
    """
    offsets, n_levels = writer.schema.offsets, writer.table_schema.n_levels
    counted = None if writer.selection is None else writer.selection.counted
    every = [block for mine in blocks_by_fold.values() for block in mine]
    # overflowing totals of weights are rejected before anything is counted
    writer.weights = add_fold_sums(every, len(blocks_by_fold))
    filled = [fold for fold, blocks in blocks_by_fold.items() if blocks]
    n_threads, n_filled = count_threads(client) if filled else 1, max(1, len(filled))

    def start(folds: Sequence[int]) -> list[PendingResult[IntArray]]:
        return start_maps(
            client,
            count_group_pairs,
            {
                f"fold-{fold:02}": split_fold_blocks(blocks_by_fold[fold], n_filled, n_threads)
                for fold in folds
            },
            merge_tables,
            offsets,
            counted,
            result_bytes=8 * n_levels**2,
        )

    # without workers, the next fold is counted after this one is saved
    n_ahead = count_folds_ahead(n_filled, n_threads, n_levels) if client is not None else 1
    tables = count_stored_folds(filled, start, checkpoints, load_table, save_table, n_ahead)
    n_samples = 0
    for fold, blocks in blocks_by_fold.items():
        table = next(tables) if blocks else np.zeros((n_levels,) * 2, np.int64)
        n_rows = sum(block.n_rows for block in blocks)
        writer.write(fold, table, n_rows)
        n_samples += n_rows
        if on_fold is not None:
            on_fold(fold + 1, n_samples)
    return n_samples


def count_group_pairs(
    group: BlockGroup, offsets: IntArray, counted: IntArray | None = None
) -> IntArray:
    """Count the pairs of a group: int64 of shape (n_levels, n_levels), upper triangle, of all variables or of some."""
    own = narrow_offsets(offsets, counted)
    table = np.zeros((int(own[-1]),) * 2, np.int64)
    add_blocks(
        (narrow_block(block, offsets, counted) for block in iterate_blocks(group)), own, table
    )
    return table


def merge_tables(parts: Sequence[IntArray]) -> IntArray:
    """Sum count tables, at least one, without modifying them."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def plan_counting(n_levels: int, n_threads: int, n_runs: int = 1, n_tables: int = 0) -> MemoryPlan:
    """Plan the memory of counting pairs, which does not depend on the number of samples.

    Parameters
    ----------
    n_levels
        Number of levels of all variables.
    n_threads
        Number of threads per worker.
    n_runs
        Number of runs of blocks per fold, one table each, from `choose_n_runs`.
    n_tables
        Number of tables that the client keeps besides the one it writes.
    """
    table = 8 * n_levels * n_levels
    n_waiting = plan_fold_merges(n_runs, n_levels).n_waiting
    kept = {f"count tables of {n_tables} folds": n_tables * table} if n_tables else {}
    return MemoryPlan(
        "counting pairs",
        {
            # a kernel needs int32 sums, half a table, besides its table
            f"count tables of {n_levels} x {n_levels} levels, one per thread": n_threads
            * table
            * 3
            // 2,
            f"count tables waiting to be merged, up to {n_waiting} at a time": (
                n_threads + n_waiting
            )
            * table,
            "count tables waiting to be written": count_small_tables(n_levels) * table,
            "sample blocks, bit planes and tiles": n_threads * (6 * BLOCK_BYTES + 2048 * n_levels),
        },
        "Remove variables from the schema, merge levels, use fewer threads, or raise cluster.memory_limit.",
        # the table as received, and its non-zero cells
        {f"count table of {n_levels} x {n_levels} levels while it is written": 3 * table} | kept,
    )
