"""Counting the pairs of blocks by the fastest of several kernels, chosen by a cost model; all give the same integers.

``scatter``
    One pass into the whole table. It compiles quickly and serves as the reference in tests and for small jobs.
``planes``
    Bit planes in vector code: the time depends on the number of levels, not of observed cells. For dense blocks; if
    vector code is unavailable, the scatter kernel is used.
``tiles``
    Scatter into tiles: the time depends on the number of observed cells, not of levels. For sparse blocks, and for
    dense blocks with few observed cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.blocks import Block, DenseBlock, SparseBlock, concatenate_blocks
from pmflib.counts.kernels.readiness import (
    Compiled,
    compile_in_background,
    fold_planes_work,
    is_compiled,
    planes_work,
)

if TYPE_CHECKING:
    from pmflib.counts.kernels.planes import PlaneCounter


Method: TypeAlias = Literal["scatter", "planes", "tiles"]

TILE_ROWS = 65_535
"""Number of rows counted in tiles between two passes over the table."""
SAMPLED_ROWS = 256
"""Number of rows in which observed cells are counted; at most about twice as many."""
CACHED_TABLE = 1 << 20
"""Size in bytes of a table that a scatter can access at full speed."""
COMPILE_NS: dict[Compiled, float] = {
    "planes": 1.4e9,
    "fold planes": 3e9,
    "tiles": 1.1e9,
    "joined": 2e9,
}
"""Cost of the first call on a machine beyond that of the scatter, nanoseconds."""
LOAD_NS = 1e8
"""The same if another process has saved its compiled code."""

GATHER_NS = 1.0
"""Cost of copying a cell of a selected row, nanoseconds."""
WEIGHED_SHARE = 0.5
"""Cost of a weighted scatter relative to the estimate for an unweighted one, for tables larger than the caches."""
DIGIT_NS = 1.0
"""Cost of adding the table of one binary digit of weights, nanoseconds per cell."""
JOINED_LEVELS = 512
"""Maximum number of codes of a variable, including missing, for counting weights by groups of variables."""

FOLD_GROUP_ROWS = 512
"""Number of rows of a fold that bit planes count in the time of one."""

_saved: dict[Compiled, float] = {}


@dataclass(frozen=True)
class CountingWork:
    """Properties of a block that determine the cost of counting it.

    Parameters
    ----------
    n_rows
        Number of samples.
    n_levels, n_variables
        Numbers of levels and variables in the schema.
    n_observed
        Mean number of observed cells per row.
    n_pairs
        Mean number of pairs of observed cells per row, including each cell with itself.
    n_planes
        Number of bit planes to be multiplied; None if codes are neither int8 nor int16, or not given.
    sparse
        Whether the block contains level indices.
    """

    n_rows: int
    n_levels: int
    n_variables: int
    n_observed: float
    n_pairs: float
    n_planes: int | None
    sparse: bool


def measure_work(block: Block, offsets: IntArray) -> CountingWork:
    """Measure a block from evenly spaced rows.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).
    """
    n_levels, n_variables = int(offsets[-1]), offsets.size - 1
    n_planes = None
    step = max(1, block.n_rows // SAMPLED_ROWS)
    if isinstance(block, DenseBlock):
        observed = block.codes[::step] >= 0
        lengths = np.count_nonzero(observed, axis=1)
        if block.codes.dtype in (np.int8, np.int16):
            n_planes = n_levels - int(observed.all(axis=0).sum())
    else:
        lengths = block.indptr[1::step] - block.indptr[:-1:step]
    n_observed, n_squared = (
        (float(lengths.mean()), float((lengths * lengths).mean())) if lengths.size else (0, 0)
    )
    return CountingWork(
        n_rows=block.n_rows,
        n_levels=n_levels,
        n_variables=n_variables,
        n_observed=n_observed,
        n_pairs=(n_squared + n_observed) / 2,
        n_planes=n_planes,
        sparse=not isinstance(block, DenseBlock),
    )


def estimate_costs(work: CountingWork, *, sweeps: float = 1.0) -> dict[Method, float]:
    """Estimate the time of each kernel in nanoseconds, once compiled.

    Parameters
    ----------
    work
        Properties of the block.
    sweeps
        Number of passes over the whole table attributed to this block, for tiles.

    Returns
    -------
    Costs of the kernels that can count the block.

    Notes
    -----
    The constants were fitted on one core of a processor with AVX-512. Elsewhere planes are two to four times slower,
    which moves the boundary with the scatters but seldom changes the choice.
    """
    table = float(work.n_levels) ** 2
    visit = 0.9 if 8 * table <= CACHED_TABLE else 4.0
    sweep = 2 * table * sweeps
    read = 5 + 2 * work.n_observed if work.sparse else 1.5 * work.n_variables
    costs: dict[Method, float] = {"scatter": work.n_rows * (read + visit * work.n_pairs)}
    n_groups = 1 + work.n_levels // 1024
    tiles = 8 + (0.7 + 0.3 * n_groups) * work.n_pairs
    if work.sparse:
        costs["tiles"] = work.n_rows * tiles + sweep
    elif work.n_planes is not None:
        find = 5 + 0.45 * work.n_variables
        costs["tiles"] = work.n_rows * (find + tiles) + sweep
        products = 0.0006 * work.n_planes**2
        costs["planes"] = work.n_rows * (0.04 * work.n_levels + products) + table
    return costs


def choose_method(block: Block, offsets: IntArray) -> Method:
    """Choose the kernel for a block.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).

    Returns
    -------
    A kernel that can count this block; the scatter unless `is_ready` returns True for the fastest one.
    """
    work = measure_work(block, offsets)
    # the blocks of a group share passes over the table
    costs = estimate_costs(work, sweeps=min(1.0, 2 * block.n_rows / TILE_ROWS))
    best = min(costs, key=costs.__getitem__)
    if best == "scatter" or not is_ready(best, costs["scatter"] - costs[best]):
        return "scatter"
    return best if best == "tiles" or planes_work() else "scatter"


def choose_fold_planes(codes: IntArray, offsets: IntArray, n_folds: int) -> bool:
    """Choose whether to count rows by bit planes while assigning them to folds.

    Parameters
    ----------
    codes
        Integers of shape (n_rows, n_variables), -1 missing, not yet validated.
    offsets
        int64 of shape (n_variables + 1,).
    n_folds
        Number of folds.

    Returns
    -------
    Whether bit planes are the fastest method and ready.
    """
    step = max(1, len(codes) // SAMPLED_ROWS)
    # every integer type can be converted to one that bit planes accept
    sample = measure_work(DenseBlock(codes[::step].astype(np.int16)), offsets)
    costs = estimate_costs(replace(sample, n_rows=len(codes)))
    n_padded = max(len(codes), n_folds * FOLD_GROUP_ROWS)
    planes = estimate_costs(replace(sample, n_rows=n_padded))["planes"]
    return (
        planes < costs["scatter"]
        and planes < costs["tiles"]
        and is_ready("fold planes", costs["scatter"] - planes)
        and fold_planes_work()
    )


def is_ready(method: Compiled, saving: float) -> bool:
    """Return whether to use a kernel now rather than the scatter.

    The first process that calls a kernel compiles it; other processes load it. A kernel is loaded if it saves at least
    the time that loading takes. From the second call on it is compiled in the background, since the first call may
    compile the scatter; it is compiled in the foreground if it saves more time than compiling takes. A small job
    therefore never waits for a compiler.

    Parameters
    ----------
    method
        A kernel that is faster than the scatter, once compiled.
    saving
        Time that it would save now, nanoseconds.
    """
    is_first = method not in _saved
    # threads racing here only lose a saving, or compile one block later
    _saved[method] = _saved.get(method, 0.0) + saving
    if _saved[method] < min(LOAD_NS, COMPILE_NS[method]):
        return False
    if saving >= COMPILE_NS[method] or is_compiled(method):
        return True
    return not is_first and compile_in_background(method)


JOINED_BYTES = 8 << 20
"""Maximum size in bytes of buffered level indices: two blocks' worth."""


