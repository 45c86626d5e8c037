"""Pair counts of stored samples, fold by fold, on workers, resumed where a run was killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from pmflib.arrays import IntArray
from pmflib.counting.adding import add_blocks
from pmflib.counting.counting_tasks import count_folds_ahead, cut_fold
from pmflib.counting.counts_writers import CountsWriter
from pmflib.counting.fold_counting import count_folds, load_table, save_table
from pmflib.running.clients import Client, count_threads
from pmflib.running.maps import PendingResult, start_maps
from pmflib.store.sample_blocks import BlockGroup, BlockReference, iterate_blocks


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
        Blocks of every fold, 0 to n_folds - 1 in order; a fold may have none.
    writer
        Writer of the counts; the caller closes it.
    checkpoints
        Folder for a checkpoint of each counted fold. Folds that have one there are not counted again.
    on_fold
        Called with the number of folds written and the number of samples in them, after each fold.

    Returns
    -------
    Number of samples in all folds.
    """
    schema = writer.schema
    filled = [fold for fold, blocks in blocks_by_fold.items() if blocks]
    n_threads, n_filled = count_threads(client) if filled else 1, max(1, len(filled))

    def start(folds: Sequence[int]) -> list[PendingResult[IntArray]]:
        return start_maps(
            client,
            count_group,
            {
                f"fold-{fold:02}": cut_fold(blocks_by_fold[fold], n_filled, n_threads)
                for fold in folds
            },
            merge_tables,
            schema.offsets,
            result_bytes=8 * schema.n_levels**2,
        )

    # without workers the next fold is counted when this one is saved
    n_ahead = count_folds_ahead(n_filled, n_threads, schema.n_levels) if client is not None else 1
    tables = count_folds(filled, start, checkpoints, load_table, save_table, n_ahead)
    n_samples = 0
    for fold, blocks in blocks_by_fold.items():
        table = next(tables) if blocks else np.zeros((schema.n_levels,) * 2, np.int64)
        n_rows = sum(block.n_rows for block in blocks)
        writer.write(fold, table, n_rows)
        n_samples += n_rows
        if on_fold is not None:
            on_fold(fold + 1, n_samples)
    return n_samples


def count_group(group: BlockGroup, offsets: IntArray) -> IntArray:
    """Pair counts of a group: int64 of shape (n_levels, n_levels), upper triangle."""
    table = np.zeros((int(offsets[-1]),) * 2, np.int64)
    add_blocks(iterate_blocks(group), offsets, table)
    return table


def merge_tables(parts: Sequence[IntArray]) -> IntArray:
    """Sum of count tables, at least one; the parts are not changed."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total
