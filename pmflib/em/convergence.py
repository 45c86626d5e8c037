"""Tests of convergence of EM: on the training objective, and on held-out samples."""

from __future__ import annotations

import math
from collections.abc import Sequence


def is_near_limit(losses: Sequence[float], tol: float) -> bool:
    """Whether what further passes may gain is estimated to be small.

    Parameters
    ----------
    losses
        Objective before each pass, never rising.
    tol
        Share of the objective, at least 0.
    """
    return bool(losses) and estimate_gap(losses) <= tol * abs(losses[-1])


def has_settled(losses: Sequence[float], tol: float, n_passes: int) -> bool:
    """Whether the last passes have gained little, all together.

    For passes between which extrapolations lie: the gain of one says nothing of the next. After a long step the next
    ones are short, and where states are still alike the objective hardly falls for some passes before it falls again.

    Parameters
    ----------
    losses
        Objective before each pass, never rising.
    tol
        Share of the objective, at least 0.
    n_passes
        Number of passes, at least 1.
    """
    return len(losses) > n_passes and losses[-1 - n_passes] - losses[-1] <= tol * abs(losses[-1])


def estimate_gap(losses: Sequence[float]) -> float:
    """Estimate what a slowly converging sequence may still lose, from how its changes shrink.

    Parameters
    ----------
    losses
        Falling, nats per sample.

    Returns
    -------
    Estimate of the last loss minus the limit: of a geometric sequence, exactly that. Infinite while changes grow, or
    are too few for an estimate.

    References
    ----------
    Aitken (1926); for EM, McLachlan, Krishnan (2008), section 4.9.
    """
    if len(losses) < 3:
        return math.inf
    before, change = (max(losses[i - 1] - losses[i], 0.0) for i in (-2, -1))
    if change == 0:
        return 0.0
    return change**2 / (before - change) if before > change else math.inf


def count_stale(held_out: Sequence[float], tol: float) -> int:
    """Number of passes since the held-out log-likelihood last rose by more than a share of its value.

    Parameters
    ----------
    held_out
        Log-likelihood of the start, and after each pass.
    tol
        The share, at least 0.
    """
    risen, level = 0, held_out[0]
    for passes, value in enumerate(held_out):
        if value > level + tol * abs(level):
            risen, level = passes, value
    return len(held_out) - 1 - risen