def add_block(block: Block, offsets: IntArray, table: IntArray) -> None:
    """Add the pair counts of a block to a table, in place.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).
    table
        int64 of shape (n_levels, n_levels); its upper triangle is updated.

    Notes
    -----
    The kernel is chosen by `pmflib.counts.block_counting`. Memory beyond the block is at most 2 KiB per level and
    half a table.
    """
    add_blocks([block], offsets, table)


def add_blocks(blocks: Iterable[Block], offsets: IntArray, table: IntArray) -> None:
    """Add the pair counts of several blocks to a table, in place: the same result as one by one, but faster.

    Parameters
    ----------
    blocks
        Valid samples; iterated once. Weights must be integers, such as the units of stored weights; cells are then sums
        of weights.
    offsets, table
        As for `add_block`.

    Notes
    -----
    Level indices of several blocks, at most ``JOINED_BYTES``, are buffered for one pass over the table.
    """
    counter: PlaneCounter | None = None
    waiting: list[SparseBlock] = []
    for block in blocks:
        if block.weights is not None:
            dense, units = DenseBlock(block.to_codes(offsets)), block.weights.astype(np.int64)
            add_weighted_rows(dense, np.arange(block.n_rows), units, offsets, table)
            continue
        method = choose_method(block, offsets)
        if method == "scatter":
            _scatter(block, offsets, table)
        elif method == "planes":
            from pmflib.counts.kernels.planes import PlaneCounter  # importing numba is slow

            counter = counter or PlaneCounter(offsets)
            counter.add(block.to_codes(offsets), table)
        else:
            sparse = _to_sparse(block, offsets)
            n_rows = sum(part.n_rows for part in waiting) + sparse.n_rows
            n_bytes = sum(part.nbytes for part in waiting) + sparse.nbytes
            if waiting and (n_rows > TILE_ROWS or n_bytes > JOINED_BYTES):
                _add_waiting(waiting, offsets, table)
                waiting = []
            waiting.append(sparse)
    if counter:
        counter.flush(table)
    if waiting:
        _add_waiting(waiting, offsets, table)


