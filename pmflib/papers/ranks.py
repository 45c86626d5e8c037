"""Rank selection from pairs: an initial guess from singular vectors, and steps to neighbouring ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import (
    FLOOR,
    BoolArray,
    FloatArray,
    IntArray,
    Parameters,
    list_owners,
    normalise_blocks,
    repeat_blocks,
    sum_blocks,
)
from pmflib.base.constraints import at_least, check
from pmflib.base.errors import RankError
from pmflib.base.pseudo_counts import check_start

# Chosen: number of standard errors above zero that confirm a direction.
_CONFIRMED = 3.0


def scale_pairs(table: FloatArray | IntArray, offsets: IntArray) -> tuple[FloatArray, FloatArray]:
    """Scale pair counts so that sampling noise is about equal everywhere, as in correspondence analysis.

    Parameters
    ----------
    table
        Symmetric co-occurrence counts of shape (n_levels, n_levels); diagonal blocks are not used.
    offsets
        int64 of shape (n_variables + 1,).

    Returns
    -------
    scaled
        float64 of shape (n_levels, n_levels): P(a, b) / sqrt(P(a) P(b)) for each pair of variables, with the pair's own
        single marginals; 0 if the pair was never observed.
    noise
        float64 of shape (n_levels, n_levels): variance of an entry, about 1 / (support of the pair); 0 if the pair was
        never observed.
    """
    owners = list_owners(offsets)
    counts = np.where(owners[:, None] == owners, 0.0, table)
    # rows[a, k]: number of samples with level a in which variable k is observed
    rows = sum_blocks(counts, offsets, axis=1)
    support = sum_blocks(rows, offsets)
    expected = rows[:, owners] * rows[:, owners].T
    scaled = np.where(expected > 0, counts / np.sqrt(np.where(expected > 0, expected, 1.0)), 0.0)
    noise = np.where(support > 0, 1.0 / np.where(support > 0, support, 1.0), 0.0)
    return scaled, noise[owners][:, owners]


def count_confirmed(
    training: FloatArray | IntArray,
    held_out: FloatArray | IntArray,
    offsets: IntArray,
    first: BoolArray,
) -> int:
    """Count the singular vectors of the training pairs that are confirmed by held-out pairs.

    Parameters
    ----------
    training, held_out
        Symmetric co-occurrence counts of shape (n_levels, n_levels), from disjoint samples.
    offsets
        int64 of shape (n_variables + 1,).
    first
        bool of shape (n_variables,), True for the first side of a split; the matrix consists of the pairs across the
        split.

    Returns
    -------
    Number of singular directions whose value on the held-out pairs exceeds three standard errors: at least 1, at most
    the number of levels on the smaller side.
    """
    side = repeat_blocks(first, offsets)
    cells = np.ix_(side, ~side)
    left, _, right = np.linalg.svd(scale_pairs(training, offsets)[0][cells], full_matrices=False)
    fresh, noise = (part[cells] for part in scale_pairs(held_out, offsets))
    values = np.einsum("ak,ab,kb->k", left, fresh, right, optimize=True)
    variances = np.einsum("ak,ab,kb->k", left**2, noise, right**2, optimize=True)
    return max(1, int((values > _CONFIRMED * np.sqrt(variances)).sum()))


@dataclass(frozen=True)
class StateMoveSettings:
    """Settings of `add_state`; all are chosen, since a fit that follows needs only a rough start."""

    certainty: float = 0.9
    """Probability of the level in the new state; the remainder follows the variable's PMF."""
    shrinkage: float = 0.5
    """Weight of the variables' PMFs in the new state: cells based on few samples are unreliable."""
    prior_share: float = 0.5
    """Fraction of the level's probability that becomes the prior of the new state."""
    cell_floor: float = 1e-6
    """Lower bound for model cells in Pearson's statistic."""


_DEFAULT = StateMoveSettings()


def add_state(
    parameters: Parameters,
    marginals: FloatArray,
    weights: FloatArray | IntArray,
    offsets: IntArray,
    singles: FloatArray,
    *,
    settings: StateMoveSettings = _DEFAULT,
) -> Parameters:
    """Add a latent state for the level that fits worst.

    Parameters
    ----------
    parameters
        Prior (rank,) and factors (n_levels, rank).
    marginals
        float64 of shape (n_levels, n_levels), as in `fit_spa`.
    weights
        Weights of the pairs by cell, of shape (n_levels, n_levels), >= 0, 0 if not observed.
    offsets
        int64 of shape (n_variables + 1,).
    singles
        float64 of shape (n_levels,), PMF of each variable.
    settings
        Settings of the method.

    Returns
    -------
    Parameters with one more state: the PMFs of samples with that level, and half of the level's probability as prior.

    Notes
    -----
    The worst fitting level has the largest weighted sum of squared residuals in its row, divided by the model
    probabilities, as in Pearson's statistic.
    """
    prior, factors = parameters
    check_start(parameters, singles.size)
    model = (factors * prior) @ factors.T
    residual = weights * (marginals - model) ** 2 / np.maximum(model, settings.cell_floor)
    level = int(np.argmax(residual.sum(axis=1)))
    profile = normalise_blocks(
        np.where(weights[level] > 0, marginals[level], 0.0)[:, None], offsets, singles[:, None]
    )[:, 0]
    variable = int(np.searchsorted(offsets, level, side="right")) - 1
    own = slice(offsets[variable], offsets[variable + 1])
    profile[own] = (1 - settings.certainty) * singles[own]
    profile[level] += settings.certainty
    profile = (1 - settings.shrinkage) * profile + settings.shrinkage * singles
    share = settings.prior_share * float(singles[level])
    return (
        np.append((1 - share) * prior, share),
        np.column_stack([factors, profile]),
    )


def merge_states(parameters: Parameters) -> Parameters:
    """Merge the two states that differ least, weighted by their prior.

    Parameters
    ----------
    parameters
        Prior (rank,) and factors (n_levels, rank), at least two states.

    Returns
    -------
    Parameters with one state less: the average of the two states, weighted by their prior.

    Raises
    ------
    RankError
        If there is only one state.

    References
    ----------
    Ward (1963), Journal of the American Statistical Association 58: the increase of the within-group sum of squares,
    here of conditional probabilities.
    """
    prior, factors = parameters
    check_start(parameters, factors.shape[0])
    check(at_least(2, "as a single state has none to merge with"), RankError, rank=prior.size)
    squares = (factors**2).sum(axis=0)
    distances = np.maximum(squares[:, None] + squares - 2 * factors.T @ factors, 0.0)
    both = prior[:, None] + prior
    costs = distances * (prior[:, None] * prior) / np.maximum(both, FLOOR)
    np.fill_diagonal(costs, np.inf)
    kept, gone = divmod(int(np.argmin(costs)), prior.size)
    weight = prior[kept] / both[kept, gone] if both[kept, gone] > 0 else 0.5
    new_prior, new_factors = prior.copy(), factors.copy()
    new_prior[kept] = both[kept, gone]
    new_factors[:, kept] = weight * factors[:, kept] + (1 - weight) * factors[:, gone]
    return np.delete(new_prior, gone), np.delete(new_factors, gone, axis=1)
