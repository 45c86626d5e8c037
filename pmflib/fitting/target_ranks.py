"""The rank of a fit for a target: doubled from the number of its levels as long as it is predicted better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pmflib.arrays import IntArray
from pmflib.em.in_memory import SamplesInMemory
from pmflib.fitting.candidates import Recipe
from pmflib.fitting.em_fit import MIN_SAMPLES, N_FOLDS, EMFit
from pmflib.fitting.from_pairs import FitResult
from pmflib.fitting.target_fit import FIRST, TOLERATED, Candidate, TargetRun, make_recipe
from pmflib.selection.comparison import Comparison, compare

PATIENCE = 2
"""Doublings without a gain that end the search."""

N_FINALISTS = 6
"""Candidates, of all ranks, that every fold judges: the best of many on one fold is chance where samples are few."""


@dataclass(frozen=True, eq=False)
class TriedRank:
    """Candidates of one rank.

    Parameters
    ----------
    fit
        The fit, with this rank.
    runs
        The candidates' runs.
    recipe, result
        The one that is chosen among them.
    """

    fit: EMFit
    runs: Mapping[Candidate, TargetRun]
    recipe: Recipe
    result: FitResult

    @property
    def score(self) -> float:
        """Log-likelihood per held-out sample of the chosen candidate, nats."""
        return max(self.result.held_out)


def fit_target_ranks(fit: EMFit, codes: IntArray, held_out: SamplesInMemory | None) -> FitResult:
    """Fit for a target, with the rank that predicts it best on held-out samples.

    Parameters
    ----------
    fit
        A fit for a target, whose rank is the number of the target's levels.
    codes
        Samples of shape (n_rows, n_variables), -1 missing.
    held_out
        What judges; None holds a fold of the samples out, lets all folds judge the best candidates, each in its turn,
        and fits all samples in the way that was best.

    Returns
    -------
    The model and how it was reached, the comparison of ranks first. Fewer than `MIN_SAMPLES` samples are fitted with
    the rank that is given.
    """
    if held_out is None and len(codes) < MIN_SAMPLES:
        return fit.fit_all_codes(codes)
    training, judge = (codes, held_out) if held_out is not None else fit.hold_out(codes)
    tried = list(_double(fit, training, judge))
    models = [(each.result.model.prior, each.result.model.factors) for each in tried]
    compared = compare(
        "sample",
        [{"rank": each.fit.rank} for each in tried],
        [each.score for each in tried],
        subtract=lambda one, other: judge.compare(models[one], models[other]),
    )
    best = max(tried, key=lambda each: each.score)
    result = best.result if held_out is not None else _judge_by_folds(tried, codes)
    return replace(
        result,
        comparisons=(compared, *result.comparisons),
        notes=(compared.reason, *result.notes),
    )


def _double(fit: EMFit, training: IntArray, judge: SamplesInMemory) -> Iterator[TriedRank]:
    """Try rising ranks until `PATIENCE` of them have not gained."""
    n_observed = int(np.count_nonzero(training >= 0))
    starts_from = fit.count(training)
    best: TriedRank | None = None
    stale, near = 0, FIRST
    while stale < PATIENCE and fit.is_for_target(n_observed):
        samples = SamplesInMemory(training, fit.schema.offsets, fit.rank)
        runs = fit.try_for_target(samples, judge, fit.make_starts(starts_from), near)
        tried = TriedRank(fit, runs, *fit.report_best(runs, judge))
        yield tried
        near = max(runs, key=lambda each: runs[each].score)
        stale = 0 if best is None or _gains(tried, best, judge) else stale + 1
        best = tried if best is None or tried.score > best.score else best
        fit = replace(fit, rank=2 * fit.rank)


def _gains(tried: TriedRank, best: TriedRank, judge: SamplesInMemory) -> bool:
    """Whether a rank is better by more than is tolerated."""
    first, second = ((each.result.model.prior, each.result.model.factors) for each in (tried, best))
    gain, error = judge.compare(first, second)
    return gain > TOLERATED * error


def _judge_by_folds(tried: list[TriedRank], codes: IntArray) -> FitResult:
    """Fit all samples by the candidate that is best when each fold is held out in its turn."""
    finalists = [
        (each.fit, candidate, run) for each in tried for candidate, run in each.runs.items()
    ]
    finalists = sorted(finalists, key=lambda each: -each[2].score)[:N_FINALISTS]
    finalists.sort(key=lambda each: (each[0].rank, each[1]))
    runs = [[run] for _, _, run in finalists]
    for fold in range(1, N_FOLDS):
        training, judge = tried[0].fit.hold_out(codes, fold)
        for (fit, candidate, _), found in zip(finalists, runs, strict=True):
            found.append(fit.try_one_for_target(candidate, training, judge))
    scores = [float(np.mean([run.score for run in found])) for found in runs]
    best = int(np.argmax(scores))
    compared: Comparison = compare(
        "sample",
        [{"rank": fit.rank, **candidate._asdict()} for fit, candidate, _ in finalists],
        scores,
        chosen=best,
    )
    fit, candidate, _ = finalists[best]
    n_steps = round(float(np.mean([run.n_steps for run in runs[best]])))
    recipe = make_recipe(candidate, n_steps, scores[best], compared)
    note = tried[0].recipe.notes[0]
    recipe = replace(recipe, notes=(note, *recipe.notes))
    return fit.follow(recipe, codes, tuple(run.score for run in runs[best]))
