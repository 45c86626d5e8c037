"""A single EM fit: choices on held-out samples, and the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypedDict

import numpy as np

from pmflib.base.arrays import FloatArray, Parameters
from pmflib.base.blocks import DenseBlock
from pmflib.base.defaults import LIMITS, Limits
from pmflib.base.display.progress import find_report
from pmflib.base.errors import PmfError
from pmflib.base.hooks import find_offers
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.counts.folds import DEFAULT_FOLDS
from pmflib.counts.marginals import estimate_singles
from pmflib.counts.pair_counts import PairCounts
from pmflib.em.block_source import BlocksInMemory, BlockSource
from pmflib.em.checkpoint import digest_fit
from pmflib.em.family import PassReporter
from pmflib.em.latent_classes import ClassState, Runs, evaluate_models
from pmflib.em.stored_samples import StoredSamples
from pmflib.fits.criteria import measure_statistics
from pmflib.fits.fit_result import STILL, FitResult, Residuals
from pmflib.fits.fit_specifications import (
    FitSpecification,
    Options,
    find_specification,
    follow_specification,
    is_plenty,
)
from pmflib.fits.fit_statistics import HeldOutScore
from pmflib.fits.starts import AnyCounts, SampleCounts, Starts, StoredCounts, open_for_em
from pmflib.model import JointPMF
from pmflib.model.origin import ModelOrigin
from pmflib.model.sufficient_statistics import EMStatistics, m_step
from pmflib.schema import Schema

N_FOLDS = 5
"""Number of folds if choices are needed and no held-out samples are given; one fold is held out."""

TARGET_CELLS = 100_000_000
"""Samples times variables of stored samples that are read for a target fit; with more, a subset is used."""

LOCAL_WORK = 4_000_000
"""Observed cells times rank of stored samples up to which passes of a search are made in this process, with equal
bits.
"""

MIN_SAMPLES = 50
"""Number of samples below which none are held out by default."""

OnPass = Callable[[str, Any], None]
"""Called after each pass with the name of a run and its `State`."""


class Passes(NamedTuple):
    """Stopping criteria of EM, acceleration, checkpoints and progress.

    Parameters
    ----------
    max_passes
        Maximum number of passes per run, at least 0.
    tol
        Relative tolerance, at least 0: EM has converged when the estimated gain of further passes is below this
        fraction of the objective. With held-out samples, the fraction by which their log-likelihood must increase
        within ``patience`` passes.
    patience
        Number of passes without an increase of the held-out log-likelihood before stopping, at least 1.
    accelerate
        Whether to extrapolate from every two passes (SQUAREM), which helps when EM runs to convergence.
    checkpoint
        Folder for the states of the runs: the same call resumes from them with equal bits, even with other limits of
        passes. States of other samples or options are refused. None saves nothing.
    on_pass
        Called after each pass with the name of a run, such as "random-0.3", and its `State`; None reports passes to
        `pmflib.progress`.
    """

    max_passes: int = LIMITS.max_passes
    tol: float = LIMITS.tol
    patience: int = LIMITS.patience
    accelerate: bool = False
    checkpoint: Path | None = None
    on_pass: OnPass | None = None


def find_on_pass(passes: Passes) -> OnPass | None:
    """Return the callback after each pass: the given one, or the progress listener of this thread."""
    report = find_report()
    if passes.on_pass is not None or report is None:
        return passes.on_pass
    return PassReporter(report, passes.max_passes)


class PassOptions(TypedDict, total=False):
    """Fields of `Passes` as keyword arguments of a fit."""

    max_passes: int
    tol: float
    patience: int
    accelerate: bool
    checkpoint: Path | None
    on_pass: OnPass | None


class TargetFitting(Protocol):
    """A fit of states that are assigned to the levels of a target: see the hook ``"target_fits"``."""

    def choose(
        self, block: DenseBlock, held_out: BlocksInMemory, starts: Starts
    ) -> tuple[FitSpecification, FitResult]:
        """Fit with the options that are best on held-out samples."""

    def follow(
        self, specification: FitSpecification, block: DenseBlock, starts: Starts
    ) -> FitResult:
        """Fit samples by a specification."""

    def resolve(self) -> FitSpecification:
        """Return a specification without held-out samples."""

    def try_candidates(
        self, training: BlocksInMemory, held_out: BlocksInMemory, starts: Starts
    ) -> Mapping[Any, Any]:
        """Return the run of every candidate."""

    def report_best(
        self, runs: Mapping[Any, Any], training: BlocksInMemory, held_out: BlocksInMemory
    ) -> tuple[FitSpecification, FitResult]:
        """Return specification and result of the best run."""


@dataclass(frozen=True, eq=False)
class EMFit:
    """Settings of an EM fit.

    Parameters
    ----------
    schema
        Variables.
    rank
        Number of latent states.
    options
        Options to choose from.
    seed
        Seed of the starts.
    passes
        Stopping criteria.
    target
        Variable whose held-out log-likelihood is the criterion; None for all variables.
    made, methods
        Precomputed starting values and the method behind each, as for `Starts`.
    given
        Digest of a model given as a start; "" if there is none.
    """

    schema: Schema
    rank: int
    options: Options
    seed: int
    passes: Passes
    target: int | None = None
    made: Mapping[str, Parameters] = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    given: str = ""

    def fit_to(self, n_observed: int) -> EMFit:
        """Return the fit with options adjusted by `Options.fit_to` to the number of observed cells."""
        # a precomputed start from pairs costs nothing
        n_levels = 0 if self.made else self.schema.n_levels
        return replace(self, options=self.options.fit_to(n_observed, n_levels, self.rank))

    def refining(self, model: JointPMF) -> EMFit:
        """Return the fit started only from the given model."""
        start = (model.prior, model.factors)
        options = replace(self.options, start_methods=("given",))
        return replace(self, options=options, made={"given": start}, given=digest_fit(*start))

    @property
    def is_refining(self) -> bool:
        """Whether the fit goes on from a given model."""
        return self.options.start_methods == ("given",)

    def started_from(self, model: JointPMF, counts: PairCounts | StoredCounts) -> EMFit:
        """Return the fit with a model as the first start of its first start method."""
        method = self.options.start_methods[0]
        opened = open_for_em((model.prior, model.factors), self.estimate_singles(counts))
        made_by = model.origin.method or method
        given = digest_fit(model.prior, model.factors)
        return replace(self, made={method: opened}, methods={method: made_by}, given=given)

    def open_held_out(self, validation: object | None) -> BlockSource | None:
        """Open held-out samples, stored or in memory; None if there are none.

        Raises
        ------
        PmfError
            If samples in memory are given but there are no rows.
        """
        if isinstance(validation, StoredSamples):
            # with few samples these folds may be empty: then nothing is chosen
            return validation.with_target(self.target) if validation.n_rows else None
        if validation is None:
            return None
        held_out = DenseBlock(self.schema.encode(validation))
        if not len(held_out):
            raise PmfError("validation has no rows; omit it, or hold out at least one sample")
        return self.load_held_out(held_out)

    def fit_samples(
        self,
        training: StoredSamples | DenseBlock,
        validation: object | None,
        counts: PairCounts | StoredCounts | None,
    ) -> FitResult:
        """Fit samples, stored or in memory, choosing options on held-out samples or on a fold.

        Parameters
        ----------
        training
            Samples, stored or in memory.
        validation
            Held-out samples, if any.
        counts
            Co-occurrence counts of stored samples; None for those in memory.
        """
        if isinstance(training, StoredSamples):
            assert counts is not None
            return self.fit_stored(training, validation, counts)
        held_out = self.open_held_out(validation)
        if held_out is None:
            return self.fit_all(training)
        return self.fit_block(training, held_out)[1]

    def fit_stored(
        self,
        training: StoredSamples,
        validation: object | None,
        counts: PairCounts | StoredCounts,
    ) -> FitResult:
        """Fit stored samples, choosing options on held-out samples if there are any."""
        fit = self.fit_to(training.n_observed)
        held_out = fit.open_held_out(validation)
        starts = fit.make_starts(counts)
        if fit.has_target_states and held_out is not None:
            if isinstance(held_out, StoredSamples):
                held_out = held_out.load(self.rank)
            assert isinstance(held_out, BlocksInMemory)
            most = max(1, TARGET_CELLS // self.schema.n_variables)
            return fit.for_target.choose(training.read_some(most), held_out, starts)[1]
        found: BlockSource = training
        if fit.options.searches and training.n_observed * self.rank <= LOCAL_WORK:
            # for little data, a pass here is faster than a message to a worker, or than reading the data again
            is_narrow = training.n_rows * self.schema.n_variables <= TARGET_CELLS
            found = training.load(self.rank) if is_narrow else training.with_client(None)
            held_out = (
                held_out.with_client(None) if isinstance(held_out, StoredSamples) else held_out
            )
        return fit.choose(found, held_out, starts)[1]

    def fit_block(
        self, block: DenseBlock, held_out: BlockSource
    ) -> tuple[FitSpecification, FitResult]:
        """Fit samples in memory, choosing options on held-out samples."""
        training = BlocksInMemory.cut(block, self.schema.offsets, self.rank)
        fit = self.fit_to(training.n_observed)
        return fit.choose(training, held_out, fit.make_starts(fit.count(block)), block)

    def count(self, block: DenseBlock) -> SampleCounts:
        """Return co-occurrence counts for starts, by fold."""
        return SampleCounts(block, self.schema, DEFAULT_FOLDS)

    def fit_all(self, block: DenseBlock) -> FitResult:
        """Choose options on a held-out fold, then fit all samples in memory."""
        specification, trial = self._try_on_fold(block)
        result = self.follow(specification, block)
        if trial is None:
            return result
        assert trial.held_out_score is not None
        score = replace(trial.held_out_score, n_trials=1)
        return replace(result, held_out=trial.held_out, held_out_score=score, trial=trial.model)

    def follow(self, specification: FitSpecification, block: DenseBlock) -> FitResult:
        """Fit all samples in memory by a specification that was chosen with a held-out fold."""
        training = BlocksInMemory.cut(block, self.schema.offsets, self.rank)
        fit = self.fit_to(training.n_observed)
        starts = fit.make_starts(fit.count(block))
        if specification.share is not None:
            return self.for_target.follow(specification, block, starts)
        runs = self._make_runs(training, None, starts)
        specification, model, state = follow_specification(specification, runs, starts)
        return self._report(specification, model, state, runs, starts)

    def choose(
        self,
        training: BlockSource,
        held_out: BlockSource | None,
        starts: Starts,
        block: DenseBlock | None = None,
    ) -> tuple[FitSpecification, FitResult]:
        """Fit with options chosen on held-out samples, or with defaults if there are none.

        If ``block`` is given, training samples and held-out samples in memory may be fitted to a target.
        """
        if block is not None and self.has_target_states and isinstance(held_out, BlocksInMemory):
            return self.for_target.choose(block, held_out, starts)
        by_em = self._make_runs(training, held_out, starts)
        specification, model, state = find_specification(by_em, starts, self.options)
        # starts from other samples do not include the choices of "auto"
        named = tuple((starts.name_methods([each]), n) for each, n in specification.starts)
        specification = replace(specification, starts=named)
        if held_out is not None and self.target is not None:
            name = self.schema.names[self.target]
            note = f"held out: log-likelihood of {name!r} given the other variables"
            specification = replace(specification, notes=(note, *specification.notes))
        return specification, self._report(specification, model, state, by_em, starts)

    @property
    def assigns_states(self) -> bool:
        """Whether states may be assigned to the levels of the target: no option rules it out, and a feature does it."""
        known = find_offers("target_fits")
        return self.target is not None and self.options.searches and "classes" in known

    @property
    def has_target_states(self) -> bool:
        """Whether to assign latent states to the levels of the target."""
        return (
            self.target is not None
            and self.assigns_states
            and self.rank >= self.schema[self.target].cardinality
        )

    @property
    def for_target(self) -> TargetFitting:
        """Return the fit with latent states assigned to the levels of its target."""
        assert self.target is not None
        grid, max_passes = self.options.pseudo_counts, self.passes.max_passes
        made: TargetFitting = find_offers("target_fits")["classes"](
            self.schema, self.target, self.rank, grid, max_passes, self.on_pass
        )
        return made

    def _try_on_fold(self, block: DenseBlock) -> tuple[FitSpecification, FitResult | None]:
        """Return a specification for all samples, and the fit without the held-out fold that chose it, if any."""
        if self.made or not self.passes.max_passes:
            return self.options.resolve(), None
        n_observed = block.n_observed
        options = self.fit_to(n_observed).options
        resolved = options.resolve()
        if not options.is_open:
            return resolved, None
        if len(block) < MIN_SAMPLES:
            note = f"nothing was held out: {len(block)} samples are too few"
            if self.has_target_states:
                resolved = self.for_target.resolve()
            return replace(resolved, notes=(note,)), None
        if not self.has_target_states and is_plenty(n_observed, self.schema.n_levels, self.rank):
            note = f"nothing was held out: {n_observed} observed cells leave nothing to choose"
            return replace(resolved, notes=(note,)), None
        training, held_out = self.hold_out(block)
        trial = replace(self, options=replace(self.options, trial=True))
        return trial.fit_block(training, held_out)

    def hold_out(self, block: DenseBlock, fold: int = 0) -> tuple[DenseBlock, BlocksInMemory]:
        """Split off a held-out fold."""
        is_held_out = block.assign_folds(N_FOLDS) == fold
        return block[~is_held_out], self.load_held_out(block[is_held_out])

    def load_held_out(self, block: DenseBlock) -> BlocksInMemory:
        """Held-out samples in memory."""
        rank = self.rank * self.options.members
        return BlocksInMemory.cut(block, self.schema.offsets, rank, self.target)

    def estimate_singles(self, counts: AnyCounts) -> FloatArray:
        """Estimate the PMF of each variable from the counts of the training samples: float64 (n_levels,)."""
        if isinstance(counts, PairCounts):
            return estimate_singles(counts)
        return counts.estimate_singles(self.schema.offsets)

    def make_starts(self, counts: AnyCounts) -> Starts:
        """Make starting values from the counts of the training samples."""
        singles, offsets = self.estimate_singles(counts), self.schema.offsets
        given = (self.rank, self.seed, self.made, self.methods)
        has_pairs = "auto" in (*self.options.start_methods, *self.made)
        return Starts(counts, singles, offsets, *given, has_pairs=has_pairs)

    def _make_runs(
        self, training: BlockSource, held_out: BlockSource | None, starts: Starts
    ) -> Runs:
        offsets, options = self.schema.offsets, ""
        if self.passes.checkpoint is not None:
            options = digest_fit(self.digest_options(), starts.digest())
        passes = self.passes._replace(on_pass=self.on_pass)
        return Runs(training, held_out, offsets, starts.singles, *passes, options)

    @property
    def on_pass(self) -> OnPass | None:
        """Return the callback after each pass: the given one, or the progress listener of this thread."""
        return find_on_pass(self.passes)

    @property
    def limits(self) -> Limits:
        """Return the stopping criteria of runs."""
        return Limits(self.passes.max_passes, self.passes.tol, self.passes.patience)

    def digest_options(self) -> str:
        """Compute the SHA-256 digest of the options that EM states depend on, without limits of passes."""
        options = asdict(self.options)
        parts = [self.schema.digest, self.rank, options, self.seed, self.target, self.given]
        return digest_fit(json.dumps(parts))

    def _report(
        self,
        specification: FitSpecification,
        model: Parameters,
        state: ClassState,
        runs: Runs,
        starts: Starts,
    ) -> FitResult:
        """Build the result of a fit from the final state of EM."""
        method = f"{starts.name_methods(each for each, _ in specification.starts)}+em"
        origin = ModelOrigin(method, state.best_pass, specification.pseudo_count)
        n_starts = sum(number for _, number in specification.starts)
        is_average = specification.members > 1
        if is_average:
            origin = origin.add(average=specification.members, final=True)
        elif n_starts > 1:
            origin = origin.add(best=n_starts)
        joint = JointPMF(*model, self.schema, origin)
        if not (is_average or self.is_refining):
            # the states of a model that is refined keep their places
            joint = joint.sort_states()
            model = (joint.prior, joint.factors)
        # one more pass gives the likelihood of the samples and the change that another update would make
        (statistics,) = evaluate_models(runs.training, [model])
        training = measure_statistics(joint, statistics)
        history = state.log_likelihoods[: state.best_pass]
        held_out = tuple(each for each in state.held_out[: state.best_pass + 1] if each > -np.inf)
        if not held_out and specification.score is not None and runs.held_out is not None:
            held_out = (runs.held_out.score([model]),)
        score = None
        if held_out and runs.held_out is not None:
            score = HeldOutScore(held_out[-1], runs.held_out.n_samples)
        residuals: Residuals | None = None
        noted: list[str] = []
        if not (is_average or self.options.trial):
            for note_fit in find_offers("fit_notes").values():
                found, note = note_fit(joint, runs.training)
                residuals = residuals or found
                noted.append(note)
        change = None
        if not is_average:
            change = find_change(runs, model, statistics, specification)
        has_ended = state.converged or specification.passes is not None
        is_early = bool(state.held_out) or specification.passes is not None
        converged = has_ended and (not is_early if change is None else change <= STILL)
        return FitResult(
            joint,
            state.loss_history,
            held_out,
            state.best_pass,
            converged,
            method,
            tuple(filter(None, (*noted, *starts.notes, *specification.notes))),
            state.passes_saved,
            comparisons=specification.comparisons,
            log_likelihoods=(*history, training.per_row),
            training=training,
            held_out_score=score,
            last_change=change,
            residuals=residuals,
            stopped_early=has_ended and is_early and not converged,
        )


def find_change(
    runs: Runs, model: Parameters, statistics: EMStatistics, specification: FitSpecification
) -> float:
    """Compute the largest change of a probability in one more pass, from the training statistics."""
    shape = PseudoCounts.shaped_by(runs.singles, runs.offsets, specification.pseudo_count)
    updated = m_step(statistics, runs.offsets, shape, *model)
    return max(
        float(np.abs(new - old).max(initial=0.0)) for new, old in zip(updated, model, strict=True)
    )
