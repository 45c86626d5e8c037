"""Choice between latent classes, states with forests, and continuous traits, and of their number.

Variables derived from a common fact are dependent in every state. Latent classes then need many states, hundreds in
some tables, where a few states with forests give a better fit in less time; without dependence within states, forests
are superfluous parameters. Therefore small numbers of states of either kind are fitted first. Among candidates within
one standard error of the best on held-out samples, the one with the fewest free parameters is chosen. If the pairs
under the best classes show only noise, only forests with fewer parameters are tried, and classes are doubled beyond
small numbers only if forests have not made this unnecessary. People who differ by degree rather than in kind would need
a class for every degree, so one to three traits are tried as well, as long as each further one improves the fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, Unpack

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.base.comparison import Comparison, compare_candidates, compare_samples
from pmflib.base.defaults import LIMITS, RANKS_BY_SAMPLES
from pmflib.em.block_source import BlocksInMemory
from pmflib.families.forests.em import TreeOptions, are_modest, load_samples
from pmflib.families.forests.structure import find_residuals
from pmflib.families.forests.tree_fit import MOST_STARTS, TreeFit, estimate_best_start
from pmflib.families.forests.tree_pmf import TreePMF
from pmflib.families.traits.item_responses import fit_items
from pmflib.families.traits.quadrature import GRIDS, ItemDesign
from pmflib.fits.criteria import count_parameters
from pmflib.fits.em_fit import EMFit, Passes
from pmflib.fits.fit_specifications import Options
from pmflib.fits.ranks.by_samples import MAX_RANK, SampleSearch
from pmflib.fits.ranks.choice import OnRankProgress, RankProgress, find_listener
from pmflib.fits.ranks.fit_runs import DEFAULT_BUDGET, RunOptions, WorkBudget
from pmflib.fits.ranks.sample_fits import RankSamples
from pmflib.model import JointPMF

Kind: TypeAlias = Literal["classes", "forests", "traits"]
"""Independence within states, forests within states, or independence given continuous traits."""

FEW = 16
"""Number of latent classes up to which they are doubled before forests are tried."""
MAX_FORESTS = 64
"""Maximum number of states with forests."""
SPLITS_TO_TELL = 2
"""Number of splits after which a larger number of states with forests is abandoned if it is worse by a standard
error.
"""
FOREST_RESOLUTION = 6
"""States with forests are compared to a relative precision of 1 / ``FOREST_RESOLUTION``, and at least to 1."""
PSEUDO_COUNT = 1.0
"""Pseudo-count of all compared fits with forests; the best shrinkage is chosen once the rank is known."""
HOPELESS = 3.0
"""Number of standard errors below the best classes at which forests with nearly as many states rule out forests with
fewer, and traits rule out further traits.
"""
MAX_UPDATE_WORK = 20_000_000
"""Maximum number of multiplications in a Newton step of all variables, over all splits, for a number of traits to be
tried; levels without values have one slope per trait.
"""
MAX_TRAIT_WORK = 600_000_000
"""Maximum observed cells times grid points, over all splits, for a number of traits to be tried: a few seconds."""
TRAIT_PASSES, TRAIT_TOL = 100, 1e-6
"""Maximum number of passes, and relative tolerance, of the compared fits of traits."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A number of states of one kind, or of traits.

    Parameters
    ----------
    kind, rank
        Kind and rank; for traits, the rank is their number.
    n_parameters
        Free parameters.
    scores
        float64, log-likelihood of each held-out sample over all splits, nats.
    """

    kind: Kind
    rank: int
    n_parameters: int
    scores: FloatArray

    @property
    def settings(self) -> dict[str, int | float | str]:
        """Return the settings that distinguish the candidate."""
        return {"kind": self.kind, "rank": self.rank, "parameters": self.n_parameters}

    @property
    def order(self) -> tuple[int, str]:
        """Return the sort key: free parameters; traits come after models with one class more than there are traits.

        Such models have nearly the same number of parameters and fit as well if people differ in kind.
        """
        more = self.rank * (self.rank + 1) // 2 if self.kind == "traits" else 0
        return self.n_parameters + more, self.kind


@dataclass(frozen=True)
class KindChoice:
    """Choice between classes, forests and traits, and of their number.

    Parameters
    ----------
    kind, rank
        The choice.
    ranks
        All candidates, by increasing number of free parameters.
    is_final
        Whether the number of states is final; otherwise, for classes, another search must choose it.
    left_out
        What was not tried, and why; "" if nothing was left out.
    """

    kind: Kind
    rank: int
    ranks: Comparison
    is_final: bool
    left_out: str = ""

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Return all comparisons."""
        return (self.ranks,)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return sentences that explain the choice."""
        kinds = {str(point.settings["kind"]): None for point in self.ranks.points}
        *others, last = sorted(kinds)
        named = f"{', '.join(others)} and {last}" if others else last
        reason = f"{named}: {self.ranks.reason}"
        return (f"{reason}; {self.left_out}" if self.left_out else reason,)


def choose_kind(
    splits: Sequence[RankSamples],
    *,
    is_forced: bool = False,
    with_traits: bool = False,
    members: int = 1,
    seed: int = 0,
    **run: Unpack[RunOptions],
) -> KindChoice | None:
    """Compare latent classes, forests and traits, and choose the simplest candidate that is as good as the best.

    Parameters
    ----------
    splits
        The same samples split into training and held-out parts, once or in several ways. With a target, classes are
        fitted to the target, with the number of states that is best for forests, and larger numbers are left to another
        search.
    is_forced
        Whether forests are used regardless of the samples.
    with_traits
        Whether traits are tried as well, if there is no target and models are not averaged.
    members
        Number of models to be averaged. Single models are compared, and the number of classes for averages is left to
        another search.
    seed
        Seed of the starts.
    **run
        As for `pmflib.fits.ranks.by_samples.select_rank_by_samples`; forests, fitted in this process, share the
        budget.

    Returns
    -------
    The choice; None if there is nothing to choose: no samples, a single variable, or tables too large to be tried by
    default.
    """
    if not splits:
        return None
    schema = splits[0].schema
    if schema.n_variables < 2 or not are_modest(schema.offsets, 2):
        return None
    on_progress = find_listener(run.get("on_progress"))
    budget = run["budget"] = WorkBudget.share(run.get("budget", DEFAULT_BUDGET))
    forests = _ForestFits(splits, seed, on_progress, budget)
    classes: SampleSearch | None = None
    if not is_forced and splits[0].target is None:
        classes = SampleSearch.open(splits, RANKS_BY_SAMPLES, seed=seed, **run)
        classes.run(2, [1], FEW)
        if classes.has_settled:
            classes.fill_in()
    most = MAX_FORESTS if classes is None else _limit_forests(forests, classes)
    forests.double(most, needs_one=classes is None)
    given: list[Candidate] = []
    if classes is None and not is_forced:
        rank = max(forests.candidates, key=lambda each: float(each.scores.mean())).rank
        given = [fit_plain(splits[0], rank, seed)]
    traits, given_up = list[Candidate](), ""
    # if one class leaves only noise between the variables, forests were not tried either
    is_noise = not forests.candidates and classes is not None and classes.find_least() == 1
    if with_traits and classes is not None and members == 1 and not is_noise:
        known = list_classes(classes, splits[0])
        best = max((*known, *forests.candidates), key=lambda each: float(each.scores.mean()))
        traits, given_up = fit_traits_of_splits(
            splits, seed, on_progress, known[0].scores, best.scores
        )
    while True:
        of_classes = given if classes is None else list_classes(classes, splits[0])
        candidates = sorted(
            [*of_classes, *forests.candidates, *traits], key=lambda each: each.order
        )
        compared = compare_kinds(candidates)
        chosen = candidates[compared.points.index(compared.chosen)]
        if classes is not None and _goes_on(classes, chosen, splits[0]):
            continue
        if chosen.kind != "forests" or not forests.fill_in(chosen.rank):
            break
    left_out = "" if classes is None or chosen.kind != "classes" else classes.left_out
    left_out = "; ".join(filter(None, (left_out, forests.left_out, given_up)))
    is_final = chosen.kind != "classes" or (classes is not None and members == 1)
    return KindChoice(chosen.kind, chosen.rank, compared, is_final, left_out)


def compare_kinds(candidates: Sequence[Candidate]) -> Comparison:
    """Compare candidates in the order of their free parameters, and choose the first that is as good as the best."""

    def subtract(first: int, second: int) -> tuple[float, float]:
        return compare_samples(candidates[first].scores, candidates[second].scores)

    return compare_candidates(
        "sample",
        [each.settings for each in candidates],
        [float(each.scores.mean()) for each in candidates],
        subtract=subtract,
        rule="least",
    )


def list_classes(classes: SampleSearch, samples: RankSamples) -> list[Candidate]:
    """Return the candidates of a search over latent classes, each rank with its best pseudo-count."""
    return [
        Candidate(
            "classes",
            rank,
            _count_classes(samples, rank),
            classes.list_scores(classes.find_best_fit(rank)),
        )
        for rank in classes.ranks
    ]


def fit_plain(samples: RankSamples, rank: int, seed: int) -> Candidate:
    """Fit latent classes of a given rank to the target."""
    options = Options.make("random", PSEUDO_COUNT, 1, rank)
    passes = Passes(*LIMITS, False, None, None)
    fit = EMFit(samples.schema, rank, options, seed, passes, samples.target)
    offsets = samples.schema.offsets
    held_out = BlocksInMemory.cut(samples.held_out, offsets, rank, samples.target)
    model = fit.fit_block(samples.block, held_out)[1].model
    return Candidate("classes", rank, _count_classes(samples, rank), samples.score(model))


def _count_classes(samples: RankSamples, rank: int) -> int:
    """Return the number of free parameters of latent classes."""
    return rank * (samples.schema.n_levels - samples.schema.n_variables) + rank - 1


def _limit_forests(forests: _ForestFits, classes: SampleSearch) -> int:
    """Return the number of states up to which forests have fewer parameters than the best classes."""
    least = classes.find_least()
    point = classes.find_best_fit(least)
    samples = forests.splits[0]
    model = JointPMF(*classes.list_parameters(point)[0], samples.schema, {})
    if samples.counts is None or find_residuals(model, samples.counts).list_large():
        return MAX_FORESTS
    # with as many states as classes, forests have more parameters, and there is nothing left for them to explain
    most = 1 << (least - 1).bit_length() >> 1
    if most > 1 and forests.affords(most, n_splits=1):
        mine = forests.score(most, 0)
        gap = compare_samples(classes.list_scores(point)[: mine.size], mine)
        if gap.mean > HOPELESS * gap.error:
            return 0
    return most if least > 1 else 0


def _goes_on(classes: SampleSearch, chosen: Candidate, samples: RankSamples) -> bool:
    """Continue doubling the number of classes if that may help; returns whether it was done."""
    if classes.has_settled:
        return False
    most = MAX_RANK
    if chosen.kind != "classes":
        most = max(classes.ranks)
        while 2 * most <= MAX_RANK and _count_classes(samples, 2 * most) <= chosen.n_parameters:
            most *= 2
        if most == max(classes.ranks):
            return False
    tried = classes.ranks
    classes.go_on(most)
    classes.fill_in()
    return classes.ranks != tried


def fit_traits_of_splits(
    splits: Sequence[RankSamples],
    seed: int,
    on_progress: OnRankProgress | None,
    alone: FloatArray,
    best: FloatArray,
) -> tuple[list[Candidate], str]:
    """Fit one, two and three traits, as long as each further one improves the held-out likelihood beyond chance.

    If people differ in kind, traits are far worse, and their fits are expensive: they are abandoned after the first
    split if further traits with the same gain would not come close to the best.

    Parameters
    ----------
    splits, seed, on_progress
        float64, log-likelihood of each held-out sample over all splits, under independence and under the best candidate
        so far.
    alone, best
        float64, log-likelihood of each held-out sample, of all splits, under variables alone, and under the best
        candidate so far.

    Returns
    -------
    Candidates, none for fewer than three variables or many levels; and a sentence on abandoned fits, or "".
    """
    schema, found, given_up = splits[0].schema, list[Candidate](), ""
    n_cells = sum(each.n_observed for each in splits)
    before = alone
    for n_traits, (n_points, _) in GRIDS.items():
        design = ItemDesign(schema, n_traits)
        if n_cells * n_points**n_traits > MAX_TRAIT_WORK or n_traits > schema.n_variables // 3:
            break
        if len(splits) * design.update_work > MAX_UPDATE_WORK:
            break
        if on_progress is not None:
            doing, tried = f"{n_traits} traits", tuple(range(1, n_traits + 1))
            on_progress(RankProgress("samples", doing, tried, n_traits - 1, n_traits, None))
        first = _fit_traits(splits[0], design, seed)
        gain = max(float((first - before[: first.size]).mean()), 0.0)
        gap = compare_samples(best[: first.size], first)
        if gap.mean - (max(GRIDS) - n_traits) * gain > HOPELESS * gap.error:
            behind = f"{gap.mean:.2g} +- {gap.error:.2g} below the best"
            given_up = f"traits were given up at {n_traits}, {behind} in the first of the folds"
            break
        others = [_fit_traits(each, design, seed) for each in splits[1:]]
        reached = Candidate(
            "traits", n_traits, design.n_parameters, np.concatenate([first, *others])
        )
        found.append(reached)
        if n_traits > 1:
            more = compare_samples(reached.scores, before)
            if more.mean <= more.error:
                break
        before = reached.scores
    return found, given_up


def _fit_traits(samples: RankSamples, design: ItemDesign, seed: int) -> FloatArray:
    """Return the log-likelihood of the held-out part of a split under traits fitted to the rest, nats."""
    schema = samples.schema
    fitted, _ = fit_items(
        BlocksInMemory.cut(samples.block, schema.offsets, len(design.grid[0])),
        design,
        samples.counts,
        pseudo_count=PSEUDO_COUNT,
        max_passes=TRAIT_PASSES,
        tol=TRAIT_TOL,
        seed=seed,
    )
    return samples.score(fitted)


class _ForestFits:
    """Fits of states with forests to several splits.

    Parameters
    ----------
    splits
        Splits of the samples.
    seed
        Seed of the starts.
    on_progress
        Called before each fit.
    budget
        Budget of processor time; numbers of states whose fits would exceed it are not tried.
    """

    def __init__(
        self,
        splits: Sequence[RankSamples],
        seed: int,
        on_progress: OnRankProgress | None,
        budget: WorkBudget,
    ) -> None:
        self.splits, self._seed, self._on_progress = splits, seed, on_progress
        self._budget, self.left_out = budget, ""
        self._found: dict[tuple[int, int], tuple[FloatArray, int]] = {}

    @cached_property
    def _samples(self) -> list[tuple[BlocksInMemory, list[BlocksInMemory]]]:
        """Return the training samples of each split, and two halves of its held-out samples."""
        offsets = self.splits[0].schema.offsets
        return [
            (
                load_samples(each.block, offsets, 1),
                [
                    load_samples(each.held_out[half], offsets, 1, each.target)
                    for half in _halve(each)
                ],
            )
            for each in self.splits
        ]

    @property
    def candidates(self) -> list[Candidate]:
        """Return the ranks fitted to all splits, in order."""
        n_splits = len(self.splits)
        complete = sorted({rank for rank, split in self._found if split == n_splits - 1})
        return [
            Candidate(
                "forests",
                rank,
                self._found[rank, 0][1],
                self._join(rank, n_splits),
            )
            for rank in complete
        ]

    def affords(self, rank: int, n_splits: int | None = None) -> bool:
        """Return whether the budget suffices for the fits of a rank to the first splits; if not, it is noted."""
        splits = range(len(self.splits) if n_splits is None else n_splits)
        cost = sum(
            self._estimate(rank, split) for split in splits if (rank, split) not in self._found
        )
        if self._budget.affords(cost):
            return True
        self.left_out = (
            f"forests within {rank} or more states were not tried: they would take about {cost:,.0f} s of processor "
            "time, more than the budget has left"
        )
        return False

    def _estimate(self, rank: int, split: int) -> float:
        """Estimate the time of the fits of a rank to a split by the cost model, seconds."""
        training, halves = self._samples[split]
        return len(halves) * estimate_best_start(training, rank, MOST_STARTS // len(halves))

    def double(self, most: int, *, needs_one: bool = False) -> None:
        """Double the rank as long as it gains, up to a limit; each rank is twice as expensive as the last.

        With ``needs_one``, the first is fitted even if the budget does not suffice.
        """
        rank, offsets = 1, self.splits[0].schema.offsets
        while rank <= most and are_modest(offsets, rank):
            if not ((needs_one and rank == 1) or self.affords(rank)):
                break
            if not self._gains(rank, rank // 2):
                break
            rank *= 2

    def _gains(self, rank: int, less: int) -> bool:
        """Return whether a rank is better than a smaller one, evaluated split by split."""
        scores: list[FloatArray] = []
        for split in range(len(self.splits)):
            scores.append(self.score(rank, split))
            if less and SPLITS_TO_TELL <= len(scores) < len(self.splits):
                behind = compare_samples(self._join(less, len(scores)), np.concatenate(scores))
                if behind.is_distinct:
                    return False
        mine = np.concatenate(scores)
        return not less or bool(mine.mean() > self._join(less, len(self.splits)).mean())

    def _join(self, rank: int, n_splits: int) -> FloatArray:
        """Return the log-likelihoods of the held-out samples of the first splits, nats."""
        return np.concatenate([self.score(rank, split) for split in range(n_splits)])

    def fill_in(self, rank: int) -> bool:
        """Fit the rank half-way to the next smaller one; returns whether there was one worth fitting."""
        below = max((each.rank for each in self.candidates if each.rank < rank), default=0)
        middle = (rank + below) // 2
        if middle in (0, rank, below) or rank - below <= max(1, rank // FOREST_RESOLUTION):
            return False
        if not self.affords(middle):
            return False
        self._join(middle, len(self.splits))
        return True

    def score(self, rank: int, split: int) -> FloatArray:
        """Return the log-likelihoods of the held-out samples of a split, nats."""
        if (rank, split) not in self._found:
            self._found[rank, split] = self._fit_split(rank, split)
        return self._found[rank, split][0]

    def _fit_split(self, rank: int, split: int) -> tuple[FloatArray, int]:
        """Return the scores of a rank on the held-out part of a split, and its number of free parameters.

        One half chooses starts and passes and the other is scored, then vice versa: choosing the best of many starts on
        the same samples would favour larger numbers of starts by chance.
        """
        if self._on_progress is not None:
            ranks = tuple(sorted({*(each for each, _ in self._found), rank}))
            doing, n_done = f"rank {rank} with forests", len(self._found)
            self._on_progress(RankProgress("samples", doing, ranks, n_done, n_done + 1, None))
        samples = self.splits[split]
        training, halves = self._samples[split]
        self._budget.spend(self._estimate(rank, split))
        places = _halve(samples)
        scores, sizes = np.empty(len(samples.held_out)), []
        for turn, chooser in enumerate(halves):
            seed = 2 * self._seed + turn
            fit = TreeFit(training, chooser, samples.singles, rank, seed, LIMITS)
            options = TreeOptions(pseudo_count=PSEUDO_COUNT)
            run = fit.find_best_start(options, MOST_STARTS // len(halves))
            model = TreePMF.make(run.parameters, samples.schema)
            others = places[1 - turn] if len(halves) > 1 else places[turn]
            scores[others] = samples.score(model)[others]
            sizes.append(count_parameters(model))
        return scores, max(sizes)


def _halve(samples: RankSamples) -> list[slice]:
    """Split into every other held-out sample and the rest; a single sample is used for both."""
    return [slice(0, None, 2), slice(1, None, 2)] if len(samples.held_out) > 1 else [slice(None)]
