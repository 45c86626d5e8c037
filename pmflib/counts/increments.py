"""Incremental counts: start from the counts of an earlier dataset, add new samples and subtract removed ones."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.blocks import Block
from pmflib.base.errors import StoreError
from pmflib.base.weights import WeightSums
from pmflib.cluster.clients import Client, count_threads
from pmflib.cluster.maps import PendingResult, start_maps
from pmflib.counts.cell_changes import CellChanges, count_changes, merge_changes
from pmflib.counts.selection import count_stored_levels
from pmflib.counts.stored_pairs import (
    count_folds_ahead,
    count_stored_folds,
    load_changes,
    save_changes,
    split_fold_blocks,
)
from pmflib.counts.zarr_tables import (
    BELOW_ZERO,
    PAIRS,
    CountsWriter,
    DifferenceWriter,
    Selection,
    StoredTables,
)
from pmflib.store.array_groups import read_arrays
from pmflib.store.artefacts import Entry, Reference, Store
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
    """Blocks that differ between two datasets.

    Parameters
    ----------
    added
        Samples only in the new dataset, in the order of its blocks.
    removed
        Samples only in the base, in the order of its blocks.
    """

    added: tuple[BlockReference, ...]
    removed: tuple[BlockReference, ...]

    @property
    def n_observed(self) -> int:
        """Estimate the number of observed cells on both sides; parts of blocks are estimated by their rows."""
        return sum(block.n_observed for block in (*self.added, *self.removed))


def compare_blocks(base: Iterable[BlockReference], new: Iterable[BlockReference]) -> DatasetChange:
    """List the blocks, and parts of blocks, that are in only one of two datasets.

    Parameters
    ----------
    base, new
        Blocks of the datasets, from one store and the same folds, as returned by `list_dataset_blocks`.

    Returns
    -------
    The change. The base without the removed blocks and with the added ones contains the samples of the new dataset,
    each with the same multiplicity. For a block in both datasets, rows superseded only in the new dataset are removed,
    and rows superseded only in the base are added.
    """
    before, after = list(base), list(new)
    return DatasetChange(
        added=tuple(_list_parts(after, before)), removed=tuple(_list_parts(before, after))
    )


def _list_parts(
    blocks: Iterable[BlockReference], others: Iterable[BlockReference]
) -> Iterator[BlockReference]:
    """List the parts of blocks, in order, that are missing from the blocks at the same positions of another dataset."""
    partners: defaultdict[tuple[str, int, int], deque[BlockReference]] = defaultdict(deque)
    for block in others:
        partners[_locate(block)].append(block)
    for block in blocks:
        # a partition may be in a dataset twice: from two files with the same content
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
    """Make a reference to some rows of a block.

    Parameters
    ----------
    block
        Reference that contains all of these rows.
    rows
        int64, sorted: rows of the partition, at least one.

    Returns
    -------
    A reference whose number of observed cells is proportional to its rows, and whose weights are those of the rows.
    """
    others = np.setdiff1d(np.arange(block.start, block.stop), rows, assume_unique=True)
    share = max(1, block.n_observed * rows.size // block.n_rows)
    weights = block.weights
    if weights is not None:
        weights = sum_units(read_units(block.folder)[rows], weights.decimals)
    return replace(block, superseded=others, n_observed=share, weights=weights)


def _list_superseded(block: BlockReference) -> IntArray:
    return np.empty(0, np.int64) if block.superseded is None else block.superseded


@dataclass(frozen=True)
class Increment:
    """Existing counts, and the change that leads to the requested ones.

    Parameters
    ----------
    counts
        Counts to start from.
    tables
        Tables of these counts.
    change
        Samples to add and to subtract.
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
    """Find counts for an unchanged dataset without opening them; arguments are as for `plan_increment`.

    Returns
    -------
    Store entry of the counts of the base, if the base is the same dataset and all its counts are in the store;
    otherwise None.
    """
    entry = _find_base(store, base, options, version)
    if entry is None or base[0].digest != dataset.digest:
        return None
    # differences refer to the counts they are added to
    below: Entry | None = entry
    while below is not None and "base" in below.inputs:
        below = store.find(below.inputs["base"].identity)
    return None if below is None else entry


