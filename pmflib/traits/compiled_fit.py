"""Fitting continuous traits to samples, and compiling them into a joint PMF."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from pmflib.argument_checks import check_whole, name_type
from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import DenseBlock, SparseBlock
from pmflib.counting.folded import infer_schema
from pmflib.em.row_tables import score_block
from pmflib.em.statistics import take_logs
from pmflib.em.stored_samples import StoredSamples
from pmflib.errors import PmfError, SchemaError
from pmflib.fitting.from_pairs import FitResult
from pmflib.model import JointPMF
from pmflib.reporting.work_progress import report_step, reports_progress
from pmflib.schema import Schema
from pmflib.selection.comparison import Comparison, compare, compare_samples
from pmflib.traits.checkpoint import TraitCheckpoint, TraitChoice
from pmflib.traits.compiled_states import compile_states
from pmflib.traits.held_out_cells import CHOICE_CELLS, HeldOutCells
from pmflib.traits.trait_fit import (
    DIMENSIONS,
    PASSES,
    SHRINKAGES,
    TraitFit,
    TraitSettings,
    TraitState,
    choose_settings,
)
from pmflib.traits.trait_model import TraitModel
from pmflib.traits.trait_samples import StoredTraitSamples, TraitSamples, TraitSamplesInMemory

STATES = (100, 300, 1000)
"""Numbers of states that are compared."""


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
) -> FitResult:
    """Fit continuous traits, on which people differ by degree, and compile them into latent states.

    A person has a bias of level and one of extremeness toward ordered levels, and a place on some more dimensions; the
    probabilities of all levels follow from these: see `pmflib.traits.trait_model.TraitModel`. Suits ratings and
    attitudes, also where most cells are missing. The model is a `JointPMF` of equally probable states, and has the
    trait model: `JointPMF.traits` gives scores with standard errors.

    What is left to "auto" is chosen on a tenth of the cells, held out of their people and predicted from the others;
    then all cells are fitted. Of a long log, so many people are drawn for the choice that they have about a million
    observed cells. The notes say what was compared.

    Parameters
    ----------
    samples
        A frame or another table in memory; integers of shape (n_rows, n_variables), -1 missing; for long logs, a
        `pmflib.blocks.SparseBlock` of what was observed; or `StoredSamples`, whose blocks each pass maps over, so
        that memory does not grow with their number.
    schema
        Variables; by default those of stored samples, or inferred from the table. Those with values, or with bins,
        have ordered levels.
    dimensions
        Traits besides the biases, at least 0; "auto" compares ``DIMENSIONS``.
    n_states
        Latent states of the joint PMF, at least 1; "auto" takes the least of ``STATES`` that is within one standard
        error of the best.
    shrinkage
        Share of their estimated variance that slopes are taken to have a priori, in (0, 1]; "auto" compares
        ``SHRINKAGES``.
    passes
        Passes of EM over the samples, at least 1; "auto" compares ``PASSES``.
    rng
        Generator, or a seed for one: starts, held-out cells, and whose traits become states.
    checkpoint
        Folder for what was chosen and the state after each pass; a fit that was interrupted goes on from there, to the
        same bits.

    Returns
    -------
    The model and how it was reached; the losses are of the trait model, by Laplace's approximation.

    Raises
    ------
    PmfError
        If there are no samples, an option is out of range, or the checkpoint is one of another fit.
    SchemaError
        If samples do not fit the schema.

    References
    ----------
    Bock and Aitkin (1981), Psychometrika 46(4); Bishop, Svensen and Williams (1998), Neural Computation 10(1), for
    latent variables as a cloud of states.
    """
    _check_options(dimensions, n_states, shrinkage, passes)
    fitted = _open_samples(samples, schema)
    counts = fitted.count()
    seed = int(np.random.default_rng(rng).integers(2**32))
    wanted = (dimensions, shrinkage, passes, n_states)
    kept: TraitCheckpoint | None = None
    if checkpoint is not None:
        facts = fitted.digest(), fitted.schema.digest, *wanted, seed
        kept = TraitCheckpoint.open(checkpoint, *facts)
    known = None if kept is None else kept.load_choice()
    is_open = "auto" in wanted and known is None
    n_people = n_judged = round(counts.n_people)
    if fitted.n_observed > CHOICE_CELLS:
        n_judged = max(1, n_people * CHOICE_CELLS // fitted.n_observed)
    most_states = STATES[-1] if n_states == "auto" else n_states
    people = fitted.draw(max(most_states, n_judged if is_open else 0), counts, seed)
    held_out: HeldOutCells | None = None
    if is_open:
        judged = people.cut(0, min(n_judged, people.n_rows))
        held_out = HeldOutCells.draw(judged, fitted.schema.offsets, seed)
    choice = known or _choose(held_out, fitted.schema, *wanted, seed)
    if kept is not None:
        kept.save_choice(choice)
    settings = choice.settings

    def save_and_report(state: TraitState) -> None:
        if kept is not None:
            kept.save_state(state)
        if state.n_passes < settings.passes:
            report_step(state.n_passes, settings.passes, f"pass {state.n_passes}")

    fit = TraitFit(fitted, counts, settings, seed, save_and_report)
    known_state = None if kept is None else kept.load_state()
    state = fit.go_on(known_state or fit.start(), settings.passes)
    traits = fit.make_model(state)
    origin = {"method": "traits", "n_traits": traits.n_traits, **settings.to_json()}
    losses = tuple(-each / max(counts.n_people, 1) for each in state.log_likelihoods)
    notes = tuple(comparison.reason for comparison in choice.comparisons)
    if "auto" in wanted and not notes:
        notes = ("nobody has two observed cells or more: nothing could be held out to choose by",)
    return FitResult(
        model=compile_states(traits, people, choice.n_states, seed, origin),
        loss_history=losses,
        held_out=(),
        best_pass=settings.passes,
        converged=True,
        method="traits",
        notes=notes,
        comparisons=choice.comparisons,
        log_likelihoods=tuple(-loss for loss in losses),
    )


def _choose(
    held_out: HeldOutCells | None,
    schema: Schema,
    dimensions: int | str,
    shrinkage: float | str,
    passes: int | str,
    n_states: int | str,
    seed: int,
) -> TraitChoice:
    """Choose what is open by held-out cells; without any, what is usual."""
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


def _open_samples(samples: object, schema: Schema | None) -> TraitSamples:
    """Samples to fit to, at least one."""
    if schema is not None and not isinstance(schema, Schema):
        raise SchemaError(
            f"schema is {name_type(schema)}; give a Schema: pmflib.Schema.infer(table), or of numbers of levels "
            "pmflib.Schema.from_cardinalities([2, 3])"
        )
    n_rows: int
    found: TraitSamples
    if isinstance(samples, StoredSamples):
        n_rows, found = samples.n_rows, StoredTraitSamples(samples)
    else:
        if isinstance(samples, SparseBlock):
            if schema is None:
                raise SchemaError("schema is None and samples is a SparseBlock; give its schema")
            block = samples
        else:
            schema = infer_schema(samples) if schema is None else schema
            block = DenseBlock(schema.encode(samples)).to_sparse(schema.offsets)
        n_rows, found = block.n_rows, TraitSamplesInMemory(block, schema)
    if not n_rows:
        raise PmfError("samples has no rows; a fit needs at least one")
    return found


def _report_choice(text: str) -> None:
    report_step(0, 1, f"choosing, {text}")


def _compare_states(traits: TraitModel, held_out: HeldOutCells) -> Comparison:
    """Compare numbers of states by the held-out cells, predicted by the states alone."""
    most, logs = int(traits.schema.cardinalities.max()), []
    for n_states in STATES:
        model = compile_states(traits, held_out.block, n_states, 0)
        logs.append(held_out.score(partial(predict_by_states, model), max(n_states, most)))
    return compare(
        "cell",
        [{"states": n_states} for n_states in STATES],
        [float(each.mean()) for each in logs],
        subtract=lambda a, b: compare_samples(logs[a], logs[b]),
        rule="least",
    )


def predict_by_states(
    model: JointPMF, block: SparseBlock, rows: IntArray, variables: IntArray
) -> FloatArray:
    """PMFs of some cells given all that is observed in their rows, by latent states: (n_cells, largest cardinality)."""
    schema = model.schema
    posteriors = np.empty((block.n_rows, model.rank))
    logs = take_logs(model.prior, model.factors)
    score_block(block, schema.offsets, *logs, np.empty(block.n_rows), posteriors)
    chances = np.zeros((rows.size, int(schema.cardinalities.max())))
    for place in np.unique(variables):
        cells = np.flatnonzero(variables == place)
        factor = model.factor(int(place))
        chances[cells, : len(factor)] = posteriors[rows[cells]] @ factor.T
    return chances


def _check_options(dimensions: object, n_states: object, shrinkage: object, passes: object) -> None:
    for name, number, least in (
        ("dimensions", dimensions, 0),
        ("n_states", n_states, 1),
        ("passes", passes, 1),
    ):
        if isinstance(number, str) and number == "auto":
            continue
        check_whole(name, number)
        assert isinstance(number, int | np.integer)
        if number < least:
            raise PmfError(f"{name} is {number}; give at least {least}, or 'auto'")
    if shrinkage != "auto" and not (
        isinstance(shrinkage, int | float) and 0 < float(shrinkage) <= 1
    ):
        raise PmfError(f"shrinkage is {shrinkage!r}, outside (0, 1]; give a number, or 'auto'")
