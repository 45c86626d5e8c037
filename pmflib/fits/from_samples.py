"""EM fits to samples, with options chosen on held-out samples; and fits to samples drawn from an average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, Unpack

import numpy as np

from pmflib.base.arrays import check_model_type, check_row_order
from pmflib.base.blocks import DenseBlock
from pmflib.base.constraints import Interval, OneOf, at_least, check, check_type
from pmflib.base.defaults import Limits
from pmflib.base.display.progress import reports_progress
from pmflib.base.errors import PmfError, RankError, SchemaError
from pmflib.base.methods import MEMBER_START_METHODS
from pmflib.base.pseudo_counts import check_rank, warn_of_rank
from pmflib.base.variance import weigh_samples
from pmflib.base.weights import note_weights
from pmflib.cluster.memory import MemoryPlan
from pmflib.counts.pair_counts import PairCounts
from pmflib.em.block_source import BlocksInMemory
from pmflib.em.memory import plan_em
from pmflib.em.stored_samples import StoredSamples, find_effective
from pmflib.fits.em_fit import EMFit, Passes, PassOptions, find_on_pass
from pmflib.fits.fit_result import FitResult, warn_if_stopped
from pmflib.fits.fit_specifications import Options
from pmflib.fits.kinds import FitKind, choose_kinds, find_kind, is_forced
from pmflib.fits.ranks.selection import select, split_for_choice
from pmflib.fits.stack.fit import DEFAULT_PASSES, StackFit
from pmflib.fits.stack.ladder import EFFORTS, PSEUDO_COUNT, Effort
from pmflib.fits.starts import PreparedStart, StoredCounts, load_counts
from pmflib.model import JointPMF
from pmflib.schema import Schema

BUDGET = 30.0
"""Processor time for the choice of kind and rank, seconds, according to cost models (`pmflib.fits.ranks.fit_runs`),
which may be wrong by a factor of three. With it, 10,000 rows of 1,000 columns are fitted in less than 30 s of processor
time (`python -m benchmarks.ranks.choice_times --wide`).
"""

DRAWN_SAMPLES = 100_000
"""Default number of samples drawn from an average for distillation."""


@reports_progress
def fit_em(
    samples: object,
    model: JointPMF | None = None,
    *,
    rank: int | Literal["auto"] | None = None,
    schema: Schema | None = None,
    validation: object | None = None,
    start: str | PreparedStart = "auto",
    pseudo_count: float | Literal["auto"] = "auto",
    members: int = 1,
    target: str | int | None = None,
    dependence: Literal["auto", "none", "tree"] | None = None,
    effort: Effort = "normal",
    weight: object | None = None,
    rng: np.random.Generator | int = 0,
    **passes: Unpack[PassOptions],
) -> FitResult:
    """Fit a stack of models by EM to samples, in memory or in a store; or latent classes of a rank; or refine a model.

    Without a rank and a model, the rungs of a ladder are fitted side by side: one state, forests, and averages of
    latent classes, with growing numbers of states. Their weights are those that make held-out samples likeliest, and
    the result is one mixture of all states. It answers best; for classes to read, pass their number.

    "auto" means that held-out samples choose. These are ``validation``, or otherwise a fifth of the samples in memory,
    after which all samples are fitted with the chosen options. Among candidates within one standard error of the best,
    the simplest is chosen: the lowest rank, the largest pseudo-count. Stored samples without ``validation`` are fitted
    without a choice; ``select_rank`` chooses their rank from pairs. The notes of the result describe what was compared.

    Parameters
    ----------
    samples
        A DataFrame or another table in memory; an array of answers, or `Codes`, of shape (n_rows, n_variables); or
        `StoredSamples`. Without a schema, it is inferred by `pmflib.Schema.infer`.
    model
        Model to refine; give either a model or a rank. Without held-out samples it is refined until the objective
        converges. A model with forests keeps its options, and its forests are re-estimated periodically. A stack has a
        few more passes with its forests as they are, and new weights from held-out samples.
    rank
        Number of latent states, if no model is given; None for a stack. "auto", for classes to read, doubles it up to
        20, or until held-out samples have twice not become more likely, then fills in the ranks below the best.
        Averages and models of a target may have more.
    schema
        Variables, if neither a model nor stored samples are given. None infers them from the samples.
    validation
        Held-out samples, in memory or stored. Their log-likelihood determines the number of passes and the options set
        to "auto".
    start
        Start method, if no model is given: a method of `pmflib.fit`; "auto" compares starts from pairs with random
        ones. For stored samples also a `pmflib.fits.starts.PreparedStart`, with counts or a model made from them.
    pseudo_count
        Mean pseudo-count per level and latent state, proportional to the marginals; "auto" compares several.
    members
        Number of fits from independent starts whose probabilities are averaged. The result is one model with
        ``members * rank`` states, which EM cannot refine; `distil` fits a smaller one to it.
    target
        Variable, by name or position, that the model is to predict: held-out samples are scored by its conditional
        log-likelihood given their other variables. None treats all variables alike. With start "auto", one member and a
        rank of at least the target's cardinality, latent states are assigned to the levels of the target.
    dependence
        Whether variables may depend on each other within a state: "tree" fits a forest within each state, "none"
        assumes independence, and "auto" takes forests where they make held-out samples more likely by more than two
        standard errors. None is "auto" for a stack, and "none" for a rank.
    effort
        Length of the ladder of a stack: "quick" has averages of 4 models, up to 100 states each, "normal" of 10, up to
        400, and "thorough" of 20, up to 1,000. A rung is left out where it would have less than three observed cells
        per parameter or take too long, and the ladder ends where a step gains no more than its error.
    weight
        Weights of samples in memory, numbers above 0 of shape (n_rows,), or a `pmflib.surveys.SurveyDesign`, whose
        sampling
        units are never split between fitted and held-out samples. Only ratios matter: weights are scaled to sum to
        Kish's effective sample size, (sum w)^2 / sum w^2. Equal weights give the unweighted fit, bit for bit.
    rng
        Random generator, or a seed; used only for starts.
    **passes
        Fields of `pmflib.fits.em_fit.Passes`: ``max_passes`` (200), ``tol`` (1e-6), ``patience`` (10),
        ``accelerate`` (False), ``checkpoint`` and ``on_pass``.

    Returns
    -------
    The model and the history of the fit. Stored samples give equal bits for any number of workers.

    Raises
    ------
    PmfError
        If both model and rank are given, the model is an average or a stack, there are no samples in memory, a
        prepared start is given for samples in memory, an option is out of range, or the checkpoint belongs to another
        fit; if a weight is not a finite number above 0, or weights are given for stored samples or with ``validation``.
    SchemaError
        If samples do not fit the schema, or the target does not exist.
    StoreError
        If stored samples or counts are missing or damaged.

    Warns
    -----
    ConvergenceWarning
        If EM reaches ``max_passes``.
    RankWarning
        If the rank exceeds the number of samples in memory; given before anything is computed.
    """
    steps = Passes(**passes)
    method, counts, start_model = start if isinstance(start, PreparedStart) else (start, None, None)
    _check_options(model, rank, method, members, steps.max_passes, dependence, effort)
    # checked here, because the runs of choices have limits of their own
    Limits(*steps[:3]).check()
    _check_samples(samples, schema, start)
    variables = _find_schema(samples, schema, model)
    seed = _read_seed(rng, isinstance(samples, StoredSamples))
    training = _read_samples(samples, variables)
    if weight is not None:
        if validation is not None:
            raise PmfError(
                "weight and validation are given; leave validation out: a fold of the samples is held out"
            )
        check_row_order(samples, weight=weight)
        training = weigh_samples(training, weight, variables.weight_decimals)
    position = None if target is None else variables.position(target)
    is_resumed = model is not None and "stack" in model.origin
    if is_resumed or (rank is None and model is None and start_model is None):
        # stored samples have the stack of the same rows in memory
        stack = make_stack(
            variables, effort, dependence, pseudo_count, _read_seed(rng, is_stored=True), steps
        )
        stack = replace(stack, on_pass=find_on_pass(steps), target=position)
        if is_resumed:
            assert model is not None
            stack = replace(stack, pseudo_count=model.origin.pseudo_count or PSEUDO_COUNT)
            return _note_weights(stack.resume(model, training, validation), training)
        return _note_weights(stack.fit(training, validation), training)

    def make_fit(rank: int) -> EMFit:
        # independent variables have a unique fit
        options = Options.make(method, pseudo_count, 1 if rank == 1 else members, rank)
        return EMFit(variables, rank, options, seed, steps, position)

    dependence = dependence or "none"
    kinds, forced, chosen = choose_kinds(dependence), is_forced(dependence), None
    if rank == "auto" and start_model is None:
        fit = make_fit(2)
        load = (
            partial(_load_folds, training, counts) if isinstance(training, StoredSamples) else None
        )
        chosen = select(
            fit,
            split_for_choice(fit, training, validation),
            load,
            budget=BUDGET,
        )
        rank = chosen.rank
    elif rank is None or rank == "auto":
        model_of_rank = start_model if model is None else model
        assert model_of_rank is not None
        rank = model_of_rank.rank
    if chosen is None and model is None and not isinstance(training, StoredSamples):
        warn_of_rank(rank, round(training.n_samples))
    fit = make_fit(rank)
    result = _fit_rank(fit, training, validation, counts, model, start_model, kinds, forced)
    warn_if_stopped(result, steps.max_passes)
    if chosen is not None:
        result = replace(
            result,
            comparisons=(*chosen.comparisons, *result.comparisons),
            notes=(*chosen.reasons, *result.notes),
        )
    return _note_weights(result, training)


def make_stack(
    schema: Schema,
    effort: str,
    dependence: str | None = None,
    pseudo_count: float | Literal["auto"] = "auto",
    seed: int = 0,
    passes: Passes = DEFAULT_PASSES,
) -> StackFit:
    """Make the fit of a stack from the options of `fit_em`."""
    return StackFit(
        schema,
        EFFORTS[effort],
        choose_kinds(dependence or "auto"),
        not is_forced(dependence or "auto"),
        PSEUDO_COUNT if pseudo_count == "auto" else pseudo_count,
        seed,
        passes,
    )


def _load_folds(training: StoredSamples, counts: PairCounts | StoredCounts | None) -> PairCounts:
    """Return the counts of stored samples by fold."""
    found = load_counts(training, counts)
    if isinstance(found, PairCounts):
        return found
    stored = PairCounts.load(found.path)
    return stored if found.folds is None else stored.select_folds(found.folds)


def _fit_rank(
    fit: EMFit,
    training: StoredSamples | DenseBlock,
    validation: object | None,
    counts: PairCounts | StoredCounts | None,
    model: JointPMF | None,
    start_model: JointPMF | None,
    kinds: Sequence[FitKind],
    forced: bool,
) -> FitResult:
    """Fit with the rank of ``fit``: from a model, from a starting model, or from starts that are compared."""
    known = None if model is None else find_kind(model.kind)
    if model is not None:
        fit = fit.refining(model)
    if isinstance(training, StoredSamples):
        counts = load_counts(training, counts)
    if known is not None and known.refine is not None:
        return known.refine(fit, model, training, validation, counts)
    if start_model is not None:
        assert counts is not None
        fit = fit.started_from(start_model, counts)
    result = fit.fit_samples(training, validation, counts)
    for kind in kinds:
        if kind.extend is not None:
            result = kind.extend(fit, result, training, validation, counts, is_forced=forced)
    return result


@reports_progress
def distil(
    average: JointPMF,
    rank: int,
    *,
    validation: object | None = None,
    n_samples: int = DRAWN_SAMPLES,
    pseudo_count: float | Literal["auto"] = "auto",
    target: str | int | None = None,
    seed: int = 0,
    **passes: Unpack[PassOptions],
) -> FitResult:
    """Fit a single model by EM to samples drawn from an average, which preserves most of the gain from averaging.

    Parameters
    ----------
    average
        Model fitted by `fit_em` with several members.
    rank
        Number of latent states of the model to be fitted.
    validation
        Held-out real samples, in memory or stored, which choose the start, the pseudo-count and the number of passes.
        None makes no choices.
    n_samples
        Number of samples to draw, at least 1.
    pseudo_count, target, **passes
        As for `fit_em`.
    seed
        Seed for the samples and for the starts.

    Returns
    -------
    The model and the history of the fit.

    Warns
    -----
    ConvergenceWarning
        If EM reaches ``max_passes``.

    References
    ----------
    Breiman, Shang (1996), "Born again trees"; Hinton, Vinyals, Dean (2015), "Distilling the knowledge in a neural
    network".
    """
    check_model_type("average", average, JointPMF)
    check_rank(rank)
    schema, steps = average.schema, Passes(**passes)
    drawn = DenseBlock(average.sample(n_samples, seed))
    fit = EMFit(
        schema=schema,
        rank=rank,
        options=Options.make("auto", pseudo_count, 1, rank),
        seed=seed,
        passes=steps,
        target=None if target is None else schema.position(target),
    )
    training = BlocksInMemory.cut(drawn, schema.offsets, rank)
    starts = fit.make_starts(fit.count(drawn))
    result = fit.choose(training, fit.open_held_out(validation), starts, drawn)[1]
    n_members = average.origin.average or 1
    note = f"fitted to {len(drawn)} samples drawn from an average of {n_members} fits"
    warn_if_stopped(result, steps.max_passes)
    return replace(result, notes=(note, *result.notes))


def plan_fit_em(
    samples: StoredSamples,
    rank: int | None,
    *,
    start: str = "auto",
    pseudo_count: float | Literal["auto"] = "auto",
    members: int = 1,
    dependence: str | None = "none",
    effort: Effort = "normal",
    n_threads: int = 1,
) -> MemoryPlan:
    """Plan the memory of `fit_em` on a worker of stored samples and in this process, without the samples.

    Parameters
    ----------
    samples
        Training samples, with their client.
    rank, start, pseudo_count, members, dependence, effort
        As for `fit_em`; "tree" also stands for a model with forests as start.
    n_threads
        Number of threads of the worker.
    """
    if rank is None:
        fit = make_stack(samples.schema, effort, dependence)
        return fit.plan(
            samples.n_rows,
            samples.n_observed,
            n_threads,
            lambda n_states: samples.plan_pass(n_states).n_waiting,
        )
    options = Options.make(start, pseudo_count, members, rank)
    n_models = options.count_models(samples.n_observed, rank)
    n_waiting = samples.plan_pass(rank, n_models).n_waiting
    sizes = samples.schema.n_levels, rank, n_threads, n_models
    plan = plan_em(*sizes, n_waiting=n_waiting)
    dependence = dependence or "none"
    for kind in choose_kinds(dependence):
        is_tried = is_forced(dependence) or kind.is_modest(samples.schema.offsets, rank)
        if kind.plan is not None and is_tried:
            plan = plan.take_larger(
                kind.plan(
                    samples.schema.offsets,
                    rank,
                    n_threads,
                    members,
                    n_waiting=samples.plan_pass(rank).n_waiting,
                )
            )
    return plan


def check_can_start(model: JointPMF) -> None:
    """Refuse an average as a start for EM.

    Raises
    ------
    PmfError
        If the model is an average.
    """
    if model.origin.final and "stack" not in model.origin:
        raise PmfError(
            f"model is final, a mixture of {model.origin.average or 'several'} fits, which EM would take apart; pass "
            "a rank, or fit a model to samples drawn from it"
        )


def _check_options(
    model: JointPMF | None,
    rank: int | Literal["auto"] | None,
    start: str,
    members: int,
    max_passes: int,
    dependence: str | None,
    effort: str,
) -> None:
    """Check options and their combinations."""
    check(OneOf(tuple(EFFORTS)), effort=effort)
    check(at_least(1, whole=True, also=(None, "auto")), RankError, rank=rank)
    if model is not None:
        check_model_type("model", model, JointPMF)
    check(at_least(1, whole=True), members=members)
    check(Interval(whole=True), max_passes=max_passes)
    if model is not None and rank is not None:
        raise PmfError(
            f"model is given and rank is {rank}; pass one of the two, as fit_em(samples, rank=8) or "
            "fit_em(samples, model), or neither for a stack"
        )
    if model is None and rank is None and (members > 1 or start != "auto"):
        given = f"members is {members}" if members > 1 else f"start is {start!r}"
        raise PmfError(f"{given} without a rank; pass a rank, or leave it to the ladder of a stack")
    if model is not None:
        check_can_start(model)
        if members > 1:
            raise PmfError(f"members is {members} and a model is given; pass a rank instead")
    if members > 1:
        known = ("auto", *MEMBER_START_METHODS)
        check(OneOf(known, "as starts of members must differ"), start=start)
    if dependence is not None:
        choose_kinds(dependence)


def _check_samples(
    samples: object,
    schema: Schema | None,
    start: str | PreparedStart,
) -> None:
    """Check the types of samples and schema, and options for stored samples only."""
    if isinstance(samples, PairCounts):
        raise PmfError(
            "samples is PairCounts; fit_em takes samples, and pmflib.fit(counts, rank) takes counts"
        )
    hint = "pass pmflib.Schema.infer(table), or pmflib.Schema.from_cardinalities([2, 3])"
    check_type(Schema | None, hint, SchemaError, schema=schema)
    if not isinstance(samples, StoredSamples) and isinstance(start, PreparedStart):
        raise PmfError("start is prepared, which is for stored samples; pass the name of a method")


def _find_schema(samples: object, schema: Schema | None, model: JointPMF | None) -> Schema:
    """Return the variables: of the model or of stored samples, given, or inferred."""
    if model is not None:
        return model.schema
    if isinstance(samples, StoredSamples):
        return samples.schema
    return Schema.infer(samples) if schema is None else schema


def _read_samples(samples: object, schema: Schema) -> StoredSamples | DenseBlock:
    """Return stored samples unchanged, and other samples as codes."""
    if isinstance(samples, StoredSamples):
        return samples
    codes = schema.encode(samples)
    if not len(codes):
        raise PmfError("codes has no rows; EM needs at least one sample")
    return DenseBlock(codes)


def _note_weights(result: FitResult, samples: StoredSamples | DenseBlock) -> FitResult:
    """Add the effective number of weighted samples to the notes and to the origin of the model."""
    n_effective = find_effective(samples)
    if n_effective is None:
        return result
    model = replace(result.model, origin=result.model.origin.add(n_effective=n_effective))
    return replace(
        result, model=model, notes=(note_weights(samples.n_rows, n_effective), *result.notes)
    )


def _read_seed(rng: np.random.Generator | int, is_stored: bool) -> int:
    """Return the seed of the starts; for stored samples it is kept as configured, because artefacts are named by it."""
    if is_stored and isinstance(rng, int | np.integer):
        return int(rng)
    return int(np.random.default_rng(rng).integers(2**63))
