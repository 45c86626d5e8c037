"""How far distributions of variables and pairs are apart in two data sets, over tables of levels side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmflib.core.arrays import BoolArray, FloatArray, IntArray, repeat_blocks, sum_blocks
from pmflib.model import JointPMF
from pmflib.model.metrics import match_factors
from pmflib.schema import Schema

TILE_CELLS = 1 << 19
"""Cells of the pairs that are compared at a time: some fifteen arrays of 4 MiB each."""


@dataclass(frozen=True)
class AlignedLevels:
    """Variables that two schemas share, each with the levels that either of them knows.

    Parameters
    ----------
    names
        Shared variables, in the order of the second schema.
    offsets
        int64 of shape (n_shared + 1,): first aligned level of each variable.
    first, second
        int64 of shapes (n_levels_first,) and (n_levels_second,): aligned level of each level of a schema, -1 where the
        other schema lacks the variable.
    """

    names: tuple[str, ...]
    offsets: IntArray
    first: IntArray
    second: IntArray

    @property
    def own_levels(self) -> tuple[IntArray, IntArray]:
        """Level of the first, and of the second schema for each aligned level, -1 where it has none."""
        found = []
        for aligned in (self.first, self.second):
            own_levels = np.full(self.n_levels, -1, np.int64)
            shared = np.flatnonzero(aligned >= 0)
            own_levels[aligned[shared]] = shared
            found.append(own_levels)
        return found[0], found[1]

    @property
    def n_levels(self) -> int:
        """Number of aligned levels."""
        return int(self.offsets[-1])

    def align(self, values: npt.NDArray[np.number], levels: IntArray) -> FloatArray:
        """Put the rows of a table by level in the aligned order; levels that its schema lacks have zeros.

        Parameters
        ----------
        values
            Shape (n_levels, ...), of one of the schemas.
        levels
            Aligned levels of that schema: ``first`` or ``second``.

        Returns
        -------
        float64 of shape (n_aligned_levels, ...).
        """
        aligned = np.zeros((self.n_levels, *values.shape[1:]))
        shared = np.flatnonzero(levels >= 0)
        aligned[levels[shared]] = values[shared]
        return aligned


def align_levels(first: Schema, second: Schema) -> AlignedLevels:
    """Align the levels of two schemas by the names of variables and the labels of levels."""
    names = tuple(name for name in second.names if name in first)
    offsets = [0]
    aligned_levels = tuple(np.full(schema.n_levels, -1, np.int64) for schema in (first, second))
    for name in names:
        labels = dict.fromkeys((*second[name].levels, *first[name].levels))
        index_of = {label: offsets[-1] + index for index, label in enumerate(labels)}
        for schema, aligned in zip((first, second), aligned_levels, strict=True):
            aligned[schema.rows_of(name)] = [index_of[label] for label in schema[name].levels]
        offsets.append(offsets[-1] + len(labels))
    return AlignedLevels(names, np.array(offsets, np.int64), *aligned_levels)


@dataclass(frozen=True, eq=False)
class PairTables:
    """Tables of some pairs of variables of one shape, in several data sets.

    Parameters
    ----------
    first, second
        int64 of shape (n_pairs,): the variables of each pair; rows of its table are levels of the first.
    counts
        Counts of each data set, int64 of shape (n_pairs, n_rows, n_columns).
    """

    first: IntArray
    second: IntArray
    counts: tuple[IntArray, ...]


def iterate_pairs(
    offsets: IntArray,
    tables: Sequence[IntArray],
    *,
    levels: Sequence[IntArray] | None = None,
    selected: BoolArray | None = None,
    tile_cells: int = TILE_CELLS,
) -> Iterator[PairTables]:
    """Go through the tables of pairs of variables, many of one shape at a time.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,): first level of each variable.
    tables
        Pair counts of each data set, int64 of shape (n_its_levels, n_its_levels): upper triangles, or symmetric where
        the variables of a data set are in another order.
    levels
        For each data set int64 of shape (n_levels,): its own level for each level, -1 where it has none, whose counts
        are 0. None where all have the same levels.
    selected
        Mask of shape (n_variables, n_variables), of which the upper triangle counts; None selects all pairs.
    tile_cells
        Cells of a data set at a time, which bounds the memory.
    """
    sizes, n_variables = np.diff(offsets), offsets.size - 1
    mask = np.ones((n_variables, n_variables), np.bool_) if selected is None else selected
    first, second = np.nonzero(np.triu(mask, 1))
    shapes = np.stack([sizes[first], sizes[second]], axis=1)
    for n_rows, n_columns in np.unique(shapes, axis=0).tolist():
        mine = np.flatnonzero((shapes == (n_rows, n_columns)).all(axis=1))
        step = max(1, tile_cells // (n_rows * n_columns))
        for start in range(0, mine.size, step):
            one, other = first[mine[start : start + step]], second[mine[start : start + step]]
            rows = offsets[one][:, None, None] + np.arange(n_rows)[None, :, None]
            columns = offsets[other][:, None, None] + np.arange(n_columns)[None, None, :]
            counts = [
                table[rows, columns]
                if levels is None
                else _take_known(table, levels[index][rows], levels[index][columns])
                for index, table in enumerate(tables)
            ]
            yield PairTables(one, other, tuple(counts))


def _take_known(table: IntArray, rows: IntArray, columns: IntArray) -> IntArray:
    """Cells of a table; 0 where a row or a column is -1."""
    return np.where((rows >= 0) & (columns >= 0), table[rows, columns], 0)


PSEUDO_COUNT = 0.5
"""Added to the count of every level before the stability index is formed: a level that one data set lacks would make it
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
        Population stability index: the sum of (p - q) log(p / q), nats. Above 0.1 is commonly read as a shift, and
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
    found = _compare(counts[0][None, :], counts[1][None, :], levels.offsets)
    changes = []
    for index, (variation, chance, *sizes) in enumerate(zip(*found, strict=True)):
        if min(sizes) > 0:
            rows = slice(levels.offsets[index], levels.offsets[index + 1])
            psi = measure_stability(counts[0][rows], counts[1][rows])
            n_first, n_second = map(int, sizes)
            changes.append(
                VariableChange(
                    levels.names[index], float(variation), float(chance), psi, n_first, n_second
                )
            )
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
    The memory beside the counts is that of the tables of some pairs.
    """
    n_variables = len(levels.names)
    found = np.zeros((4, n_variables, n_variables))
    for tile in iterate_pairs(levels.offsets, (first, second), levels=levels.own_levels):
        n_pairs, n_rows, n_columns = tile.counts[0].shape
        # pairs side by side: a block of columns each
        one, other = (
            counts.transpose(1, 0, 2).reshape(n_rows, -1).astype(np.float64)
            for counts in tile.counts
        )
        edges = np.arange(n_pairs + 1) * n_columns
        found[:, tile.first, tile.second] = _compare(one, other, edges)
    variation, chance, n_one, n_other = found
    both: BoolArray = (n_one > 0) & (n_other > 0)
    beyond = np.where(both, variation - chance, -np.inf)
    order = np.argsort(-beyond, axis=None, kind="stable")[: min(most, int(both.sum()))]
    changes = []
    for j, k in zip(*np.unravel_index(order, beyond.shape), strict=True):
        names = levels.names[j], levels.names[k]
        sizes = int(n_one[j, k]), int(n_other[j, k])
        changes.append(PairChange(names, float(variation[j, k]), float(chance[j, k]), *sizes))
    return int(both.sum()), changes


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


@dataclass(frozen=True)
class StateChange:
    """One latent state of two models.

    Parameters
    ----------
    first, second
        Index of the state in either model; None where it has no partner there.
    prior_first, prior_second
        Its prior in either model; None likewise.
    mean_variation
        Total variation of the variables' PMFs given the state, mean over the variables; None without a partner.
    variable, variation
        Variable whose PMF given the state has changed most, and its total variation; None without a partner.
    """

    first: int | None
    second: int | None
    prior_first: float | None
    prior_second: float | None
    mean_variation: float | None = None
    variable: str | None = None
    variation: float | None = None


def compare_models(levels: AlignedLevels, first: JointPMF, second: JointPMF) -> list[StateChange]:
    """Match the latent states of two models, and compare them over the variables that the models share.

    Parameters
    ----------
    levels
        Alignment of the two schemas.
    first, second
        The models; their ranks may differ.

    Returns
    -------
    A change per state: those matched, by falling prior of the second model, then those of either without a partner.
    """
    factors_first = levels.align(first.factors, levels.first)
    factors_second = levels.align(second.factors, levels.second)
    partners = match_factors(first.prior, factors_first, second.prior, factors_second)
    matched, alone = [], []
    for state, partner in enumerate(partners.tolist()):
        prior = float(first.prior[state])
        if partner < 0:
            alone.append(StateChange(state, None, prior, None))
            continue
        variations = _compare_columns(levels, factors_first[:, state], factors_second[:, partner])
        changed = int(variations.argmax()) if variations.size else None
        matched.append(
            StateChange(
                state,
                partner,
                prior,
                float(second.prior[partner]),
                float(variations.mean()) if variations.size else None,
                None if changed is None else levels.names[changed],
                None if changed is None else float(variations[changed]),
            )
        )
    without = sorted({*range(second.rank)} - {*partners.tolist()})
    alone += [StateChange(None, each, None, float(second.prior[each])) for each in without]
    return sorted(matched, key=lambda change: -(change.prior_second or 0.0)) + alone


def _compare_columns(levels: AlignedLevels, first: FloatArray, second: FloatArray) -> FloatArray:
    """Total variation of each variable's PMF: shape (n_shared,)."""
    if not levels.names:
        return np.zeros(0)
    return sum_blocks(np.abs(first - second), levels.offsets) / 2
