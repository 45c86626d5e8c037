"""From samples to a model: EM, with what it takes chosen on held-out samples; and from samples that a model draws."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from pmflib.cluster.memory import MemoryPlan
from pmflib.core.arrays import check_model_type, check_whole, name_type
from pmflib.core.blocks import DenseBlock
from pmflib.core.defaults import DEFAULT_PSEUDO_COUNT, LIMITS, Limits
from pmflib.core.errors import PmfError, SchemaError
from pmflib.core.methods import MEMBER_START_METHODS
from pmflib.core.survey_design import SurveyDesign
from pmflib.core.weights import note_weights
from pmflib.counting.folds import infer_schema
from pmflib.counting.pair_counts import PairCounts
from pmflib.display.progress import reports_progress
from pmflib.em.block_source import BlocksInMemory
from pmflib.em.forests.samples import are_modest
from pmflib.em.memory import plan_em
from pmflib.em.stored_samples import StoredSamples
from pmflib.fitting.candidates import Options
from pmflib.fitting.dependence import (
    DEPENDENCES,
    fit_dependence,
    plan_forest_passes,
    refine_forests,
)
from pmflib.fitting.em_fit import EMFit, OnPass, Passes
from pmflib.fitting.fit_result import FitResult, SettledRank, warn_if_stopped
from pmflib.fitting.item_responses import fit_item_responses
from pmflib.fitting.ranks.in_memory import choose_fit_kind, settle_rank
from pmflib.fitting.ranks.kinds import KindChoice
from pmflib.fitting.starts import StoredCounts, load_counts
from pmflib.fitting.weighted_samples import weigh_samples
from pmflib.model import JointPMF
from pmflib.model.forests.tree_pmf import TreePMF
from pmflib.schema import Schema
from pmflib.solvers import check_rank, warn_of_rank

DRAWN_SAMPLES = 100_000
"""Samples drawn from an average to distil it, where no other number is given."""


@reports_progress
def fit_em(
    samples: object,
    model: JointPMF | None = None,
    *,
    rank: int | Literal["auto"] | None = None,
    schema: Schema | None = None,
    validation: object | None = None,
    start: str = "auto",
    start_model: JointPMF | None = None,
    counts: PairCounts | StoredCounts | None = None,
    pseudo_count: float | Literal["auto"] = "auto",
    members: int = 1,
    max_passes: int = LIMITS.max_passes,
    tol: float = LIMITS.tol,
    patience: int = LIMITS.patience,
    accelerate: bool = False,
    target: str | int | None = None,
    dependence: Literal["auto", "none", "tree"] | None = None,
    rng: np.random.Generator | int = 0,
    checkpoint: Path | None = None,
    on_pass: OnPass | None = None,
    weight: object | None = None,
    design: SurveyDesign | None = None,
) -> FitResult:
    """Refine a model by EM on samples, in memory or in a store, or fit one of a given rank.

    Of a rank, what is left to "auto", and with members the number of passes, is chosen on held-out samples: those
    given, or else a fifth of the samples in memory, after which all of them are fitted in the way that was best. Stored
    samples are fitted without a choice where no other samples are given. The notes say what was compared.

    Parameters
    ----------
    samples
        A frame or another table in memory; integers of shape (n_rows, n_variables), -1 missing; or `StoredSamples`.
    model
        Start; or give a rank. Without held-out samples it is refined until the objective has converged. One with
        forests keeps them, found anew from time to time, and the options that it was fitted with.
    rank
        Number of latent states, where no model is given. "auto" doubles it until held-out samples have not become more
        likely twice, takes the least that cannot be distinguished from the best, and fills in the ranks below it; in a
        small fit for a target it doubles until the target is not predicted better, and takes the best. For stored
        samples without ``validation`` `pmflib.select_rank` chooses it by the pairs of held-out folds. The result's
        comparisons and notes say how.
    schema
        Variables, where neither a model nor stored samples are given; by default inferred from the samples, of a table
        by `Schema.infer`: the model of the result has it.
    validation
        Held-out samples, in memory or stored: their log-likelihood chooses the number of passes, and what is left to
        "auto". Stored ones may be none, and then nothing is chosen.
    start
        Where no model is given: a method of `fit`; "auto" compares its methods "auto" and "random" or, for members,
        "pairs" and "random". Small fits search for the best optimum, from starts of pairs, random and merged ones, and
        from starts made of the best fits, until it was found again.
    start_model
        For stored samples: a model of that rank that `fit` has made of the counts already, by the first method of
        ``start``; with rank "auto" it is one whose rank was chosen. What it rules out is opened, unlike a ``model``,
        and it is compared with other starts.
    counts
        For stored samples: their co-occurrence counts; by default they are counted.
    pseudo_count
        Mean pseudo-count per level and latent state, in proportion to the marginals; "auto" compares
        ``PSEUDO_COUNTS`` where it can, and else is ``DEFAULT_PSEUDO_COUNT``. Small fits, which do not stop early, take
        the largest that is within one standard error of the best. A state itself gets as many as it has, on average,
        for a variable.
    members
        Number of fits from independent starts to average: their probabilities, which are better than those of any
        single fit. The result is one model of ``members * rank`` states, and final: EM would take it apart. `distil`
        makes it a smaller one.
    max_passes
        Limit of the passes of each run, at least 0.
    tol
        Share of the objective, at least 0: EM has converged when what passes may still gain is estimated to be below
        it. With held-out samples, the share by which their log-likelihood must rise within ``patience`` passes.
    patience
        Passes without a rise of the held-out log-likelihood before stopping, at least 1.
    accelerate
        Whether to extrapolate from every two passes (SQUAREM): pays where EM is to converge.
    target
        Variable, by name or position, that the model is to predict: held-out samples are scored by its log-likelihood
        given their other variables, in place of that of all. None is a model of all variables alike. A small fit with
        start "auto", one member, and a rank of at least the target's cardinality has states of the target's levels, and
        raises that log-likelihood on the training samples as well; held-out samples choose how much the other
        variables count, the pseudo-count, of `pmflib.core.defaults.FIT_TARGET`, and the steps. With rank
        "auto" and no ``validation`` the best of these are evaluated on every fold in turn.
    dependence
        Whether variables may depend on each other within a state, along a forest that is found: "tree" fits such a
        `pmflib.model.forests.tree_pmf.TreePMF`, whose forest may turn out without edges; "auto" does where the pairs
        depart clearly from the model without, and takes it where held-out samples become more likely by more than
        two standard errors; "none" is independence within a state. Of many stored samples some are searched for
        the forests, and passes over all of them follow. Where the rank is "auto", too, both are one choice: few latent
        classes and few states with forests are compared, and of those that held-out samples cannot distinguish from
        the best the one of the fewest free parameters is taken. None is "auto" where the rank is "auto" and there is no
        target, and one member compares one to three traits as well, which `pmflib.fit_item_responses` then fits, under
        these limits of passes; else None is "none".
    rng
        Generator, or a seed for one; only starts use it. Stored samples take a seed as the seed of the starts itself.
    checkpoint
        Folder for the states of the runs of this fit: the same call continues from them, to the same bits, also with
        other limits of passes. One that holds states of other samples or options is refused. None saves nothing.
    on_pass
        Called with the name of a run, such as "random-0.3", and its `State` after each pass; None reports them to
        `pmflib.progress`.
    weight
        Weights of samples in memory, numbers above 0 of shape (n_rows,), for a survey that was not drawn evenly: the
        weighted log-likelihood is raised. Only their ratios count: they are scaled to add up to Kish's effective number
        of samples, (sum w)^2 / sum w^2, in which pseudo-counts, held-out scores and criteria are. Equal weights give
        the fit without any, bit for bit.
    design
        How samples in memory were drawn, in place of ``weight``: its weights, and its sampling units, of which none is
        both fitted and held out.

    Returns
    -------
    The model and how it was reached. Stored samples give the same bits with any number of workers, and without any.

    Raises
    ------
    PmfError
        If neither or both of model and rank are given, the model is an average, there are no samples in memory, start
        model or counts are given for samples in memory, an option is out of range, or the checkpoint is of another fit;
        if a weight is no finite number above 0, or weights are given for stored samples, or with others to validate on.
    SchemaError
        If samples do not fit the schema, or it has no such target.
    StoreError
        If stored samples or counts are gone or damaged.

    Warns
    -----
    ConvergenceWarning
        If EM stops at ``max_passes``.
    RankWarning
        If the rank is above the number of samples in memory, before anything is computed.
    """
    _check_options(model, rank, start, members, max_passes, dependence)
    # here, for runs that are to choose have limits of their own
    Limits(max_passes, tol, patience).check()
    _check_samples(samples, schema, start_model, counts)
    variables = _find_schema(samples, schema, model)
    seed = _read_seed(rng, isinstance(samples, StoredSamples))
    training = _read_samples(samples, variables)
    if weight is not None or design is not None:
        if validation is not None:
            name = "weight" if design is None else "design"
            raise PmfError(
                f"{name} and validation are given; leave validation out: a fold of the samples is held out"
            )
        training = weigh_samples(training, weight, design, variables)
    position = None if target is None else variables.position(target)
    passes = Passes(max_passes, tol, patience, accelerate, checkpoint, on_pass)

    def make_fit(rank: int) -> EMFit:
        # independent variables have one fit
        options = Options.make(start, pseudo_count, 1 if rank == 1 else members, rank)
        return EMFit(variables, rank, options, seed, passes, position)

    is_kind_open = dependence is None and rank == "auto" and start_model is None and target is None
    if dependence is None:
        dependence = "auto" if is_kind_open else "none"
    kind = None
    if rank == "auto" and dependence != "none" and start_model is None:
        is_forced = dependence == "tree"
        kind = choose_fit_kind(
            make_fit(2), training, validation, is_forced=is_forced, with_traits=is_kind_open
        )
    if kind is not None and kind.kind == "traits":
        result = fit_item_responses(
            training,
            kind.rank,
            schema=variables,
            validation=validation,
            pseudo_count=DEFAULT_PSEUDO_COUNT if pseudo_count == "auto" else float(pseudo_count),
            max_passes=max_passes,
            tol=tol,
            seed=seed,
            checkpoint=checkpoint,
            on_pass=on_pass,
        )
        settled = SettledRank(result.model.rank, kind.comparisons, kind.reasons)
        return _note_weights(settled.explain(result), training)
    if kind is not None:
        dependence = "tree" if kind.kind == "forests" else "none"
    if rank == "auto" and start_model is None:
        settled = _settle_rank(make_fit(2), kind, training, validation, counts)
    else:
        settled = SettledRank(_read_rank(rank, start_model if model is None else model))
        if model is None and not isinstance(training, StoredSamples):
            warn_of_rank(settled.rank, round(training.n_samples))
    if settled.result is not None and dependence == "none":
        return _note_weights(settled.explain(settled.result), training)
    result = _fit_settled(
        make_fit(settled.rank),
        settled,
        training,
        validation,
        counts,
        model,
        start_model,
        dependence,
    )
    result = _note_weights(settled.explain(result), training)
    warn_if_stopped(result, max_passes)
    return result


def _settle_rank(
    fit: EMFit,
    kind: KindChoice | None,
    training: StoredSamples | DenseBlock,
    validation: object | None,
    counts: PairCounts | StoredCounts | None,
) -> SettledRank:
    """Choose the rank on held-out samples, unless the choice of a kind of model has chosen it."""
    if kind is not None and kind.is_final:
        return SettledRank(kind.rank, kind.comparisons, kind.reasons)
    settled = settle_rank(fit, training, validation, counts)
    if kind is None:
        return settled
    compared = (*kind.comparisons, *settled.comparisons)
    return settled._replace(comparisons=compared, notes=(*kind.reasons, *settled.notes))


def _fit_settled(
    fit: EMFit,
    settled: SettledRank,
    training: StoredSamples | DenseBlock,
    validation: object | None,
    counts: PairCounts | StoredCounts | None,
    model: JointPMF | TreePMF | None,
    start_model: JointPMF | None,
    dependence: Literal["auto", "none", "tree"],
) -> FitResult:
    """Fit at the rank that is settled: from a model, from one to start from, or from starts that are compared."""
    if model is not None:
        fit = fit.refining(model)
    if isinstance(training, StoredSamples):
        counts = load_counts(training, counts)
    if isinstance(model, TreePMF):
        return refine_forests(fit, model, training, validation, counts)
    if start_model is not None:
        assert counts is not None
        fit = fit.started_from(start_model, counts)
    result = settled.result or fit.fit_samples(training, validation, counts)
    if dependence == "none":
        return result
    is_forced = dependence == "tree"
    return fit_dependence(fit, result, training, validation, counts, is_forced=is_forced)


@reports_progress
def distil(
    average: JointPMF,
    rank: int,
    *,
    validation: object | None = None,
    n_samples: int = DRAWN_SAMPLES,
    pseudo_count: float | Literal["auto"] = "auto",
    max_passes: int = LIMITS.max_passes,
    tol: float = LIMITS.tol,
    patience: int = LIMITS.patience,
    accelerate: bool = False,
    target: str | int | None = None,
    seed: int = 0,
    checkpoint: Path | None = None,
    on_pass: OnPass | None = None,
) -> FitResult:
    """Fit one model by EM to samples drawn from an average, which loses little of what averaging has gained.

    Parameters
    ----------
    average
        The model that `fit_em` has made of several members.
    rank
        Number of latent states of the model to fit.
    validation
        Held-out real samples, in memory or stored: they choose the start, the pseudo-count and the number of passes.
        None chooses nothing.
    n_samples
        Number of samples to draw, at least 1.
    pseudo_count, max_passes, tol, patience, accelerate, target, checkpoint, on_pass
        As for `fit_em`.
    seed
        Seed of the samples and of the starts.

    Returns
    -------
    The model and how it was reached.

    Warns
    -----
    ConvergenceWarning
        If EM stops at ``max_passes``.

    References
    ----------
    Breiman, Shang (1996), "Born again trees"; Hinton, Vinyals, Dean (2015), "Distilling the knowledge in a neural
    network".
    """
    check_model_type("average", average, JointPMF)
    check_rank(rank)
    schema = average.schema
    drawn = DenseBlock(average.sample(n_samples, seed))
    fit = EMFit(
        schema=schema,
        rank=rank,
        options=Options.make("auto", pseudo_count, 1, rank),
        seed=seed,
        passes=Passes(max_passes, tol, patience, accelerate, checkpoint, on_pass),
        target=None if target is None else schema.position(target),
    )
    training = BlocksInMemory.cut(drawn, schema.offsets, rank)
    starts = fit.make_starts(fit.count(drawn))
    result = fit.choose(training, fit.open_held_out(validation), starts, drawn)[1]
    n_members = average.origin.get("average", 1)
    note = f"fitted to {len(drawn)} samples drawn from an average of {n_members} fits"
    warn_if_stopped(result, max_passes)
    return replace(result, notes=(note, *result.notes))


def plan_fit_em(
    samples: StoredSamples,
    rank: int,
    *,
    start: str = "auto",
    pseudo_count: float | Literal["auto"] = "auto",
    members: int = 1,
    dependence: str = "none",
    n_threads: int = 1,
) -> MemoryPlan:
    """Plan the memory that `fit_em` would need on a worker of stored samples, and here, without the samples.

    Parameters
    ----------
    samples
        Training samples, with the client that they would be fitted with.
    rank, start, pseudo_count, members, dependence
        As for `fit_em`; "tree" is a model with forests as a start as well.
    n_threads
        Threads of the worker.
    """
    options = Options.make(start, pseudo_count, members, rank)
    options = options.fit_to(samples.n_observed, rank, samples.schema.n_levels)
    n_waiting = samples.plan_pass(rank, options.n_models).tasks.n_waiting
    sizes = samples.schema.n_levels, rank, n_threads, options.n_models
    plan = plan_em(*sizes, n_waiting=n_waiting)
    if dependence == "tree" or (dependence == "auto" and are_modest(samples.schema.offsets, rank)):
        plan = plan.take_larger(plan_forest_passes(samples, rank, members, n_threads))
    return plan


def check_can_start(model: JointPMF) -> None:
    """Refuse an average as a start of EM.

    Raises
    ------
    PmfError
        If the model is final.
    """
    if model.origin.get("final"):
        raise PmfError(
            f"model is final, an average of {model.origin['average']} fits, which EM would take apart; give a rank, "
            "or fit a model to samples drawn from it"
        )


def _check_options(
    model: JointPMF | None,
    rank: int | Literal["auto"] | None,
    start: str,
    members: int,
    max_passes: int,
    dependence: str | None,
) -> None:
    """Refuse options that are out of range, or that contradict each other."""
    if isinstance(rank, str) and rank != "auto":
        raise PmfError(f"rank is {rank!r}; give a number, or 'auto'")
    if rank is not None and rank != "auto":
        check_rank(rank)
    if model is not None:
        check_model_type("model", model, JointPMF)
    check_whole("members", members)
    check_whole("max_passes", max_passes)
    if (model is None) == (rank is None):
        raise PmfError(
            f"model is {'absent' if model is None else 'given'} and rank is {rank}; give one of the two, as "
            "fit_em(samples, rank=8) or fit_em(samples, model)"
        )
    if members < 1:
        raise PmfError(f"members is {members}; give at least 1")
    if model is not None:
        check_can_start(model)
        if members > 1:
            raise PmfError(f"members is {members} and a model is given; give a rank instead")
    if members > 1 and start not in ("auto", *MEMBER_START_METHODS):
        raise PmfError(
            f"members is {members} and start is {start!r}, which gives equal starts; use one of "
            f"{('auto', *MEMBER_START_METHODS)}"
        )
    if dependence is not None and dependence not in DEPENDENCES:
        raise PmfError(f"dependence is {dependence!r}; give one of {DEPENDENCES}")


def _check_samples(
    samples: object,
    schema: Schema | None,
    start_model: JointPMF | None,
    counts: PairCounts | StoredCounts | None,
) -> None:
    """Refuse what cannot be samples or a schema, and what only stored samples take."""
    if isinstance(samples, PairCounts):
        raise PmfError(
            "samples is PairCounts; fit_em takes samples, and pmflib.fit(counts, rank) takes counts"
        )
    if schema is not None and not isinstance(schema, Schema):
        raise SchemaError(
            f"schema is {name_type(schema)}; give a Schema: pmflib.Schema.infer(table), or of numbers of levels "
            "pmflib.Schema.from_cardinalities([2, 3])"
        )
    if not isinstance(samples, StoredSamples) and (start_model is not None or counts is not None):
        raise PmfError("start_model and counts are for stored samples; leave them out")


def _find_schema(samples: object, schema: Schema | None, model: JointPMF | None) -> Schema:
    """Variables: of the model or of stored samples, or those given, or inferred."""
    if model is not None:
        return model.schema
    if isinstance(samples, StoredSamples):
        return samples.schema
    return infer_schema(samples) if schema is None else schema


def _read_samples(samples: object, schema: Schema) -> StoredSamples | DenseBlock:
    """Stored samples as they are, and codes of others."""
    if isinstance(samples, StoredSamples):
        return samples
    codes = schema.encode(samples)
    if not len(codes):
        raise PmfError("codes has no rows; EM needs at least one sample")
    return DenseBlock(codes)


def _note_weights(result: FitResult, samples: StoredSamples | DenseBlock) -> FitResult:
    """A result that says how many samples those with weights are worth."""
    if isinstance(samples, StoredSamples):
        if not samples.is_weighted:
            return result
        note = note_weights(samples.n_rows, samples.n_effective)
    elif samples.weights is None:
        return result
    else:
        note = note_weights(len(samples), samples.n_samples)
    return replace(result, notes=(note, *result.notes))


def _read_rank(rank: int | Literal["auto"] | None, model: JointPMF | None) -> int:
    """Number of latent states that is given, or else that of the model to start from."""
    if rank is None or rank == "auto":
        assert model is not None
        return model.rank
    return rank


def _read_seed(rng: np.random.Generator | int, is_stored: bool) -> int:
    """Seed of the starts; artefacts of stored samples are named by the seed that was configured, and keep it."""
    if is_stored and isinstance(rng, int | np.integer):
        return int(rng)
    return int(np.random.default_rng(rng).integers(2**63))
