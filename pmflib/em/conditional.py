"""Steps up the log-likelihood of a target given the other variables: by the E-steps of EM with and without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import FLOOR, FloatArray, IntArray, Parameters, repeat_blocks, sum_blocks
from pmflib.em.block_source import BlockSource
from pmflib.em.latent_classes import evaluate_models

CORRECTIONS = 20
"""Steps that the curvature is estimated from."""

LEAST = 1e-6
"""Least probability that steps start from: the logarithm of a smaller one moves too slowly."""


@dataclass(frozen=True, eq=False)
class ConditionalObjective:
    """Log-likelihood of all variables, less a share of that of the variables other than the target; with pseudo-counts.

    With share 0 it is what EM raises, with share 1 the log-likelihood of the target given the others, as of a
    classifier, and between them a compromise: the model is a joint PMF for all of them.

    Parameters
    ----------
    samples
        Training samples.
    others
        The same samples with the target hidden.
    offsets
        int64 of shape (n_variables + 1,).
    share
        In [0, 1].
    level_counts
        float64 of shape (n_levels,): pseudo-counts of every state's levels.
    state_count
        Pseudo-count of every state.

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
        """Objective, nats per sample, and its gradient by the logarithms of the prior and the factors.

        Parameters
        ----------
        model
            Prior (rank,) and factors (n_levels, rank), positive.

        Returns
        -------
        The objective, and arrays of the model's shapes: how it rises with each logarithm before normalisation.
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
    """Raise the objective by quasi-Newton steps in the logarithms of the parameters.

    Parameters
    ----------
    objective
        What is raised.
    start
        Prior (rank,) and factors (n_levels, rank); every variable's rows sum to 1 per column.
    max_steps
        Steps at most, at least 0.
    on_step
        Called after each step with its number from 1, the model and the objective; returns whether to go on.

    Returns
    -------
    Whether the objective has converged.

    References
    ----------
    Liu, Nocedal (1989), "On the limited memory BFGS method".
    """
    # loaded on first use: SciPy takes longer to load than all of this package
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
    """Conditional PMFs from their logarithms up to a constant per variable and state."""
    top = repeat_blocks(np.maximum.reduceat(logs, offsets[:-1], axis=0), offsets)
    weights = np.exp(logs - top)
    normalised: FloatArray = weights / repeat_blocks(sum_blocks(weights, offsets), offsets)
    return normalised
