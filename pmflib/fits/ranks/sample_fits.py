"""Evaluation of one rank on held-out samples, or on a target: EM from starts by pairs, single or averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pmflib.base.arrays import FloatArray, Parameters
from pmflib.base.blocks import DenseBlock, join_weights
from pmflib.base.codes import Codes
from pmflib.base.display.progress import working
from pmflib.counts.marginals import estimate_block_singles
from pmflib.counts.pair_counts import PairCounts, count_block
from pmflib.em.block_source import BlocksInMemory
from pmflib.em.latent_classes import Runs
from pmflib.fits.em_fit import EMFit, Passes
from pmflib.fits.fit_specifications import LARGEST_PAIRS, Options
from pmflib.fits.pair_fits import fit_by_method
from pmflib.fits.ranks import fit_runs
from pmflib.fits.ranks.fit_runs import RankFit
from pmflib.fits.starts import open_for_em
from pmflib.model import JointPMF
from pmflib.papers.pair_matrix import start_random
from pmflib.papers.ranks import merge_states
from pmflib.schema import Schema

BLOCK_RANK = 64
"""Rank for which samples are divided into blocks, so that the blocks are the same for all ranks."""

START_UPDATES = 150
"""Maximum number of updates of a start; see `pmflib.fits.auto_method.run_pairs`."""

SAVED_SECONDS = 5.0
"""Estimated time of a fit in seconds from which its state is saved after each pass."""


N_FOLDS = 5
"""Number of folds if no held-out samples are given; one is held out."""

LEAST_SAMPLES = 20
"""Number of samples below which none are held out."""

MOST_SAMPLES = 20_000
"""Maximum number of training samples for comparing ranks, spread over all samples."""
MOST_HELD_OUT = 5_000
"""Maximum number of held-out samples for evaluating ranks."""

CROSSED_CELLS = 200_000
"""Number of cells, including missing ones, up to which full cross-validation is used: a single fold would be too small
to distinguish ranks, and all folds take only seconds.
"""


@dataclass(frozen=True, eq=False)
class RankSamples:
    """Samples for fitting and evaluating ranks.

    Parameters
    ----------
    schema
        All variables.
    block, held_out
        Training samples, and held-out samples.
    counts
        Co-occurrence counts for starts; None uses random starts.
    singles
        float64 of shape (n_levels,), PMF of each variable.
    target
        Position of the variable whose conditional log-likelihood is the criterion; None for the joint log-likelihood.
    """

    schema: Schema
    block: DenseBlock
    held_out: DenseBlock
    counts: PairCounts | None
    singles: FloatArray
    target: int | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return the state sent to workers, without threads."""
        hidden = ("training", "validation")
        return {name: value for name, value in self.__dict__.items() if name not in hidden}

    @cached_property
    def n_observed(self) -> int:
        """Return the number of observed cells in the training samples."""
        return self.block.n_observed

    @cached_property
    def training(self) -> BlocksInMemory:
        """Return the training samples for EM."""
        return BlocksInMemory.cut(self.block, self.schema.offsets, BLOCK_RANK)

    @cached_property
    def validation(self) -> BlocksInMemory:
        """Return the held-out samples for EM."""
        return BlocksInMemory.cut(self.held_out, self.schema.offsets, BLOCK_RANK, self.target)

    def start(self, rank: int, seed: int, number: int) -> Parameters:
        """Return the start with the given number."""
        rng = np.random.default_rng([seed, number])
        if self.counts is None:
            drawn = start_random(self.singles, self.schema.offsets, rank=rank, rng=rng)
            return open_for_em(drawn, self.singles)
        with working("fit"):
            model = fit_by_method(self.counts, rank, "pairs", rng).model
        return open_for_em((model.prior, model.factors), self.singles)

    def score(self, model: JointPMF) -> FloatArray:
        """Return the log-likelihood of each held-out sample, or of its observed target given the rest, nats.

        For weighted samples it is multiplied by weights of mean 1, so that the mean is the weighted mean.
        """
        held_out = self.held_out
        if self.target is not None:
            held_out = held_out[held_out.codes[:, self.target] >= 0]
        scores: FloatArray = model.log_prob(Codes(held_out.codes))
        if self.target is not None:
            rest = held_out.codes.copy()
            rest[:, self.target] = -1
            scores -= model.log_prob(Codes(rest))
        if held_out.weights is None:
            return scores
        weighed: FloatArray = scores * (held_out.weights / held_out.weights.mean())
        return weighed

    def estimate_pass(self, job: SampleJob) -> float:
        """Estimate the time of a pass of a fit by the cost model, seconds."""
        return fit_runs.estimate_pass(self.n_observed, self.schema.n_levels, job.members * job.rank)

    def estimate_start(self, job: SampleJob) -> float:
        """Estimate the time of the starts of a fit by the cost model, seconds."""
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
    """Split samples into training and held-out parts, several times if there are few samples.

    Parameters
    ----------
    block
        Samples.
    held_out
        Samples for evaluation, in which case nothing is split; None holds out folds, by a hash of the position.
    schema
        Variables.
    target
        Position of the variable that is the criterion, for which a single fold is held out.
    pools
        Whether small numbers of samples are pooled with the held-out ones and split together.

    Returns
    -------
    The splits: `N_FOLDS` for at most `CROSSED_CELLS` cells, so that each sample is held out once; a single one for more
    cells, or if held-out samples are given; none if nothing can be held out.
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
    """Return at most ``most`` rows spread over the table, since tables are often sorted."""
    if len(block) <= most:
        return block
    return block[np.linspace(0, len(block) - 1, most).astype(np.int64)]


@dataclass(frozen=True, eq=False)
class SampleJob:
    """Arguments of `fit_samples`.

    Parameters
    ----------
    rank
        Number of latent states of each model, at least 1.
    pseudo_count
        Mean pseudo-count per level and state.
    members
        Number of models to average, at least 1.
    seed
        Seed of the starts.
    folder
        Folder for EM states; None saves none.
    choice
        Digest of the choice that the fit is part of.
    split
        Index of the split that is fitted.
    near
        Fit of a larger rank whose states are merged to the requested number, in place of starts.
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
        """Return a name that is unique within the choice."""
        name = f"samples-{self.pseudo_count:g}-{self.rank}"
        name += f"-split-{self.split}" if self.split else ""
        return name if self.near is None else f"{name}-of-{self.near[0].size}"


