"""EM for latent classes: the family, for one model or the members of an average, and the runs of a fit.

The members of an average are stored as one model whose rank is the sum of theirs: priors are divided by the number of
members and factors are concatenated. The M-step of the combined model equals the M-step of each member; only the E-step
treats members separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from pmflib.base.arrays import Arrays, FloatArray, IntArray, Parameters
from pmflib.base.blocks import Block
from pmflib.base.defaults import LIMITS, Limits
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.em.block_source import BlockSource, iterate_distinct
from pmflib.em.family import Family, State, has_converged, run_em
from pmflib.model.sufficient_statistics import (
    EMStatistics,
    em_statistics,
    m_step,
    merge_each,
    take_logs,
)
from pmflib.papers.squarem import Acceleration
from pmflib.store.sample_blocks import BlockGroup

R = TypeVar("R")

SETTLED_PASSES = 6
"""Number of passes whose total gain must be small for accelerated EM to stop: three accepted extrapolations."""

ClassState: TypeAlias = State[Parameters]
"""EM state of latent classes; its parameters are a prior (rank,) and factors (n_levels, rank)."""


@dataclass(frozen=True, eq=False)
class LatentClasses(Family[Parameters, EMStatistics]):
    """Latent class models: variables are independent within each class.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    pseudo_counts
        Pseudo-counts of levels and states.
    n_members
        Number of models fitted side by side; parameters are combined by `join_members`.
    accelerate
        Whether to extrapolate after every two passes; an extrapolation is kept if the objective does not increase.
        Acceleration helps when EM runs to convergence, not when held-out samples stop it early.

    References
    ----------
    Ibrahim, Fu (2021), IEEE Trans. Signal Processing, appendix C and equation (33); Varadhan, Roland (2008) for the
    acceleration.
    """

    offsets: IntArray
    pseudo_counts: PseudoCounts
    n_members: int = 1
    accelerate: bool = False

    def begin(self, models: Sequence[Parameters]) -> ClassState:
        """Return the state before the first pass, given one model per member."""
        acceleration = Acceleration() if self.accelerate else None
        return State(join_members(models), acceleration=acceleration)

    def add(self, parameters: Parameters, blocks: Iterable[Block]) -> EMStatistics:
        """Compute the posterior mass of levels and states for all members."""
        models = split_members(parameters, self.n_members)
        return join_statistics(evaluate_group([*blocks], self.offsets, models))

    def start(self, source: BlockSource, state: ClassState) -> Callable[[], EMStatistics]:
        """Start a pass; if threads outnumber the groups of blocks, tasks split the members."""
        models = split_members(state.parameters, self.n_members)
        return start_models(source, models, join_statistics)

    def score(
        self,
        held_out: BlockSource,
        parameters: Parameters,
        meanwhile: Callable[[], None] | None = None,
    ) -> float:
        """Compute the held-out log-likelihood of the average of the members, nats per sample."""
        return held_out.score(split_members(parameters, self.n_members), meanwhile=meanwhile)

    def update(self, state: ClassState, statistics: EMStatistics) -> ClassState:
        """M-step, plain or accelerated; an extrapolation that increased the objective is undone."""
        current, acceleration = state.parameters, state.acceleration
        n_rows = max(statistics.n_rows, 1)
        log_likelihood = statistics.log_likelihood / n_rows
        penalty = self.pseudo_counts.log_penalty(*current)
        loss = -(statistics.log_likelihood + penalty) / n_rows
        if acceleration is not None and not acceleration.accepts(loss, state.loss_history):
            updated, acceleration = acceleration.reject()
            # no gain from this pass: repeat the last value in the history
            loss, log_likelihood = state.loss_history[-1], state.log_likelihoods[-1]
        else:
            updated = m_step(statistics, self.offsets, self.pseudo_counts, *current)
            if acceleration is not None:
                acceleration = acceleration.accept(loss, state.loss_history)
                updated, acceleration = acceleration.propose(current, updated, self.offsets)
        return replace(state.after(updated, log_likelihood, loss), acceleration=acceleration)

    def has_converged(self, state: ClassState, limits: Limits) -> bool:
        """Return whether the held-out log-likelihood has stopped improving or the objective has converged."""
        if state.held_out or state.acceleration is None:
            return super().has_converged(state, limits)
        return has_converged(state.loss_history, limits.tol, SETTLED_PASSES)

    def finish(self, state: ClassState) -> ClassState:
        """Return to the last plain EM model if the current one is an extrapolation not yet evaluated by a pass."""
        if state.acceleration is None or state.acceleration.fallback is None:
            return state
        acceleration = replace(state.acceleration, fallback=None, step_length=1.0)
        return replace(state, parameters=state.acceleration.fallback, acceleration=acceleration)

    def pack(self, parameters: Parameters) -> Arrays:
        """Return the prior and factors as arrays."""
        return {"prior": parameters[0], "factors": parameters[1]}

    def unpack(self, arrays: Arrays) -> Parameters:
        """Restore the model given to `pack`, bit for bit."""
        return arrays["prior"], arrays["factors"]


def evaluate_models(source: BlockSource, models: Sequence[Parameters]) -> list[EMStatistics]:
    """Compute the sufficient statistics of all samples under each of several models of equal rank."""
    return start_models(source, models, list)()


def start_models(
    source: BlockSource,
    models: Sequence[Parameters],
    join: Callable[[list[EMStatistics]], R],
) -> Callable[[], R]:
    """Start `evaluate_models` and return a function that waits for the result and joins it."""
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
    """Compute the statistics of a group under each of several models, at least one; blocks are read once."""
    logs = [take_logs(*model) for model in models]
    parts: list[list[EMStatistics]] = []
    for block in iterate_distinct(group):
        parts.append([])
        for log in logs:
            parts[-1].append(em_statistics(block, offsets, *log))
    return merge_each(parts)


def join_members(models: Sequence[Parameters]) -> Parameters:
    """Combine models, at least one, into a single model of summed rank: the mean of their probabilities."""
    prior = np.concatenate([prior for prior, _ in models]) / len(models)
    return prior, np.concatenate([factors for _, factors in models], axis=1)


def split_members(model: Parameters, n_members: int) -> list[Parameters]:
    """Split a model combined by `join_members` into its members, with priors that sum to 1."""
    if n_members == 1:
        return [model]
    priors = np.split(model[0], n_members)
    factors = np.split(model[1], n_members, axis=1)
    return [
        (prior / prior.sum(), np.ascontiguousarray(factor))
        for prior, factor in zip(priors, factors, strict=True)
    ]


def join_statistics(parts: Sequence[EMStatistics]) -> EMStatistics:
    """Concatenate the statistics of members, each of which was fitted to all samples."""
    return EMStatistics(
        np.concatenate([part.level_mass for part in parts], axis=1),
        np.concatenate([part.state_mass for part in parts]),
        sum(part.log_likelihood for part in parts),
        sum(part.n_rows for part in parts),
    )


@dataclass(frozen=True, eq=False)
class Runs:
    """Samples and options shared by the EM runs of a fit.

    Parameters
    ----------
    training
        Training samples.
    held_out
        Held-out samples, if any.
    offsets
        int64 of shape (n_variables + 1,).
    singles
        float64 of shape (n_levels,): PMF of each variable, to which pseudo-counts are proportional.
    max_passes, tol, patience
        As for `pmflib.fit_em`.
    accelerate
        As for `LatentClasses`.
    checkpoint
        Folder for checkpoints; a run resumes from its state there. None saves nothing.
    on_pass
        Called after each pass, once the state is saved, with the name of the run and its state.
    options
        Digest of the options that states depend on and of the data used for starting values: a run does not resume from
        the state of another fit.
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
        """Run EM from several starts of equal rank in parallel, one pass of all at a time.

        Parameters
        ----------
        name
            Name of the run, unique within the fit.
        starts
            Priors (rank,) and factors (n_levels, rank), at least one.
        pseudo_count
            Mean pseudo-count per level and state.
        stop_early
            Whether held-out samples, if any, select the pass at which the average is best; otherwise run until the
            objective converges.
        keeps_start
            Whether the start is eligible as the best model; otherwise at least one pass is made, if the limit allows
            any.

        Returns
        -------
        State of all models, combined as by `join_members`.

        Raises
        ------
        PmfError
            If the checkpoint folder belongs to another fit.
        """
        held_out = self.held_out if stop_early else None
        # first: if two runs assigned groups while others are being read, all would stay on one worker
        self.training.assign()
        shape = PseudoCounts.shaped_by(self.singles, self.offsets, pseudo_count)
        family = LatentClasses(self.offsets, shape, len(starts), self.accelerate)
        of_held_out = "" if held_out is None else held_out.digest()
        # starting values are determined by the other inputs
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
