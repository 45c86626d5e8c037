"""The rank of a fit for a target: doubled from the number of its levels as long as it is predicted better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pmflib.core.blocks import DenseBlock
from pmflib.core.comparison import compare_candidates
from pmflib.em.block_source import BlocksInMemory
from pmflib.fitting.candidates import FitSpecification
from pmflib.fitting.em_fit import MIN_SAMPLES, N_FOLDS, EMFit
from pmflib.fitting.fit_result import FitResult
from pmflib.fitting.fit_statistics import HeldOutScore
from pmflib.fitting.target_fit import FIRST, TOLERATED, Candidate, TargetRun, make_specification

DOUBLED_WORK = 20_000_000
"""Observed cells times rank up to which a rank above the first is tried: the work doubles as well, few of them gain."""

PATIENCE = 2
"""Doublings without a gain that end the search."""

N_FINALISTS = 6
"""Candidates, of all ranks, for all folds to evaluate: the best of many on one fold is chance where samples are few."""

LEFT_OUT = 2.0
"""Standard errors below the best, over the folds so far, from which a candidate is left out.

References
----------
Maron, Moore (1994), "Hoeffding races".
"""


@dataclass(frozen=True, eq=False)
class TriedRank:
    """Candidates of one rank.

    Parameters
    ----------
    fit
        The fit, with this rank.
    runs
        The candidates' runs.
    specification, result
        The one that is chosen among them.
    """

    fit: EMFit
    runs: Mapping[Candidate, TargetRun]
    specification: FitSpecification
    result: FitResult

    @property
    def score(self) -> float:
        """Log-likelihood per held-out sample of the chosen candidate, nats."""
        return max(self.result.held_out)


def fit_target_ranks(fit: EMFit, block: DenseBlock, held_out: BlocksInMemory | None) -> FitResult:
    """Fit for a target, with the rank that predicts it best on held-out samples.

    Parameters
    ----------
    fit
        A fit for a target, whose rank is the number of the target's levels.
    block
        Samples.
    held_out
        Held-out samples; None holds a fold of the samples out, evaluates the best candidates on all folds, each in its
        turn, and fits all samples in the way that was best.

    Returns
    -------
    The model and how it was reached, the comparison of ranks first. Fewer than `MIN_SAMPLES` samples are fitted with
    the rank that is given.
    """
    if held_out is None and len(block) < MIN_SAMPLES:
        return fit.fit_all(block)
    training, validation = (block, held_out) if held_out is not None else fit.hold_out(block)
    tried = list(_double(fit, training, validation))
    models = [(each.result.model.prior, each.result.model.factors) for each in tried]
    compared = compare_candidates(
        "sample",
        [{"rank": each.fit.rank} for each in tried],
        [each.score for each in tried],
        subtract=lambda one, other: validation.compare([models[one]], [models[other]]),
    )
    best = max(tried, key=lambda each: each.score)
    result = best.result if held_out is not None else _compare_by_folds(tried, block)
    return replace(
        result,
        comparisons=(compared, *result.comparisons),
        notes=(compared.reason, *result.notes),
    )


def _double(fit: EMFit, training: DenseBlock, validation: BlocksInMemory) -> Iterator[TriedRank]:
    """Try rising ranks until `PATIENCE` of them have not gained."""
    n_observed = training.n_observed
    starts_from = fit.count(training)
    best: TriedRank | None = None
    stale, near = 0, FIRST
    while stale < PATIENCE and fit.is_for_target(n_observed):
        if best is not None and n_observed * fit.rank > DOUBLED_WORK:
            return
        samples = BlocksInMemory.cut(training, fit.schema.offsets, fit.rank)
        starts = fit.make_starts(starts_from)
        runs = fit.for_target.try_candidates(samples, validation, starts, near)
        tried = TriedRank(fit, runs, *fit.for_target.report_best(runs, samples, validation))
        yield tried
        near = max(runs, key=lambda each: runs[each].score)
        stale = 0 if best is None or _gains(tried, best, validation) else stale + 1
        best = tried if best is None or tried.score > best.score else best
        fit = replace(fit, rank=2 * fit.rank)


def _gains(tried: TriedRank, best: TriedRank, validation: BlocksInMemory) -> bool:
    """Whether a rank is better than the best so far by more than is tolerated."""
    first, second = ((each.result.model.prior, each.result.model.factors) for each in (tried, best))
    gain, error = validation.compare([first], [second])
    return gain > TOLERATED * error


@dataclass(frozen=True, eq=False)
class Finalist:
    """A candidate that is evaluated on each fold in turn.

    Parameters
    ----------
    fit
        A fit of its rank.
    candidate
        Share and pseudo-count.
    runs
        Its run on each fold so far.
    """

    fit: EMFit
    candidate: Candidate
    runs: list[TargetRun]

    @property
    def score(self) -> float:
        """Log-likelihood per held-out sample, nats, mean of the folds."""
        return float(np.mean([run.score for run in self.runs]))

    @property
    def settings(self) -> dict[str, float]:
        """What distinguishes it."""
        return {"rank": self.fit.rank, **self.candidate._asdict()}

    def subtract(self, other: Finalist, validations: list[BlocksInMemory]) -> tuple[float, float]:
        """How much better it is than another on the same folds, and the standard error of that."""
        gaps = [
            validation.compare([mine.model], [theirs.model])
            for validation, mine, theirs in zip(validations, self.runs, other.runs, strict=True)
        ]
        means, errors = np.array(gaps).T
        return float(means.mean()), float(np.sqrt((errors**2).sum()) / len(gaps))


def _compare_by_folds(tried: list[TriedRank], block: DenseBlock) -> FitResult:
    """Fit all samples by the candidate that is best when each fold is held out in its turn."""
    left = [
        Finalist(each.fit, candidate, [run])
        for each in tried
        for candidate, run in each.runs.items()
    ]
    left = sorted(left, key=lambda each: -each.score)[:N_FINALISTS]
    first = tried[0].fit
    validations: list[BlocksInMemory] = []
    for fold in range(N_FOLDS):
        training, validation = first.hold_out(block, fold)
        validations.append(validation)
        if fold:
            counts = first.count(training)
            for each in left:
                samples = BlocksInMemory.cut(training, first.schema.offsets, each.fit.rank)
                starts = each.fit.make_starts(counts)
                run = each.fit.for_target.try_one(each.candidate, samples, validation, starts)
                each.runs.append(run)
        best = max(left, key=lambda each: each.score)
        gaps = {id(each): best.subtract(each, validations) for each in left}
        left = [
            each
            for each in left
            if each is best or gaps[id(each)][0] <= LEFT_OUT * gaps[id(each)][1]
        ]
        if len(left) == 1:
            break
    left.sort(key=lambda each: (each.fit.rank, each.candidate))
    index = left.index(best)
    compared = compare_candidates(
        "sample",
        [each.settings for each in left],
        [each.score for each in left],
        subtract=lambda _, other: gaps[id(left[other])],
        chosen=index,
    )
    n_steps = round(float(np.mean([run.n_steps for run in best.runs])))
    specification = make_specification(best.candidate, n_steps, best.score, compared)
    note = tried[0].specification.notes[0]
    specification = replace(specification, notes=(note, *specification.notes))
    scores = tuple(run.score for run in best.runs)
    sizes = [each.n_samples for each in validations[: len(scores)]]
    score = HeldOutScore(float(np.average(scores, weights=sizes)), sum(sizes), len(scores))
    result = best.fit.follow(specification, block)
    return replace(result, held_out=scores, held_out_score=score)
