"""Comparison of two sets of counts: aligned levels, distances of distributions, and tests of homogeneity.

Arrays of counts go in, and arrays with one entry per test come out; a test owns a block of consecutive cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmflib.base.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    list_owners,
    repeat_blocks,
    sum_blocks,
)
from pmflib.schema import Schema

TILE_CELLS = 1 << 19
"""Cells of the pairs that are compared at a time: some fifteen arrays of 4 MiB each."""
LEAST_COUNTED = 30
"""Minimum number of observations on each side of a test: its null distribution is asymptotic."""
LEAST_EXPECTED = 1.0
"""Minimum expected new count of a cell; rarer cells of a test are merged (Cochran 1954: below 1 the chi-squared
approximation fails)."""
LEAST_PER_DEGREE = 5
"""Minimum number of new samples per degree of freedom in a test of dependence, which keeps its rare cells."""
HALF = 0.5
"""Pseudo-count of each cell in a stability index, which avoids the logarithm of 0 (Jeffreys' prior)."""
QUANTILE = 1.645
"""Standard normal quantile of 95 %, the confidence of lower bounds of indices and shares."""


@dataclass(frozen=True)
class AlignedLevels:
    """The variables that two schemas share, each with the union of its levels.

    Parameters
    ----------
    names
        Shared variables, in the order of the second schema.
    offsets
        int64 of shape (n_shared + 1,): first aligned level of each variable.
    first, second
        int64 of shapes (n_levels_first,) and (n_levels_second,): aligned level of each level of a schema, -1 for
        variables that the other schema lacks.
    """

    names: tuple[str, ...]
    offsets: IntArray
    first: IntArray
    second: IntArray

    @property
    def own_levels(self) -> tuple[IntArray, IntArray]:
        """Level of the first and of the second schema for each aligned level; -1 where there is none."""
        found = np.full((2, self.n_levels), -1, np.int64)
        for own_levels, aligned in zip(found, (self.first, self.second), strict=True):
            shared = np.flatnonzero(aligned >= 0)
            own_levels[aligned[shared]] = shared
        return found[0], found[1]

    @property
    def n_levels(self) -> int:
        """Number of aligned levels."""
        return int(self.offsets[-1])

    def align(self, values: npt.NDArray[np.number], levels: IntArray) -> FloatArray:
        """Reorder the rows of a table by aligned level; levels that its schema lacks become zeros.

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
    """Iterate over the tables of pairs of variables, in batches of equal shape.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,): first level of each variable.
    tables
        Pair counts of each data set, int64 of shape (n_its_levels, n_its_levels): upper triangles, or symmetric if
        the data sets order their variables differently.
    levels
        For each data set int64 of shape (n_levels,): its own level for each aligned level; -1, with counts of 0, where
        it has none. None if all data sets have the same levels.
    selected
        Mask of shape (n_variables, n_variables), of which only the upper triangle is read; None selects all pairs.
    tile_cells
        Cells of each data set in a batch, which bounds the memory.
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
    """Take cells of a table; 0 where a row or a column is -1."""
    return np.where((rows >= 0) & (columns >= 0), table[rows, columns], 0)


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances between two distributions, for many tests; each array has shape (n_tests,).

    Parameters
    ----------
    n_first, n_second
        int64, observations on each side.
    total_variation
        Half the sum of the absolute differences of the shares, in [0, 1].
    by_chance
        Expected total variation of two samples of these sizes from one distribution: mean absolute value of a normal
        variable.
    stability_index
        Population stability index: the sum of ``(p - q) log(p / q)`` over the cells observed on either side, nats.

    References
    ----------
    Yurdakul (2018), "Statistical properties of population stability index", equation (1).
    """

    n_first: IntArray
    n_second: IntArray
    total_variation: FloatArray
    by_chance: FloatArray
    stability_index: FloatArray


def measure_distances(cells: FloatArray, offsets: IntArray) -> Distances:
    """Measure how far two distributions are apart, test by test.

    Parameters
    ----------
    cells
        Counts of both sides, shape (2, n_cells).
    offsets
        int64 of shape (n_tests + 1,): first cell of each test.
    """
    sizes = sum_blocks(cells, offsets, axis=1)
    both = cells.sum(axis=0)
    filled = both > 0
    n_filled = np.maximum(sum_blocks(filled.astype(np.int64), offsets), 1)
    of_cells = repeat_blocks(sizes, offsets, axis=1)
    shares = (cells + HALF) / (of_cells + HALF * repeat_blocks(n_filled, offsets))
    index = sum_blocks(
        np.where(filled, (shares[0] - shares[1]) * np.log(shares[0] / shares[1]), 0.0), offsets
    )
    plain = cells / np.maximum(of_cells, 1)
    variation = sum_blocks(np.abs(plain[0] - plain[1]), offsets) / 2
    pooled = both / np.maximum(of_cells.sum(axis=0), 1)
    spread = sum_blocks(np.sqrt(2 / np.pi * pooled * np.maximum(1 - pooled, 0.0)), offsets)
    inverse = (1 / np.maximum(sizes, 1)).sum(axis=0)
    by_chance = np.minimum(spread * np.sqrt(inverse) / 2, 1.0)
    n_first, n_second = sizes.astype(np.int64)
    return Distances(n_first, n_second, variation, by_chance, index)


@dataclass(frozen=True, eq=False)
class HomogeneityTests:
    """Outcome of many tests of homogeneity; each array has shape (n_tests,).

    Parameters
    ----------
    n_new, n_reference
        int64, observations on each side.
    p_value
        Probability, without drift, of a statistic at least as large; 1 where nothing was tested.
    stability_index
        Population stability index minus its expectation without drift.
    least_index
        Lower bound of it at 95 %; minus infinity where nothing was tested.
    total_variation
        Half the sum of the absolute differences of the shares, in [0, 1].
    """

    n_new: IntArray
    n_reference: IntArray
    p_value: FloatArray
    stability_index: FloatArray
    least_index: FloatArray
    total_variation: FloatArray

    @property
    def tested(self) -> BoolArray:
        """Whether there were enough observations."""
        return np.isfinite(self.least_index)


def compare_counts(
    new: IntArray,
    reference: IntArray | FloatArray,
    offsets: IntArray,
    new_effect: FloatArray | float = 1.0,
    reference_effect: FloatArray | float = 1.0,
) -> HomogeneityTests:
    """Test whether new counts have the distribution of reference counts, test by test.

    Parameters
    ----------
    new, reference
        Shape (n_cells,), at least 0.
    offsets
        int64 of shape (n_tests + 1,): first cell of each test; a test has at least one.
    new_effect, reference_effect
        Design effects of the two sides, float64 of shape (n_tests,) or one number: the factor by which clustering
        increases the variance of a share over that of a multinomial sample.

    Notes
    -----
    Rare cells are merged. The statistic is the likelihood ratio ``G``, divided by Williams' correction and by the mean
    design effect, the first-order correction of Rao and Scott. Without drift the stability index is ``s`` times a
    chi-squared variable with K - 1 degrees of freedom, where
    ``s = new_effect / n_new + reference_effect / n_reference`` (Yurdakul and Naranjo with Rao and Scott's effects), so
    ``s (K - 1)`` is subtracted. With drift that variable is noncentral, with variance ``2 (K - 1) + 4 (index / s)``,
    which gives the lower bound.

    References
    ----------
    Williams (1976), "Improved likelihood ratio tests for complete contingency tables", Biometrika 63.
    Rao, Scott (1984), "On chi-squared tests for multiway contingency tables with cell proportions estimated from
    survey data", Annals of Statistics 12.
    Yurdakul, Naranjo (2020), "Statistical properties of the population stability index", Journal of Risk Model
    Validation 14.
    """
    # a fifth of a second to import, which a run with nothing new can do without
    from scipy.special import xlogy

    cells, offsets = _merge_rare(np.stack([new, reference]).astype(np.float64), offsets)
    totals = sum_blocks(cells, offsets, axis=1)
    both = cells.sum(axis=0)
    filled = both > 0
    share = both / np.maximum(repeat_blocks(totals.sum(axis=0), offsets), 1)
    expected = share * repeat_blocks(totals, offsets, axis=1)
    ratio = xlogy(cells, cells) - xlogy(cells, np.where(cells > 0, expected, 1.0))
    degrees = np.maximum(sum_blocks(filled.astype(np.int64), offsets) - 1, 0)
    sizes = np.maximum(totals, 1)
    plain = 1 / sizes[0] + 1 / sizes[1]
    scale = new_effect / sizes[0] + reference_effect / sizes[1]
    total = np.maximum(totals.sum(axis=0), 1)
    inverse = sum_blocks(np.where(filled, 1 / np.where(filled, both, 1.0), 0.0), offsets)
    williams = 1 + (total * plain - 1) * (total * inverse - 1) / (
        6 * total * np.maximum(degrees, 1)
    )
    statistic = 2 * sum_blocks(ratio.sum(axis=0), offsets) / williams * plain / scale
    return _conclude(measure_distances(cells, offsets), statistic, degrees, scale)


def compare_dependence(
    new: IntArray, expected: FloatArray, n_reference: IntArray
) -> HomogeneityTests:
    """Test new tables of two variables against tables with the same margins and the earlier dependence.

    Parameters
    ----------
    new
        int64 of shape (n_tests, n_levels_1, n_levels_2).
    expected
        float64 of the same shape, from `carry_dependence`.
    n_reference
        int64 of shape (n_tests,): number of samples behind the earlier dependence.

    Notes
    -----
    G has ``(K_1 - 1)(K_2 - 1)`` degrees of freedom, where only levels that occur count. The factor
    ``1 + n_new / n_reference`` accounts for the sampling error of the earlier dependence.
    """
    # a fifth of a second to import, which a run with nothing new can do without
    from scipy.special import xlogy

    n_new = new.sum(axis=(1, 2))
    degrees = np.prod([(new.sum(axis=axis) > 0).sum(axis=1) - 1 for axis in (1, 2)], axis=0)
    scale = 1 / np.maximum(n_new, 1) + 1 / np.maximum(n_reference, 1)
    ratio = xlogy(new, new) - xlogy(new, np.where(new > 0, expected, 1.0))
    statistic = 2 * ratio.sum(axis=(1, 2)) / (np.maximum(n_new, 1) * scale)
    shares = [
        (side + HALF) / (side.sum(axis=(1, 2), keepdims=True) + HALF * new[0].size)
        for side in (new, expected)
    ]
    index = ((shares[0] - shares[1]) * np.log(shares[0] / shares[1])).sum(axis=(1, 2))
    variation = np.abs(new - expected).sum(axis=(1, 2)) / (2 * np.maximum(n_new, 1))
    degrees = np.where(n_new >= LEAST_PER_DEGREE * degrees, degrees, 0)
    found = Distances(n_new, n_reference, variation, np.zeros_like(variation), index)
    return _conclude(found, statistic, degrees, scale)


def carry_dependence(reference: IntArray, new: IntArray, *, sweeps: int = 20) -> FloatArray:
    """Fit tables with the margins of new tables and the odds ratios of reference tables.

    Parameters
    ----------
    reference, new
        int64 of shape (n_tests, n_levels_1, n_levels_2).
    sweeps
        Sweeps of iterative proportional fitting, which converges linearly.

    References
    ----------
    Deming, Stephan (1940), "On a least squares adjustment of a sampled frequency table when the expected marginal
    totals are known", Annals of Mathematical Statistics 11.
    """
    # zeros of the reference would remain zeros
    fitted: FloatArray = reference.astype(np.float64) + HALF
    for _ in range(sweeps):
        for axis in (1, 2):
            fitted *= new.sum(axis=axis, keepdims=True) / np.maximum(
                fitted.sum(axis=axis, keepdims=True), np.finfo(np.float64).tiny
            )
    return fitted


def estimate_design_effect(groups: IntArray, offsets: IntArray) -> FloatArray:
    """Estimate the design effect from groups of observations, by test: at least 1, float64 of shape (n_tests,).

    The estimate is Pearson's statistic of homogeneity between the groups, divided by its degrees of freedom. If groups
    are random and clusters lie within them, as samples do within folds, it does not depend on the number of clusters.

    Parameters
    ----------
    groups
        int64 of shape (n_groups, n_cells).
    offsets
        int64 of shape (n_tests + 1,).
    """
    statistic, degrees = _measure_groups(groups, offsets)
    effect: FloatArray = np.maximum(statistic / np.maximum(degrees, 1), 1.0)
    return effect


def estimate_correlation(groups: IntArray, offsets: IntArray) -> FloatArray:
    """Estimate the intraclass correlation of groups, by test: in [0, 1], float64 of shape (n_tests,).

    A group of n observations has the design effect ``1 + (n - 1) correlation``. With files as groups, the correlation
    measures how much files differ beyond chance.

    Parameters
    ----------
    groups
        int64 of shape (n_groups, n_cells), at least two groups.
    offsets
        int64 of shape (n_tests + 1,).

    References
    ----------
    Brier (1980), "Analysis of contingency tables under cluster sampling", Biometrika 67: the moment estimator.
    """
    statistic, degrees = _measure_groups(groups, offsets)
    sizes = sum_blocks(groups, offsets, axis=1).astype(np.float64)
    total = np.maximum(sizes.sum(axis=0), 1)
    n_groups = np.maximum((sizes > 0).sum(axis=0), 2)
    typical = (total - (sizes**2).sum(axis=0) / total) / (n_groups - 1)
    excess = statistic / np.maximum(degrees, 1) - 1
    correlation: FloatArray = np.clip(excess / np.maximum(typical - 1, 1), 0.0, 1.0)
    return correlation


def _measure_groups(groups: IntArray, offsets: IntArray) -> tuple[FloatArray, IntArray]:
    """Compute Pearson's statistic of homogeneity between groups, and its degrees of freedom, by test."""
    total = groups.sum(axis=0)
    share = total / np.maximum(repeat_blocks(sum_blocks(total, offsets), offsets), 1)
    sizes = sum_blocks(groups, offsets, axis=1)
    statistic = np.zeros(offsets.size - 1)
    # one group at a time: there may be thousands of files
    for group, size in zip(groups, sizes, strict=True):
        expected = share * repeat_blocks(size, offsets)
        filled = expected > 0
        statistic += sum_blocks(
            np.where(filled, (group - expected) ** 2 / np.where(filled, expected, 1.0), 0.0),
            offsets,
        )
    rows, columns = (sizes > 0).sum(axis=0), sum_blocks((total > 0).astype(np.int64), offsets)
    return statistic, np.maximum(rows - 1, 0) * np.maximum(columns - 1, 0)


def _merge_rare(cells: FloatArray, offsets: IntArray) -> tuple[FloatArray, IntArray]:
    """Merge the rare cells of each test into an extra cell at its end; if that is rare too, into the fullest cell."""
    owners, n_tests = list_owners(offsets), offsets.size - 1
    both = cells.sum(axis=0)
    totals = sum_blocks(cells, offsets, axis=1)
    new_share = totals[0] / np.maximum(totals.sum(axis=0), 1)
    rare = both * new_share[owners] < LEAST_EXPECTED
    rest = sum_blocks(np.where(rare, cells, 0.0), offsets, axis=1)
    merged = np.zeros((2, both.size + n_tests))
    positions = np.arange(both.size) + owners
    merged[:, positions] = np.where(rare, 0.0, cells)
    edges = offsets + np.arange(n_tests + 1)
    scarce = rest.sum(axis=0) * new_share < LEAST_EXPECTED
    # the first of the fullest cells of each test
    order = np.lexsort((-np.arange(both.size), both, owners))
    fullest = positions[order[offsets[1:] - 1]]
    np.add.at(merged.T, np.where(scarce, fullest, edges[1:] - 1), rest.T)
    return merged, edges


def _conclude(
    found: Distances, statistic: FloatArray, degrees: IntArray, scale: FloatArray
) -> HomogeneityTests:
    """Compute the p-value, and the index minus its expectation with its lower bound."""
    from scipy.special import chdtrc

    n_new, n_reference = found.n_first, found.n_second
    tested = (np.minimum(n_new, n_reference) >= LEAST_COUNTED) & (degrees > 0)
    p_value = np.where(tested, chdtrc(np.maximum(degrees, 1), np.maximum(statistic, 0.0)), 1.0)
    excess = found.stability_index - scale * degrees
    deviation = np.sqrt(2 * scale * (scale * degrees + 2 * np.maximum(excess, 0.0)))
    least = np.where(tested, excess - QUANTILE * deviation, -np.inf)
    return HomogeneityTests(n_new, n_reference, p_value, excess, least, found.total_variation)
