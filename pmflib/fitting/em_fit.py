"""One fit by EM: what it chooses on held-out samples, and the result of it."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.counting.marginals import estimate_singles
from pmflib.counting.pair_counts import PairCounts, count_pairs
from pmflib.em.in_memory import SamplesInMemory
from pmflib.em.joint_pmf_em import EMState
from pmflib.em.members import Runs
from pmflib.em.progress import PassReporter
from pmflib.em.samples import Samples
from pmflib.em.stored_samples import StoredSamples
from pmflib.errors import ConvergenceWarning, PmfError
from pmflib.fitting.candidates import Options, Recipe, is_plenty
from pmflib.fitting.from_pairs import FitResult
from pmflib.fitting.recipes import fit_options, follow_recipe
from pmflib.fitting.starts import Starts, StoredCounts, open_for_em
from pmflib.fitting.target_fit import (
    FIRST,
    MAX_STEPS,
    TARGET_CELLS,
    TARGET_WORK,
    Candidate,
    TargetRun,
    TargetSamples,
    find_target_recipe,
    settle_target,
    try_candidates,
)
from pmflib.hashing import assign_folds
from pmflib.model import JointPMF
from pmflib.reporting.work_progress import find_report
from pmflib.schema import Schema

N_FOLDS = 5
"""Folds that samples are dealt to where a choice is to be made and no other samples are given; one is held out."""

MIN_SAMPLES = 50
"""Samples below which none are held out by default."""

OnPass = Callable[[str, Any], None]
"""Called with the name of a run and its state after each pass: an `EMState`, or, with forests, a `TreeState`."""


class Passes(NamedTuple):
    """When EM stops, how it steps, and what is saved and reported: as in `pmflib.em.members.Runs`."""

    max_passes: int
    tol: float
    patience: int
    accelerate: bool
    checkpoint: Path | None = None
    on_pass: OnPass | None = None


@dataclass(frozen=True, eq=False)
class EMFit:
    """What is given for a fit by EM.

    Parameters
    ----------
    schema
        Variables.
    rank
        Number of latent states.
    options
        What is left to choose.
    seed
        Seed of the starts.
    passes
        When EM stops.
    target
        Variable that held-out samples judge by; None is all.
    made, methods
        Starts that were made before, and what made them, as for `Starts`.
    given
        Digest of the model that was given as a start; "" where there is none.
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

    def sized_for(self, training: Samples) -> EMFit:
        """The same fit, with several starts where the training samples are few enough."""
        # a start from pairs that is made already costs nothing
        n_levels = 0 if self.made else self.schema.n_levels
        return replace(self, options=self.options.fit_to(training.n_observed, self.rank, n_levels))

    def refining(self, model: JointPMF) -> EMFit:
        """The same fit, with a model as its only start, as it is."""
        start = (model.prior, model.factors)
        options = replace(self.options, start_methods=("given",))
        return replace(self, options=options, made={"given": start}, given=digest_model(start))

    def started_from(self, model: JointPMF, counts: PairCounts | StoredCounts) -> EMFit:
        """The same fit, with a model as the first start of its first start method."""
        method = self.options.start_methods[0]
        opened = open_for_em((model.prior, model.factors), self.estimate_singles(counts))
        made_by = str(model.origin.get("method", method))
        given = digest_model((model.prior, model.factors))
        return replace(self, made={method: opened}, methods={method: made_by}, given=given)

    def open_held_out(self, validation: object | None) -> Samples | None:
        """Samples to judge by, stored or in memory; None where there are none.

        Raises
        ------
        PmfError
            If samples in memory are given, but none is among them.
        """
        if isinstance(validation, StoredSamples):
            # of few samples, none may have fallen to these folds: then nothing is chosen
            return validation.with_target(self.target) if validation.n_rows else None
        if validation is None:
            return None
        codes = self.schema.encode(validation)
        if not len(codes):
            raise PmfError("validation has no rows; leave it out, or hold out at least one sample")
        return self._load_held_out(codes)

    def fit_samples(
        self,
        training: StoredSamples | IntArray,
        validation: object | None,
        counts: PairCounts | StoredCounts | None,
    ) -> FitResult:
        """Fit samples, stored or in memory, in the way that is best on held-out ones, or on a fold of those in memory.

        Parameters
        ----------
        training
            Samples; codes of shape (n_rows, n_variables), -1 missing, where they are in memory.
        validation
            Held-out samples; None is none.
        counts
            Co-occurrence counts of stored samples; None for those in memory.
        """
        if isinstance(training, StoredSamples):
            assert counts is not None
            return self.fit_stored(training, validation, counts)
        held_out = self.open_held_out(validation)
        if held_out is None:
            return self.fit_all_codes(training)
        return self.fit_codes(training, held_out)[1]

    def fit_stored(
        self,
        training: StoredSamples,
        validation: object | None,
        counts: PairCounts | StoredCounts,
    ) -> FitResult:
        """Fit stored samples in the way that is best on held-out ones, if there are any."""
        fit = self.sized_for(training)
        if fit.is_for_target(training.n_observed):
            cells = training.n_rows * self.schema.n_variables
            held_out = fit.open_held_out(validation)
            if isinstance(held_out, StoredSamples) and cells <= TARGET_CELLS:
                held_out = held_out.load(self.rank)
            if held_out is not None and cells <= TARGET_CELLS:
                starts = fit.make_starts(counts)
                return fit.choose(training.load(self.rank), held_out, starts)[1]
        if fit.options.small:
            # a pass over little is done here in less time than a message to a worker takes
            training = training.with_client(None)
            if isinstance(validation, StoredSamples):
                validation = validation.with_client(None)
        held_out = fit.open_held_out(validation)
        return fit.choose(training, held_out, fit.make_starts(counts))[1]

    def fit_codes(self, codes: IntArray, held_out: Samples) -> tuple[Recipe, FitResult]:
        """Fit samples in memory in the way that is best on held-out ones."""
        training = SamplesInMemory(codes, self.schema.offsets, self.rank)
        fit = self.sized_for(training)
        return fit.choose(training, held_out, fit.make_starts(fit.count(codes)))

    def count(self, codes: IntArray) -> PairCounts:
        """Counts for starts: of folds where a method may compare by them."""
        folds = {} if self.options.from_pairs else {"n_folds": 1}
        return count_pairs(codes, self.schema, **folds)

    def fit_all_codes(self, codes: IntArray) -> FitResult:
        """Fit all samples in memory in the way that was best when a fold of them was held out."""
        recipe, held_out = self._try_on_fold(codes)
        return self.follow(recipe, codes, held_out)

    def follow(self, recipe: Recipe, codes: IntArray, held_out: tuple[float, ...]) -> FitResult:
        """Fit all samples in memory by a recipe, found when a fold of them was held out, with these scores."""
        training = SamplesInMemory(codes, self.schema.offsets, self.rank)
        starts = self.make_starts(self.sized_for(training).count(codes))
        if recipe.share is not None:
            steps = recipe.passes or 0
            samples, start = self._open_for_target(training, starts)
            run = samples.run(start, recipe.share, recipe.pseudo_count, steps)
            return self._report_target(recipe, replace(run, held_out=held_out))
        runs = self._make_runs(training, None, starts)
        recipe, model, state = follow_recipe(recipe, runs, starts)
        result = self._report(recipe, model, state, starts)
        return replace(result, held_out=held_out) if held_out else result

    def choose(
        self, training: Samples, held_out: Samples | None, starts: Starts
    ) -> tuple[Recipe, FitResult]:
        """Fit in the way that is best on held-out samples, or, without any, as the options settle it."""
        if isinstance(held_out, SamplesInMemory) and isinstance(training, SamplesInMemory):
            if self.is_for_target(training.n_observed):
                runs = self.try_for_target(training, held_out, starts)
                return self.report_best(runs, held_out)
        by_em = self._make_runs(training, held_out, starts)
        recipe, model, state = fit_options(by_em, starts, self.options)
        if recipe.combination != "average":
            # other samples go on from its fits: no start of theirs says what "auto" has chosen
            named = tuple((starts.name_methods([each]), number) for each, number in recipe.starts)
            recipe = replace(recipe, starts=named)
        if held_out is not None and self.target is not None:
            recipe = replace(recipe, notes=(self._name_judge(), *recipe.notes))
        return recipe, self._report(recipe, model, state, starts)

    def try_for_target(
        self,
        training: SamplesInMemory,
        held_out: SamplesInMemory,
        starts: Starts,
        near: Candidate = FIRST,
    ) -> dict[Candidate, TargetRun]:
        """Run candidates of a fit for a target, as `try_candidates` does."""
        samples, start = self._open_for_target(training, starts)
        grid, max_passes = self.options.pseudo_counts, self.passes.max_passes
        return try_candidates(samples, start, held_out, grid, max_passes, near)

    def try_one_for_target(
        self, candidate: Candidate, codes: IntArray, counts: PairCounts, held_out: SamplesInMemory
    ) -> TargetRun:
        """Run one candidate of a fit for a target on samples in memory, whose counts are given."""
        training = SamplesInMemory(codes, self.schema.offsets, self.rank)
        samples, start = self._open_for_target(training, self.make_starts(counts))
        max_steps = min(self.passes.max_passes, MAX_STEPS)
        return samples.run(start, *candidate, max_steps, held_out)

    def report_best(
        self, runs: Mapping[Candidate, TargetRun], held_out: SamplesInMemory
    ) -> tuple[Recipe, FitResult]:
        """Recipe and result of the candidate that is chosen among those that were run."""
        recipe, run = find_target_recipe(runs, held_out)
        recipe = replace(recipe, notes=(self._name_judge(), *recipe.notes))
        return recipe, self._report_target(recipe, run)

    def _name_judge(self) -> str:
        assert self.target is not None
        name = self.schema.names[self.target]
        return f"held out: log-likelihood of {name!r} given the other variables"

    def is_for_target(self, n_observed: int) -> bool:
        """Whether states are dealt to the levels of a target: nothing else is wished for, and there is the time."""
        return (
            self.target is not None
            and len(self.options.start_methods) > 1
            and self.options.members == 1
            and self.rank >= self.schema[self.target].cardinality
            and n_observed * self.rank <= TARGET_WORK
        )

    def _open_for_target(
        self, training: SamplesInMemory, starts: Starts
    ) -> tuple[TargetSamples, Parameters]:
        assert self.target is not None
        offsets = self.schema.offsets
        samples = TargetSamples(training, self.target, starts.singles, offsets, self.on_pass)
        return samples, starts.make_classes(self.target)

    def _report_target(self, recipe: Recipe, run: TargetRun) -> FitResult:
        """Result of a fit for a target."""
        assert recipe.share is not None
        origin: dict[str, object] = {
            "method": "classes+conditional",
            "passes": run.n_steps,
            "pseudo_count": recipe.pseudo_count,
            "conditional_share": recipe.share,
        }
        return FitResult(
            JointPMF(*run.model, self.schema, origin),
            run.losses,
            run.held_out,
            run.n_steps,
            # held-out samples have stopped it, or would have
            True,
            str(origin["method"]),
            recipe.notes,
            comparisons=recipe.comparisons,
        )

    def _try_on_fold(self, codes: IntArray) -> tuple[Recipe, tuple[float, ...]]:
        """Recipe for all samples, and the held-out log-likelihoods where a fold was held out to choose it."""
        settled = self.options.settle()
        if not self.options.is_open or self.made or not self.passes.max_passes:
            return settled, ()
        n_observed = int(np.count_nonzero(codes >= 0))
        if len(codes) < MIN_SAMPLES:
            note = f"nothing was held out: {len(codes)} samples are too few"
            if self.is_for_target(n_observed):
                settled = settle_target(self.options.pseudo_counts)
            return replace(settled, notes=(note,)), ()
        is_for_target = self.is_for_target(n_observed)
        if not is_for_target and is_plenty(n_observed, self.schema.n_levels, self.rank):
            note = f"nothing was held out: {n_observed} observed cells leave nothing to choose"
            return replace(settled, notes=(note,)), ()
        training, held_out = self.hold_out(codes)
        recipe, result = self.fit_codes(training, held_out)
        return recipe, result.held_out

    def hold_out(self, codes: IntArray, fold: int = 0) -> tuple[IntArray, SamplesInMemory]:
        """Training samples, and the fold that is held out."""
        is_held_out = assign_folds(np.arange(len(codes)), N_FOLDS) == fold
        return codes[~is_held_out], self._load_held_out(codes[is_held_out])

    def _load_held_out(self, codes: IntArray) -> SamplesInMemory:
        rank = self.rank * self.options.members
        return SamplesInMemory(codes, self.schema.offsets, rank, self.target)

    def estimate_singles(self, counts: PairCounts | StoredCounts) -> FloatArray:
        """PMF of each variable alone, from the counts of the training samples: float64 (n_levels,)."""
        if isinstance(counts, StoredCounts):
            return counts.estimate_singles(self.schema.offsets)
        return estimate_singles(counts)

    def make_starts(self, counts: PairCounts | StoredCounts) -> Starts:
        """Starts from the counts of the training samples."""
        load = counts.load if isinstance(counts, StoredCounts) else lambda: counts
        singles, offsets = self.estimate_singles(counts), self.schema.offsets
        return Starts(load, singles, offsets, self.rank, self.seed, self.made, self.methods)

    def _make_runs(self, training: Samples, held_out: Samples | None, starts: Starts) -> Runs:
        offsets, options = self.schema.offsets, self.digest_options()
        passes = self.passes._replace(on_pass=self.on_pass)
        return Runs(training, held_out, offsets, starts.singles, *passes, options)

    @property
    def on_pass(self) -> OnPass | None:
        """What is called after each pass: what was given, or else whoever listens to the progress of this thread."""
        report, max_passes = find_report(), self.passes.max_passes
        if self.passes.on_pass is not None or report is None:
            return self.passes.on_pass
        return PassReporter(report, max_passes)

    def digest_options(self) -> str:
        """SHA-256 of what states of EM depend on, other than the samples; limits of passes only end them."""
        options = asdict(self.options)
        parts = [self.schema.digest, self.rank, options, self.seed, self.target, self.given]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _report(
        self, recipe: Recipe, model: Parameters, state: EMState, starts: Starts
    ) -> FitResult:
        """Result of a fit from the state at the end of its EM."""
        method = f"{starts.name_methods(each for each, _ in recipe.starts)}+em"
        origin: dict[str, object] = {
            "method": method,
            "passes": state.best_pass,
            "pseudo_count": recipe.pseudo_count,
        }
        if recipe.n_models > 1 or recipe.combination != "average":
            origin |= {recipe.combination: recipe.n_models}
        if recipe.is_final:
            origin["final"] = True
        return FitResult(
            JointPMF(*model, self.schema, origin),
            state.loss_history,
            state.held_out or (() if recipe.score is None else (recipe.score,)),
            state.best_pass,
            state.converged or recipe.passes is not None,
            method,
            (*starts.notes, *recipe.notes),
            state.passes_saved,
            comparisons=recipe.comparisons,
            log_likelihoods=state.log_likelihoods,
        )