def _find_base(
    store: Store, base: tuple[Reference, Reference], options: Mapping[str, Any], version: int
) -> Entry | None:
    """Return the entry of the counts to start from; None if options, version or dataset differ."""
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
    """Compare a dataset with one that has been counted.

    Parameters
    ----------
    store
        Store that contains the datasets and the counts.
    dataset
        Dataset to count.
    base
        An earlier dataset and its counts.
    options, version
        Schema and folds, and algorithm version; the counts must have been made with the same ones.

    Returns
    -------
    The increment to count. None if all samples must be counted: if the base has another schema or other folds, is no
    longer complete in the store, or differs from the dataset by more observed cells than the dataset has.

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
        # samples that are no longer in the store cannot be subtracted
        return None
    change = compare_blocks(known, blocks)
    if change.n_observed > sum(block.n_observed for block in blocks):
        return None
    return Increment(counts, tables, change)


def needs_workers(change: DatasetChange) -> bool:
    """Return whether a change needs more than one task; smaller changes are counted faster than they are sent."""
    n_partitions = len({block.path for block in (*change.added, *change.removed)})
    cost = change.n_observed + BLOCK_COST * n_partitions
    return cost > MIN_GROUP * COUNTING_COARSENESS


def _load_blocks(blocks: Sequence[BlockReference]) -> dict[int, Block]:
    """Load blocks by the identity of their references, reading each partition once.

    Reading fold by fold would decompress each chunk once per fold.
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
    """Count the pairs of added and removed samples, and write the resulting counts.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the counts are the same.
    increment
        Counts to start from, with the added and removed samples.
    path
        Folder of the new Zarr group, which must not exist. The file of changed cells is placed beside it.
    checkpoints
        Folder for a checkpoint of each fold. Folds with a checkpoint are not counted again.
    on_fold
        Called after each fold that changes, with the numbers of folds and samples counted.

    Returns
    -------
    Plain JSON types: numbers of samples in all folds, of samples added and removed, of changed cells, and of
    differences between the last full tables and these counts (0 if these are full).

    Raises
    ------
    StoreError
        If the samples or the base cannot be read, or more samples would be removed than were counted.
    """
    base, change = increment.tables, increment.change
    offsets, weights = base.schema.offsets, _change_weights(base, change)
    counted = None if base.is_complete else base.counted
    n_levels = base.table_schema.n_levels
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
            counted,
            result_bytes=8 * n_levels**2,
        )

    n_rows = [_count_rows(added[fold]) - _count_rows(removed[fold]) for fold in range(base.n_folds)]
    changed = [fold for fold in range(base.n_folds) if added[fold] or removed[fold]]

    def count() -> Iterator[CellChanges]:
        """Count the folds that change, or load their checkpoints."""
        n_ahead = 1
        if client is not None:
            n_ahead = count_folds_ahead(max(1, len(changed)), n_threads, n_levels)
        return count_stored_folds(changed, start, checkpoints, load_changes, save_changes, n_ahead)

    selection = None if counted is None else _change_singles(client, base, change)
    n_cells = n_counted = 0
    for fold, changes in zip(changed, count(), strict=True):
        n_cells += changes.n_cells
        n_counted += _count_rows(added[fold]) + _count_rows(removed[fold])
        if on_fold is not None:
            on_fold(fold + 1, n_counted)
    # only now is it known which representation is smaller
    chain = base.chain.extend(increment.counts.digest, n_cells)
    pending = count()
    by_fold = (
        (fold, next(pending) if fold in changed else CellChanges.zero())
        for fold in range(base.n_folds)
    )
    if chain is not None:
        writer = DifferenceWriter(path, base, chain, weights, selection)
        for fold, changes in by_fold:
            writer.write(fold, changes, n_rows[fold])
        writer.close()
    else:
        full = CountsWriter(path, base.schema, base.n_folds, weights, selection)
        _write_full(full, base, by_fold, n_rows)
    return {
        "samples": int(base.n_rows.sum()) + sum(n_rows),
        "samples_added": _count_rows(change.added),
        "samples_removed": _count_rows(change.removed),
        "changed_cells": n_cells,
        "differences": 0 if chain is None else len(chain.digests),
    }


def _change_singles(client: Client, base: StoredTables, change: DatasetChange) -> Selection:
    """Return the variables counted in the base, with the single counts of all after a change."""
    singles = read_arrays(base.path, ["singles"])[0]["singles"]
    for sign, blocks in ((1, change.added), (-1, change.removed)):
        singles = singles + sign * count_stored_levels(client, blocks, base.schema, base.n_folds)
    return Selection(base.counted, singles)


def _change_weights(base: StoredTables, change: DatasetChange) -> WeightSums | None:
    """Return the total weight after a change; None for unweighted samples."""
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
    """Group blocks by fold, in order."""
    by_fold: list[list[BlockReference]] = [[] for _ in range(n_folds)]
    for block in blocks:
        by_fold[block.fold].append(block)
    return by_fold


def _count_rows(blocks: Iterable[BlockReference]) -> int:
    return sum(block.n_rows for block in blocks)
