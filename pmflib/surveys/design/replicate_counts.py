"""Pair counts of each replicate of the weights, stored as exact differences from the counts of the whole.

Most differences of a replicate that leaves a unit out are 0, and those of half samples are smaller numbers. They are
sums of integers, so that increments add to them and removed samples are subtracted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.errors import SourceError, StoreError
from pmflib.base.weights import check_total
from pmflib.cluster.clients import Client, count_threads
from pmflib.cluster.maps import run_blocks
from pmflib.cluster.memory import MemoryPlan
from pmflib.cluster.task_plans import plan_tasks
from pmflib.counts.block_counting import add_weighted_rows
from pmflib.counts.increments import DatasetChange, Increment
from pmflib.schema import Schema
from pmflib.store.array_groups import open_group, read_array_rows, read_arrays, refuse_damage
from pmflib.store.sample_blocks import (
    BLOCK_BYTES,
    MAX_BLOCK_ROWS,
    NO_REPLICATES,
    REPLICATES,
    BlockReference,
    add_sums,
    read_block,
    read_replicates,
    restore_units,
    weigh_blocks,
)
from pmflib.store.zarr_arrays import create_array, create_group, set_attributes

KIND = "replicate counts"
LANES = 8
"""Number of replicates that the kernel counts in about the time of one."""
ROWS_AT_ONCE = 1 << 15
"""Minimum number of rows that are counted together, from several blocks: each call of the kernel sums up thousands of
cells."""
TABLE_BYTES = 1 << 27
"""Maximum size in bytes of the tables of a task, but at least `LANES` tables; wide schemas take several passes."""


class ReplicateCounts:
    """Stored pair counts of replicates.

    Parameters
    ----------
    folder
        Folder of the counts of samples with replicate weights.

    Attributes
    ----------
    schema
        Variables of the counts.
    n_replicates
        Number of replicates.
    totals
        Total weight of each replicate minus the total full weight, in units.

    Raises
    ------
    StoreError
        If there are no such counts, or they are damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with refuse_damage(folder / REPLICATES):
            attributes = read_arrays(folder / REPLICATES, [], kind=KIND)[1]
            self.schema = Schema.from_json(attributes["schema"])
            self.totals = tuple(map(int, attributes["totals"]))
        self.n_replicates = len(self.totals)

    def read_differences(self, first: int, stop: int) -> IntArray:
        """Read the differences of some replicates from the whole: int64 (n, n_levels, n_levels), upper triangles.

        Raises
        ------
        StoreError
            If they are missing or damaged.
        """
        with refuse_damage(self.folder / REPLICATES):
            group = open_group(self.folder / REPLICATES)
            found: IntArray = read_array_rows(group, "differences", first, stop)
        return found


def choose_at_once(n_levels: int, n_replicates: int) -> int:
    """Number of replicates that are counted in one pass: as many as fit into `TABLE_BYTES`, but at least `LANES`."""
    fitting = TABLE_BYTES // (8 * n_levels**2) // LANES * LANES
    return min(n_replicates, max(LANES, fitting))


def count_replicates(
    client: Client,
    blocks: Sequence[BlockReference],
    increment: Increment | None,
    n_replicates: int,
    folder: Path,
    schema: Schema,
) -> None:
    """Count the pairs of stored samples for each replicate, and write the differences from the whole.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the counts are the same.
    blocks
        All samples, with weights and replicate weights.
    increment
        Counts of the same replicates to start from, and the samples added and removed; None counts all.
    n_replicates
        Number of replicate weights per sample.
    folder
        Folder of the counts of the whole, to which a Zarr group is added.
    schema
        Variables of the counts.

    Raises
    ------
    PmfError
        If the weights of a replicate sum to 2**63 units or more.
    SourceError
        If all weights of a replicate are 0, as it gives no estimate.
    StoreError
        If the samples or the counts to start from cannot be read.
    """
    sums = add_sums(blocks)
    decimals, total = (0, 0) if sums is None else (sums.decimals, sum(sums.totals))
    change = DatasetChange(tuple(blocks), ()) if increment is None else increment.change
    base = None if increment is None else ReplicateCounts(increment.tables.path.parent)
    n_levels, n_at_once = schema.n_levels, choose_at_once(schema.n_levels, n_replicates)
    items = [
        (sign, list(blocks[start:stop]))
        for sign, blocks in ((1, change.added), (-1, change.removed))
        if blocks
        for start, stop in plan_tasks(
            [weigh_blocks([block]) for block in blocks], count_threads(client)
        ).runs
    ]
    group = create_group(folder / REPLICATES, {})
    shape, dims = (n_replicates, n_levels, n_levels), ("replicate", "level", "co_level")
    written = create_array(group, "differences", shape, np.int64, dims, chunk_rows=1)
    totals: list[int] = []
    for first in range(0, n_replicates, n_at_once):
        stop = min(first + n_at_once, n_replicates)
        found = _Sums.zero(stop - first, n_levels)
        if items:
            size = found.tables.nbytes
            shared = schema.offsets, first, stop, n_replicates
            found = run_blocks(
                client, _count_group, items, _merge, *shared, result_bytes=size, name="replicates"
            )
        of_base = [0] * (stop - first) if base is None else base.totals[first:stop]
        more = [(int(high) << HALF) + int(low) for high, low in found.totals.T]
        totals += [a + b for a, b in zip(of_base, more, strict=True)]
        for each in totals[first:]:
            check_total(total + each, decimals, "a replicate weight")
        tables = found.tables
        if base is not None:
            tables = tables + base.read_differences(first, stop)
        written[first:stop] = tables
    empty = [place for place, more in enumerate(totals, 1) if total and total + more == 0]
    if empty:
        raise SourceError(
            f"source.replicates: {len(empty)} of {n_replicates} replicates give every sample weight 0, the first one "
            f"number {empty[0]}, and no estimate can be computed from them; supply these columns again, or remove them "
            "from source.replicates"
        )
    attributes = {"kind": KIND, "triangle": "upper", "units": f"1e-{decimals}"}
    set_attributes(group, {**attributes, "totals": totals, "schema": schema.to_json()})


