"""One rank evaluated by held-out samples, or by a target of them: EM from starts of pairs, alone or averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pmflib.core.arrays import FloatArray, Parameters
from pmflib.core.blocks import DenseBlock, join_weights
from pmflib.counting.marginals import estimate_block_singles
from pmflib.counting.pair_counts import PairCounts, count_block
from pmflib.display.progress import working
from pmflib.em.block_source import BlocksInMemory
from pmflib.em.latent_classes import Runs
from pmflib.fitting.em_fit import EMFit, Passes
from pmflib.fitting.fit_specifications import LARGEST_PAIRS, Options
from pmflib.fitting.pair_fits import fit_by_method
from pmflib.fitting.ranks import fit_runs
from pmflib.fitting.ranks.fit_runs import RankFit
from pmflib.fitting.starts import open_for_em
from pmflib.fitting.target_fit import MAX_STEPS
from pmflib.model import JointPMF
from pmflib.schema import Schema
from pmflib.solvers.pairs.pair_matrix import start_random
from pmflib.solvers.pairs.ranks import merge_states

BLOCK_RANK = 64
"""Rank that blocks of samples are cut for: the same blocks for all ranks."""

START_UPDATES = 150
"""Updates of a start, at most: see `pmflib.fitting.auto_method.run_pairs`."""

SAVED_SECONDS = 5.0
"""Seconds of a fit, by the model of costs, from which the state after each of its passes is saved."""


N_FOLDS = 5
"""Folds that samples are assigned to where none are given to evaluate on; one is held out."""

LEAST_SAMPLES = 20
"""Samples below which none are held out."""

MOST_SAMPLES = 20_000
"""Training samples that ranks are compared on, spread over all of them."""
MOST_HELD_OUT = 5_000
"""Held-out samples that ranks are evaluated on."""

CROSSED_CELLS = 200_000
"""Cells, missing ones included, of samples that are few: one fold of them is too little to distinguish ranks, and all
folds, each held out in its turn, take seconds."""


@dataclass(frozen=True, eq=False)
class RankSamples:
    """Samples that ranks are fitted to and evaluated on.

    Parameters
    ----------
    schema
        All variables.
    block, held_out
        Training samples, and those to evaluate on.
    counts
        Co-occurrence counts that starts are made of; None makes random ones.
    singles
        float64 of shape (n_levels,), PMF of each variable.
    target
        Position of the variable whose log-likelihood given the others models are evaluated by; None is that of all.
    """

    schema: Schema
    block: DenseBlock
    held_out: DenseBlock
    counts: PairCounts | None
    singles: FloatArray
    target: int | None = None

    def __getstate__(self) -> dict[str, object]:
        """What is sent to workers: threads are not."""
        hidden = ("training", "validation")
        return {name: value for name, value in self.__dict__.items() if name not in hidden}

    @cached_property
    def n_observed(self) -> int:
        """Observed cells of the training samples."""
        return self.block.n_observed

    @cached_property
    def training(self) -> BlocksInMemory:
        """Training samples for EM."""
        return BlocksInMemory.cut(self.block, self.schema.offsets, BLOCK_RANK)

    @cached_property
    def validation(self) -> BlocksInMemory:
        """Held-out samples for EM."""
        return BlocksInMemory.cut(self.held_out, self.schema.offsets, BLOCK_RANK, self.target)

    def start(self, rank: int, seed: int, number: int) -> Parameters:
        """Start of EM number so many."""
        rng = np.random.default_rng([seed, number])
        if self.counts is None:
            drawn = start_random(self.singles, self.schema.offsets, rank=rank, rng=rng)
            return open_for_em(drawn, self.singles)
        with working("fit"):
            model = fit_by_method(self.counts, rank, "pairs", rng).model
        return open_for_em((model.prior, model.factors), self.singles)

    def score(self, model: JointPMF) -> FloatArray:
        """Log-likelihood of each held-out sample, or of its target given the rest where that was observed, nats.

        Samples with weights have theirs times a weight, of mean 1: the mean is the weighted one.
        """
        held_out = self.held_out
        if self.target is not None:
            held_out = held_out[held_out.codes[:, self.target] >= 0]
        scores: FloatArray = model.log_prob(held_out.codes)
        if self.target is not None:
            rest = held_out.codes.copy()
            rest[:, self.target] = -1
            scores -= model.log_prob(rest)
        if held_out.weights is None:
            return scores
        weighed: FloatArray = scores * (held_out.weights / held_out.weights.mean())
        return weighed

    def estimate_pass(self, job: SampleJob) -> float:
        """Seconds of a pass of a fit, by the model of costs."""
        return fit_runs.estimate_pass(self.n_observed, self.schema.n_levels, job.members * job.rank)

    def estimate_start(self, job: SampleJob) -> float:
        """Seconds of the starts of a fit, by the model of costs."""
        if self.counts is None:
            return 0.0
        update = fit_runs.estimate_update(self.counts.schema.n_levels, job.rank)
        return job.members * START_UPDATES * update


def split_samples(
    block: DenseBlock,
    held_out: DenseBlock | None,
    schema: Schema,
    target: int | None = None,
    *,
    pools: bool = False,
) -> list[RankSamples]:
    """Split samples into those that are fitted and those that are held out, in turns where they are few.

    Parameters
    ----------
    block
        Samples.
    held_out
        Samples to evaluate on, which leave nothing to split; None holds folds out, by a hash of the position.
    schema
        Variables.
    target
        Position of the variable that models are evaluated by, for which one fold is held out.
    pools
        Whether all samples are split together, those that were held out as well, where they are few.

    Returns
    -------
    The splits: `N_FOLDS` of them of `CROSSED_CELLS` cells or fewer, so that each sample is held out once; one of more,
    and where held-out samples are given; none where there is nothing to hold out.
    """
    if pools and held_out is not None and len(held_out) and target is None:
        if block.codes.size + held_out.codes.size <= CROSSED_CELLS:
            both = np.concatenate([block.codes, held_out.codes])
            block, held_out = DenseBlock(both, join_weights([block, held_out])), None
    if held_out is not None:
        pairs = [(block, held_out)] if len(held_out) and len(block) else []
    elif len(block) < LEAST_SAMPLES:
        pairs = []
    else:
        folds = block.assign_folds(N_FOLDS)
        n_splits = N_FOLDS if block.codes.size <= CROSSED_CELLS and target is None else 1
        pairs = [(block[folds != fold], block[folds == fold]) for fold in range(n_splits)]
    splits = []
    for each, rest in pairs:
        if not len(each) or not len(rest) or schema.n_variables < 2:
            continue
        some = _spread(each, MOST_SAMPLES)
        from_pairs = schema.n_levels**2 <= LARGEST_PAIRS * some.n_observed
        is_asked = target is not None and bool((rest.codes[:, target] >= 0).any())
        splits.append(
            RankSamples(
                schema,
                some,
                _spread(rest, MOST_HELD_OUT),
                count_block(some, schema, n_folds=1) if from_pairs else None,
                estimate_block_singles(some, schema.offsets),
                target if is_asked else None,
            )
        )
    return splits


def _spread(block: DenseBlock, most: int) -> DenseBlock:
    """As many rows as that, from all over: tables are often sorted."""
    if len(block) <= most:
        return block
    return block[np.linspace(0, len(block) - 1, most).astype(np.int64)]


@dataclass(frozen=True, eq=False)
class SampleJob:
    """Work of `fit_samples`.

    Parameters
    ----------
    rank
        Latent states of each model, at least 1.
    pseudo_count
        Mean pseudo-count per level and state.
    members
        Models to average, at least 1.
    seed
        Seed of the starts.
    folder
        Folder for the states of EM; None saves none.
    choice
        Digest of the choice that the fit is part of.
    split
        Which of several splits into training and held-out samples it is fitted to.
    near
        Fit of a larger rank whose states are merged until there are as many as requested, in place of starts.
    """

    rank: int
    pseudo_count: float
    members: int
    seed: int
    folder: Path | None = None
    choice: str = ""
    split: int = 0
    near: Parameters | None = None

    @property
    def name(self) -> str:
        """Name that no other fit of its choice has."""
        name = f"samples-{self.pseudo_count:g}-{self.rank}"
        name += f"-split-{self.split}" if self.split else ""
        return name if self.near is None else f"{name}-of-{self.near[0].size}"


def fit_samples(work: tuple[Sequence[RankSamples], SampleJob]) -> RankFit:
    """Fit a rank to samples by EM, until held-out samples stop it, and score them.

    Parameters
    ----------
    work
        Splits of the samples, and settings: one argument, for maps on Dask.

    Returns
    -------
    The fit; without its parameters where it is an average, for states of its members have nothing in common.
    """
    splits, job = work
    samples = splits[job.split]
    runs = Runs(
        samples.training,
        samples.validation,
        samples.schema.offsets,
        samples.singles,
        checkpoint=job.folder,
        options=job.choice,
    )
    if job.near is None:
        starts = [samples.start(job.rank, job.seed, number) for number in range(job.members)]
    else:
        merged = job.near
        while merged[0].size > job.rank:
            merged = merge_states(merged)
        starts = [merged]
    state = runs.run(job.name, starts, job.pseudo_count)
    assert state.best is not None
    found = state.best
    model = JointPMF(*found, samples.schema, {})
    kept = found if job.members == 1 else (np.empty(0), np.empty((0, 0)))
    return RankFit(kept, -max(state.held_out), samples.score(model), state.n_passes)


USUAL_STEPS = 600
"""Steps of all candidates of a rank, mostly: shares and pseudo-counts."""

STEP_PASSES = 2.5
"""Passes of EM that a step takes: the objective needs one with the target and one without, and is found anew where a
step was too long."""


@dataclass(frozen=True, eq=False)
class TargetFits:
    """Samples that ranks are fitted to for a target.

    Parameters
    ----------
    samples
        Training samples, and those to evaluate on, with a target.
    pseudo_counts
        Mean pseudo-counts per level and state, as the options of the fit list them.
    """

    samples: RankSamples
    pseudo_counts: tuple[float, ...]

    @property
    def least(self) -> int:
        """The least rank: the number of the target's levels."""
        assert self.samples.target is not None
        return self.samples.schema[self.samples.target].cardinality

    def __getstate__(self) -> dict[str, object]:
        """What is sent to workers: threads are not."""
        return {name: value for name, value in self.__dict__.items() if name != "validation"}

    @cached_property
    def validation(self) -> BlocksInMemory:
        """Held-out samples for the steps."""
        samples = self.samples
        return BlocksInMemory.cut(
            samples.held_out, samples.schema.offsets, BLOCK_RANK, samples.target
        )

    def estimate(self, rank: int, n_steps: int = USUAL_STEPS) -> float:
        """Seconds of so many steps, by the model of costs."""
        schema: Schema = self.samples.schema
        one = fit_runs.estimate_pass(self.samples.n_observed, schema.n_levels, rank)
        return STEP_PASSES * n_steps * one


