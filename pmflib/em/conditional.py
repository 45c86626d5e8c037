"""Discriminative refinement: gradient steps on the conditional log-likelihood of a target, computed from E-steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray, Parameters, repeat_blocks, sum_blocks
from pmflib.em.block_source import BlockSource
from pmflib.em.latent_classes import evaluate_models

CORRECTIONS = 20
"""Number of stored corrections in L-BFGS."""

LEAST = 1e-6
"""Smallest initial probability; the logarithm of a smaller one would change too slowly."""


@dataclass(frozen=True, eq=False)
class ConditionalObjective:
    """Penalised log-likelihood of all variables minus a multiple of the log-likelihood of the non-target variables.

    With share 0 this is the joint log-likelihood that EM maximises, with share 1 the conditional log-likelihood of the
    target given the others, as for a classifier. Values in between are a compromise. The model remains a joint PMF of
    all variables.

    Parameters
    ----------
    samples
        Training samples.
    others
        The same samples with the target set to missing.
    offsets
        int64 of shape (n_variables + 1,).
    share
        Weight in [0, 1] of the conditional log-likelihood.
    level_counts
        float64 of shape (n_levels,): pseudo-counts of the levels in every state.
    state_count
        Pseudo-count of each state.

    References
    ----------
    McCallum, Pal, Druck, Wang (2006), "Multi-conditional learning"; Salakhutdinov, Roweis, Ghahramani (2003),
    "Optimization with EM and expectation-conjugate-gradient", for the gradient from the E-step.
    """

    samples: BlockSource
    others: BlockSource
    offsets: IntArray
    share: float
    level_counts: FloatArray
    state_count: float

    def evaluate(self, model: Parameters) -> tuple[float, Parameters]:
        """Compute the objective, nats per sample, and its gradient with respect to the log prior and log factors.

        Parameters
        ----------
        model
            Prior (rank,) and factors (n_levels, rank), positive.

        Returns
        -------
        The objective, and its gradient as arrays of the model's shapes, with respect to the unnormalised logarithms.
        """
        prior, factors = model
        (found,) = evaluate_models(self.samples, [model])
        objective, states = found.log_likelihood, found.state_mass + self.state_count
        levels = found.level_mass + self.level_counts[:, None]
        if self.share:
            (given,) = evaluate_models(self.others, [model])
            objective -= self.share * given.log_likelihood
            states = states - self.share * given.state_mass
            levels = levels - self.share * given.level_mass
        logs = np.log(np.maximum(factors, FLOOR)).sum(axis=1)
        objective += float((self.level_counts * logs).sum())
        objective += self.state_count * float(np.log(np.maximum(prior, FLOOR)).sum())
        states = states - prior * states.sum()
        levels = levels - factors * repeat_blocks(sum_blocks(levels, self.offsets), self.offsets)
        n_samples = max(found.n_rows, 1.0)
        return objective / n_samples, (states / n_samples, levels / n_samples)


def raise_conditional(
    objective: ConditionalObjective,
    start: Parameters,
    max_steps: int,
    on_step: Callable[[int, Parameters, float], bool],
) -> bool:
    """Maximise the objective by L-BFGS in the logarithms of the parameters.

    Parameters
    ----------
    objective
        Objective to maximise.
    start
        Prior (rank,) and factors (n_levels, rank); the levels of each variable sum to 1 in every column.
    max_steps
        Maximum number of steps, at least 0.
    on_step
        Called after each step with its number (from 1), the model and the objective; returns whether to continue.

    Returns
    -------
    Whether the optimiser converged.

    References
    ----------
    Liu, Nocedal (1989), "On the limited memory BFGS method".
    """
    # imported on first use: SciPy takes longer to import than the rest of this package
    from scipy.optimize import OptimizeResult, minimize

    rank, offsets = start[0].size, objective.offsets

    def unpack(logs: FloatArray) -> Parameters:
        prior = np.exp(logs[:rank] - logs[:rank].max())
        return prior / prior.sum(), _normalise_logs(logs[rank:].reshape(-1, rank), offsets)

    def lower(logs: FloatArray) -> tuple[float, FloatArray]:
        value, (states, levels) = objective.evaluate(unpack(logs))
        return -value, -np.concatenate([states, levels.ravel()])

    n_steps = 0

    def follow(intermediate_result: OptimizeResult) -> None:
        nonlocal n_steps
        n_steps += 1
        found = intermediate_result
        if not on_step(n_steps, unpack(found.x), -float(found.fun)):
            raise StopIteration

    if not max_steps:
        return False
    first = [np.log(np.maximum(each, LEAST)).ravel() for each in start]
    found = minimize(
        lower,
        np.concatenate(first),
        jac=True,
        method="L-BFGS-B",
        callback=follow,
        options={"maxiter": max_steps, "maxcor": CORRECTIONS, "maxfun": 4 * max_steps},
    )
    return bool(found.success)


def _normalise_logs(logs: FloatArray, offsets: IntArray) -> FloatArray:
    """Convert unnormalised logarithms to conditional PMFs."""
    top = repeat_blocks(np.maximum.reduceat(logs, offsets[:-1], axis=0), offsets)
    weights = np.exp(logs - top)
    normalised: FloatArray = weights / repeat_blocks(sum_blocks(weights, offsets), offsets)
    return normalised
