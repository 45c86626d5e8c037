"""Closed-form updates that cannot raise a loss, accelerated by squared extrapolation until the loss settles."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from pmflib.arrays import IntArray, Parameters
from pmflib.solvers.numeric.squarem import extrapolate
from pmflib.solvers.result import SolverResult

Update: TypeAlias = Callable[[Parameters], tuple[float, Parameters]]
"""Loss of parameters, and the closed-form update of these parameters."""


def descend(
    update: Update,
    initial: Parameters,
    offsets: IntArray,
    *,
    max_iter: int,
    tol: float,
    exact_loss: float = -math.inf,
) -> SolverResult:
    """Update parameters until the loss settles, and after every two updates extrapolate from them.

    Parameters
    ----------
    update
        Gives the loss of parameters, finite, and their update, whose loss is no higher but for rounding.
    initial
        Prior (rank,) and factors (n_levels, rank) to start from.
    offsets
        int64 of shape (n_variables + 1,).
    max_iter
        Limit of iterations, at least 0; an iteration is three updates, one of them extrapolated.
    tol
        Stop when an iteration lowers the loss by at most this share of it.
    exact_loss
        Stop at a loss at most this high: what is left is rounding.

    Returns
    -------
    The parameters of the last and least loss. ``loss_history`` starts with the loss of the start and never rises.
    """
    current = initial
    loss, updated = update(current)
    history = [loss]
    converged = loss <= exact_loss
    while not converged and len(history) <= max_iter:
        loss, current, updated = _iterate(update, loss, current, updated, offsets)
        history.append(loss)
        converged = loss <= exact_loss or history[-2] - loss <= tol * abs(loss)
    return SolverResult(*current, tuple(history), len(history) - 1, converged)


def _iterate(
    update: Update, loss: float, current: Parameters, first: Parameters, offsets: IntArray
) -> tuple[float, Parameters, Parameters]:
    """Return a loss no higher than before, its parameters, and the update of these."""
    loss_first, second = update(first)
    extrapolated, _ = extrapolate(current, first, second, offsets, math.inf)
    for candidate in (extrapolated, second):
        new_loss, updated = update(candidate)
        if new_loss <= min(loss, loss_first):
            return new_loss, candidate, updated
    # at the minimum an update may raise the loss by a rounding error
    return (loss_first, first, second) if loss_first <= loss else (loss, current, first)
