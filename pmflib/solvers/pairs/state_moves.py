"""Moves between neighbouring ranks: a state more, where the pairs ask for it, or two states made one."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.errors import RankError
from pmflib.solvers.pairs.checks import FLOOR, check_start, normalise_blocks

# The new state's own level is certain to this degree; the rest is the variable's PMF.
_CERTAIN = 0.9


def add_state(
    parameters: Parameters,
    marginals: FloatArray,
    weights: FloatArray | IntArray,
    offsets: IntArray,
    singles: FloatArray,
) -> Parameters:
    """Add the state that the worst fitted level asks for.

    Parameters
    ----------
    parameters
        Prior (rank,) and factors (n_levels, rank).
    marginals
        float64 of shape (n_levels, n_levels), as `fit_spa` takes them.
    weights
        Of shape (n_levels, n_levels), >= 0: of the cells' pairs, 0 where not observed.
    offsets
        int64 of shape (n_variables + 1,).
    singles
        float64 of shape (n_levels,), PMF of each variable.

    Returns
    -------
    Parameters of one state more: what the samples that hold the level answer, with half of the
    level's share of the prior.

    Notes
    -----
    The worst fitted level has the largest weighted squared residual of its row over the
    probabilities of the model, as in Pearson's statistic.
    """
    prior, factors = parameters
    check_start(parameters, singles.size)
    model = (factors * prior) @ factors.T
    residual = weights * (marginals - model) ** 2 / np.maximum(model, 1e-6)
    level = int(np.argmax(residual.sum(axis=1)))
    profile = normalise_blocks(
        np.where(weights[level] > 0, marginals[level], 0.0)[:, None], offsets, singles[:, None]
    )[:, 0]
    variable = int(np.searchsorted(offsets, level, side="right")) - 1
    own = slice(offsets[variable], offsets[variable + 1])
    profile[own] = (1 - _CERTAIN) * singles[own]
    profile[level] += _CERTAIN
    # answers that few samples gave are guesses: half of the profile is the variables' own
    profile = 0.5 * profile + 0.5 * singles
    share = 0.5 * float(singles[level])
    return (
        np.append((1 - share) * prior, share),
        np.column_stack([factors, profile]),
    )


def merge_states(parameters: Parameters) -> Parameters:
    """Make the two states one that differ least, for what they weigh.

    Parameters
    ----------
    parameters
        Prior (rank,) and factors (n_levels, rank), at least two states.

    Returns
    -------
    Parameters of one state less: the two are averaged by their prior.

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
        raise RankError("the model has a single state, nothing to merge; keep it")
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
