"""Item response models of one to three traits, fitted to samples by maximum likelihood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, check_row_order, spread_pairs
from pmflib.base.blocks import DenseBlock
from pmflib.base.constraints import NONNEGATIVE, Interval, check, check_type
from pmflib.base.defaults import DEFAULT_PSEUDO_COUNT, Limits
from pmflib.base.display.progress import report_step, reports_progress
from pmflib.base.errors import PmfError, SchemaError
from pmflib.base.variance import weigh_samples
from pmflib.counts.marginals import Marginals, normalise_singles
from pmflib.counts.pair_counts import PairCounts, count_block
from pmflib.em.block_source import BlocksInMemory, BlockSource
from pmflib.em.family import run_em
from pmflib.em.latent_classes import evaluate_models
from pmflib.em.stored_samples import StoredSamples, find_effective
from pmflib.families.traits.em import make_model
from pmflib.families.traits.level_scores import LevelScores
from pmflib.families.traits.quadrature import (
    GRIDS,
    ItemDesign,
    ItemResponses,
    ItemState,
    weigh_levels,
)
from pmflib.families.traits.trait_pmf import TraitPMF
from pmflib.fits.criteria import measure_fit
from pmflib.fits.em_fit import OnPass
from pmflib.fits.fit_result import STILL, FitResult, warn_if_stopped
from pmflib.fits.fit_statistics import HeldOutScore
from pmflib.inference.checks.bivariate_residuals import measure_residuals
from pmflib.model import JointPMF
from pmflib.model.origin import ModelOrigin
from pmflib.schema import Schema

MAX_PASSES, TOL = 500, 1e-8
"""Passes at most, and the share of the objective that those to come may gain where they end."""
TURNS = 2
"""Times that traits are turned to their principal axes at most: passes go on from each turn."""
TURNED = 1e-4
"""Largest change of a slope by a turn after which there is no other."""


@reports_progress
def fit_item_responses(
    samples: object,
    n_traits: int = 1,
    *,
    schema: Schema | None = None,
    validation: object | None = None,
    pseudo_count: float = DEFAULT_PSEUDO_COUNT,
    max_passes: int = MAX_PASSES,
    tol: float = TOL,
    seed: int = 0,
    checkpoint: Path | None = None,
    on_pass: OnPass | None = None,
    weight: object | None = None,
) -> FitResult:
    """Fit an item response model: people differ on one to three traits, and answers depend on nothing else.

    Levels with values follow the generalised partial credit model, those without the nominal response model, variables
    of two levels the two-parameter logistic model, which both are then. The integral over people is a sum over fixed
    points, which are the states of the joint PMF: its likelihood and answers are exact. For many traits, and many
    observed cells of each person, as in ratings, take `pmflib.families.fit_traits`.

    Parameters
    ----------
    samples
        A table, with -1 or None missing, `StoredSamples`, or a block of samples of a schema that is given.
    n_traits
        1 to 3. ``fit_em(samples, rank="auto")`` compares them with each other, and with latent classes.
    schema
        Variables; by default those of stored samples, or inferred from the table.
    validation
        Held-out samples to say the likelihood of, in memory or stored; they choose nothing.
    pseudo_count
        Mean pseudo-count per level, at least 0: draws slopes toward 0.
    max_passes
        Limit of the passes of EM, at least 0; of two or three traits they begin anew where these are turned.
    tol
        Share of the objective, at least 0, that passes to come may gain where they end.
    seed
        Seed of what is drawn for the start.
    checkpoint
        Folder for the states of this fit: the same call continues from them, to the same bits. One that holds states of
        other samples or options is refused.
    on_pass
        Called with a name and the state after each pass.
    weight
        Weights of samples in memory, as for `pmflib.fit_em`.

    Returns
    -------
    The model, which holds its `trait_model`, and how it was reached. Traits are standard normal and turned to principal
    axes: the first moves the observed cells most, and levels of greater value are likelier where it is greater.
    `pmflib.inference.standard_errors` gives errors of discriminations and thresholds. Histories start at the last
    rotation of the traits.

    Raises
    ------
    PmfError
        If n_traits or another option is out of range, there are no samples, or the checkpoint is of another fit.
    SchemaError
        If samples do not fit the schema.

    Warns
    -----
    ConvergenceWarning
        If EM stops at ``max_passes``.

    References
    ----------
    Bock and Aitkin (1981), Psychometrika 46(4); Bock (1972), Psychometrika 37(1); Muraki (1992), Applied Psychological
    Measurement 16(2).
    """
    _check_options(n_traits, pseudo_count, max_passes, tol)
    schema, training, counts, n_effective = _open_samples(samples, schema, weight, n_traits)

    def report(state: ItemState) -> None:
        if on_pass is not None:
            on_pass(f"{n_traits} traits", state)
        else:
            report_step(state.n_passes, max_passes, f"pass {state.n_passes}")

    fitted, state = fit_items(
        training,
        ItemDesign(schema, n_traits),
        counts,
        pseudo_count=pseudo_count,
        max_passes=max_passes,
        tol=tol,
        seed=seed,
        checkpoint=checkpoint,
        on_pass=report,
    )
    if n_effective is not None:
        fitted = replace(fitted, origin=fitted.origin.add(n_effective=n_effective))
    score = None if validation is None else _score(fitted, validation)
    result = _report(fitted, training, state, score)
    warn_if_stopped(result, max_passes)
    return result


def _check_options(n_traits: int, pseudo_count: float, max_passes: int, tol: float) -> None:
    """Refuse options that are out of range."""
    wanted = Interval(1, max(GRIDS), whole=True, hint="or more by pmflib.families.fit_traits")
    check(wanted, n_traits=n_traits)
    check(Interval(whole=True), max_passes=max_passes)
    Limits(max_passes, tol).check()
    check(NONNEGATIVE, pseudo_count=pseudo_count)


def _open_samples(
    samples: object, schema: Schema | None, weight: object | None, n_traits: int
) -> tuple[Schema, BlockSource, PairCounts, float | None]:
    """Variables, samples to fit to, at least one, their co-occurrence counts, and as in `find_effective`."""
    if isinstance(samples, StoredSamples):
        if weight is not None:
            weigh_samples(samples, weight, samples.schema.weight_decimals)
        _refuse_nothing(samples.n_rows)
        counts = samples.count_pairs().to_samples()
        return samples.schema, samples, counts, find_effective(samples)
    schema = Schema.infer(samples) if schema is None else schema
    check_type(Schema, "pass a pmflib.Schema", SchemaError, schema=schema)
    given = samples if isinstance(samples, DenseBlock) else DenseBlock(schema.encode(samples))
    check_row_order(samples, weight=weight)
    block = weigh_samples(given, weight, schema.weight_decimals)
    _refuse_nothing(len(block))
    training = BlocksInMemory.cut(block, schema.offsets, _count_points(n_traits))
    return schema, training, count_block(block, schema, n_folds=1), find_effective(block)


def _refuse_nothing(n_rows: int) -> None:
    if not n_rows:
        raise PmfError("samples has no rows; a fit needs at least one")


def _report(
    fitted: JointPMF,
    training: BlockSource,
    state: ItemState,
    score: HeldOutScore | None,
) -> FitResult:
    """Result of a fit from the state at the end of its EM."""
    measured = measure_fit(fitted, training)
    residuals = measure_residuals(fitted, training)
    return FitResult(
        model=fitted,
        loss_history=state.loss_history,
        held_out=() if score is None else (score.per_row,),
        best_pass=state.n_passes,
        converged=state.converged and state.numbers["last_change"] <= STILL,
        method="item responses",
        log_likelihoods=(*state.log_likelihoods, measured.per_row),
        training=measured,
        held_out_score=score,
        last_change=state.numbers["last_change"],
        residuals=None if residuals is None else residuals[0],
    )


def fit_items(
    training: BlockSource,
    design: ItemDesign,
    counts: PairCounts | None,
    *,
    pseudo_count: float = DEFAULT_PSEUDO_COUNT,
    max_passes: int = MAX_PASSES,
    tol: float = TOL,
    seed: int = 0,
    checkpoint: Path | None = None,
    on_pass: Callable[[ItemState], None] | None = None,
) -> tuple[JointPMF, ItemState]:
    """Fit the traits of a design to samples, and turn them to principal axes.

    Parameters
    ----------
    training
        Samples, in memory or stored.
    design
        Variables and number of traits.
    counts
        Co-occurrence counts of the samples; None starts from random slopes.
    pseudo_count, max_passes, seed
        As for `fit_item_responses`.
    tol
        Share of the objective that passes to come may gain where they end.
    checkpoint
        Folder for the states after each number of turns.
    on_pass
        Called with the state after each pass; None calls nothing.

    Returns
    -------
    The model, and the state of EM at its end.
    """
    schema = design.schema
    points, weights = design.grid

    if counts is None:
        sizes = np.repeat(schema.cardinalities, schema.cardinalities)
        uniform = np.repeat(1.0 / sizes[:, None], len(weights), axis=1)
        level_counts = evaluate_models(training, [(weights, uniform)])[0].level_mass.sum(axis=1)
    else:
        level_counts = counts.count_levels().astype(float)
    singles = normalise_singles(np.rint(level_counts).astype(np.int64), schema.offsets)
    slopes = _find_start(design, singles, counts, seed)
    family = ItemResponses(design, weigh_levels(schema, singles, pseudo_count))
    state = family.begin(design.project(np.log(singles), slopes))
    scores = LevelScores.make(schema, level_counts)
    for turn in range(1 + TURNS):
        path = None if checkpoint is None else checkpoint / f"items-{turn}.npz"
        options = schema.digest, design.n_traits, pseudo_count, seed
        state = run_em(
            family,
            training,
            state,
            limits=Limits(max_passes, tol),
            checkpoint=family.open_checkpoint(path, training, *options),
            on_pass=on_pass,
        )
        before = design.spread(state.parameters.coefficients)
        turned = make_model(schema, scores, level_counts, *before)
        if np.abs(turned.slopes - before[1]).max(initial=0.0) <= TURNED or turn == TURNS:
            break
        again = family.begin(design.project(turned.base, turned.slopes))
        if design.n_traits == 1:
            # the grid is the same from both ends
            state = replace(state, parameters=again.parameters)
            break
        state = again
    traits = design.make_model(state.parameters.coefficients)
    facts = {"method": "item responses", "n_traits": design.n_traits}
    facts |= {"pseudo_count": pseudo_count, "passes": state.n_passes}
    origin, factors = ModelOrigin.of(facts), traits.find_factors(points)
    return TraitPMF(weights, factors, schema, origin, trait_model=traits), state


def _find_start(
    design: ItemDesign, singles: FloatArray, counts: PairCounts | None, seed: int
) -> FloatArray:
    """Slopes to start from (n_levels, n_traits): of weak traits, pairs deviate from independence by their product."""
    schema, n_traits = design.schema, design.n_traits
    noise = np.random.default_rng([seed, n_traits]).standard_normal((schema.n_levels, n_traits))
    if counts is None:
        return 0.5 * noise
    marginals = Marginals.from_counts(counts)
    roots = np.sqrt(singles)
    expected = singles[:, None] * singles
    known = spread_pairs(marginals.observed, marginals.offsets)
    residuals = np.where(known, (marginals.pairs - expected) / np.sqrt(expected), 0.0)
    values, vectors = np.linalg.eigh((residuals + residuals.T) / 2)
    sizes = np.sqrt(np.maximum(values[::-1][:n_traits], 0.0))
    found = vectors[:, ::-1][:, :n_traits]
    # what has an eigenvector has its opposite, and which of them is found is chance
    signs = np.where(found[np.abs(found).argmax(axis=0), np.arange(found.shape[1])] < 0, -1.0, 1.0)
    slopes = np.zeros((schema.n_levels, n_traits))
    slopes[:, : found.shape[1]] = np.clip(found * signs * sizes / roots[:, None], -2.0, 2.0)
    return slopes + 0.05 * noise


def _count_points(n_traits: int) -> int:
    """Points of a grid."""
    return int(GRIDS[n_traits][0] ** n_traits)


def _score(model: JointPMF, validation: object) -> HeldOutScore | None:
    """Log-likelihood of held-out samples."""
    if isinstance(validation, StoredSamples):
        held_out: BlockSource = validation
    else:
        codes: IntArray = model.schema.encode(validation)
        held_out = BlocksInMemory.cut(codes, model.schema.offsets, model.rank)
    if not held_out.n_samples:
        return None
    score = held_out.score([(model.prior, model.factors)])
    return HeldOutScore(score, held_out.n_samples)
