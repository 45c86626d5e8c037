"""Which kernel counts a block: a cost rule. All of them give the same integers, so it decides on time alone.

``scatter``
    One pass into the whole table, compiled in a moment: the oracle of the tests, and small jobs.
``planes``
    Bit planes in vector code: the time depends on levels, not on what is observed. For dense blocks; where vector code
    does not work, the scatter counts them.
``tiles``
    Scatter into tiles: the time depends on what is observed, not on the levels. For sparse blocks, and for dense blocks
    where little is observed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from pmflib.arrays import IntArray
from pmflib.blocks import Block, DenseBlock
from pmflib.kernels.pair_checks import (
    Compiled,
    compile_in_background,
    fold_planes_work,
    is_compiled,
    planes_work,
)

Method: TypeAlias = Literal["scatter", "planes", "tiles"]

TILE_ROWS = 65_535
"""Rows that the tiles count between two visits to the table."""
SAMPLED_ROWS = 256
"""Rows in which observed cells are counted, at most about twice as many."""
CACHED_TABLE = 1 << 20
"""Bytes of a table that a scatter visits at full speed."""
COMPILE_NS: dict[Compiled, float] = {"planes": 1.4e9, "fold planes": 3e9, "tiles": 1.1e9}
"""What the first call on a machine costs, over that of the scatter, nanoseconds."""
LOAD_NS = 1e8
"""The same where another process has left its compiled code."""

FOLD_GROUP_ROWS = 512
"""Rows of a fold that bit planes count in the time of one."""

_saved: dict[Compiled, float] = {}


@dataclass(frozen=True)
class CountingWork:
    """What the time of counting a block depends on.

    Parameters
    ----------
    n_rows
        Samples.
    n_levels, n_variables
        Size of the schema.
    n_held
        Observed cells of a row, on average.
    n_pairs
        Pairs of observed cells of a row, each with itself included, on average.
    n_planes
        Bit planes that have to be multiplied; None where codes are neither int8 nor int16, or are not given.
    sparse
        Whether level indices are given.
    """

    n_rows: int
    n_levels: int
    n_variables: int
    n_held: float
    n_pairs: float
    n_planes: int | None
    sparse: bool


def measure_work(block: Block, offsets: IntArray) -> CountingWork:
    """Measure evenly spaced rows of a block.

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
        held = np.count_nonzero(observed, axis=1)
        if block.codes.dtype in (np.int8, np.int16):
            n_planes = n_levels - int(observed.all(axis=0).sum())
    else:
        held = block.indptr[1::step] - block.indptr[:-1:step]
    n_held, n_squared = (float(held.mean()), float((held * held).mean())) if held.size else (0, 0)
    return CountingWork(
        n_rows=block.n_rows,
        n_levels=n_levels,
        n_variables=n_variables,
        n_held=n_held,
        n_pairs=(n_squared + n_held) / 2,
        n_planes=n_planes,
        sparse=not isinstance(block, DenseBlock),
    )


def estimate_costs(work: CountingWork, *, sweeps: float = 1.0) -> dict[Method, float]:
    """Nanoseconds that each method would take, once compiled.

    Parameters
    ----------
    work
        What there is to count.
    sweeps
        Visits of the whole table that are on the account of this block, for tiles.

    Returns
    -------
    Costs by method, of the methods that can count it.

    Notes
    -----
    The constants were fitted to one core of a processor with AVX-512; elsewhere planes are two to four times
    slower, which moves the border to the scatters but seldom the choice.
    """
    table = float(work.n_levels) ** 2
    visit = 0.9 if 8 * table <= CACHED_TABLE else 4.0
    sweep = 2 * table * sweeps
    read = 5 + 2 * work.n_held if work.sparse else 1.5 * work.n_variables
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
    """Choose how to count a block.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).

    Returns
    -------
    A method that can count this block; the scatter while `is_ready` says that the best is not.
    """
    work = measure_work(block, offsets)
    # blocks of a group share visits to the table
    costs = estimate_costs(work, sweeps=min(1.0, 2 * block.n_rows / TILE_ROWS))
    best = min(costs, key=costs.__getitem__)
    if best == "scatter" or not is_ready(best, costs["scatter"] - costs[best]):
        return "scatter"
    return best if best == "tiles" or planes_work() else "scatter"


def choose_fold_planes(codes: IntArray, offsets: IntArray, n_folds: int) -> bool:
    """Choose whether bit planes count rows that are still to be dealt to folds.

    Parameters
    ----------
    codes
        Integers of shape (n_rows, n_variables), -1 missing, not checked yet.
    offsets
        int64 of shape (n_variables + 1,).
    n_folds
        Number of folds.

    Returns
    -------
    Whether they are the best method, and ready.
    """
    step = max(1, len(codes) // SAMPLED_ROWS)
    # every integer can be turned into one that planes can be made of
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
    """Whether a method is to be called now, or the scatter goes on.

    A kernel is compiled by the first process that calls it, and loaded by others. It is loaded where it saves as much
    as that costs. It is compiled beside the work from the second call on, for the first one may compile the scatter;
    and in place of the work where it saves more than compiling costs. So a small job never waits for a compiler.

    Parameters
    ----------
    method
        A method that is cheaper than the scatter, once compiled.
    saving
        Nanoseconds that it would save now.
    """
    is_first = method not in _saved
    # threads that race here lose a saving, and compile a block later
    _saved[method] = _saved.get(method, 0.0) + saving
    if _saved[method] < min(LOAD_NS, COMPILE_NS[method]):
        return False
    if saving >= COMPILE_NS[method] or is_compiled(method):
        return True
    return not is_first and compile_in_background(method)
