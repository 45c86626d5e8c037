"""Counts of a dataset from those of an earlier one: what it holds more is added, what it holds less taken away."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.cluster.clients import Client, count_threads
from pmflib.cluster.maps import PendingResult, start_maps
from pmflib.core.arrays import IntArray
from pmflib.core.blocks import Block
from pmflib.core.errors import StoreError
from pmflib.core.weights import WeightSums
from pmflib.counting.cell_changes import CellChanges, count_changes, merge_changes
from pmflib.counting.stored_pairs import (
    count_folds_ahead,
    count_stored_folds,
    load_changes,
    save_changes,
    split_fold_blocks,
)
from pmflib.counting.stored_tables import (
    BELOW_ZERO,
    PAIRS,
    CountsWriter,
    DifferenceWriter,
    StoredTables,
)
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.caches import find_local_path
from pmflib.store.dataset import list_dataset_blocks
from pmflib.store.sample_blocks import (
    BLOCK_COST,
    COUNTING_COARSENESS,
    MIN_GROUP,
    BlockGroup,
    BlockReference,
    add_fold_sums,
    read_blocks,
    read_units,
    sum_units,
)


@dataclass(frozen=True)
class DatasetChange:
    """Blocks that lead from one dataset to another.

    Parameters
    ----------
    added
        Samples that the new dataset alone holds, in the order of its blocks.
    removed
        Samples that the base alone holds, in the order of its blocks.
    """

    added: tuple[BlockReference, ...]
    removed: tuple[BlockReference, ...]

    @property
    def n_observed(self) -> int:
        """Number of observed cells on both sides, about: of a part of a block its share by rows."""
        return sum(block.n_observed for block in (*self.added, *self.removed))


def compare_blocks(base: Iterable[BlockReference], new: Iterable[BlockReference]) -> DatasetChange:
    """List the blocks, and parts of blocks, that one of two datasets holds and the other does not.

    Parameters
    ----------
    base, new
        Blocks of the datasets, of one store and of the same folds, as `list_dataset_blocks` gives them.

    Returns
    -------
    The change. The base less its removed blocks and with the added ones holds the samples of the new dataset, each as
    often. Of a block that both hold, the rows that are superseded in the new one alone are removed, and those that are
    in the base alone are added.
    """
    before, after = list(base), list(new)
    return DatasetChange(
        added=tuple(_list_parts(after, before)), removed=tuple(_list_parts(before, after))
    )


def _list_parts(
    blocks: Iterable[BlockReference], others: Iterable[BlockReference]
) -> Iterator[BlockReference]:
    """List the parts of blocks, in order, that the blocks at the same positions of another dataset do not hold."""
    partners: defaultdict[tuple[str, int, int], deque[BlockReference]] = defaultdict(deque)
    for block in others:
        partners[_locate(block)].append(block)
    for block in blocks:
        # a partition may be in a dataset twice: of two files with the same content
        waiting = partners[_locate(block)]
        if not waiting:
            yield block
            continue
        lost = _list_superseded(waiting.popleft())
        rows = np.setdiff1d(lost, _list_superseded(block), assume_unique=True)
        if rows.size:
            yield take_rows(block, rows)


def _locate(block: BlockReference) -> tuple[str, int, int]:
    return block.path, block.start, block.stop


def take_rows(block: BlockReference, rows: IntArray) -> BlockReference:
    """Refer to some rows of a block alone.

    Parameters
    ----------
    block
        With all of these rows.
    rows
        int64, sorted: rows of the partition, at least one.

    Returns
    -------
    A reference whose observed cells are the block's share by rows, and whose weights are those of the rows.
    """
    others = np.setdiff1d(np.arange(block.start, block.stop), rows, assume_unique=True)
    share = max(1, block.n_observed * rows.size // block.n_rows)
    weights = block.weights
    if weights is not None:
        weights = sum_units(read_units(find_local_path(block.path))[rows], weights.decimals)
    return replace(block, superseded=others, n_observed=share, weights=weights)


def _list_superseded(block: BlockReference) -> IntArray:
    return np.empty(0, np.int64) if block.superseded is None else block.superseded


@dataclass(frozen=True)
class Increment:
    """What leads from counts that there are to those that are asked for.

    Parameters
    ----------
    counts
        Counts to start from.
    tables
        Their tables.
    change
        Samples to add to them, and to take away.
    """

    counts: Reference
    tables: StoredTables
    change: DatasetChange


def find_counts(
    store: Store,
    dataset: Reference,
    base: tuple[Reference, Reference],
    options: Mapping[str, Any],
    version: int,
) -> Entry | None:
    """Find the counts of a dataset that has not changed, without opening them; arguments as for `plan_increment`.

    Returns
    -------
    Entry of the counts of the base, where the base is the dataset and they are all in the store; None otherwise.
    """
    entry = _find_base(store, base, options, version)
    if entry is None or base[0].digest != dataset.digest:
        return None
    # differences refer to the counts that they are to be added to
    below: Entry | None = entry
    while below is not None and "base" in below.inputs:
        below = store.find(below.inputs["base"].identity)
    return None if below is None else entry


def _find_base(
    store: Store, base: tuple[Reference, Reference], options: Mapping[str, Any], version: int
) -> Entry | None:
    """Entry of the counts to start from; None if they were made otherwise, or are of another dataset."""
    earlier, counts = base
    entry = store.find(counts.identity)
    if entry is None or (entry.options, entry.version) != (options, version):
        return None
    same = entry.reference == counts and entry.inputs["dataset"].digest == earlier.digest
    return entry if same else None


def plan_increment(
    store: Store,
    dataset: Reference,
    base: tuple[Reference, Reference],
    options: Mapping[str, Any],
    version: int,
) -> Increment | None:
    """Compare a dataset with one that is counted.

    Parameters
    ----------
    store
        Store that holds all of them.
    dataset
        Dataset to count.
    base
        An earlier dataset, and its counts.
    options, version
        Schema and folds, and version of the algorithm: those that the counts must have been made with.

    Returns
    -------
    What to count; None where all samples must be: the base is of another schema or other folds, or no longer whole in
    the store, or the two datasets differ by more observed cells than the new one has.

    Raises
    ------
    StoreError
        If the dataset is not in the store, or the counts are damaged.
    """
    earlier, counts = base
    if _find_base(store, base, options, version) is None:
        return None
    tables = StoredTables(store.locate(counts) / PAIRS)
    if tables.list_missing():
        return None
    folds = range(tables.n_folds)
    blocks = list_dataset_blocks(store, dataset, folds)
    try:
        known = list_dataset_blocks(store, earlier, folds)
    except StoreError:
        # samples that are gone from the store cannot be taken away
        return None
    change = compare_blocks(known, blocks)
    if change.n_observed > sum(block.n_observed for block in blocks):
        return None
    return Increment(counts, tables, change)


def needs_workers(change: DatasetChange) -> bool:
    """Whether a change is worth more than one task: less is counted sooner than it is sent, a partition at a time."""
    n_partitions = len({block.path for block in (*change.added, *change.removed)})
    cost = change.n_observed + BLOCK_COST * n_partitions
    return cost > MIN_GROUP * COUNTING_COARSENESS


def _load_blocks(blocks: Sequence[BlockReference]) -> dict[int, Block]:
    """Blocks by the identities of their references, those of a partition read at once.

    Fold by fold, each chunk of its arrays would be decompressed for every fold.
    """
    placed = sorted(blocks, key=lambda block: (block.path, block.start))
    return {id(block): found for block, found in zip(placed, read_blocks(placed), strict=True)}


def count_stored_changes(
    client: Client,
    increment: Increment,
    path: Path,
    checkpoints: Path,
    on_fold: Callable[[int, int], None] | None = None,
) -> dict[str, object]:
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

    Returns
    -------
    Plain JSON types: samples in all folds, samples added and removed, cells that change, and how many
    differences lead from full tables to these counts (0 where these are full themselves).

    Raises
    ------
    StoreError
        If the samples or the base cannot be read, or more samples would go than were counted.
    """
    base, change = increment.tables, increment.change
    offsets, weights = base.schema.offsets, _change_weights(base, change)
    added, removed = (_split(blocks, base.n_folds) for blocks in (change.added, change.removed))

    n_threads = count_threads(client)
    # large changes are read block by block
    is_loaded = client is None and not needs_workers(change)
    loaded = _load_blocks([*change.added, *change.removed]) if is_loaded else {}

    def list_runs(fold: int) -> list[tuple[int, BlockGroup]]:
        return [
            (sign, [loaded[id(block)] for block in run] if loaded else run)
            for sign, blocks in ((1, added[fold]), (-1, removed[fold]))
            if blocks
            for run in split_fold_blocks(blocks, max(1, len(changed)), n_threads)
        ]

    def start(folds: Sequence[int]) -> list[PendingResult[CellChanges]]:
        return start_maps(
            client,
            count_changes,
            {f"fold-{fold:02}": list_runs(fold) for fold in folds},
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
        return count_stored_folds(changed, start, checkpoints, load_changes, save_changes, n_ahead)

    n_cells = n_counted = 0
    for fold, changes in zip(changed, count(), strict=True):
        n_cells += changes.n_cells
        n_counted += _count_rows(added[fold]) + _count_rows(removed[fold])
        if on_fold is not None:
            on_fold(fold + 1, n_counted)
    # only now it is known which of the two takes less
    chain = base.chain.extend(increment.counts.digest, n_cells)
    counted = count()
    by_fold = (
        (fold, next(counted) if fold in changed else CellChanges.zero())
        for fold in range(base.n_folds)
    )
    if chain is not None:
        writer = DifferenceWriter(path, base, chain, weights)
        for fold, changes in by_fold:
            writer.write(fold, changes, n_rows[fold])
        writer.close()
    else:
        full = CountsWriter(path, base.schema, base.n_folds, weights)
        _write_full(full, base, by_fold, n_rows)
    return {
        "samples": int(base.n_rows.sum()) + sum(n_rows),
        "samples_added": _count_rows(change.added),
        "samples_removed": _count_rows(change.removed),
        "changed_cells": n_cells,
        "differences": 0 if chain is None else len(chain.digests),
    }


def _change_weights(base: StoredTables, change: DatasetChange) -> WeightSums | None:
    """What the weights add up to after a change; None where samples have none."""
    total = base.weights
    for sign, blocks in ((-1, change.removed), (1, change.added)):
        sums = add_fold_sums(blocks, base.n_folds)
        if sums is not None:
            nothing = WeightSums(sums.decimals, *[(0,) * base.n_folds] * 2)
            total = (nothing if total is None else total).add(sums, sign)
    return total


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