def fit_samples(work: tuple[Sequence[RankSamples], SampleJob]) -> RankFit:
    """Fit a rank to samples by EM with early stopping on held-out samples, and score these.

    Parameters
    ----------
    work
        Splits of the samples, and settings: a single argument, for maps on Dask.

    Returns
    -------
    The fit; without parameters for an average, because the states of its members do not correspond.
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
    model = JointPMF(*found, samples.schema)
    kept = found if job.members == 1 else (np.empty(0), np.empty((0, 0)))
    return RankFit(kept, -max(state.held_out), samples.score(model), state.n_passes)


USUAL_STEPS = 600
"""Typical number of steps of all candidates for a rank: shares and pseudo-counts."""

STEP_PASSES = 2.5
"""EM passes per step: the objective needs one with the target and one without, and is recomputed after a step that was
too long.
"""


@dataclass(frozen=True, eq=False)
class TargetFits:
    """Samples to which ranks are fitted for a target.

    Parameters
    ----------
    samples
        Training samples and held-out samples, with a target.
    pseudo_counts
        Mean pseudo-counts per level and state, as listed in the options of the fit.
    """

    samples: RankSamples
    pseudo_counts: tuple[float, ...]

    @property
    def least(self) -> int:
        """Return the smallest rank: the number of levels of the target."""
        assert self.samples.target is not None
        return self.samples.schema[self.samples.target].cardinality

    def __getstate__(self) -> dict[str, object]:
        """Return the state sent to workers, without threads."""
        return {name: value for name, value in self.__dict__.items() if name != "validation"}

    @cached_property
    def validation(self) -> BlocksInMemory:
        """Return the held-out samples for the steps."""
        samples = self.samples
        return BlocksInMemory.cut(
            samples.held_out, samples.schema.offsets, BLOCK_RANK, samples.target
        )

    def estimate(self, rank: int, n_steps: int = USUAL_STEPS) -> float:
        """Estimate the time of ``n_steps`` steps by the cost model, seconds."""
        schema: Schema = self.samples.schema
        one = fit_runs.estimate_pass(self.samples.n_observed, schema.n_levels, rank)
        return STEP_PASSES * n_steps * one


@dataclass(frozen=True)
class TargetJob:
    """Arguments of `fit_for_target`: a rank, and the seed of its start."""

    rank: int
    seed: int

    @property
    def name(self) -> str:
        """Return a name that is unique within the choice."""
        return f"target-{self.rank}"


def fit_for_target(work: tuple[TargetFits, TargetJob]) -> RankFit:
    """Fit a rank to the target with the options that are best on held-out samples, and score these.

    Parameters
    ----------
    work
        Samples and settings: a single argument, for maps on Dask.

    Returns
    -------
    The fit without its parameters; only its scores are compared.
    """
    given, job = work
    samples = given.samples
    fit = EMFit(
        samples.schema,
        job.rank,
        Options(("auto",), given.pseudo_counts),
        job.seed,
        Passes(tol=0.0, patience=1),
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
