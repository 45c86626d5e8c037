"""EM runs of one fit: one model, or several side by side that are judged by their average.

Members of an average are kept side by side as one model of summed rank: their priors divided by their number, their
factors in one table. The M-step of such a model is the M-step of each member; only the E-step takes them one by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.em.checkpoint import load_state_of, save_state
from pmflib.em.joint_pmf_em import EMState, run_joint_pmf_em
from pmflib.em.samples import Samples
from pmflib.em.statistics import EMStatistics
from pmflib.solvers.pairs.pseudo_counts import PseudoCounts


def join_members(models: Sequence[Parameters]) -> Parameters:
    """Average of models, at least one, as one model: the mean of their probabilities, of summed rank."""
    prior = np.concatenate([prior for prior, _ in models]) / len(models)
    return prior, np.concatenate([factors for _, factors in models], axis=1)


def split_members(model: Parameters, n_members: int) -> list[Parameters]:
    """Models of one rank from what `join_members` made of them; priors sum to 1 again."""
    if n_members == 1:
        return [model]
    priors = np.split(model[0], n_members)
    factors = np.split(model[1], n_members, axis=1)
    return [
        (prior / prior.sum(), np.ascontiguousarray(factor))
        for prior, factor in zip(priors, factors, strict=True)
    ]


def join_statistics(parts: Sequence[EMStatistics]) -> EMStatistics:
    """Statistics of members side by side, as if every member had samples of its own."""
    return EMStatistics(
        np.concatenate([part.level_mass for part in parts], axis=1),
        np.concatenate([part.state_mass for part in parts]),
        sum(part.log_likelihood for part in parts),
        sum(part.n_rows for part in parts),
    )


def merge_scores(parts: Sequence[FloatArray]) -> FloatArray:
    """Sum of what was added up over parts of the samples, at least one, in the order of the parts."""
    return np.asarray(sum(parts))


def merge_each(parts: Sequence[Sequence[EMStatistics]]) -> list[EMStatistics]:
    """Sum of the statistics of each model over parts of the samples, in the order of the parts."""
    return [EMStatistics.merge(of_model) for of_model in zip(*parts, strict=True)]


@dataclass(frozen=True, eq=False)
class Runs:
    """What the EM runs of one fit share.

    Parameters
    ----------
    training
        Training samples.
    held_out
        Held-out samples; None where there are none.
    offsets
        int64 of shape (n_variables + 1,).
    singles
        float64 of shape (n_levels,), PMF of each variable: what pseudo-counts are shaped by.
    max_passes, tol, patience, accelerate
        As in `run_joint_pmf_em`.
    checkpoint
        Folder for the states of the runs; a run that has one there continues from it. None saves nothing.
    on_pass
        Called with the name of the run and its state after each pass, once that is saved.
    options
        Digest of the options of the fit that states depend on: a run does not continue from states of another fit.
    """

    training: Samples
    held_out: Samples | None
    offsets: IntArray
    singles: FloatArray
    max_passes: int = 200
    tol: float = 1e-6
    patience: int = 10
    accelerate: bool = False
    checkpoint: Path | None = None
    on_pass: Callable[[str, EMState], None] | None = None
    options: str = ""

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
            are made until the objective has converged.

        Returns
        -------
        The state of all models side by side, as `join_members` puts them.

        Raises
        ------
        PmfError
            If the folder for states holds those of another fit.
        """
        held_out = self.held_out if stop_early else None
        path = None if self.checkpoint is None else self.checkpoint / f"state-{name}.npz"
        state = None if path is None else load_state_of(self._digest, path)

        # a model is judged while the next pass is made, under the same parameters; the last of these is dropped
        ahead: list[tuple[FloatArray, Callable[[], list[EMStatistics]]]] = []
        n_made = 0 if state is None else state.n_passes

        def evaluate(joined: Parameters) -> EMStatistics:
            nonlocal n_made
            n_made += 1
            if ahead and ahead[0][0] is joined[0]:
                return join_statistics(ahead.pop()[1]())
            return join_statistics(self.training.evaluate(split_members(joined, len(starts))))

        def judge(joined: Parameters) -> float:
            assert held_out is not None
            models = split_members(joined, len(starts))

            def start_next() -> None:
                if n_made < self.max_passes and (wait := self.training.start_ahead(models)):
                    ahead[:] = [(joined[0], wait)]

            return held_out.score(models, start_next)

        def save_and_report(state: EMState) -> None:
            if path is not None:
                save_state(path, state)
            if self.on_pass is not None:
                self.on_pass(name, state)

        return run_joint_pmf_em(
            evaluate,
            state or EMState(*join_members(starts)),
            self.offsets,
            pseudo_counts=PseudoCounts.shaped_by(self.singles, self.offsets, pseudo_count),
            max_passes=self.max_passes,
            tol=self.tol,
            judge=None if held_out is None else judge,
            patience=self.patience,
            accelerate=self.accelerate,
            on_pass=save_and_report,
        )

    @cached_property
    def _digest(self) -> str:
        """SHA-256 of what the states of these runs depend on, but for their starts, which follow from it."""
        held_out = "" if self.held_out is None else self.held_out.digest()
        parts = (self.options, self.training.digest(), held_out, f"{self.accelerate}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