@dataclass(frozen=True)
class TargetJob:
    """Work of `fit_for_target`: a rank, and the seed of its start."""

    rank: int
    seed: int

    @property
    def name(self) -> str:
        """Name that no other fit of its choice has."""
        return f"target-{self.rank}"


def fit_for_target(work: tuple[TargetFits, TargetJob]) -> RankFit:
    """Fit a rank for its target, in the way that is best on held-out samples, and score these.

    Parameters
    ----------
    work
        Samples and settings: one argument, for maps on Dask.

    Returns
    -------
    The fit, without its parameters: only its scores are compared.
    """
    given, job = work
    samples = given.samples
    fit = EMFit(
        samples.schema,
        job.rank,
        Options(("auto",), given.pseudo_counts),
        job.seed,
        Passes(MAX_STEPS, 0.0, 1),
        samples.target,
    )
    training = BlocksInMemory.cut(samples.block, samples.schema.offsets, job.rank)
    starts = fit.make_starts(fit.count(samples.block))
    runs = fit.for_target.try_candidates(training, given.validation, starts)
    specification, result = fit.for_target.report_best(runs, training, given.validation)
    n_steps = sum(len(run.losses) for run in runs.values())
    nothing = np.empty(0), np.empty((0, 0))
    scores = samples.score(result.model)
    return RankFit(nothing, -max(result.held_out), scores, n_steps, specification.pseudo_count)