def add_weighted_rows(
    block: DenseBlock, rows: IntArray, units: IntArray, offsets: IntArray, table: IntArray
) -> None:
    """Add the weights of the rows that have each pair to a table, in place: exact integers.

    Parameters
    ----------
    block
        Valid samples.
    rows
        int64 of shape (n_rows,): rows that are counted.
    units
        int64 of shape (n_rows,), at least 1: weights, whose sums stay below 2**63. Or int64 of shape (n_rows,
        n_weights), of any sign: several weights for each row.
    offsets
        As for `add_block`.
    table
        int64 of shape (n_levels, n_levels); with several weights, (n_weights, n_levels, n_levels). Upper triangles
        grow.

    Notes
    -----
    Groups of variables are counted together, in tables that fit into a cache, if enough cells are observed. With many
    variables and weights of few binary digits, rows are counted once for each digit of their weight. Otherwise weights
    are scattered. Several weights are added side by side, for groups of variables.
    """
    if units.ndim == 2:
        from pmflib.counts.kernels.replicate_sums import add_replicates  # numba loads on first use

        add_replicates(block.codes[rows], units, offsets, table)
        return
    sample = block.take(rows[:: max(1, rows.size // SAMPLED_ROWS)])
    work = replace(measure_work(sample, offsets), n_rows=rows.size)
    costs = estimate_costs(work)
    digits = _list_digits(units)
    n_ones = int(np.bitwise_count(units).sum())
    others = [cost for method, cost in costs.items() if method != "scatter"]
    by_digits = min(others, default=math.inf) * n_ones / max(rows.size, 1)
    by_digits += GATHER_NS * n_ones * work.n_variables + DIGIT_NS * len(digits) * table.size
    by_scatter = WEIGHED_SHARE * costs["scatter"]
    by_groups = _estimate_joined(sample, rows.size, offsets)
    if by_groups < min(by_digits, by_scatter) and is_ready("joined", by_scatter - by_groups):
        from pmflib.counts.kernels.joined_variables import add_joined

        add_joined(block.codes, rows, units, offsets, table)
    elif by_digits >= by_scatter:
        from pmflib.counts.kernels.scatter import add_weighted

        add_weighted(block.codes[rows], units, offsets, table)
    else:
        for digit in digits:
            of_digit = np.zeros_like(table)
            add_block(block.take(rows[(units >> digit) & 1 == 1]), offsets, of_digit)
            table += of_digit << digit


def _list_digits(units: IntArray) -> list[int]:
    """List the binary digits that are 1 in any weight."""
    union = int(np.bitwise_or.reduce(units, initial=0))
    return [digit for digit in range(63) if union >> digit & 1]


def _estimate_joined(sample: DenseBlock, n_rows: int, offsets: IntArray) -> float:
    """Estimate the time of counting by groups of variables for rows like those of a sample, nanoseconds."""
    from pmflib.counts.kernels.joined_variables import find_bases

    return estimate_joined(find_bases(sample.codes, offsets), n_rows)


def estimate_joined(bases: IntArray, n_rows: int) -> float:
    """Estimate the time of counting by groups of variables, nanoseconds; infinite if a variable has too many levels.

    Parameters
    ----------
    bases
        Integers of shape (n_variables,): number of levels of each variable, plus one if any cell is missing.
    n_rows
        Number of rows with weights.
    """
    from pmflib.counts.kernels.joined_variables import JOINED_ROWS, group_variables

    if bases.max() > JOINED_LEVELS:
        return math.inf
    sizes = group_variables(bases, n_rows)[1]
    n_cells = (int(sizes.sum()) ** 2 + int((sizes**2).sum())) / 2
    n_visits = -(-n_rows // JOINED_ROWS)
    each = 0.45 * bases.size + 0.4 * sizes.size * (sizes.size + 1) / 2
    return n_rows * each + 1.5 * n_visits * n_cells


def _scatter(block: Block, offsets: IntArray, table: IntArray) -> None:
    from pmflib.counts.kernels.scatter import add_dense, add_sparse

    if isinstance(block, SparseBlock):
        add_sparse(block.indptr, block.indices, table)
    else:
        add_dense(block.codes, offsets, table)


def _to_sparse(block: Block, offsets: IntArray) -> SparseBlock:
    if isinstance(block, SparseBlock):
        return block
    from pmflib.counts.kernels.observed import find_observed

    return SparseBlock(*find_observed(np.ascontiguousarray(block.codes), offsets))


def _add_waiting(waiting: list[SparseBlock], offsets: IntArray, table: IntArray) -> None:
    joined = waiting[0]
    if len(waiting) > 1:
        joined = concatenate_blocks(waiting, offsets).to_sparse(offsets)
    costs = estimate_costs(measure_work(joined, offsets))
    if costs["scatter"] < costs["tiles"]:
        # too few to be worth a pass over the whole table
        _scatter(joined, offsets, table)
    else:
        from pmflib.counts.kernels.scatter import add_tiles

        add_tiles(joined.indptr, joined.indices, offsets, table)