HALF = 32
"""Bits of the lower part of a sum of weights, which may not fit into int64 before it is checked."""


@dataclass(frozen=True, eq=False)
class _Sums:
    """Tables of some replicates, and the upper and lower parts of the sums of their weights: (2, n_replicates)."""

    tables: IntArray
    totals: IntArray

    @classmethod
    def zero(cls, n_replicates: int, n_levels: int) -> _Sums:
        return cls(
            np.zeros((n_replicates, n_levels, n_levels), np.int64),
            np.zeros((2, n_replicates), np.int64),
        )


def _merge(parts: Sequence[_Sums]) -> _Sums:
    tables, totals = parts[0].tables.copy(), parts[0].totals.copy()
    for part in parts[1:]:
        tables += part.tables
        totals += part.totals
    return _Sums(tables, totals)


def _count_group(
    item: tuple[int, Sequence[BlockReference]],
    offsets: IntArray,
    first: int,
    stop: int,
    n_replicates: int,
) -> _Sums:
    """Count added samples (1) or removed ones (-1) for some of the replicates."""
    sign, blocks = item
    sums = _Sums.zero(stop - first, int(offsets[-1]))
    waiting: list[tuple[IntArray, IntArray]] = []
    for reference in restore_units(blocks):
        block, replicates = read_block(reference), read_replicates(reference)
        if replicates is None or replicates.shape[1] != n_replicates or block.weights is None:
            raise StoreError(NO_REPLICATES)
        changes = sign * (replicates[:, first:stop] - block.weights.astype(np.int64)[:, None])
        sums.totals[0] += (changes >> HALF).sum(axis=0)
        sums.totals[1] += (changes & ((1 << HALF) - 1)).sum(axis=0)
        waiting.append((block.to_codes(offsets), changes))
        if sum(len(codes) for codes, _ in waiting) >= ROWS_AT_ONCE:
            _add_waiting(waiting, offsets, sums.tables)
    _add_waiting(waiting, offsets, sums.tables)
    return sums


def _add_waiting(
    waiting: list[tuple[IntArray, IntArray]], offsets: IntArray, tables: IntArray
) -> None:
    """Count the codes and changes of weights that wait, and clear the list."""
    if waiting:
        codes = np.concatenate([each for each, _ in waiting])
        changes = np.concatenate([each for _, each in waiting])
        add_weighted_rows(DenseBlock(codes), np.arange(len(codes)), changes, offsets, tables)
        waiting.clear()


def plan_replicates(n_levels: int, n_replicates: int, n_threads: int) -> MemoryPlan:
    """Plan the memory of counting pairs for each replicate, which does not depend on the number of samples."""
    table = 8 * n_levels**2 * choose_at_once(n_levels, n_replicates)
    n_waiting = plan_tasks([1] * n_threads, n_threads).n_waiting
    return MemoryPlan(
        "counting pairs for each replicate",
        {
            f"count tables of replicates, {n_levels} x {n_levels} levels each, by thread": n_threads
            * table,
            "count tables of replicates waiting to be merged": n_waiting * table,
            "sample blocks and replicate weights": n_threads
            * (8 * BLOCK_BYTES + 30 * n_replicates * MAX_BLOCK_ROWS),
        },
        "Remove variables from the schema, merge levels, use fewer threads, or raise cluster.memory_limit.",
        {"count tables of replicates while they are written": 3 * table},
    )
