"""Sample blocks on disk, each of a single fold: where they are, how they are read, groups of them for a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.core.arrays import IntArray
from pmflib.core.blocks import Block, DenseBlock, SparseBlock
from pmflib.core.weights import Weights, WeightSums
from pmflib.store.caches import find_local_path, name_for_workers
from pmflib.store.zarr_arrays import (
    CHUNK_BYTES,
    open_group,
    read_array_rows,
    read_arrays,
    refuse_damage,
)

if TYPE_CHECKING:
    import zarr

BLOCK_BYTES = 4 << 20
"""Size of a block of codes, bytes: what a worker reads at once."""
COLUMN_ROWS = 1 << 18
"""Entries of a chunk of the columns beside the codes."""
SAMPLE_COUNTS = ("rows", "duplicates", "observed", "conflicts")
"""What is known of each sample besides its codes: encoded source rows, how many of these repeat others, observed cells,
and rows that give the sample another weight or unit; the last is not stored where there are none."""
MAX_BLOCK_ROWS = 65_536
"""Rows of a block, at most."""
REPLICATES = "replicates"
"""Array of the replicate weights of samples that have some, beside the others of a partition."""
NO_REPLICATES = (
    "a partition of samples has no replicate weights, or not as many as the others; delete its dataset, and run the "
    "pipeline again"
)
"""What is said where they are lost."""


@dataclass(frozen=True)
class BlockReference:
    """Location of a block on disk, and its size.

    Parameters
    ----------
    path
        Folder of the partition, or its URL: it travels to workers, and `find_local_path` finds it there.
    start, stop
        Rows of the partition.
    fold
        Fold that all its samples belong to.
    n_observed
        Number of observed cells: counting and EM take time in proportion.
    nbytes
        Size in memory, bytes.
    superseded
        int64 of shape (n_superseded,), sorted: rows of the partition between start and stop that are no samples of the
        dataset any more, for it holds newer ones of the same identifiers; None where there are none.
    weights
        What the weights of its samples add up to, as of one fold; None where they have none.
    scale
        What weights in units are multiplied by when the block is read: 1 leaves whole numbers, which counts add up;
        None leaves them out, and each row is one sample.
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

    @property
    def n_rows(self) -> int:
        """Number of samples."""
        return self.stop - self.start - (0 if self.superseded is None else self.superseded.size)

    @property
    def n_samples(self) -> float:
        """Number of samples that they count for: the sum of their weights as they are read."""
        if self.weights is None or self.scale is None:
            return self.n_rows
        return self.weights.totals[0] * self.scale

    @property
    def rows(self) -> IntArray:
        """Rows of the partition that are samples: int64 of shape (n_rows,)."""
        everything = np.arange(self.start, self.stop)
        if self.superseded is None:
            return everything
        return np.delete(everything, self.superseded - self.start)

    def __reduce__(self) -> tuple[Any, ...]:
        # without the names of fields: hundreds of references travel with each task, through the scheduler
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
        )


BlockGroup: TypeAlias = Sequence[BlockReference] | Sequence[Block]
"""Blocks that one Dask task works on, loaded, or references to them."""