def digest_model(model: Parameters) -> str:
    """SHA-256 of a model's parameters, in hexadecimal."""
    total = hashlib.sha256()
    for array in model:
        total.update(f"{array.shape}".encode() + np.ascontiguousarray(array, np.float64).tobytes())
    return total.hexdigest()


def warn_if_stopped(result: FitResult, max_passes: int) -> None:
    """Warn whoever has called the caller of a fit that stopped at the limit of passes."""
    if not result.converged and max_passes > 0:
        warnings.warn(
            f"EM stopped at max_passes={max_passes} before it converged; raise max_passes or tol",
            ConvergenceWarning,
            stacklevel=4,
        )


def summarise_fit(result: FitResult) -> dict[str, Any]:
    """Summary of a fit by EM in plain JSON types: what the manifest of a store says of a model."""
    return {
        "method": result.method,
        "rank": result.model.rank,
        **result.model.summarise_dependence(),
        "pseudo_count": result.model.origin["pseudo_count"],
        "passes": len(result.loss_history),
        "best_pass": result.best_pass,
        "converged": result.converged,
        "passes_saved": round(result.passes_saved),
        "log_likelihood_per_row": list(result.log_likelihoods),
        "held_out_per_row": list(result.held_out),
        "notes": list(result.notes),
        "comparisons": [each.to_json() for each in result.comparisons],
    }
