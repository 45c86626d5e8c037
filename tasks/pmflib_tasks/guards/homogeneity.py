"""Tests of homogeneity: which levels are cells of which test, and whether new counts differ from earlier ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    list_owners,
    repeat_blocks,
    sum_blocks,
)

LEAST_COUNTED = 30
"""Cells observed that a test needs on either side: the law of chance is known for large numbers only."""
LEAST_EXPECTED = 1.0
"""Expected new count of a cell, at least; rarer cells of a test are one (Cochran 1954: below 1 the chi-squared law
fails)."""
LEAST_PER_DEGREE = 5
"""New samples that a test of dependence needs per degree of freedom: its tables keep their rare cells."""
HALF = 0.5
"""Pseudo-count of each cell in a stability index: no logarithm of 0 (Jeffreys' prior)."""
QUANTILE = 1.645
"""Standard normal quantile of 95 %: indices and shares are bounded from below at this confidence."""


@dataclass(frozen=True, eq=False)
class DriftComparison:
    """Outcome of many tests, each array of shape (n_tests,).

    Parameters
    ----------
    n_new, n_reference
        int64, observations on either side.
    p_value
        Probability of a G statistic at least as large without drift; 1 where nothing was tested.
    stability_index
        Population stability index, less what it is expected to be without drift.
    least_index
        Lower bound of it at 95 %; minus infinity where nothing was tested.
    total_variation
        Half the sum of the absolute differences of shares, in [0, 1].
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
) -> DriftComparison:
    """Compare new counts with those of a reference, test by test.

    Parameters
    ----------
    new, reference
        Shape (n_cells,), at least 0.
    offsets
        int64 of shape (n_tests + 1,): cells of each test, at least one.
    new_effect, reference_effect
        Design effects of either side, float64 of shape (n_tests,) or one number: by how much clustering makes a
        share's variance larger than a multinomial one.

    Notes
    -----
    The statistic is the likelihood ratio ``G``, divided by Williams' correction and by the mean design effect, after
    the first-order correction of Rao and Scott. Without drift the index is ``s`` times a chi-squared variable of
    K - 1 degrees of freedom, with ``s = new_effect / n_new + reference_effect / n_reference`` (Yurdakul and Naranjo
    with Rao and Scott's effects); so ``s (K - 1)`` is subtracted. With drift that variable is noncentral, of variance
    ``2 (K - 1) + 4 (index / s)``, which gives the lower bound.

    References
    ----------
    Williams (1976), "Improved likelihood ratio tests for complete contingency tables", Biometrika 63.
    Rao, Scott (1984), "On chi-squared tests for multiway contingency tables with cell proportions estimated from
    survey data", Annals of Statistics 12.
    Yurdakul, Naranjo (2020), "Statistical properties of the population stability index", Journal of Risk Model
    Validation 14.
    """
    cells, edges = _merge_rare(np.stack([new, reference]).astype(np.float64), offsets)
    totals = sum_blocks(cells, edges, axis=1)
    return _assess(cells, _expect(cells, totals, edges), edges, new_effect, reference_effect)


def compare_dependence(
    new: IntArray, expected: FloatArray, n_reference: IntArray, shape: tuple[int, int]
) -> DriftComparison:
    """Compare new tables of two variables with tables of the same margins and an earlier dependence.

    Parameters
    ----------
    new
        int64 of shape (n_tests, n_levels_1, n_levels_2).
    expected
        float64 of the same shape: see `carry_dependence`.
    n_reference
        int64 of shape (n_tests,): samples that the earlier dependence was found in.
    shape
        n_levels_1, n_levels_2.

    Notes
    -----
    G has ``(K_1 - 1)(K_2 - 1)`` degrees of freedom, of the levels that occur; that the earlier dependence is an
    estimate as well is the factor ``1 + n_new / n_reference``.
    """
    # a fifth of a second to import, which a night with nothing new can do without
    from scipy.special import xlogy

    n_new = new.sum(axis=(1, 2))
    degrees = np.prod([(new.sum(axis=axis) > 0).sum(axis=1) - 1 for axis in (1, 2)], axis=0)
    scale = 1 / np.maximum(n_new, 1) + 1 / np.maximum(n_reference, 1)
    ratio = xlogy(new, new) - xlogy(new, np.where(new > 0, expected, 1.0))
    statistic = 2 * ratio.sum(axis=(1, 2)) / (np.maximum(n_new, 1) * scale)
    shares = [
        (side + HALF) / (side.sum(axis=(1, 2), keepdims=True) + HALF * shape[0] * shape[1])
        for side in (new, expected)
    ]
    index = ((shares[0] - shares[1]) * np.log(shares[0] / shares[1])).sum(axis=(1, 2))
    variation = np.abs(new - expected).sum(axis=(1, 2)) / (2 * np.maximum(n_new, 1))
    degrees = np.where(n_new >= LEAST_PER_DEGREE * degrees, degrees, 0)
    return _conclude(n_new, n_reference, statistic, index, variation, degrees, scale)


def carry_dependence(reference: IntArray, new: IntArray, *, sweeps: int = 20) -> FloatArray:
    """Tables with the margins of new ones and the odds ratios of a reference.

    Parameters
    ----------
    reference, new
        int64 of shape (n_tests, n_levels_1, n_levels_2).
    sweeps
        Sweeps of iterative proportional fitting; each brings the margins nearer by a constant factor.

    References
    ----------
    Deming, Stephan (1940), "On a least squares adjustment of a sampled frequency table when the expected marginal
    totals are known", Annals of Mathematical Statistics 11.
    """
    # zeros of a reference would be zeros for ever
    fitted: FloatArray = reference.astype(np.float64) + HALF
    for _ in range(sweeps):
        for axis in (1, 2):
            fitted *= new.sum(axis=axis, keepdims=True) / np.maximum(
                fitted.sum(axis=axis, keepdims=True), np.finfo(np.float64).tiny
            )
    return fitted


def estimate_design_effect(groups: IntArray, offsets: IntArray) -> FloatArray:
    """Design effect that groups of observations show, by test: at least 1, float64 of shape (n_tests,).

    It is Pearson's statistic of homogeneity between the groups, divided by its degrees of freedom. Where groups are
    random and clusters lie within them, as samples within folds, it does not depend on the number of clusters.

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
    """Correlation of two observations of one group, by test: in [0, 1], float64 of shape (n_tests,).

    A group of n observations has the design effect ``1 + (n - 1) correlation``: what files differ by, beyond chance,
    is known of the files before.

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
    """Pearson's statistic of homogeneity between groups, and its degrees of freedom, by test."""
    total = groups.sum(axis=0)
    share = total / np.maximum(repeat_blocks(sum_blocks(total, offsets), offsets), 1)
    sizes = sum_blocks(groups, offsets, axis=1)
    statistic = np.zeros(offsets.size - 1)
    # a group at a time: there may be thousands of files
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
    """Add up the rare cells of each test in a cell more, at its end; where that is rare too, in the fullest cell."""
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


def _expect(cells: FloatArray, totals: FloatArray, offsets: IntArray) -> FloatArray:
    """Counts of either side if both had one distribution."""
    share = cells.sum(axis=0) / np.maximum(repeat_blocks(totals.sum(axis=0), offsets), 1)
    expected: FloatArray = share * repeat_blocks(totals, offsets, axis=1)
    return expected


def _assess(
    cells: FloatArray,
    expected: FloatArray,
    offsets: IntArray,
    new_effect: FloatArray | float,
    reference_effect: FloatArray | float,
) -> DriftComparison:
    from scipy.special import xlogy

    n_new, n_reference = sum_blocks(cells, offsets, axis=1)
    both = cells.sum(axis=0)
    filled = both > 0
    degrees = np.maximum(sum_blocks(filled.astype(np.int64), offsets) - 1, 0)
    ratio = xlogy(cells, cells) - xlogy(cells, np.where(cells > 0, expected, 1.0))
    plain = 1 / np.maximum(n_new, 1) + 1 / np.maximum(n_reference, 1)
    scale = new_effect / np.maximum(n_new, 1) + reference_effect / np.maximum(n_reference, 1)
    total = np.maximum(n_new + n_reference, 1)
    inverse = sum_blocks(np.where(filled, 1 / np.where(filled, both, 1.0), 0.0), offsets)
    williams = 1 + (total * plain - 1) * (total * inverse - 1) / (
        6 * total * np.maximum(degrees, 1)
    )
    statistic = 2 * sum_blocks(ratio.sum(axis=0), offsets) / williams * plain / scale
    n_filled = repeat_blocks(degrees + 1, offsets)
    sizes = repeat_blocks(np.stack([n_new, n_reference]), offsets, axis=1)
    shares = (cells + HALF) / (sizes + HALF * n_filled)
    index = sum_blocks(
        np.where(filled, (shares[0] - shares[1]) * np.log(shares[0] / shares[1]), 0.0), offsets
    )
    plain_shares = cells / np.maximum(sizes, 1)
    variation = sum_blocks(np.abs(plain_shares[0] - plain_shares[1]), offsets) / 2
    counted = n_new.astype(np.int64), n_reference.astype(np.int64)
    return _conclude(*counted, statistic, index, variation, degrees, scale)


def _conclude(
    n_new: IntArray,
    n_reference: IntArray,
    statistic: FloatArray,
    index: FloatArray,
    variation: FloatArray,
    degrees: IntArray,
    scale: FloatArray,
) -> DriftComparison:
    """Probability of the statistic, and the index less its expectation with its lower bound."""
    from scipy.special import chdtrc

    tested = (np.minimum(n_new, n_reference) >= LEAST_COUNTED) & (degrees > 0)
    p_value = np.where(tested, chdtrc(np.maximum(degrees, 1), np.maximum(statistic, 0.0)), 1.0)
    excess = index - scale * degrees
    deviation = np.sqrt(2 * scale * (scale * degrees + 2 * np.maximum(excess, 0.0)))
    least = np.where(tested, excess - QUANTILE * deviation, -np.inf)
    return DriftComparison(n_new, n_reference, p_value, excess, least, variation)