def choose_block_rows(n_variables: int) -> int:
    """Rows of a block of dense codes of about ``BLOCK_BYTES``."""
    return int(min(MAX_BLOCK_ROWS, max(1, BLOCK_BYTES // n_variables)))


def choose_replicate_rows(n_replicates: int) -> int:
    """Rows of a chunk of replicate weights, which are read a chunk at a time."""
    return max(1, CHUNK_BYTES // (8 * n_replicates))


def list_blocks(path: Path) -> list[BlockReference]:
    """Blocks of a partition, in the order they were written.

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
"""Columns of a table of blocks whose samples have weights: their unit, their sum, and the sum of their squares, which
takes two integers."""
HALF = 62
"""Bits of the lower one of these two."""


def sum_units(units: IntArray, decimals: int) -> WeightSums:
    """What weights in units, int64, add up to, as of one fold."""
    return Weights(units, decimals).sums


def pack_sums(sums: WeightSums) -> tuple[int, ...]:
    """Sums of one fold as the integers of `SUMS`."""
    high, low = divmod(sums.squares[0], 1 << HALF)
    return sums.decimals, sums.totals[0], high, low


def unpack_sums(found: Sequence[int]) -> WeightSums | None:
    """Sums of one fold from what `pack_sums` gave; None of nothing."""
    if not found:
        return None
    decimals, total, high, low = found
    return WeightSums(decimals, (total,), ((high << HALF) + low,))


def add_sums(blocks: Iterable[BlockReference]) -> WeightSums | None:
    """What the weights of the samples of blocks add up to, as of one fold; None where they have none, or of no block.

    Raises
    ------
    PmfError
        If the units differ, or the sum could not be held.
    """
    total: WeightSums | None = None
    for block in blocks:
        if block.weights is not None:
            total = block.weights if total is None else total.add(block.weights)
    return total


def add_fold_sums(blocks: Iterable[BlockReference], n_folds: int) -> WeightSums | None:
    """What the weights of the samples of each fold add up to; None where they have none, or of no block.

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
    # units and the sum of all folds are checked as they are added
    return stacked.add(WeightSums(max(each.decimals for each in known), *[(0,) * n_folds] * 2))


def restore_units(blocks: Iterable[BlockReference]) -> list[BlockReference]:
    """The same blocks, whose weights are whole numbers of units once they are read: what counts add up."""
    return [replace(block, scale=1.0) for block in blocks]


def scale_blocks(blocks: Sequence[BlockReference]) -> list[BlockReference]:
    """The same blocks, whose weights add up to Kish's effective number of samples, rounded, once they are read.

    Equal weights are left out: a row is then one sample, as without any.
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
    opened: tuple[str, zarr.Group] | None = None
    for run in _find_runs(references):
        path, start = run[0].path, run[0].start
        with refuse_damage(find_local_path(path)):
            if opened is None or opened[0] != path:
                # a block is read in a few milliseconds, and opening its partition takes one of them
                opened = path, open_group(find_local_path(path))
            whole = _read_rows(opened[1], start, run[-1])
        for reference in run:
            if len(run) == 1 and reference.superseded is None:
                yield whole
            else:
                yield whole.take(reference.rows - start)


def _find_runs(references: Iterable[BlockReference]) -> Iterator[list[BlockReference]]:
    """Gather small blocks that follow each other in a partition: each read of an array costs about a millisecond."""
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
    """Blocks of a group, one at a time; references are read one by one."""
    yield from read_blocks(item for item in group if isinstance(item, BlockReference))
    yield from (item for item in group if not isinstance(item, BlockReference))


def _read_rows(group: zarr.Group, start: int, last: BlockReference) -> Block:
    """Rows from one to the end of a block, with weights as that block is to have them."""
    stop, weights = last.stop, None
    if last.weights is not None and last.scale is not None:
        weights = read_array_rows(group, "weight", start, stop) * last.scale
    if group.attrs["layout"] == "dense":
        return DenseBlock(read_array_rows(group, "codes", start, stop), weights)
    ends = read_array_rows(group, "indptr", max(start - 1, 0), stop).astype(np.int64)
    indptr = ends if start else np.concatenate([np.zeros(1, np.int64), ends])
    indices = read_array_rows(group, "indices", int(indptr[0]), int(indptr[-1]))
    return SparseBlock(indptr - indptr[0], indices, weights)


def read_sampling_units(reference: BlockReference) -> IntArray | None:
    """Hashes of the stratum and the sampling unit of each sample of a block: int64 of shape (n_rows, 2).

    None where they are not known.

    Raises
    ------
    StoreError
        If the partition is gone or damaged.
    """
    return _read_beside(reference, "units")


def read_replicates(reference: BlockReference) -> IntArray | None:
    """Replicate weights of each sample of a block, in units: int64 of shape (n_rows, n_replicates).

    None where there are none.

    Raises
    ------
    StoreError
        If the partition is gone or damaged.
    """
    return _read_beside(reference, REPLICATES)


def _read_beside(reference: BlockReference, name: str) -> IntArray | None:
    """Rows of an array that a partition may have beside its codes, of the samples of a block."""
    path = find_local_path(reference.path)
    with refuse_damage(path):
        group = open_group(path)
        if name not in group:
            return None
        found: IntArray = read_array_rows(group, name, reference.start, reference.stop)
    return found[reference.rows - reference.start]


def read_units(path: Path) -> IntArray:
    """Weights of the samples of a partition that has some, in units: int64, in the order of its rows."""
    units: IntArray = read_arrays(path, ["weight"])[0]["weight"]
    return units


def read_sample_counts(path: Path) -> IntArray:
    """What each sample of a partition was made of.

    Returns
    -------
    int32 of shape (n_rows, 4), in the order of the partition's rows: see `SAMPLE_COUNTS`.
    """
    stored: IntArray = read_arrays(path, ["tally"])[0]["tally"]
    missing = len(SAMPLE_COUNTS) - stored.shape[1]
    return np.pad(stored, ((0, 0), (0, missing))) if missing else stored


def read_identifier_texts(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Identifiers of the samples of a partition: their bytes end to end, uint8, and their lengths, int32."""
    arrays, _ = read_arrays(path, ["sample_length", "sample_bytes"])
    return arrays["sample_bytes"], arrays["sample_length"]


def read_origins(path: Path) -> tuple[IntArray, list[str]]:
    """Source rows and identifiers of the samples of a partition, in the order of its rows.

    Returns
    -------
    int64 of shape (n_rows,), rows of the source (-1 where a sample has no single one), and the identifiers
    ("" where the source has none).
    """
    arrays, _ = read_arrays(path, ["row", "sample_length", "sample_bytes"])
    ends = np.cumsum(arrays["sample_length"], dtype=np.int64)
    text = arrays["sample_bytes"].tobytes()
    starts = ends - arrays["sample_length"]
    return arrays["row"], [
        text[a:b].decode() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


MIN_GROUP = 1 << 22
"""Least observed cells in a group of blocks: about ten milliseconds of an EM pass; a task costs Dask one to three."""
MAX_GROUP = 1 << 26
"""Most observed cells in a group of blocks: about a second of an EM pass."""
TARGET_GROUPS = 64
"""Number of groups between these two limits: all threads work, and each group costs one task."""
COUNTING_COARSENESS = 4
"""Coarseness of groups to count: counting is quicker than an EM pass, and several folds are counted at a time."""
BLOCK_COST = 1 << 15
"""Cost of opening a block, in observed cells."""


def group_blocks(
    blocks: Sequence[BlockReference], coarseness: int = 1
) -> list[list[BlockReference]]:
    """Put consecutive blocks together until a group is worth a task.

    The groups depend on the blocks alone, never on the workers: floating-point sums over them are the same bits
    wherever they run.

    Parameters
    ----------
    blocks
        In the order of the dataset.
    coarseness
        Factor by which groups may be larger than those of an EM pass.

    Returns
    -------
    Groups in order; none for no blocks.
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
    """Cost of working on some blocks: observed cells, and what it takes to open each."""
    return sum(block.n_observed + BLOCK_COST for block in blocks)


def count_groups(n_observed: int, n_blocks: int, coarseness: int = 1) -> int:
    """Number of groups that `group_blocks` makes of equal blocks, without any.

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
    """Cost from which a group is full."""
    return min(MAX_GROUP, max(MIN_GROUP, total // TARGET_GROUPS) * coarseness)
