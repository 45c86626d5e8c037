"""Cuts of continuous variables for a target, used where held-out samples show that they predict it better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.base.blocks import DenseBlock, weigh_rows
from pmflib.base.codes import Codes
from pmflib.base.comparison import compare_samples
from pmflib.em.block_source import BlocksInMemory
from pmflib.fits.em_fit import N_FOLDS, EMFit, Passes
from pmflib.fits.fit_result import FitResult
from pmflib.fits.fit_specifications import Options
from pmflib.inference.target.partition import cut_by_target, recut_variable
from pmflib.inference.target.rivals import LEAST_COMPARED, LEAST_ERRORS, find_trial, score_rows
from pmflib.inference.target.target_fit import FIRST, TargetFit
from pmflib.schema import Schema
from pmflib.surveys.drafting.table_draft import list_names

TRIAL_WORK = 20_000_000
"""Rows times variables times levels of the target up to which `fit_trial` is given all rows: seconds (`python -m
benchmarks.models.targets --drafts wide`).
"""

Refit = Callable[[DenseBlock, Schema], FitResult]
"""Fits samples under another schema, with the same options."""


class CutChoice(NamedTuple):
    """Samples, variables and fit with the chosen cuts, and a sentence on the comparison, if there was one."""

    block: DenseBlock
    schema: Schema
    result: FitResult
    notes: tuple[str, ...] = ()


def choose_cuts(
    block: DenseBlock,
    schema: Schema,
    target: int,
    numbers: Mapping[int, FloatArray],
    result: FitResult,
    refit: Refit,
) -> CutChoice:
    """Compare cuts by the target with the given ones on the fold that neither the cuts nor the fits have seen.

    Parameters
    ----------
    block, schema, target
        All samples with the target observed; their variables; position of the target.
    numbers
        Numbers of continuous variables by position, float64 of shape (n_rows,); used where the code is not missing.
    result
        Fit with the given cuts; one without a trial is kept.
    refit
        Fits the samples with other cuts.

    Returns
    -------
    The cuts by the target if these raise the log-likelihood of the target by more than ``LEAST_ERRORS`` errors,
    otherwise the given ones: within one error, cuts by the target were worse on other rows
    (`python -m benchmarks.models.targets --cuts adult`).
    """
    if find_trial(result) is None or len(block) < LEAST_COMPARED:
        return CutChoice(block, schema, result)
    is_held_out = block.assign_folds(N_FOLDS) == 0
    cut, recut = _cut(block, schema, target, numbers, ~is_held_out)
    if recut == schema:
        return CutChoice(block, schema, result)
    other = refit(cut, recut)
    test = block[is_held_out]
    if find_trial(other) is None or not len(test):
        return CutChoice(block, schema, result)
    weights = weigh_rows(test) / weigh_rows(test).mean()
    scores = []
    for samples, fit in ((cut, other), (block, result)):
        trial = find_trial(fit)
        assert trial is not None
        hidden = samples.codes[is_held_out].copy()
        hidden[:, target] = -1
        scores.append(
            score_rows(trial.predict_proba(Codes(hidden), target), test, target) * weights
        )
    gain, error = compare_samples(*scores)
    names = [
        each.name
        for each, old in zip(recut.variables, schema.variables, strict=True)
        if each != old
    ]
    note = (
        f"cuts of {list_names(names)} by {schema.names[target]!r} instead of quantiles: log-loss on {len(test):,} "
        f"held-out rows {-gain:+.3f} +- {error:.3f} nats"
    )
    if gain > LEAST_ERRORS * error:
        return CutChoice(cut, recut, other, (f"{note}; chosen",))
    return CutChoice(block, schema, result, (f"{note}; not chosen",))


def fit_trial(block: DenseBlock, schema: Schema, target: int) -> FitResult:
    """Fit a model of the target to the samples without the first fold, as a trial alone.

    It has as many states as the target has levels, and the first of the candidates that a fit for a target compares;
    the held-out fold chooses the number of steps.
    """
    rank = schema[target].cardinality
    fit = EMFit(schema, rank, Options.make("auto", "auto", 1, rank), 0, Passes(), target)
    samples, held_out = fit.hold_out(block)
    training = BlocksInMemory.cut(samples, schema.offsets, rank)
    starts = fit.make_starts(fit.count(samples))
    of_target = fit.for_target
    assert isinstance(of_target, TargetFit)
    run = of_target.try_one(FIRST, training, held_out, starts)
    _, result = of_target.report_best({FIRST: run}, training, held_out)
    return replace(result, trial=result.model)


def _cut(
    block: DenseBlock,
    schema: Schema,
    target: int,
    numbers: Mapping[int, FloatArray],
    is_training: np.ndarray,
) -> tuple[DenseBlock, Schema]:
    """Cut continuous variables by the target in training rows; those without an accepted cut stay as they are."""
    codes, variables = block.codes.copy(), list(schema.variables)
    for position, values in numbers.items():
        is_given = block.codes[:, position] >= 0
        used = is_given & is_training
        edges = cut_by_target(values[used], block.codes[used, target])
        if edges.size:
            variables[position] = recut_variable(variables[position], values[used], edges)
            codes[is_given, position] = np.searchsorted(edges, values[is_given], side="right")
    return replace(block, codes=codes), replace(schema, variables=tuple(variables))
