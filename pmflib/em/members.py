"""EM runs of one fit: one model, or several side by side that are judged by their average.

Members of an average stand side by side as one model of summed rank: their priors over their number, their factors in
one table. The update of such a model is the update of each member; only the E-step must look at them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.em.loop import EMState, run_em
from pmflib.em.statistics import EMStatistics
from pmflib.selection.comparison import estimate_gain as estimate_gain
from pmflib.solvers.pairs.pseudo_counts import PseudoCounts

EvaluateModels = Callable[[Sequence[Parameters]], Sequence[EMStatistics]]
"""Sufficient statistics of a set of samples under each of several models of one rank."""


class HeldOut(Protocol):
    """Held-out samples, as models are judged on them."""

    def score(self, models: Sequence[Parameters]) -> float:
        """Log-likelihood under the average of models, nats per sample."""

    def compare(self, first: Parameters, second: Parameters) -> tuple[float, float]:
        """What a sample gains on average by the first of two models, nats, and the standard error of that."""


def join_members(models: Sequence[Parameters]) -> Parameters:
    """Average of models, at least one, as one model: the mean of their probabilities, of summed rank."""
    prior = np.concatenate([prior for prior, _ in models]) / len(models)
    return prior, np.concatenate([factors for _, factors in models], axis=1)


def split_members(model: Parameters, n_members: int) -> list[Parameters]:
    """Take apart what `join_members` made of models of one rank; priors sum to 1 again."""
    if n_members == 1:
        return [model]
    priors = np.split(model[0], n_members)
    factors = np.split(model[1], n_members, axis=1)
    return [
        (prior / prior.sum(), np.ascontiguousarray(factor))
        for prior, factor in zip(priors, factors, strict=True)
    ]


def join_statistics(parts: Sequence[EMStatistics]) -> EMStatistics:
    """Statistics of members side by side: as if every member had samples of its own."""
    return EMStatistics(
        np.concatenate([part.level_mass for part in parts], axis=1),
        np.concatenate([part.state_mass for part in parts]),
        sum(part.log_likelihood for part in parts),
        sum(part.n_rows for part in parts),
    )


def merge_scores(parts: Sequence[FloatArray]) -> FloatArray:
    """Sum of what was added up over parts of the samples, at least one, in their order."""
    return np.asarray(sum(parts))


def merge_each(parts: Sequence[Sequence[EMStatistics]]) -> list[EMStatistics]:
    """Sum of the statistics of each model over parts of the samples, in the order of the parts."""
    return [EMStatistics.merge(of_model) for of_model in zip(*parts, strict=True)]


@dataclass(frozen=True, eq=False)
class Runs:
    """What the EM runs of one fit share.

    Parameters
    ----------
    evaluate
        Statistics of the training samples.
    held_out
        Held-out samples; None where there are none.
    offsets
        int64 of shape (n_variables + 1,).
    singles
        float64 of shape (n_levels,), PMF of each variable: what pseudo-counts are shaped by.
    max_passes, tol, patience, accelerate
        As in `run_em`.
    resume
        Where a run of this name stands that was begun before; None for the start.
    on_pass
        Called with the name of the run and its state after each pass.
    """

    evaluate: EvaluateModels
    held_out: HeldOut | None
    offsets: IntArray
    singles: FloatArray
    max_passes: int = 200
    tol: float = 1e-6
    patience: int = 10
    accelerate: bool = False
    resume: Callable[[str], EMState | None] = lambda name: None
    on_pass: Callable[[str, EMState], None] = lambda name, state: None

    def run(
        self,
        name: str,
        starts: Sequence[Parameters],
        pseudo_count: float,
        *,
        stop_early: bool = True,
    ) -> EMState:
        """Run EM from starts of one rank, each on its own, one pass of all at a time.

        Parameters
        ----------
        name
            Distinguishes the runs of this fit.
        starts
            Priors (rank,) and factors (n_levels, rank), at least one.
        pseudo_count
            Mean pseudo-count per level and state.
        stop_early
            Whether held-out samples, if there are any, choose the pass at which the average of all is best; else passes
            go on until the objective has converged.

        Returns
        -------
        The state of all models side by side, as `join_members` puts them.
        """

        def evaluate(prior: FloatArray, factors: FloatArray) -> EMStatistics:
            return join_statistics(self.evaluate(split_members((prior, factors), len(starts))))

        def judge(prior: FloatArray, factors: FloatArray) -> float:
            assert self.held_out is not None
            return self.held_out.score(split_members((prior, factors), len(starts)))

        return run_em(
            evaluate,
            self.resume(name) or EMState(*join_members(starts)),
            self.offsets,
            pseudo_counts=PseudoCounts.shaped_by(self.singles, self.offsets, pseudo_count),
            max_passes=self.max_passes,
            tol=self.tol,
            validate=judge if self.held_out is not None and stop_early else None,
            patience=self.patience,
            accelerate=self.accelerate,
            on_pass=lambda state: self.on_pass(name, state),
        )
