"""Blocks of stored samples, each of a single fold: references, reading, and grouping into tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import Block, DenseBlock, SparseBlock
from pmflib.base.hooks import find_offers
from pmflib.base.weights import Weights, WeightSums
from pmflib.store.array_groups import (
    ArrayGroup,
    open_group,
    read_array_rows,
    read_arrays,
    refuse_damage,
)
from pmflib.store.objects.local_files import find_local_path, name_for_workers
from pmflib.store.zarr_arrays import CHUNK_BYTES

if TYPE_CHECKING:
    pass

BLOCK_BYTES = 4 << 20
"""Size of a block of codes, bytes."""
COLUMN_ROWS = 1 << 18
"""Chunk length of the other columns."""
SAMPLE_COUNTS = ("rows", "duplicates", "observed", "conflicts")
"""Counts stored for each sample: encoded source rows, duplicates among them, observed cells and, if there are any, rows
with a conflicting weight or unit."""
MAX_BLOCK_ROWS = 65_536
"""Largest number of rows of a block."""
REPLICATES = "replicates"
"""Name of the array of replicate weights in a partition."""
NO_REPLICATES = (
    "a partition of samples lacks replicate weights, or has another number than the others; delete its dataset and "
    "run the pipeline again"
)
"""Message for lost replicate weights."""


@dataclass(frozen=True)
class BlockReference:
    """Reference to a stored block.

    Parameters
    ----------
    path
        Path or URL of the partition, the same on every machine: see `folder`.
    start, stop
        Range of rows of the partition.
    fold
        Fold of all samples.
    n_observed
        Number of observed cells, to which the time of counting and EM is proportional.
    nbytes
        Size in memory, bytes.
    superseded
        Rows between start and stop that are replaced by newer samples, int64 of shape (n_superseded,), sorted; None if
        there are none.
    weights
        Sums of the sample weights, as of one fold; None without weights.
    scale
        Factor for weights in units when the block is read: 1 gives whole numbers, for counting; None ignores weights,
        so that each row is one sample.
    reweighting
        Path or URL of a Zarr group by which the dataset changes its weights, a `StoredWeights`; None if weights are
        read as they are stored.
    """

    path: str
    start: int
    stop: int
    fold: int
    n_observed: int
    nbytes: int
    superseded: IntArray | None = field(default=None, compare=False)
    weights: WeightSums | None = field(default=None, compare=False)
    scale: float | None = field(default=1.0, compare=False)
    reweighting: str | None = field(default=None, compare=False)

    @property
    def folder(self) -> Path:
        """Its partition on this machine, where files are fetched when they are read."""
        return find_local_path(self.path)

    @property
    def n_rows(self) -> int:
        """Number of samples."""
        return self.stop - self.start - (0 if self.superseded is None else self.superseded.size)

    @property
    def n_samples(self) -> float:
        """Weighted number of samples: the sum of weights as they are read."""
        if self.weights is None or self.scale is None:
            return self.n_rows
        return self.weights.totals[0] * self.scale

    @property
    def rows(self) -> IntArray:
        """Rows of the partition that are current samples: int64 of shape (n_rows,)."""
        everything = np.arange(self.start, self.stop)
        if self.superseded is None:
            return everything
        return np.delete(everything, self.superseded - self.start)

    def __reduce__(self) -> tuple[Any, ...]:
        # compact, as hundreds of references are sent with each task
        return type(self), (
            self.path,
            self.start,
            self.stop,
            self.fold,
            self.n_observed,
            self.nbytes,
            self.superseded,
            self.weights,
            self.scale,
            self.reweighting,
        )


BlockGroup: TypeAlias = Sequence[BlockReference] | Sequence[Block]
"""Blocks of one Dask task, loaded or as references."""


def choose_block_rows(n_variables: int) -> int:
    """Number of rows of a dense block of about ``BLOCK_BYTES``."""
    return int(min(MAX_BLOCK_ROWS, max(1, BLOCK_BYTES // n_variables)))


def choose_replicate_rows(n_replicates: int) -> int:
    """Chunk length of replicate weights."""
    return max(1, CHUNK_BYTES // (8 * n_replicates))


def list_blocks(path: Path) -> list[BlockReference]:
    """List the blocks of a partition in the order of writing.

    Raises
    ------
    StoreError
        If the partition is gone or damaged.
    """
    arrays, _ = read_arrays(path, ["blocks"])
    rows, name = arrays["blocks"].tolist(), name_for_workers(path)
    return [
        BlockReference(name, start, stop, fold, n_observed, nbytes, None, unpack_sums(sums))
        for start, stop, fold, n_observed, nbytes, *sums in rows
    ]


SUMS = ("decimals", "weight", "squares_high", "squares_low")
"""Columns of a table of blocks of weighted samples: decimals, sum of weights, and sum of squares as two integers."""
HALF = 62
"""Number of bits of the lower integer of the sum of squares."""


def sum_units(units: IntArray, decimals: int) -> WeightSums:
    """Sums of weights in units, int64, as of one fold."""
    return Weights(units, decimals).sums


def pack_sums(sums: WeightSums) -> tuple[int, ...]:
    """Pack the sums of one fold as the integers of `SUMS`."""
    high, low = divmod(sums.squares[0], 1 << HALF)
    return sums.decimals, sums.totals[0], high, low


def unpack_sums(found: Sequence[int]) -> WeightSums | None:
    """Unpack the result of `pack_sums`; None if it is empty."""
    if not found:
        return None
    decimals, total, high, low = found
    return WeightSums(decimals, (total,), ((high << HALF) + low,))


def add_sums(blocks: Iterable[BlockReference]) -> WeightSums | None:
    """Sums of the sample weights of blocks, as of one fold; None without weights or blocks.

    Raises
    ------
    PmfError
        If units differ or the sum overflows.
    """
    total: WeightSums | None = None
    for block in blocks:
        if block.weights is not None:
            total = block.weights if total is None else total.add(block.weights)
    return total


def add_fold_sums(blocks: Iterable[BlockReference], n_folds: int) -> WeightSums | None:
    """Sums of the sample weights of blocks by fold; None without weights or blocks.

    Raises
    ------
    PmfError
        As `add_sums`.
    """
    by_fold: list[list[BlockReference]] = [[] for _ in range(n_folds)]
    for block in blocks:
        by_fold[block.fold].append(block)
    found = [add_sums(mine) for mine in by_fold]
    if not (known := [each for each in found if each is not None]):
        return None
    nothing = WeightSums(known[0].decimals, (0,), (0,))
    stacked = WeightSums.stack([nothing if each is None else each for each in found])
    # adding zeros checks the units and the sum of all folds
    return stacked.add(WeightSums(max(each.decimals for each in known), *[(0,) * n_folds] * 2))


def restore_units(blocks: Iterable[BlockReference]) -> list[BlockReference]:
    """References to the same blocks with weights in whole units, for counting."""
    return [replace(block, scale=1.0) for block in blocks]


def scale_blocks(blocks: Sequence[BlockReference]) -> list[BlockReference]:
    """References to the same blocks with weights scaled to sum to Kish's effective sample size, rounded.

    Equal weights are ignored: each row is then one sample.
    """
    sums = add_sums(blocks)
    if sums is None:
        return list(blocks)
    n_rows = sum(block.n_rows for block in blocks)
    scale = None
    if not sums.are_equal(n_rows):
        scale = round(sums.n_effective) / sum(sums.totals)
    return [replace(block, scale=scale) for block in blocks]


def read_block(reference: BlockReference) -> Block:
    """Read a block: see `read_blocks`."""
    return next(read_blocks([reference]))


def read_blocks(references: Iterable[BlockReference]) -> Iterator[Block]:
    """Read blocks, one at a time.

    Raises
    ------
    StoreError
        If a partition is gone or damaged.
    """
    opened: tuple[str, ArrayGroup] | None = None
    for run in _find_runs(references):
        path, start = run[0].path, run[0].start
        with refuse_damage(run[0].folder):
            if opened is None or opened[0] != path:
                # opening a partition checks the digests of its metadata
                opened = path, open_group(run[0].folder)
            whole = _read_rows(opened[1], start, run[-1])
        for reference in run:
            if len(run) == 1 and reference.superseded is None:
                yield whole
            else:
                yield whole.take(reference.rows - start)


def _find_runs(references: Iterable[BlockReference]) -> Iterator[list[BlockReference]]:
    """Group small consecutive blocks of a partition, as each read decompresses whole chunks."""
    run: list[BlockReference] = []
    nbytes = 0
    for reference in references:
        nbytes += reference.nbytes
        follows = run and (reference.path, reference.start) == (run[-1].path, run[-1].stop)
        if run and not (follows and nbytes <= BLOCK_BYTES):
            yield run
            run, nbytes = [], reference.nbytes
        run.append(reference)
    if run:
        yield run


def iterate_blocks(group: BlockGroup) -> Iterator[Block]:
    """Iterate over the blocks of a group, reading references one by one."""
    yield from read_blocks(item for item in group if isinstance(item, BlockReference))
    yield from (item for item in group if not isinstance(item, BlockReference))


def _read_rows(group: ArrayGroup, start: int, last: BlockReference) -> Block:
    """Read rows up to the end of a block, with the weight scale of that block."""
    stop, weights = last.stop, None
    if last.weights is not None and last.scale is not None:
        if last.reweighting is not None:
            whole = _read_rows(group, start, replace(last, reweighting=None, scale=1.0))
            return replace(whole, weights=_open_weights(last.reweighting).weigh(whole) * last.scale)
        if "weight" in group:
            weights = read_array_rows(group, "weight", start, stop) * last.scale
    if group.attrs["layout"] == "dense":
        return DenseBlock(read_array_rows(group, "codes", start, stop), weights)
    ends = read_array_rows(group, "indptr", max(start - 1, 0), stop).astype(np.int64)
    indptr = ends if start else np.concatenate([np.zeros(1, np.int64), ends])
    indices = read_array_rows(group, "indices", int(indptr[0]), int(indptr[-1]))
    return SparseBlock(indptr - indptr[0], indices, weights)


def read_sampling_units(reference: BlockReference) -> IntArray | None:
    """Read the hashes of stratum and sampling unit of a block's samples: int64 of shape (n_rows, 2).

    None without sampling units.

    Raises
    ------
    StoreError
        If the partition is gone or damaged.
    """
    return _read_beside(reference, "units")


def read_replicates(reference: BlockReference) -> IntArray | None:
    """Read the replicate weights of a block's samples, in units: int64 of shape (n_rows, n_replicates).

    None without replicates. A dataset that changes its weights has its own replicates.

    Raises
    ------
    StoreError
        If the partition is gone or damaged.
    """
    if reference.reweighting is None:
        return _read_beside(reference, REPLICATES)
    return _open_weights(reference.reweighting).read_replicates(reference)


class StoredWeights(Protocol):
    """Weights that a dataset has in place of those of its samples; features open them, hook ``"stored_weights"``."""

    def weigh(self, block: Block) -> FloatArray:
        """Change weights in units: whole numbers of at least 1, float64 of shape (n_rows,)."""
        ...

    def read_replicates(self, reference: BlockReference) -> IntArray | None:
        """Read replicate weights as `read_replicates` does."""
        ...


def _open_weights(path: str) -> StoredWeights:
    opened: StoredWeights = find_offers("stored_weights")[path.rpartition("/")[2]](path)
    return opened


def _read_beside(reference: BlockReference, name: str) -> IntArray | None:
    """Read the rows of an optional array for the samples of a block; None if the partition lacks it."""
    with refuse_damage(reference.folder):
        group = open_group(reference.folder)
        if name not in group:
            return None
        found: IntArray = read_array_rows(group, name, reference.start, reference.stop)
    return found[reference.rows - reference.start]


def read_units(path: Path) -> IntArray:
    """Read the sample weights of a partition in units: int64, in the order of its rows."""
    units: IntArray = read_arrays(path, ["weight"])[0]["weight"]
    return units


def read_sample_counts(path: Path) -> IntArray:
    """Read the counts of a partition's samples.

    Returns
    -------
    `SAMPLE_COUNTS` of each sample, int32 of shape (n_rows, 4), in the order of rows.
    """
    stored: IntArray = read_arrays(path, ["tally"])[0]["tally"]
    missing = len(SAMPLE_COUNTS) - stored.shape[1]
    return np.pad(stored, ((0, 0), (0, missing))) if missing else stored


def read_identifier_texts(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Read the identifiers of a partition: their bytes end to end, uint8, and their lengths, int32."""
    arrays, _ = read_arrays(path, ["sample_length", "sample_bytes"])
    return arrays["sample_bytes"], arrays["sample_length"]


