"""EM of latent classes: the family, one model or several members of an average side by side, and the runs of a fit.

Members of an average are one model of summed rank: their priors divided by their number, their factors in one table.
The M-step of such a model is the M-step of each member; only the E-step takes them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from pmflib.core.arrays import Arrays, FloatArray, IntArray, Parameters
from pmflib.core.blocks import Block
from pmflib.core.defaults import LIMITS, Limits
from pmflib.em.block_source import BlockSource, iterate_distinct
from pmflib.em.family import Family, State, has_settled, run_em
from pmflib.model.statistics import EMStatistics, em_statistics, m_step, merge_each, take_logs
from pmflib.solvers import PseudoCounts
from pmflib.solvers.numeric.squarem import Acceleration
from pmflib.store.sample_blocks import BlockGroup

R = TypeVar("R")

SETTLED_PASSES = 6
"""Passes that must have gained little where passes are accelerated: three extrapolations that are accepted."""

ClassState: TypeAlias = State[Parameters]
"""State of EM of latent classes: its parameters are a prior (rank,) and factors (n_levels, rank)."""


@dataclass(frozen=True, eq=False)
class LatentClasses(Family[Parameters, EMStatistics]):
    """Latent classes within which the variables are independent.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    pseudo_counts
        Pseudo-counts of levels and states.
    n_members
        Number of models side by side; parameters are as from `join_members`.
    accelerate
        Whether to extrapolate from every two passes; an extrapolation is kept if the objective did not rise. It pays
        where EM is to converge; early stopping on held-out samples comes before that.

    References
    ----------
    Ibrahim, Fu (2021), appendix C; Varadhan, Roland (2008) for the acceleration.
    """

    offsets: IntArray
    pseudo_counts: PseudoCounts
    n_members: int = 1
    accelerate: bool = False

    def begin(self, models: Sequence[Parameters]) -> ClassState:
        """State before the first pass, from a model for each member."""
        acceleration = Acceleration() if self.accelerate else None
        return State(join_members(models), acceleration=acceleration)

    def add(self, parameters: Parameters, blocks: Iterable[Block]) -> EMStatistics:
        """Posterior mass of levels and states, of the members side by side."""
        models = split_members(parameters, self.n_members)
        return join_statistics(evaluate_group([*blocks], self.offsets, models))

    def start(self, source: BlockSource, state: ClassState) -> Callable[[], EMStatistics]:
        """Start a pass; where threads outnumber the groups of blocks, tasks share the members."""
        models = split_members(state.parameters, self.n_members)
        return start_models(source, models, join_statistics)

    def score(
        self,
        held_out: BlockSource,
        parameters: Parameters,
        meanwhile: Callable[[], None] | None = None,
    ) -> float:
        """Held-out log-likelihood of the average of the members, nats per sample."""
        return held_out.score(split_members(parameters, self.n_members), meanwhile=meanwhile)

    def update(self, state: ClassState, statistics: EMStatistics) -> ClassState:
        """M-step, plain or accelerated; an extrapolation that raised the objective is undone."""
        current, acceleration = state.parameters, state.acceleration
        n_rows = max(statistics.n_rows, 1)
        log_likelihood = statistics.log_likelihood / n_rows
        penalty = self.pseudo_counts.log_penalty(*current)
        loss = -(statistics.log_likelihood + penalty) / n_rows
        if acceleration is not None and not acceleration.accepts(loss, state.loss_history):
            updated, acceleration = acceleration.reject()
            # the pass has gained nothing: the history repeats itself
            loss, log_likelihood = state.loss_history[-1], state.log_likelihoods[-1]
        else:
            updated = m_step(statistics, self.offsets, self.pseudo_counts, *current)
            if acceleration is not None:
                acceleration = acceleration.accept(loss, state.loss_history)
                updated, acceleration = acceleration.propose(current, updated, self.offsets)
        return replace(state.after(updated, log_likelihood, loss), acceleration=acceleration)

    def has_converged(self, state: ClassState, limits: Limits) -> bool:
        """Whether held-out samples have stopped gaining, or the objective is near its limit."""
        if state.held_out or state.acceleration is None:
            return super().has_converged(state, limits)
        return has_settled(state.loss_history, limits.tol, SETTLED_PASSES)

    def finish(self, state: ClassState) -> ClassState:
        """Return to the model of plain EM where the current one is an extrapolation that no pass has evaluated."""
        if state.acceleration is None or state.acceleration.fallback is None:
            return state
        acceleration = replace(state.acceleration, fallback=None, step_length=1.0)
        return replace(state, parameters=state.acceleration.fallback, acceleration=acceleration)

    def pack(self, parameters: Parameters) -> Arrays:
        """Prior and factors."""
        return {"prior": parameters[0], "factors": parameters[1]}

    def unpack(self, arrays: Arrays) -> Parameters:
        """The model that `pack` was called on, to the same bits."""
        return arrays["prior"], arrays["factors"]


def evaluate_models(source: BlockSource, models: Sequence[Parameters]) -> list[EMStatistics]:
    """Sufficient statistics of all samples under each of several models of one rank, at least one."""
    return start_models(source, models, list)()


def start_models(
    source: BlockSource,
    models: Sequence[Parameters],
    join: Callable[[list[EMStatistics]], R],
) -> Callable[[], R]:
    """Start what `evaluate_models` does, and return a function that waits for its result and joins it."""
    rank, n_levels = models[0][0].size, int(source.offsets[-1])
    model_bytes = 8 * rank * (n_levels + 1)
    step = source.count_per_task(len(models))
    each = [(source.offsets, models[first : first + step]) for first in range(0, len(models), step)]
    wait = source.start_each(
        evaluate_group, merge_each, each, result_bytes=step * model_bytes, name="pass"
    )
    return lambda: join([statistics for share in wait() for statistics in share])


def evaluate_group(
    group: BlockGroup, offsets: IntArray, models: Sequence[Parameters]
) -> list[EMStatistics]:
    """Sufficient statistics of a group, at least one block, under each of several models; blocks are read once."""
    logs = [take_logs(*model) for model in models]
    parts: list[list[EMStatistics]] = []
    for block in iterate_distinct(group):
        parts.append([])
        for log in logs:
            parts[-1].append(em_statistics(block, offsets, *log))
    return merge_each(parts)


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
    """Samples and options that the EM runs of one fit share.

    Parameters
    ----------
    training
        Training samples.
    held_out
        Held-out samples; None where there are none.
    offsets
        int64 of shape (n_variables + 1,).
    singles
        float64 of shape (n_levels,), PMF of each variable: the shape of the pseudo-counts.
    max_passes, tol, patience
        As for `pmflib.fit_em`.
    accelerate
        As for `LatentClasses`.
    checkpoint
        Folder for the states of the runs; a run continues from its state there. None saves nothing.
    on_pass
        Called with the name of the run and its state after each pass, once that is saved.
    options
        Digest of the options of the fit that states depend on, and of the data behind its starts: a run does not
        continue from states of another fit.
    """

    training: BlockSource
    held_out: BlockSource | None
    offsets: IntArray
    singles: FloatArray
    max_passes: int = LIMITS.max_passes
    tol: float = LIMITS.tol
    patience: int = LIMITS.patience
    accelerate: bool = False
    checkpoint: Path | None = None
    on_pass: Callable[[str, ClassState], None] | None = None
    options: str = ""

    def run(
        self,
        name: str,
        starts: Sequence[Parameters],
        pseudo_count: float,
        *,
        stop_early: bool = True,
        keeps_start: bool = True,
    ) -> ClassState:
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
        keeps_start
            Whether the start may be the best model; else one pass is made at least, where any may be made.

        Returns
        -------
        The state of all models side by side, as from `join_members`.

        Raises
        ------
        PmfError
            If the folder holds states of another fit.
        """
        held_out = self.held_out if stop_early else None
        # first: two runs of groups that are assigned while others are read would stay on one worker
        self.training.assign()
        shape = PseudoCounts.shaped_by(self.singles, self.offsets, pseudo_count)
        family = LatentClasses(self.offsets, shape, len(starts), self.accelerate)
        of_held_out = "" if held_out is None else held_out.digest()
        # starts follow from the rest
        inputs = self.options, of_held_out, self.singles, pseudo_count, self.accelerate
        path = None if self.checkpoint is None else self.checkpoint / f"state-{name}.npz"

        def report(state: ClassState) -> None:
            if self.on_pass is not None:
                self.on_pass(name, state)

        return run_em(
            family,
            self.training,
            family.begin(starts),
            held_out=held_out,
            keeps_start=keeps_start or not self.max_passes,
            limits=Limits(self.max_passes, self.tol, self.patience),
            checkpoint=family.open_checkpoint(path, self.training, *inputs),
            on_pass=report,
        )
