"""How far the distributions of variables, and of pairs of them, are apart in two data sets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.differences.alignment import AlignedLevels
from pmflib.level_blocks import repeat_blocks, sum_blocks

PSEUDO_COUNT = 0.5
"""Added to the count of every level before the stability index is taken: a level that one data set lacks would make it
infinite. Half a count is Jeffreys' prior."""


@dataclass(frozen=True)
class VariableChange:
    """How far the distribution of one variable is apart in two data sets.

    Parameters
    ----------
    variable
        Name.
    total_variation
        Half the summed absolute difference of the probabilities, in [0, 1].
    by_chance
        Total variation to expect of two samples of these sizes from one distribution.
    psi
        Population stability index: the sum of (p - q) log(p / q), nats. Above 0.1 is commonly taken for a shift, and
        above 0.25 for a large one.
    n_first, n_second
        Samples that hold the variable.
    """

    variable: str
    total_variation: float
    by_chance: float
    psi: float
    n_first: int
    n_second: int


@dataclass(frozen=True)
class PairChange:
    """How far the joint distribution of two variables is apart in two data sets.

    Parameters
    ----------
    variables
        Names of the two.
    total_variation, by_chance, n_first, n_second
        As in `VariableChange`, of the pair.
    """

    variables: tuple[str, str]
    total_variation: float
    by_chance: float
    n_first: int
    n_second: int


def compare_singles(
    levels: AlignedLevels, first: IntArray, second: IntArray
) -> list[VariableChange]:
    """Compare the distributions of the variables that two data sets share.

    Parameters
    ----------
    levels
        Alignment of the two schemas.
    first, second
        Samples that hold each level, shapes (n_levels_first,) and (n_levels_second,).

    Returns
    -------
    A change per variable that both data sets hold, the largest beyond chance first.
    """
    counts = levels.align(first, levels.first), levels.align(second, levels.second)
    changes = []
    for place, name in enumerate(levels.names):
        rows = slice(levels.offsets[place], levels.offsets[place + 1])
        one, other = counts[0][rows], counts[1][rows]
        if not (one.any() and other.any()):
            continue
        edges = np.array([0, one.size])
        variation, chance, *sizes = (
            float(each[0]) for each in _compare(one[None, :], other[None, :], edges)
        )
        psi = measure_stability(one, other)
        changes.append(VariableChange(name, variation, chance, psi, *map(int, sizes)))
    return sorted(changes, key=lambda change: change.by_chance - change.total_variation)


def measure_stability(first: FloatArray, second: FloatArray) -> float:
    """Population stability index of the counts of a variable's levels in two data sets; nats, >= 0.

    References
    ----------
    Yurdakul (2018), "Statistical properties of population stability index", equation (1).
    """
    p, q = (
        (counts + PSEUDO_COUNT) / (counts + PSEUDO_COUNT).sum()
        for counts in (np.asarray(first, np.float64), np.asarray(second, np.float64))
    )
    return float(np.sum((p - q) * np.log(p / q)))


def compare_pairs(
    levels: AlignedLevels, first: IntArray, second: IntArray, *, most: int
) -> tuple[int, list[PairChange]]:
    """Compare the joint distributions of the pairs of variables that two data sets share.

    Parameters
    ----------
    levels
        Alignment of the two schemas.
    first, second
        Pair counts, int64 of shapes (n_levels_first,) * 2 and (n_levels_second,) * 2, symmetric.
    most
        Changes to return, at most.

    Returns
    -------
    Number of pairs that both data sets hold, and the largest changes beyond chance, the largest first.

    Notes
    -----
    The memory beside the counts is that of the rows of one variable.
    """
    n_variables = len(levels.names)
    found: list[tuple[FloatArray, ...]] = []
    for place in range(n_variables - 1):
        here = slice(int(levels.offsets[place]), int(levels.offsets[place + 1]))
        offsets = levels.offsets[place + 1 :] - here.stop
        one = _take_rows(levels, first, levels.first, here)[:, here.stop :]
        other = _take_rows(levels, second, levels.second, here)[:, here.stop :]
        pad = np.zeros(place + 1)
        found.append(tuple(np.append(pad, each) for each in _compare(one, other, offsets)))
    if not found:
        return 0, []
    variation, chance, n_one, n_other = (np.array(each) for each in zip(*found, strict=True))
    both: BoolArray = (n_one > 0) & (n_other > 0)
    beyond = np.where(both, variation - chance, -np.inf)
    order = np.argsort(-beyond, axis=None, kind="stable")[: min(most, int(both.sum()))]
    changes = []
    for j, k in zip(*np.unravel_index(order, beyond.shape), strict=True):
        names = levels.names[j], levels.names[k]
        sizes = int(n_one[j, k]), int(n_other[j, k])
        changes.append(PairChange(names, float(variation[j, k]), float(chance[j, k]), *sizes))
    return int(both.sum()), changes


def _take_rows(
    levels: AlignedLevels, table: IntArray, aligned: IntArray, here: slice
) -> FloatArray:
    """Rows of a symmetric table for one variable, both axes aligned: shape (n_here, n_aligned_levels)."""
    mine = np.flatnonzero((aligned >= here.start) & (aligned < here.stop))
    shared = np.flatnonzero(aligned >= 0)
    rows = np.zeros((here.stop - here.start, levels.n_levels))
    rows[np.ix_(aligned[mine] - here.start, aligned[shared])] = table[np.ix_(mine, shared)]
    return rows


def _compare(
    first: FloatArray, second: FloatArray, offsets: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Compare blocks of columns, each a distribution over its cells, of two tables of counts.

    Parameters
    ----------
    first, second
        Counts, shape (n_rows, n_columns).
    offsets
        int64 of shape (n_blocks + 1,): first column of each block.

    Returns
    -------
    Total variation of each block, and that expected by chance, from the mean absolute value of a normal variable: 0
    where a table has nothing; and the sums of either table.
    """
    n_first, n_second = (sum_blocks(counts.sum(axis=0), offsets) for counts in (first, second))
    both = (n_first > 0) & (n_second > 0)
    one, other = (np.where(both, n, 1.0) for n in (n_first, n_second))
    p, q = first / repeat_blocks(one, offsets), second / repeat_blocks(other, offsets)
    pooled = (first + second) / repeat_blocks(one + other, offsets)
    spread = np.sqrt(2 / np.pi * pooled * np.maximum(1 - pooled, 0.0))
    variation = sum_blocks(np.abs(p - q).sum(axis=0), offsets) / 2
    chance = sum_blocks(spread.sum(axis=0), offsets) * np.sqrt(1 / one + 1 / other) / 2
    chance = np.minimum(chance, 1.0)
    return np.where(both, variation, 0.0), np.where(both, chance, 0.0), n_first, n_second
