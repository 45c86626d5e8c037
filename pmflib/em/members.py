"""EM runs of one fit: one model, or several side by side that are evaluated by their average.

Members of an average are kept side by side as one model of summed rank: their priors divided by their number, their
factors in one table. The M-step of such a model is the M-step of each member; only the E-step takes them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray, Parameters
from pmflib.core.defaults import LIMITS
from pmflib.em.checkpoint import Checkpoint, digest_fit
from pmflib.em.driver import count_stale
from pmflib.em.joint_pmf_em import EMState, run_joint_pmf_em
from pmflib.em.samples import Samples
from pmflib.model.statistics import EMStatistics
from pmflib.solvers import PseudoCounts


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
        Digest of the options of the fit that states depend on, and of what its starts are made from: a run does not
        continue from states of another fit.
    """

    training: Samples
    held_out: Samples | None
    offsets: IntArray
    singles: FloatArray
    max_passes: int = LIMITS.max_passes
    tol: float = LIMITS.tol
    patience: int = LIMITS.patience
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
        # before others: beside work that is under way, two runs of groups can come to one worker, and stay there
        self.training.hold()
        # a model is evaluated and kept while the next pass is made, under the same parameters
        ahead: list[tuple[FloatArray, Callable[[], list[EMStatistics]]]] = []
        n_made, may_end = 0, False

        def evaluate(joined: Parameters) -> EMStatistics:
            nonlocal n_made
            n_made += 1
            if ahead and ahead[0][0] is joined[0]:
                return join_statistics(ahead.pop()[1]())
            return join_statistics(self.training.evaluate(split_members(joined, len(starts))))

        def score(joined: Parameters) -> float:
            assert held_out is not None
            models = split_members(joined, len(starts))

            def start_next() -> None:
                # none that this score may show not to be needed
                if n_made < self.max_passes and not may_end:
                    wait = self.training.start_ahead(models)
                    ahead[:] = [] if wait is None else [(joined[0], wait)]

            return held_out.score(models, start_next)

        def report(state: EMState) -> None:
            nonlocal n_made, may_end
            # those of a checkpoint are among them
            n_made = state.n_passes
            is_scored = held_out is not None
            may_end = is_scored and count_stale(state.held_out, self.tol) + 1 >= self.patience
            if self.on_pass is not None:
                self.on_pass(name, state)

        return run_joint_pmf_em(
            evaluate,
            EMState(*join_members(starts)),
            self.offsets,
            pseudo_counts=PseudoCounts.shaped_by(self.singles, self.offsets, pseudo_count),
            max_passes=self.max_passes,
            tol=self.tol,
            score=None if held_out is None else score,
            patience=self.patience,
            accelerate=self.accelerate,
            checkpoint=self._open_checkpoint(name, pseudo_count, held_out),
            on_pass=report,
        )

    def _open_checkpoint(
        self, name: str, pseudo_count: float, held_out: Samples | None
    ) -> Checkpoint[EMState] | None:
        """Where a run is kept: by the digest of what its states depend on, but for starts, which follow from it."""
        if self.checkpoint is None:
            return None
        of_held_out = "" if held_out is None else held_out.digest()
        inputs = self.training.digest(), of_held_out, self.singles, pseudo_count, self.accelerate
        fit = digest_fit(self.options, *inputs)
        path = self.checkpoint / f"state-{name}.npz"
        return Checkpoint(path, fit, EMState.to_arrays, EMState.from_arrays)