def read_origins(path: Path) -> tuple[IntArray, list[str]]:
    """Read the source rows and identifiers of a partition's samples, in the order of rows.

    Returns
    -------
    Row of the source, int64 of shape (n_rows,), -1 if it is not a single one; and identifiers, "" if there are none.
    """
    arrays, _ = read_arrays(path, ["row", "sample_length", "sample_bytes"])
    ends = np.cumsum(arrays["sample_length"], dtype=np.int64)
    text = arrays["sample_bytes"].tobytes()
    starts = ends - arrays["sample_length"]
    return arrays["row"], [
        text[a:b].decode() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


MIN_GROUP = 1 << 18
"""Least observed cells of a group of blocks: a few milliseconds of an EM pass, as a Dask task costs one to three. A
pass over two million rows of a few variables keeps 24 threads busy.
"""
MAX_GROUP = 1 << 26
"""Most observed cells of a group of blocks: about a second of an EM pass."""
TARGET_GROUPS = 64
"""Number of groups between these limits, enough to occupy all threads."""
COUNTING_COARSENESS = 4
"""Coarseness of groups for counting, which is faster than an EM pass and handles several folds at a time."""
BLOCK_COST = 1 << 15
"""Cost of opening a block, in observed cells."""


def group_blocks(
    blocks: Sequence[BlockReference], coarseness: int = 1
) -> list[list[BlockReference]]:
    """Group consecutive blocks into tasks.

    Groups depend only on the blocks, never on the workers, so that floating-point sums over them have the same bits on
    any cluster.

    Parameters
    ----------
    blocks
        Blocks in the order of the dataset.
    coarseness
        Factor of the group size relative to an EM pass.

    Returns
    -------
    Groups in order.
    """
    target = _choose_size(weigh_blocks(blocks), coarseness)
    groups: list[list[BlockReference]] = []
    filled = target
    for block in blocks:
        if filled >= target:
            groups.append([])
            filled = 0
        groups[-1].append(block)
        filled += block.n_observed + BLOCK_COST
    return groups


def weigh_blocks(blocks: Sequence[BlockReference]) -> int:
    """Cost of processing blocks: observed cells, and a fixed cost per block."""
    return sum(block.n_observed + BLOCK_COST for block in blocks)


def count_groups(n_observed: int, n_blocks: int, coarseness: int = 1) -> int:
    """Number of groups that `group_blocks` would make of equal blocks.

    Parameters
    ----------
    n_observed
        Observed cells of all blocks.
    n_blocks
        Number of blocks.
    coarseness
        As for `group_blocks`.
    """
    if not n_blocks:
        return 0
    cost = n_observed // n_blocks + BLOCK_COST
    per_group = -(-_choose_size(cost * n_blocks, coarseness) // cost)
    return -(-n_blocks // per_group)


def _choose_size(total: int, coarseness: int) -> int:
    """Least cost of a full group."""
    return min(MAX_GROUP, max(MIN_GROUP, total // TARGET_GROUPS) * coarseness)
