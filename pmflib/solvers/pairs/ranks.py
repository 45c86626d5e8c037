"""Ranks by pairs: a first guess from singular vectors, and moves between neighbouring ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import (
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
from pmflib.core.errors import RankError
from pmflib.solvers import check_start

# Chosen: standard errors above zero that confirm a direction.
_CONFIRMED = 3.0


def scale_pairs(table: FloatArray | IntArray, offsets: IntArray) -> tuple[FloatArray, FloatArray]:
    """Scale pair counts so that sampling noise is alike everywhere, as correspondence analysis does.

    Parameters
    ----------
    table
        Symmetric co-occurrence counts, of shape (n_levels, n_levels); diagonal blocks are not read.
    offsets
        int64 of shape (n_variables + 1,).

    Returns
    -------
    scaled
        float64 of shape (n_levels, n_levels): P(a, b) / sqrt(P(a) P(b)) by pair of variables, with
        the pair's own single marginals; 0 where a pair was never observed.
    noise
        float64 of shape (n_levels, n_levels): variance of an entry, about one over the pair's
        support; 0 where never observed.
    """
    owners = list_owners(offsets)
    counts = np.where(owners[:, None] == owners, 0.0, table)
    # rows[a, k]: samples with level a that also hold variable k
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
    """Count the singular vectors of training pairs that held-out pairs confirm.

    Parameters
    ----------
    training, held_out
        Symmetric co-occurrence counts of shape (n_levels, n_levels), of different samples.
    offsets
        int64 of shape (n_variables + 1,).
    first
        bool of shape (n_variables,), the first side of a split of the variables; the pairs across
        make the matrix.

    Returns
    -------
    Singular directions whose value on the held-out pairs is above three standard errors: at least
    1, at most the levels of the smaller side.
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
    """Numbers that `add_state` works with, all chosen: what follows is a fit, which has only to start near."""

    certainty: float = 0.9
    """Probability that the new state gives its own level; the rest is the variable's PMF."""
    shrinkage: float = 0.5
    """Share of the variables' PMFs in the new state: the cells of few samples are guesses."""
    prior_share: float = 0.5
    """Share of the level's probability that becomes the new state's prior."""
    cell_floor: float = 1e-6
    """Model cells below count as this much in Pearson's statistic."""


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
    """Add a state for the worst fitted level.

    Parameters
    ----------
    parameters
        Prior (rank,) and factors (n_levels, rank).
    marginals
        float64 of shape (n_levels, n_levels), as `fit_spa` takes them.
    weights
        Weights of the cells' pairs, of shape (n_levels, n_levels), >= 0, 0 where not observed.
    offsets
        int64 of shape (n_variables + 1,).
    singles
        float64 of shape (n_levels,), PMF of each variable.
    settings
        Numbers that the method works with.

    Returns
    -------
    Parameters of one state more: the PMFs of the samples that hold the level, with half of the level's
    probability as its prior.

    Notes
    -----
    The worst fitted level has the largest weighted squared residual of its row over the
    probabilities of the model, as in Pearson's statistic.
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
    Parameters of one state less: the two are averaged, weighted by their prior.

    Raises
    ------
    RankError
        If there is a single state.

    References
    ----------
    Ward (1963), Journal of the American Statistical Association 58: the rise of the within-group
    sum of squares, here of conditional probabilities.
    """
    prior, factors = parameters
    check_start(parameters, factors.shape[0])
    if prior.size < 2:
        raise RankError("the model has a single state, nothing to merge; give at least two")
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
