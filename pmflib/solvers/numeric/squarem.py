"""SQUAREM: EM and closed-form updates accelerated by extrapolating from every two of their steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from pmflib.core.arrays import IntArray, Parameters
from pmflib.solvers import SolverResult


@dataclass(frozen=True)
class SquaremParameters:
    """Parameters of the extrapolation; "the package" is SQUAREM of R, by the authors of the method.

    Parameters
    ----------
    least_share
        Least share of a probability of plain EM that an extrapolation leaves, in (0, 1): EM never leaves a zero. Our
        choice; the method is published for parameters without bounds.
    first_longest
        Longest step length at the start: that of the package, 1 (``step.max0``), after its first growth.
    growth
        Factor by which the longest step length grows where it has bound an extrapolation that was accepted, and
        shrinks where one was rejected (``mstep`` of the package).
    least_longest
        Least value of the longest step length, above ``shortest``: our choice, so that extrapolation is never given up.
    shortest
        Least step length that is worth the pass that evaluates it, as in the package.

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

    A model that is extrapolated is accepted or not by the next E-step, which evaluates its objective anyway: `accepts`
    says whether it is kept.

    Parameters
    ----------
    origin
        The model one update before the current one, where the next update completes two steps in a row; None at the
        start, and after an extrapolation.
    fallback
        The model of plain EM, while the current one is an extrapolation that has not been evaluated; else None.
    step_length
        Step length of that extrapolation, above 1; 1 without one.
    longest
        Longest step length of the next extrapolation.
    passes_saved
        Passes saved so far: what extrapolations have gained, in units of the gain of the pass before each.
    """

    origin: Parameters | None = None
    fallback: Parameters | None = None
    step_length: float = 1.0
    longest: float = SQUAREM.first_longest
    passes_saved: float = 0.0

    def accepts(self, loss: float, losses: Sequence[float]) -> bool:
        """Whether to keep the current model.

        Parameters
        ----------
        loss
            Objective of the current model, to be lowered.
        losses
            Objectives of the models before it.
        """
        return self.fallback is None or loss <= losses[-1]

    def reject(self) -> tuple[Parameters, Acceleration]:
        """Return to the model of plain EM, and take shorter steps from there."""
        assert self.fallback is not None
        return self.fallback, Acceleration(
            longest=max(self.step_length / SQUAREM.growth, SQUAREM.least_longest),
            passes_saved=self.passes_saved - 1,
        )

    def accept(self, loss: float, losses: Sequence[float]) -> Acceleration:
        """Keep the current model, and allow longer steps where their limit has bound it.

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
        """Extrapolate, where an update is the second in a row.

        Parameters
        ----------
        current, updated
            The current model, which was accepted, and the update of it by EM.
        offsets
            int64 of shape (n_variables + 1,).

        Returns
        -------
        The model to continue from: an extrapolation, or the update itself.
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
    """Number of passes like the last one before an extrapolation that its gain is worth, without its own."""
    gained = losses[-2] - losses[-1]
    return max((losses[-1] - loss) / gained - 1, 0.0) if gained > 0 else 0.0


def extrapolate(
    start: Parameters, middle: Parameters, end: Parameters, offsets: IntArray, longest: float
) -> tuple[Parameters, float]:
    """Continue along the path of two steps of EM, as far as their shrinking suggests.

    Parameters
    ----------
    start, middle, end
        A model, and the models that one step and two steps have made of it.
    offsets
        int64 of shape (n_variables + 1,).
    longest
        Longest step length, at least 1.

    Returns
    -------
    A model, whose objective may be worse, and the step length: 1 is the end itself.

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
