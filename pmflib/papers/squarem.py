"""SQUAREM acceleration of EM and other closed-form updates: extrapolation from two successive steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from pmflib.base.arrays import IntArray, Parameters
from pmflib.base.pseudo_counts import SolverResult


@dataclass(frozen=True)
class SquaremParameters:
    """Parameters of the extrapolation; "the package" is SQUAREM for R, by the authors of the method.

    Parameters
    ----------
    least_share
        Smallest fraction of a plain EM probability that an extrapolation may leave, in (0, 1), since EM never leaves
        zero. Our choice; the published method is for unbounded parameters.
    first_longest
        Initial maximum step length: that of the package, 1 (``step.max0``), after its first growth.
    growth
        Factor by which the maximum step length grows after an accepted extrapolation that it limited, and shrinks after
        a rejected one (``mstep`` of the package).
    least_longest
        Lower bound for the maximum step length, above ``shortest``: our choice, so that extrapolation is never
        abandoned.
    shortest
        Smallest step length for which an extrapolation is worth evaluating, as in the package.

    References
    ----------
    Varadhan, Roland (2008), as in `extrapolate`; functions ``squarem`` and ``squarem1`` of the package.
    """

    least_share: float = 0.1
    first_longest: float = 4.0
    growth: float = 4.0
    least_longest: float = 1.5
    shortest: float = 1.01


SQUAREM = SquaremParameters()


@dataclass(frozen=True, eq=False)
class Acceleration:
    """State of the acceleration of an EM run.

    The next E-step evaluates the objective of an extrapolated model; `accepts` then decides whether it is kept.

    Parameters
    ----------
    origin
        Model one update before the current one, if the next update completes a pair; None at the start and after an
        extrapolation.
    fallback
        Model of plain EM, while the current model is an extrapolation that has not been evaluated; otherwise None.
    step_length
        Step length of the current extrapolation, above 1; 1 if there is none.
    longest
        Maximum step length of the next extrapolation.
    passes_saved
        Estimated number of passes saved so far: the gains of extrapolations in units of the gain of the preceding pass.
    """

    origin: Parameters | None = None
    fallback: Parameters | None = None
    step_length: float = 1.0
    longest: float = SQUAREM.first_longest
    passes_saved: float = 0.0

    def accepts(self, loss: float, losses: Sequence[float]) -> bool:
        """Return whether to keep the current model.

        Parameters
        ----------
        loss
            Objective of the current model (minimised).
        losses
            Objectives of the previous models.
        """
        return self.fallback is None or loss <= losses[-1]

    def reject(self) -> tuple[Parameters, Acceleration]:
        """Return to the model of plain EM and reduce the maximum step length."""
        assert self.fallback is not None
        return self.fallback, Acceleration(
            longest=max(self.step_length / SQUAREM.growth, SQUAREM.least_longest),
            passes_saved=self.passes_saved - 1,
        )

    def accept(self, loss: float, losses: Sequence[float]) -> Acceleration:
        """Keep the current model, and increase the maximum step length if it limited the extrapolation.

        Parameters
        ----------
        loss, losses
            As for `accepts`.
        """
        if self.fallback is None:
            return self
        has_bound = self.step_length >= self.longest
        return Acceleration(
            longest=self.longest * (SQUAREM.growth if has_bound else 1.0),
            passes_saved=self.passes_saved + _count_saved(loss, losses),
        )

    def propose(
        self, current: Parameters, updated: Parameters, offsets: IntArray
    ) -> tuple[Parameters, Acceleration]:
        """Extrapolate if an update is the second of a pair.

        Parameters
        ----------
        current, updated
            The current, accepted model and its EM update.
        offsets
            int64 of shape (n_variables + 1,).

        Returns
        -------
        Model to continue from: an extrapolation, or the update itself.
        """
        if self.origin is not None:
            proposed, step_length = extrapolate(
                self.origin, current, updated, offsets, self.longest
            )
            if step_length > 1:
                return proposed, replace(
                    self, origin=None, fallback=updated, step_length=step_length
                )
        return updated, replace(self, origin=current)


def _count_saved(loss: float, losses: Sequence[float]) -> float:
    """Return the net number of passes that the gain of an extrapolation is worth."""
    gained = losses[-2] - losses[-1]
    return max((losses[-1] - loss) / gained - 1, 0.0) if gained > 0 else 0.0


def extrapolate(
    start: Parameters, middle: Parameters, end: Parameters, offsets: IntArray, longest: float
) -> tuple[Parameters, float]:
    """Extrapolate along two EM steps, with a step length estimated from their contraction.

    Parameters
    ----------
    start, middle, end
        A model, and the models after one and two EM steps.
    offsets
        int64 of shape (n_variables + 1,).
    longest
        Maximum step length, at least 1.

    Returns
    -------
    The extrapolated model, whose objective may be worse, and the step length; 1 gives ``end`` itself.

    References
    ----------
    Varadhan, Roland (2008), "Simple and globally convergent methods for accelerating the convergence of any EM
    algorithm", scheme SqS3.
    """
    steps = [b - a for a, b in zip(start, middle, strict=True)]
    bends = [c - b - step for b, c, step in zip(middle, end, steps, strict=True)]
    length, bend = (np.sqrt(sum(float((x**2).sum()) for x in xs)) for xs in (steps, bends))
    step_length = min(length / bend, longest) if length > bend > 0 else 1.0
    if step_length < SQUAREM.shortest:
        return end, 1.0
    prior, factors = (
        np.maximum(a + 2 * step_length * step + step_length**2 * bent, SQUAREM.least_share * c)
        for a, step, bent, c in zip(start, steps, bends, end, strict=True)
    )
    sizes = np.diff(offsets)
    totals = np.add.reduceat(factors, offsets[:-1], axis=0)
    return (prior / prior.sum(), factors / np.repeat(totals, sizes, axis=0)), step_length


Update: TypeAlias = Callable[[Parameters], tuple[float, Parameters]]
"""Returns the loss of parameters, and their closed-form update."""


def descend(
    update: Update,
    initial: Parameters,
    offsets: IntArray,
    *,
    max_iter: int,
    tol: float,
    exact_loss: float = -math.inf,
) -> SolverResult:
    """Update parameters until the loss converges, extrapolating after every two updates.

    Parameters
    ----------
    update
        Returns the loss of parameters, finite, and their update, whose loss is not higher except for rounding.
    initial
        Starting values: prior (rank,) and factors (n_levels, rank).
    offsets
        int64 of shape (n_variables + 1,).
    max_iter
        Maximum number of iterations, at least 0; an iteration consists of three updates, one of them extrapolated.
    tol
        Stop when the relative decrease of the loss in an iteration is at most this.
    exact_loss
        Stop when the loss is at most this; the remainder is rounding error.

    Returns
    -------
    Parameters with the smallest loss. ``loss_history`` starts with the loss of the start and never increases.
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
    """Return a loss that is not higher, its parameters, and their update."""
    loss_first, second = update(first)
    extrapolated, _ = extrapolate(current, first, second, offsets, math.inf)
    for candidate in (extrapolated, second):
        new_loss, updated = update(candidate)
        if new_loss <= min(loss, loss_first):
            return new_loss, candidate, updated
    # at the minimum an update may increase the loss by a rounding error
    return (loss_first, first, second) if loss_first <= loss else (loss, current, first)
