"""Rank selection on held-out samples, which also show dependence among three and more variables.

The best rank for density may be many times the one selected by pairs. Starting from that rank, ranks are doubled,
fitted by EM with early stopping, and compared sample by sample for the intended use of the model: with as many members
as will be averaged, and by the target, if there is one. Ranks between the smallest that is good enough and the next
lower one that is not are then filled in, starting from fits of larger ranks with merged states. For a target fit, ranks
are doubled from the number of levels of the target, and each is fitted to the target, because EM alone says little
about such fits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from pmflib.base.arrays import FloatArray, Parameters
from pmflib.base.blocks import DenseBlock
from pmflib.base.comparison import PairedDifference, compare_candidates, compare_samples
from pmflib.base.constraints import Interval, at_least, check
from pmflib.base.defaults import RANKS_BY_SAMPLES
from pmflib.base.errors import PmfError, RankError
from pmflib.counts.marginals import estimate_singles
from pmflib.counts.pair_counts import PairCounts
from pmflib.fits.fit_specifications import TOLERATED
from pmflib.fits.ranks.choice import RankChoice
from pmflib.fits.ranks.fit_runs import USUAL_PASSES, FitRuns, RankFit, RunOptions
from pmflib.fits.ranks.sample_fits import (
    SAVED_SECONDS,
    RankSamples,
    SampleJob,
    TargetFits,
    TargetJob,
    fit_for_target,
    fit_samples,
)

MAX_RANK = 512
"""Largest rank of the doubling."""

MAX_ENTRIES = 4_000_000
"""Maximum number of entries of the factors: 32 MB, and EM needs several such tables."""

PATIENCE = 2
"""Number of doublings without gain after which the search ends: after a single one, the next may still gain."""

RESOLUTION = 16
"""Ranks are compared to a relative precision of 1 / ``RESOLUTION``, and at least to 1: a fit with 100 states hardly
differs from one with 101.
"""

MAX_MEMBERS = 4
"""Maximum number of models averaged when ranks are compared; they achieve most of the gain of an average."""

VERSION = 3
"""Increased when fits change; saved fits of earlier versions are not used."""


def select_rank_by_samples(
    codes: object,
    held_out: object,
    counts: PairCounts,
    *,
    first: int,
    pseudo_counts: Sequence[float] = RANKS_BY_SAMPLES,
    max_rank: int = MAX_RANK,
    members: int = 1,
    target: str | int | None = None,
    rng: np.random.Generator | int = 0,
    **run: Unpack[RunOptions],
) -> RankChoice:
    """Double the rank until held-out samples have twice not become more likely by more than a standard error.

    Parameters
    ----------
    codes, held_out
        Samples to fit and samples to evaluate: codes of shape (n_rows, n_variables), -1 missing, or a table that the
        schema can encode.
    counts
        Co-occurrence counts of samples without the held-out ones, used for starting values.
    first
        First rank, at least 1, as found by `select_rank`.
    pseudo_counts
        Mean pseudo-counts per level and state, each at least 0; every rank is fitted with each.
    max_rank
        Maximum rank.
    members
        Number of models that will be averaged, at least 1; averages of as many, at most ``MAX_MEMBERS``, are compared.
    target
        Variable, by name or position, that the model is to predict: ranks are compared by its conditional
        log-likelihood given the others. None compares the joint log-likelihood.
    rng
        Random generator, or a seed.
    **run
        Fields of `pmflib.fits.ranks.fit_runs.RunOptions`: ``client``, ``budget``, ``checkpoint`` and
        ``on_progress``, as for `select_rank`.

    Returns
    -------
    The choice, all fits with their scores, and the reason, which mentions what was left out.

    Raises
    ------
    RankError
        If first is below 1 or above max_rank.
    PmfError
        If there are no samples to fit or evaluate, no pseudo-count, members is below 1, or budget is not above 0.
    SchemaError
        If the target does not exist.
    """
    schema = counts.schema
    samples = RankSamples(
        schema,
        DenseBlock(schema.encode(codes)),
        DenseBlock(schema.encode(held_out)),
        counts,
        estimate_singles(counts),
        None if target is None else schema.position(target),
    )
    return compare_on_samples(
        [samples],
        first=first,
        pseudo_counts=pseudo_counts,
        max_rank=max_rank,
        members=members,
        seed=int(np.random.default_rng(rng).integers(2**31)),
        **run,
    )


def compare_on_samples(
    splits: Sequence[RankSamples],
    *,
    first: int,
    lower: Sequence[int] = (),
    pseudo_counts: Sequence[float],
    max_rank: int = MAX_RANK,
    members: int = 1,
    seed: int = 0,
    for_target: TargetFits | None = None,
    **run: Unpack[RunOptions],
) -> RankChoice:
    """Apply `select_rank_by_samples` to encoded samples.

    Given several splits of the same samples into training and held-out parts, each rank is fitted to each split and all
    held-out parts are compared. Ranks in ``lower``, each below first, are compared as well. With ``for_target``, which
    requires a single split, ranks are doubled from the number of levels of the target, and each is fitted to the
    target.
    """
    for samples in splits:
        _check(samples, first, max_rank, pseudo_counts, members)
    search = SampleSearch.open(
        splits, pseudo_counts, members=members, seed=seed, for_target=for_target, **run
    )
    search.run(first, lower, max_rank)
    search.fill_in()
    return search.conclude()


def _check(
    samples: RankSamples, first: int, max_rank: int, pseudo_counts: Sequence[float], members: int
) -> None:
    """Check the arguments."""
    check(Interval(1, max_rank), RankError, first=first)
    if not pseudo_counts:
        raise PmfError("pseudo_counts is empty; pass at least one pseudo-count")
    check(at_least(1), members=members)
    validation = samples.held_out
    if not len(validation):
        raise PmfError("held_out has no rows; hold out at least one sample, or use select_rank")
    if not len(samples.block):
        raise PmfError("codes has no rows; EM needs at least one sample")
    if samples.target is not None and not (validation.codes[:, samples.target] >= 0).any():
        name = samples.schema.names[samples.target]
        raise PmfError(
            f"target {name!r} is missing in all {len(validation)} held-out rows; hold out rows that have it, or "
            "give no target"
        )


def _digest(
    splits: Sequence[RankSamples], members: int, seed: int, for_target: TargetFits | None
) -> str:
    """Compute the SHA-256 digest of what the fits of a choice depend on."""
    first = splits[0]
    options = [VERSION, first.schema.digest, first.target, members, seed]
    options += [] if for_target is None else [list(for_target.pseudo_counts)]
    total = hashlib.sha256(json.dumps(options).encode())
    for samples in splits:
        tables = () if samples.counts is None else (samples.counts.tables,)
        arrays = [samples.block.codes, samples.held_out.codes, *tables, samples.singles]
        for each in (samples.block, samples.held_out):
            arrays += [] if each.weights is None else [each.weights]
        for array in arrays:
            total.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


class SampleSearch:
    """Search over ranks by doubling, followed by the ranks in between.

    Parameters
    ----------
    splits, pseudo_counts, for_target
        As for `compare_on_samples`.
    shared
        Properties that the fits have in common.
    runs
        Runs the fits.
    """

    def __init__(
        self,
        splits: Sequence[RankSamples],
        pseudo_counts: tuple[float, ...],
        shared: SampleJob,
        runs: FitRuns,
        for_target: TargetFits | None = None,
    ) -> None:
        self._for_target = for_target
        self._splits, self._pseudo_counts = tuple(splits), pseudo_counts
        self._data = [self._splits]
        self._shared, self._members, self._runs = shared, shared.members, runs
        # one fit per split
        self._fits: dict[tuple[int, float], list[RankFit]] = {}
        self._left_out = self._not_filled_in = ""
        self._first = 1

    @classmethod
    def open(
        cls,
        splits: Sequence[RankSamples],
        pseudo_counts: Sequence[float],
        *,
        members: int = 1,
        seed: int = 0,
        for_target: TargetFits | None = None,
        **run: Unpack[RunOptions],
    ) -> SampleSearch:
        """Open a search with the arguments of `compare_on_samples`."""
        checkpoint = run.get("checkpoint")
        choice = "" if checkpoint is None else _digest(splits, members, seed, for_target)
        runs = FitRuns(choice, **run)
        shared = SampleJob(1, 1.0, min(members, MAX_MEMBERS), seed, checkpoint, choice)
        return cls(splits, tuple(pseudo_counts), shared, runs, for_target)

    def run(self, first: int, lower: Sequence[int], max_rank: int) -> None:
        """Double the rank until it has not gained ``PATIENCE`` times, or reaches a limit."""
        if self._for_target is not None:
            self._double_for_target(self._for_target, max_rank)
            return
        self._first = first
        # these are needed in any case, so they are fitted concurrently
        doubled = [first]
        while len(doubled) <= PATIENCE and (rank := self._double(doubled, max_rank)):
            doubled.append(rank)
        self._fit([*lower, *doubled])
        self.go_on(max_rank)

    def go_on(self, max_rank: int) -> None:
        """Continue doubling while it may gain, even if a lower limit has ended it before."""
        self._left_out = ""
        while not self.has_converged and (rank := self._double(self.ranks, max_rank)):
            self._fit([rank])

    def fill_in(self) -> None:
        """Fit ranks between the smallest that is as good as the best and the next lower one.

        Each starts from the fit of the larger rank with its most similar states merged. The next lower rank is refitted
        in this way before it is considered worse, because its first fit may have ended in a poor optimum.
        """
        if self._for_target is not None:
            return
        merged: set[int] = set()
        while (least := self.find_least()) > 1:
            below = max((rank for rank in self.ranks if rank < least), default=0)
            gap = max(1, least // RESOLUTION)
            rank = least - gap if not below else (least + below) // 2
            if least - below <= gap:
                rank = below
                if rank in merged or not rank or self._members > 1:
                    return
            cost = self._estimate(rank)
            if not self._runs.budget.affords(cost):
                self._not_filled_in = (
                    f"ranks between {below} and {least} were not tried: rank {rank} would take about {cost:,.0f} s of "
                    "processor time, more than the budget has left; raise budget"
                )
                return
            self._fit([rank], least)
            merged.add(rank)

    def find_least(self) -> int:
        """Return the smallest rank within one standard error of the best."""
        top = max(self._fits, key=self._score)
        worse = (self._compare(top, self.find_best_fit(rank)) for rank in self.ranks)
        return next(
            rank for rank, gap in zip(self.ranks, worse, strict=True) if not gap.is_distinct
        )

    def _double_for_target(self, fits: TargetFits, max_rank: int) -> None:
        """Fit ranks to the target, doubling from the number of its levels."""
        self._first = rank = fits.least
        while rank <= max_rank and not self.has_converged:
            cost = fits.estimate(rank)
            if self._fits and not self._runs.budget.affords(cost):
                self._left_out = self._describe_cost(rank // 2, rank, cost)
                return
            job = TargetJob(rank, self._shared.seed)
            (fit,) = self._runs.do(
                fit_for_target,
                [fits],
                [job],
                [job.name],
                [cost],
                criterion="samples",
                doing=f"rank {rank}, for its target",
                ranks=[*self.ranks, rank],
            )
            self._fits[rank, fit.pseudo_count] = [fit]
            self._runs.budget.spend(fits.estimate(rank, fit.n_steps))
            rank *= 2
        self._left_out = f"ranks above {rank // 2} were not tried: {max_rank} is the largest"

    def conclude(self) -> RankChoice:
        """Report all fits, and the smallest rank within one standard error of the best; for a target the best rank."""
        # fits of a rank in order of fitting
        points = sorted(self._fits, key=lambda point: point[0])
        scores = [self._score(point) for point in points]
        top = points[int(np.argmax(scores))]
        rank = self.find_least() if self._for_target is None else top[0]
        chosen = self.find_best_fit(rank)
        compared = compare_candidates(
            "sample",
            [{"rank": rank, "pseudo_count": pseudo_count} for rank, pseudo_count in points],
            scores,
            subtract=lambda best, other: self._compare(points[best], points[other]),
            rule="least" if self._for_target is None else "best",
            chosen=points.index(chosen),
        )
        if self.left_out:
            compared = replace(compared, reason=f"{compared.reason}; {self.left_out}")
        return RankChoice(rank, chosen[1], compared)

    def _double(self, tried: Sequence[int], max_rank: int) -> int:
        """Return the next rank; 0 if a limit is reached, which is noted."""
        last = max(tried)
        rank = min(2 * last, max_rank)
        planned = [each for each in tried if (each, self._pseudo_counts[0]) not in self._fits]
        cost = sum(map(self._estimate, [*planned, rank]))
        above = f"ranks above {last} were not tried"
        if rank == last:
            self._left_out = f"{above}: {max_rank} is the largest"
        elif self._splits[0].schema.n_levels * rank * self._members > MAX_ENTRIES:
            self._left_out = f"{above}: their factors would have more than {MAX_ENTRIES:,} entries"
        elif not self._runs.budget.affords(cost):
            self._left_out = self._describe_cost(last, rank, self._estimate(rank))
        else:
            return rank
        return 0

    def _describe_cost(self, last: int, rank: int, cost: float) -> str:
        """Explain that the budget has ended the doubling."""
        return (
            f"ranks above {last} were not tried: rank {rank} would take about {cost:,.0f} s of processor time, more "
            "than the budget has left; raise budget"
        )

    def _fit(self, ranks: Sequence[int], merged_from: int | None = None) -> None:
        """Fit ranks with every pseudo-count, or continue from the best fit of another rank with merged states."""
        points = [(rank, each) for rank in ranks for each in self._pseudo_counts]
        near: list[Parameters | None] = [None] * len(self._splits)
        if merged_from is not None and self._members == 1:
            near = [*self.list_parameters(self.find_best_fit(merged_from))]
        jobs = [
            self._make_job(*point, split, near[split])
            for point in points
            for split in range(len(self._splits))
        ]
        what = f"rank {', '.join(map(str, ranks))}"
        if self._members > 1:
            what += f", averages of {self._members}"
        found = self._runs.do(
            fit_samples,
            self._data,
            jobs,
            [job.name for job in jobs],
            [self._estimate_fit(job) for job in jobs],
            criterion="samples",
            doing=what,
            ranks=sorted({*self.ranks, *ranks}),
        )
        for job, fit in zip(jobs, found, strict=True):
            samples, budget = self._splits[job.split], self._runs.budget
            budget.spend(samples.estimate_start(job) + fit.n_steps * samples.estimate_pass(job))
        for number, point in enumerate(points):
            new = found[number * len(self._splits) :][: len(self._splits)]
            old = self._fits.get(point)
            if old is not None:
                new = [min(pair, key=lambda fit: fit.loss) for pair in zip(old, new, strict=True)]
            self._fits[point] = new

    def _make_job(
        self, rank: int, pseudo_count: float, split: int, near: Parameters | None
    ) -> SampleJob:
        job = replace(self._shared, rank=rank, pseudo_count=pseudo_count, split=split, near=near)
        # fits of a few seconds are not saved
        return replace(job, folder=None) if self._estimate_fit(job) < SAVED_SECONDS else job

    def _estimate_fit(self, job: SampleJob) -> float:
        """Estimate the time of a fit by the cost model, seconds."""
        samples = self._splits[job.split]
        return samples.estimate_start(job) + USUAL_PASSES * samples.estimate_pass(job)

    def _estimate(self, rank: int) -> float:
        """Estimate the time of the fits of a rank by the cost model, seconds."""
        job = replace(self._shared, rank=rank)
        return len(self._pseudo_counts) * len(self._splits) * self._estimate_fit(job)

    @property
    def ranks(self) -> list[int]:
        """Return the fitted ranks in order."""
        return sorted({rank for rank, _ in self._fits})

    @property
    def left_out(self) -> str:
        """Return what was not tried, and why; "" if nothing was left out."""
        doubling = "" if self.has_converged else self._left_out
        return "; ".join(filter(None, (doubling, self._not_filled_in)))

    @property
    def has_converged(self) -> bool:
        """Return whether the last doublings have not improved on the best before them."""
        best, stale = 0, 0
        for rank in self.ranks:
            if not best or self._gains(rank, best):
                best, stale = rank, 0
            elif rank > self._first:
                stale += 1
        return stale >= PATIENCE

    def _gains(self, rank: int, best: int) -> bool:
        """Return whether a rank improves by more than its standard error, or half of it for a target."""
        gain, error = self._compare(self.find_best_fit(rank), self.find_best_fit(best))
        return gain > (1.0 if self._for_target is None else TOLERATED) * error

    def find_best_fit(self, rank: int) -> tuple[int, float]:
        """Return the fit of a rank with the best pseudo-count; ties go to the first."""
        return max((point for point in self._fits if point[0] == rank), key=self._score)

    def list_parameters(self, point: tuple[int, float]) -> list[Parameters]:
        """Return the fits of a rank with a pseudo-count, one per split."""
        return [fit.parameters for fit in self._fits[point]]

    def _score(self, point: tuple[int, float]) -> float:
        return float(self.list_scores(point).mean())

    def _compare(self, better: tuple[int, float], worse: tuple[int, float]) -> PairedDifference:
        return compare_samples(self.list_scores(better), self.list_scores(worse))

    def list_scores(self, point: tuple[int, float]) -> FloatArray:
        """Return the log-likelihoods of the held-out samples of all splits, nats."""
        return np.concatenate([fit.scores for fit in self._fits[point]])
