"""Fits of continuous traits to samples, in memory or stored, discretised to a joint PMF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, check_row_order
from pmflib.base.blocks import Block, DenseBlock, SparseBlock
from pmflib.base.comparison import Comparison, compare_candidates, compare_samples
from pmflib.base.constraints import Interval, at_least, check, check_type
from pmflib.base.defaults import Limits
from pmflib.base.display.progress import report_step, reports_progress
from pmflib.base.errors import PmfError, SchemaError
from pmflib.base.variance import weigh_samples
from pmflib.base.weights import note_weights, read_weights
from pmflib.cluster.clients import count_threads
from pmflib.cluster.memory import MemoryPlan
from pmflib.cluster.task_plans import plan_tasks
from pmflib.em.block_source import BlockSource
from pmflib.em.checkpoint import Checkpoint, digest_fit
from pmflib.em.family import run_em
from pmflib.em.memory import PassMemory, choose_tasks
from pmflib.em.stored_samples import StoredSamples
from pmflib.families.traits.em import (
    DIMENSIONS,
    PASSES,
    SHRINKAGES,
    TraitChoice,
    Traits,
    TraitSettings,
    TraitState,
    choose_settings,
)
from pmflib.families.traits.level_scores import LevelScores
from pmflib.families.traits.passes import PART_CELLS, count_sum_bytes
from pmflib.families.traits.samples import (
    BATCH_NUMBERS,
    CHOICE_CELLS,
    HELD_OUT_SHARE,
    HeldOutCells,
    LevelCounts,
    count_levels,
    cut_people,
    draw_people,
)
from pmflib.families.traits.trait_model import TraitModel
from pmflib.families.traits.trait_pmf import TraitPMF
from pmflib.fits.criteria import measure_fit
from pmflib.fits.fit_result import FitResult
from pmflib.model.joint_pmf import JointPMF
from pmflib.model.origin import ModelOrigin
from pmflib.model.row_tables import score_block
from pmflib.model.sufficient_statistics import take_logs
from pmflib.schema import Schema
from pmflib.store.sample_blocks import group_blocks, weigh_blocks


@reports_progress
def fit_traits(
    samples: object,
    schema: Schema | None = None,
    *,
    dimensions: int | Literal["auto"] = "auto",
    n_states: int | Literal["auto"] = "auto",
    shrinkage: float | Literal["auto"] = "auto",
    passes: int | Literal["auto"] = "auto",
    rng: np.random.Generator | int = 0,
    checkpoint: Path | None = None,
    weight: object | None = None,
) -> FitResult:
    """Fit continuous latent traits, and discretise them to latent states.

    A person has a bias of level and a bias of extremeness on ordered levels, and a position on further dimensions,
    which determine the probabilities of all levels; see `pmflib.families.traits.trait_model.TraitModel`. Suitable for
    ratings and attitudes, including data with most cells missing. The result is a `JointPMF` of equally probable states
    that contains the trait model: `JointPMF.traits` gives scores with standard errors.

    Options set to "auto" are chosen on a tenth of the cells, held out and predicted from the other cells of the same
    people; then all cells are fitted. For a long log, people with about a million observed cells in total are drawn for
    the choice. The notes describe what was compared.

    Parameters
    ----------
    samples
        A DataFrame or another table in memory; integers of shape (n_rows, n_variables), -1 missing; for long logs, a
        `pmflib.base.blocks.SparseBlock` of the observed cells; or `StoredSamples`, whose blocks are processed in each
        pass, so that memory does not grow with their number.
    schema
        Variables; by default those of stored samples, or inferred from the table. Variables with values or bins have
        ordered levels.
    dimensions
        Number of traits besides the biases, at least 0; "auto" compares ``DIMENSIONS``.
    n_states
        Number of latent states of the joint PMF, at least 1; "auto" takes the smallest of ``STATES`` within one
        standard error of the best.
    shrinkage
        Factor for the estimated prior variance of slopes, in (0, 1]; "auto" compares ``SHRINKAGES``.
    passes
        Number of EM passes over the samples, at least 1; "auto" compares ``PASSES``.
    rng
        Random generator, or a seed: for starts, held-out cells, and the people whose traits become states.
    checkpoint
        Folder for the choices and the state after each pass; an interrupted fit resumes from it with equal bits.
    weight
        Weights of samples in memory, as for `pmflib.fit_em`. They apply to passes, held-out cells, and the prior of the
        states, which are then not equally probable.

    Returns
    -------
    The model and the history of the fit. Losses are those of the trait model, by Laplace's approximation; the
    likelihood of the training samples is that of the model's states.

    Raises
    ------
    PmfError
        If there are no samples, an option is out of range, the checkpoint belongs to another fit, or weights are given
        for stored samples.
    SchemaError
        If samples do not fit the schema.

    References
    ----------
    Bock and Aitkin (1981), Psychometrika 46(4); Bishop, Svensen and Williams (1998), Neural Computation 10(1), for
    latent variables as a cloud of states.
    """
    _check_options(dimensions, n_states, shrinkage, passes)
    source, schema, n_rows = _open_samples(samples, schema, weight)
    counts = count_levels(source)
    seed = int(np.random.default_rng(rng).integers(2**32))
    requested: _Requested = (dimensions, shrinkage, passes, n_states)
    inputs = schema.digest, requested, seed
    chosen, path = None, None
    if checkpoint is not None:
        of_fit = digest_fit(source.digest(), *inputs)
        choice_arrays = TraitChoice.to_arrays, TraitChoice.from_arrays
        chosen = Checkpoint(checkpoint / "choice.npz", of_fit, *choice_arrays)
        path = checkpoint / "traits.npz"
    known = None if chosen is None else chosen.load()
    choice, people = _resolve(source, schema, counts, requested, seed, known)
    if chosen is not None:
        chosen.save(choice)
    settings = choice.settings

    def report(state: TraitState) -> None:
        if state.n_passes < settings.passes:
            report_step(state.n_passes, settings.passes, f"pass {state.n_passes}")

    family = Traits(LevelScores.make(schema, counts.levels), settings.shrinkage)
    state = run_em(
        family,
        source,
        family.begin(settings.dimensions, seed),
        limits=Limits(max_passes=settings.passes),
        checkpoint=family.open_checkpoint(path, source, *inputs),
        on_pass=report,
    )
    traits = family.make_model(state, schema, counts.levels)
    fitted_by = {"method": "traits", "n_traits": traits.n_traits, **settings.to_json()}
    origin = ModelOrigin.of(fitted_by)
    if people.weights is not None:
        origin = origin.add(n_effective=source.n_samples)
    model = compile_states(traits, people, choice.n_states, seed, origin)
    losses = tuple(-each / max(counts.n_people, 1) for each in state.log_likelihoods)
    notes = tuple(comparison.reason for comparison in choice.comparisons)
    if "auto" in requested and not notes:
        notes = ("nobody has two observed cells or more: nothing could be held out to choose by",)
    if people.weights is not None:
        notes = (note_weights(n_rows, source.n_samples), *notes)
    return FitResult(
        model=model,
        loss_history=losses,
        held_out=(),
        best_pass=settings.passes,
        converged=True,
        method="traits",
        notes=notes,
        comparisons=choice.comparisons,
        training=measure_fit(model, source),
    )


_Requested: TypeAlias = tuple[int | str, float | str, int | str, int | str]
"""Dimensions, shrinkage, passes and number of states as given."""


def _resolve(
    source: BlockSource,
    schema: Schema,
    counts: LevelCounts,
    requested: _Requested,
    seed: int,
    known: TraitChoice | None,
) -> tuple[TraitChoice, SparseBlock]:
    """Choose the options set to "auto", and draw the points that become states."""
    is_open = "auto" in requested and known is None
    n_people = n_scored = round(counts.n_people)
    if source.n_observed > CHOICE_CELLS:
        n_scored = max(1, n_people * CHOICE_CELLS // source.n_observed)
    n_states = requested[-1]
    most_states = STATES[-1] if isinstance(n_states, str) else n_states
    n_drawn = max(most_states, n_scored if is_open else 0)
    people = draw_people(source, n_drawn, counts, seed)
    held_out: HeldOutCells | None = None
    if is_open:
        scored = people.cut(0, min(n_scored, people.n_rows))
        held_out = HeldOutCells.draw(scored, schema.offsets, seed)
    return known or _choose(held_out, schema, *requested, seed), people


def compile_states(
    traits: TraitModel,
    samples: Block,
    n_states: int,
    seed: int,
    origin: ModelOrigin | None = None,
) -> JointPMF:
    """Build a joint PMF whose states are points of the traits, weighted like the samples they are drawn from.

    The first states are the posterior means of people, in their order, up to the number of states; if there are fewer
    people than states, the others are drawn from the people's posteriors. Points at posterior means performed better
    than points drawn from the prior or the posteriors: the uncertainty due to few ratings only adds noise.

    Parameters
    ----------
    traits
        The trait model.
    samples
        People with any observed cell are used; if there are none, points are drawn from the prior.
    n_states
        Number of states, at least 1.
    seed
        Integer of at least 0.
    origin
        Facts about the fit, as in `JointPMF`.

    Returns
    -------
    The model, which contains the trait model.

    Raises
    ------
    PmfError
        If ``n_states`` is below 1.
    """
    check(at_least(1), n_states=n_states)
    points, prior = draw_points(traits, samples, n_states, np.random.default_rng(seed))
    factors, schema = traits.find_factors(points), traits.schema
    return TraitPMF(prior, factors, schema, origin or ModelOrigin(), trait_model=traits)


def draw_points(
    traits: TraitModel, samples: Block, n_states: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw points of the traits, (n_states, n_traits), and their probabilities, (n_states,)."""
    sparse = samples.to_sparse(traits.schema.offsets)
    people = np.flatnonzero(np.diff(sparse.indptr))
    even = np.full(n_states, 1.0 / n_states)
    if not people.size:
        root = np.linalg.cholesky(traits.covariance) if traits.n_traits else traits.covariance
        noise = rng.standard_normal((n_states, traits.n_traits))
        return traits.mean + np.einsum("fg,ng->nf", root, noise), even
    # in rounds over all people: nobody is drawn twice before everybody was drawn once
    n_rounds = -(-n_states // people.size)
    chosen = np.tile(people, n_rounds)[:n_states]
    noise = rng.standard_normal((n_states, traits.n_traits))
    noise[: people.size] = 0.0
    points = np.empty((n_states, traits.n_traits))
    order = np.argsort(chosen, kind="stable")
    for rows, folded in traits.fold_in(sparse.take(chosen[order])):
        own = order[rows]
        # few dimensions, row by row: LAPACK then gives equal bits wherever a batch begins
        roots = np.linalg.cholesky(folded.covariances) if traits.n_traits else folded.covariances
        points[own] = folded.modes + np.einsum("nfg,ng->nf", roots, noise[own])
    if sparse.weights is None:
        return points, even
    held = sparse.weights[chosen] / np.bincount(chosen)[chosen]
    return points, held / held.sum()


STATES = (100, 300, 1000)
"""Numbers of states to compare."""


def _choose(
    held_out: HeldOutCells | None,
    schema: Schema,
    dimensions: int | str,
    shrinkage: float | str,
    passes: int | str,
    n_states: int | str,
    seed: int,
) -> TraitChoice:
    """Choose options set to "auto" on held-out cells, or use defaults."""
    grids = (
        DIMENSIONS if isinstance(dimensions, str) else (dimensions,),
        SHRINKAGES if isinstance(shrinkage, str) else (shrinkage,),
        PASSES if isinstance(passes, str) else (passes,),
    )
    if held_out is None:
        usual = PASSES[1] if passes == "auto" else grids[2][0]
        settings = TraitSettings(grids[0][0], grids[1][0], usual)
        return TraitChoice(settings, STATES[0] if isinstance(n_states, str) else n_states)
    settings, model, comparison = choose_settings(held_out, schema, grids, seed, _report_choice)
    if not isinstance(n_states, str):
        return TraitChoice(settings, n_states, (comparison,))
    of_states = _compare_states(model, held_out)
    best = int(of_states.chosen.settings["states"])
    return TraitChoice(settings, best, (comparison, of_states))


def _open_samples(
    samples: object, schema: Schema | None, weight: object | None
) -> tuple[BlockSource, Schema, int]:
    """Open the samples, at least one, with their variables and the number of rows."""
    hint = "pass pmflib.Schema.infer(table), or pmflib.Schema.from_cardinalities([2, 3])"
    check_type(Schema | None, hint, SchemaError, schema=schema)
    check_row_order(samples, weight=weight)
    found: tuple[BlockSource, Schema, int]
    if isinstance(samples, StoredSamples):
        if weight is not None:
            weigh_samples(samples, weight, samples.schema.weight_decimals)
        found = samples, samples.schema, samples.n_rows
    else:
        if isinstance(samples, SparseBlock):
            if schema is None:
                raise SchemaError("schema is None and samples is a SparseBlock; give its schema")
            block = samples
            if weight is not None:
                weights = read_weights(weight, block.n_rows, decimals=schema.weight_decimals)
                block = replace(block, weights=weights.scale())
        else:
            schema = Schema.infer(samples) if schema is None else schema
            given = weigh_samples(
                DenseBlock(schema.encode(samples)), weight, schema.weight_decimals
            )
            block = given.to_sparse(schema.offsets)
        found = cut_people(block, schema), schema, block.n_rows
    if not found[2]:
        raise PmfError("samples has no rows; a fit needs at least one")
    return found


def _report_choice(text: str) -> None:
    report_step(0, 1, f"choosing, {text}")


def _compare_states(traits: TraitModel, held_out: HeldOutCells) -> Comparison:
    """Compare numbers of states by held-out cells predicted from the states only."""
    most, logs = int(traits.schema.cardinalities.max()), []
    for n_states in STATES:
        model = compile_states(traits, held_out.block, n_states, 0)
        logs.append(held_out.score(partial(predict_by_states, model), max(n_states, most)))
    return compare_candidates(
        "cell",
        [{"states": n_states} for n_states in STATES],
        [float(each.mean()) for each in logs],
        subtract=lambda a, b: compare_samples(logs[a], logs[b]),
        rule="least",
    )


def predict_by_states(
    model: JointPMF, block: SparseBlock, rows: IntArray, variables: IntArray
) -> FloatArray:
    """Predict PMFs of cells from the rest of their rows by latent states: (n_cells, largest cardinality)."""
    schema = model.schema
    posteriors = np.empty((block.n_rows, model.rank))
    logs = take_logs(model.prior, model.factors)
    score_block(block, schema.offsets, *logs, np.empty(block.n_rows), posteriors)
    chances = np.zeros((rows.size, int(schema.cardinalities.max())))
    for position in np.unique(variables):
        cells = np.flatnonzero(variables == position)
        factor = model.factor(int(position))
        chances[cells, : len(factor)] = posteriors[rows[cells]] @ factor.T
    return chances


def _check_options(dimensions: object, n_states: object, shrinkage: object, passes: object) -> None:
    check(at_least(0, whole=True, also=("auto",)), dimensions=dimensions)
    check(at_least(1, whole=True, also=("auto",)), n_states=n_states, passes=passes)
    check(Interval(0, 1, "right", also=("auto",)), shrinkage=shrinkage)


UPDATE_TABLES = 10
"""Memory of the client while it updates the coefficients, as a multiple of the packed sums of a pass."""
CELL_BYTES = 24
"""Approximate memory per observed cell of the people used for choices: its level, drawn, joined and split."""
PART_BYTES = 64
"""Memory per cell while codes are converted to level indices."""


def plan_fit_traits(
    samples: StoredSamples,
    *,
    dimensions: int | Literal["auto"] = "auto",
    n_states: int | Literal["auto"] = "auto",
    n_threads: int = 1,
) -> MemoryPlan:
    """Plan the memory of `pmflib.families.fit_traits` on a worker of stored samples and in this process.

    It does not grow with the number of samples: blocks are read again in each pass if they do not fit.

    Parameters
    ----------
    samples
        Training samples, with their client.
    dimensions, n_states
        As for `pmflib.families.fit_traits`.
    n_threads
        Number of threads of the worker.
    """
    schema = samples.schema
    return plan_trait_memory(
        LevelScores.make(schema, np.zeros(schema.n_levels)),
        [weigh_blocks(group) for group in group_blocks(samples.blocks)],
        samples.n_rows,
        samples.n_observed,
        dimensions=dimensions,
        n_states=n_states,
        n_threads=n_threads,
        n_all_threads=count_threads(samples.client),
    )


def plan_trait_memory(
    scores: LevelScores,
    costs: Sequence[int],
    n_rows: int,
    n_observed: int,
    *,
    dimensions: int | Literal["auto"] = "auto",
    n_states: int | Literal["auto"] = "auto",
    n_threads: int = 1,
    n_all_threads: int = 1,
) -> MemoryPlan:
    """Plan the memory from sizes only.

    Parameters
    ----------
    scores
        Directions of the variables; counts are not used.
    costs
        Cost of each group of blocks, from `pmflib.store.sample_blocks.weigh_blocks`; may be empty.
    n_rows, n_observed
        Number of samples, and of their observed cells.
    dimensions, n_states, n_threads
        As for `plan_fit_traits`.
    n_all_threads
        Number of threads of all workers.
    """
    n_levels = scores.log_marginals.size
    # plus two biases of people
    n_traits = 2 + (DIMENSIONS[-1] if dimensions == "auto" else dimensions)
    most_states = STATES[-1] if n_states == "auto" else n_states
    sums = count_sum_bytes(scores, n_traits)
    n_waiting = plan_tasks(costs or [0], choose_tasks(costs, n_all_threads), sums).n_waiting
    mean_cells = n_observed // max(n_rows, 1) + 1
    drawn = min(n_observed, max(CHOICE_CELLS, most_states * mean_cells))
    n_tried = len(PASSES) * (len(DIMENSIONS) + 2)
    # held-out levels, log-probabilities for all settings, and the probabilities themselves
    chosen = round(HELD_OUT_SHARE * drawn) * 8 * (n_tried + 3) + 3 * 8 * BATCH_NUMBERS
    return PassMemory(
        "fit_traits",
        'Merge levels, use fewer threads, raise cluster.memory_limit, or take model.method = "auto".',
        ("sums of a pass", sums),
        worker={
            f"parameters of {n_levels} levels x {n_traits} traits": 16 * n_levels * (n_traits + 1)
        },
        thread={"people who are drawn": 2 * CELL_BYTES * drawn},
        rows=PART_BYTES * PART_CELLS,
        client={
            "coefficients of all variables, before and after a pass": UPDATE_TABLES * sums,
            "the choice by held-out cells": 2 * CELL_BYTES * drawn + chosen,
            f"factors of {most_states} states": 2 * 8 * n_levels * most_states,
        },
    ).plan(n_threads, n_waiting)
