"""The rank of a fit for a target: doubled from the number of its levels as long as it is predicted better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pmflib.arrays import IntArray
from pmflib.em.in_memory import SamplesInMemory
from pmflib.fitting.candidates import Recipe
from pmflib.fitting.em_fit import MIN_SAMPLES, EMFit
from pmflib.fitting.from_pairs import FitResult
from pmflib.selection.comparison import compare

PATIENCE = 2
"""Doublings without a gain that end the search."""


def fit_target_ranks(fit: EMFit, codes: IntArray, held_out: SamplesInMemory | None) -> FitResult:
    """Fit for a target, with the rank that predicts it best on held-out samples.

    Parameters
    ----------
    fit
        A fit for a target, whose rank is the number of the target's levels.
    codes
        Samples of shape (n_rows, n_variables), -1 missing.
    held_out
        What judges; None holds a fold of the samples out, after which all of them are fitted in the way that was best.

    Returns
    -------
    The model and how it was reached, the comparison of ranks first. Fewer than `MIN_SAMPLES` samples are fitted with
    the rank that is given.
    """
    if held_out is None and len(codes) < MIN_SAMPLES:
        return fit.fit_all_codes(codes)
    training, judge = (codes, held_out) if held_out is not None else fit.hold_out(codes)
    found = list(_double(fit, training, judge))
    scores = [max(result.held_out) for _, _, result in found]
    best = int(np.argmax(scores))
    models = [(result.model.prior, result.model.factors) for _, _, result in found]
    compared = compare(
        "sample",
        [{"rank": sized.rank} for sized, _, _ in found],
        scores,
        subtract=lambda one, other: judge.compare(models[one], models[other]),
    )
    sized, recipe, result = found[best]
    if held_out is None:
        result = sized.follow(recipe, codes, result.held_out)
    return replace(
        result,
        comparisons=(compared, *result.comparisons),
        notes=(compared.reason, *result.notes),
    )


def _double(
    fit: EMFit, training: IntArray, judge: SamplesInMemory
) -> Iterator[tuple[EMFit, Recipe, FitResult]]:
    """Fits of rising rank, each with its recipe, until `PATIENCE` of them have not gained."""
    n_observed = int(np.count_nonzero(training >= 0))
    best, stale = -np.inf, 0
    while stale < PATIENCE and fit.is_for_target(n_observed):
        recipe, result = fit.fit_codes(training, judge)
        yield fit, recipe, result
        score = max(result.held_out)
        stale = 0 if score > best else stale + 1
        best = max(best, score)
        fit = replace(fit, rank=2 * fit.rank)
