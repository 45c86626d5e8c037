"""Profiles of latent states: how large each is, and the levels that distinguish it from all others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError
from pmflib.level_blocks import FLOOR, list_owners, sum_blocks
from pmflib.model.sampling import check_model

SHOWN_LEVELS = 6
"""Levels per state that are listed by default."""

MIN_LIFT = 1.1
"""Levels whose lift is below distinguish nothing that a person would care for."""


@dataclass(frozen=True, eq=False)
class StateProfiles:
    """Latent states, the largest first, and what distinguishes each.

    Parameters
    ----------
    states
        int64 of shape (rank,): states by size; equal ones in their order.
    sizes
        float64 of shape (rank,): probability of each of ``states``, descending.
    divergences
        float64 of shape (rank,), nats: sum over variables of the divergence of the state's PMF from the marginal. 0 for
        a state that is as everybody is.
    levels
        int64 of shape (rank, n_shown): rows of the factors, those that distinguish the state most first; -1 where there
        are no more.
    variables
        int64 of shape (rank, n_shown): places of their variables; -1 likewise.
    probabilities, marginals
        float64 of shape (rank, n_shown): probability of the level in the state, and of all; NaN likewise.
    lifts
        float64 of shape (rank, n_shown): the one divided by the other, at least the limit that was given; NaN likewise.
    """

    states: IntArray
    sizes: FloatArray
    divergences: FloatArray
    levels: IntArray
    variables: IntArray
    probabilities: FloatArray
    marginals: FloatArray
    lifts: FloatArray


def profile_states(
    prior: FloatArray,
    factors: FloatArray,
    offsets: IntArray,
    *,
    n_shown: int = SHOWN_LEVELS,
    min_lift: float = MIN_LIFT,
) -> StateProfiles:
    """Find what distinguishes latent states: levels that are likelier in a state than elsewhere.

    Parameters
    ----------
    prior
        float64 of shape (rank,), probabilities that sum to 1.
    factors
        float64 of shape (n_levels, rank): conditional PMFs, stacked.
    offsets
        int64 of shape (n_variables + 1,); variable j owns rows ``offsets[j]:offsets[j + 1]``.
    n_shown
        Levels to list per state, at least 0; there are fewer columns where there are fewer levels.
    min_lift
        Least ratio of a level's probability in the state to its marginal, at least 1.

    Returns
    -------
    The profiles.

    Raises
    ------
    SchemaError, RankError
        If the arrays are no model.
    PmfError
        If n_shown or min_lift is out of range.

    Notes
    -----
    Levels are ordered by ``p log(p / q)``, nats, with p the level's probability in the state and q its marginal: the
    level's share of the divergence. The lift ``p / q`` alone would list levels that hardly anybody has.

    Examples
    --------
    >>> found = profile_states(np.array([0.25, 0.75]), np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([0, 2]))
    >>> found.states.tolist(), found.levels[:, 0].tolist(), found.lifts[:, 0].round(2).tolist()
    ([1, 0], [1, 0], [1.29, 3.0])
    """
    check_model(prior, factors, offsets)
    if n_shown < 0:
        raise PmfError(f"n_shown is {n_shown}; give at least 0")
    if not min_lift >= 1:
        raise PmfError(f"min_lift is {min_lift}; give at least 1, which lists all that is likelier")
    marginals = factors @ prior
    # a level that nobody has distinguishes nothing, whatever a state of size 0 says
    lifts = np.where(
        marginals[:, None] > FLOOR, factors / np.maximum(marginals, FLOOR)[:, None], 1.0
    )
    shares = factors * np.log(np.maximum(lifts, FLOOR))
    divergences = np.maximum(sum_blocks(shares, offsets).sum(axis=0), 0.0)
    states = np.argsort(-prior, kind="stable")
    n_shown = min(n_shown, len(factors))
    weights = np.where(lifts >= min_lift, shares, -np.inf)
    levels = np.argsort(-weights, axis=0, kind="stable")[:n_shown, states].T
    none = np.isneginf(weights[levels, states[:, None]])

    def pick(table: FloatArray) -> FloatArray:
        return np.where(none, np.nan, table)

    return StateProfiles(
        states=states,
        sizes=prior[states],
        divergences=divergences[states],
        levels=np.where(none, -1, levels),
        variables=np.where(none, -1, list_owners(offsets)[levels]),
        probabilities=pick(factors[levels, states[:, None]]),
        marginals=pick(marginals[levels]),
        lifts=pick(lifts[levels, states[:, None]]),
    )
