"""Whether EM has converged: by its objective, or by the log-likelihood of held-out samples."""

from __future__ import annotations

import math
from collections.abc import Sequence


def is_near_limit(losses: Sequence[float], tol: float, cycle: int = 1) -> bool:
    """Whether what further passes may gain is estimated to be small.

    Parameters
    ----------
    losses
        Objective before each pass, never rising.
    tol
        Share of the objective, at least 0.
    cycle
        As for `estimate_gap`.
    """
    return bool(losses) and estimate_gap(losses, cycle) <= tol * abs(losses[-1])


def estimate_gap(losses: Sequence[float], cycle: int = 1) -> float:
    """Estimate what a slowly converging sequence may still lose, from how its changes shrink.

    Parameters
    ----------
    losses
        Falling, nats per sample.
    cycle
        Number of passes from one loss to the one that it is compared with: where the sequence goes by cycles, their
        length. The estimate is the largest over the last cycle.

    Returns
    -------
    Estimate of the last loss minus the limit: of a geometric sequence, exactly that. Infinite while changes grow, or
    are too few for an estimate.

    References
    ----------
    Aitken (1926); for EM, McLachlan, Krishnan (2008), section 4.9.
    """
    if len(losses) < 3 * cycle:
        return math.inf
    gaps = []
    for last in range(len(losses) - cycle, len(losses)):
        before, change = (max(losses[i - cycle] - losses[i], 0.0) for i in (last - cycle, last))
        if change == 0:
            gaps.append(0.0)
        else:
            gaps.append(change**2 / (before - change) if before > change else math.inf)
    return max(gaps)


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
