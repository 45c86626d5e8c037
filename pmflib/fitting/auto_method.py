"""Method "auto": several starts and pseudo-counts, compared on held-out counts.

Counts of folds subtract: training counts are the total minus a fold, so that candidates are compared
without a pass over the samples, by the held-out log-likelihood per pair of observed cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from pmflib.core.arrays import FLOOR, FloatArray, IntArray, Parameters, normalise_blocks
from pmflib.core.comparison import Comparison, compare_candidates
from pmflib.core.defaults import DEFAULT_PSEUDO_COUNT, FIT_PAIRS
from pmflib.core.errors import RankError
from pmflib.counting.groups import list_levels, narrow_counts, pick_variables
from pmflib.counting.marginals import Marginals, estimate_singles
from pmflib.counting.pair_counts import PairCounts
from pmflib.display.progress import report_step
from pmflib.fitting.composite_likelihood import (
    TrainingRound,
    hold_out_rounds,
    raise_likelihood,
    score_pairs,
)
from pmflib.fitting.pair_fits import run_random, run_spa
from pmflib.solvers import SolverResult
from pmflib.solvers.pairs.pair_matrix import open_start, start_random
from pmflib.solvers.pairs.spa import fit_spa
from pmflib.solvers.pairs.symnmf import fit_symnmf


@dataclass(frozen=True)
class AutoSettings:
    """Limits of the method "auto". All are this library's own choices; none changes what is fitted in the limit.

    An update of the composite likelihood costs a few products of (n_levels, n_levels) by (n_levels, rank). Work is
    counted in n_levels^2 rank; one core does some 3 x 10^8 a second.

    Parameters
    ----------
    max_groups
        Groups that folds are added up to, one of which is held out at a time: four fits for each pseudo-count.
    work_of_all_rounds, work_of_one_round
        Work of an update up to which all groups are held out in turn, and up to which one is: seconds of evaluation.
        Above, nothing is compared.
    work_of_fit
        Work of all updates of a fit: a minute, and EM goes on from there.
    scored_iterations, iterations, least_iterations
        Limits of updates: of a fit that is evaluated, of the last fit, and of the last fit of huge tables even where
        ``work_of_fit`` is less.
    pair_iterations
        Updates of "pairs": the start of EM need not converge, and with more states than pairs can distinguish the rest
        fits noise.
    tol
        Relative fall of the loss below which a fit has converged.
    opened_share
        Share of perturbed marginals that is mixed into a start, so that states that came out empty or equal part again.
    start_levels
        Levels of the variables that "pairs" fits; of more, those observed most. The others follow from these by one
        update.
    imputation_rounds, rotations
        Rounds of imputation, and rotations that are tried, of the start by symmetric NMF.
    """

    max_groups: int = 4
    work_of_all_rounds: int = 1_000_000
    work_of_one_round: int = 20_000_000
    work_of_fit: int = 20_000_000_000
    scored_iterations: int = 60
    iterations: int = 200
    least_iterations: int = 10
    pair_iterations: int = 50
    start_levels: int = 1000
    tol: float = 1e-5
    opened_share: float = 0.05
    imputation_rounds: int = 10
    rotations: int = 4

    def is_large(self, n_levels: int, rank: int) -> bool:
        """Whether candidates would cost too much, so that only the first start is used."""
        return n_levels**2 * rank > self.work_of_one_round

    def limit_iterations(self, n_levels: int, rank: int) -> int:
        """Limit of the updates of a fit of this size."""
        within = self.work_of_fit // (n_levels**2 * rank)
        return max(self.least_iterations, min(self.iterations, within))


SETTINGS = AutoSettings()

Start = Callable[[Marginals, FloatArray], Parameters]
"""Makes a start of marginals and the variables' own PMFs."""


def run_auto(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Choose pseudo-counts on held-out folds and the start by the loss, and fit all counts.

    Parameters
    ----------
    counts
        Co-occurrence counts; a single fold leaves nothing to evaluate on.
    rank
        Latent states, at least 1.
    rng
        Source of the random starts; the same seed gives the same fit.

    Returns
    -------
    The composite-likelihood fit to all counts, with weights by support. Its method is the start that was chosen and
    "opt", or what ran instead; its notes say why.

    Notes
    -----
    Starts are symmetric NMF, CNMF-SPA and perturbed marginals; one that refuses the rank is left out.
    Pseudo-counts are chosen on held-out folds from the first of these starts, then the start by the
    loss. Large tables are evaluated on one fold; larger ones get the first start and no choice. Where the
    tables are huge, or the rank is above what pairs can distinguish, it is `run_pairs`. A single state is fitted by
    spa, and a single variable at random.
    """
    if counts.schema.n_variables == 1 or rank == 1:
        return _fit_trivial(counts, rank, rng)
    size = counts.schema.n_levels, rank
    limit = counts.schema.max_pairs_rank
    if rank > limit:
        why = f"pairs distinguish at most {limit} states: random start, few iterations, no pseudo-count"
        return replace(run_pairs(counts, rank, rng), notes=(why,), method="pairs")
    if SETTINGS.limit_iterations(*size) < SETTINGS.iterations:
        why = "huge tables: random start, few iterations, no pseudo-count"
        return replace(run_pairs(counts, rank, rng), notes=(why,), method="pairs")
    makers, notes = _list_starts(rank, int(rng.integers(2**63))), []
    marginals, singles = Marginals.from_counts(counts), estimate_singles(counts)
    starts: dict[str, Parameters] = {}
    for name, make in makers.items():
        if starts and SETTINGS.is_large(*size):
            break
        try:
            starts[name] = make(marginals, singles)
        except RankError as error:
            notes.append(f"no {name} start: {error}")
    pseudo_count, reason, comparisons = _choose_pseudo_count(
        makers[next(iter(starts))], counts, rank
    )
    fits: dict[str, SolverResult] = {}
    for name, start in starts.items():
        report_step(len(fits), len(starts), f"rank {rank}, fit from {name}")
        fits[name] = _fit(marginals, singles, start, pseudo_count, SETTINGS.iterations)
    # under one pseudo-count all starts lower one loss: the training counts can choose
    name = min(fits, key=lambda each: fits[each].loss_history[-1])
    losses = ", ".join(f"{each}: {fit.loss_history[-1]:.6g}" for each, fit in fits.items())
    notes += [reason, f"start {name}: least loss ({losses})"]
    found = fits[name].with_notes(tuple(notes), f"{name}+opt")
    return replace(found, comparisons=comparisons)


def run_pairs(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Make a start for EM from perturbed marginals and a few iterations on the pairs; each seed gives another.

    Where the rank is far above what pairs can distinguish, EM on the samples ends higher from here than from random
    starts, and higher than from a fit of the pairs that has converged. A single state is fitted by spa, and a single
    variable at random.

    Parameters
    ----------
    counts
        Co-occurrence counts; their folds are added up.
    rank
        Latent states, at least 1.
    rng
        Source of the noise.

    Notes
    -----
    Of wide tables the variables that are observed most are fitted, those of ``start_levels`` levels: the cost grows
    with the square of these. The others, given the states that these show, take one update.
    """
    if counts.schema.n_variables == 1 or rank == 1:
        return _fit_trivial(counts, rank, rng)
    wide, kept = None, None
    if counts.schema.n_levels > SETTINGS.start_levels:
        wide, kept = (
            counts,
            pick_variables(counts.schema, counts.count_levels(), SETTINGS.start_levels),
        )
        counts = narrow_counts(counts, kept)
    marginals, singles = Marginals.from_counts(counts), estimate_singles(counts)
    start = start_random(singles, marginals.offsets, rank=rank, rng=rng)
    limit = SETTINGS.limit_iterations(counts.schema.n_levels, rank)
    found = _fit(marginals, singles, start, 0.0, min(SETTINGS.pair_iterations, limit))
    if wide is not None and kept is not None:
        found = replace(found, factors=_widen(wide, kept, (found.prior, found.factors)))
    return replace(found, notes=())


def _widen(counts: PairCounts, kept: IntArray, parameters: Parameters) -> FloatArray:
    """Extend factors of some variables to all, by one update of the others from their own PMFs.

    Each level of a kept variable has a posterior of the state; levels seen together with it are shared out by that.
    """
    schema, (prior, factors) = counts.schema, parameters
    rows = list_levels(schema, kept)
    joint = factors * prior
    posteriors = joint / np.maximum(joint.sum(axis=1, keepdims=True), FLOOR)
    # the upper triangle holds each pair once
    mass = np.zeros((schema.n_levels, prior.size))
    for table in counts.tables:
        mass += table[rows].T @ posteriors + table[:, rows] @ posteriors
    # half a pair for every variable's own PMF: levels that were never seen with the others are not ruled out
    singles = estimate_singles(counts)[:, None]
    widened = normalise_blocks(mass + 0.5 * singles, schema.offsets, singles)
    widened[rows] = factors
    return widened


def group_folds(folds: tuple[int, ...], n_levels: int, rank: int) -> list[tuple[int, ...]]:
    """Assign folds to at most ``max_groups`` groups, as many as `run_auto` uses.

    Parameters
    ----------
    folds
        Training folds.
    n_levels, rank
        Size of the fit: one group where the tables are too large to be evaluated.
    """
    n_groups = 1 if SETTINGS.is_large(n_levels, rank) else SETTINGS.max_groups
    return [folds[first::n_groups] for first in range(min(n_groups, len(folds)))]


def _fit_trivial(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Fit one variable, or one state."""
    if counts.schema.n_variables == 1:
        lone = ("random start: a single variable has no pairs",)
        return run_random(counts, rank, rng).with_notes(lone, "random")
    return replace(run_spa(counts, rank, rng), method="spa")


def _list_starts(rank: int, seed: int) -> dict[str, Start]:
    """Starts by name; each call has its own random stream."""

    def symnmf(marginals: Marginals, singles: FloatArray) -> Parameters:
        found = fit_symnmf(
            marginals.pairs,
            marginals.offsets,
            marginals.observed,
            rank=rank,
            rng=np.random.default_rng(seed),
            n_starts=SETTINGS.rotations,
            max_iter=SETTINGS.imputation_rounds,
        )
        return found.prior, found.factors

    def spa(marginals: Marginals, singles: FloatArray) -> Parameters:
        found = fit_spa(marginals.pairs, marginals.offsets, marginals.observed, rank=rank)
        return found.prior, found.factors

    def random(marginals: Marginals, singles: FloatArray) -> Parameters:
        return start_random(singles, marginals.offsets, rank=rank, rng=np.random.default_rng(seed))

    def opened(start: Start) -> Start:
        def make(marginals: Marginals, singles: FloatArray) -> Parameters:
            _, perturbed = random(marginals, singles)
            share = SETTINGS.opened_share
            return open_start(
                start(marginals, singles), perturbed, prior_share=share, factor_share=share
            )

        return make

    return {"symnmf": opened(symnmf), "spa": opened(spa), "random": random}


def _plan_rounds(counts: PairCounts, rank: int) -> list[TrainingRound]:
    """Rounds of evaluation, fewer for larger fits."""
    work = counts.schema.n_levels**2 * rank
    if counts.n_folds == 1 or work > SETTINGS.work_of_one_round:
        return []
    n_rounds = SETTINGS.max_groups if work <= SETTINGS.work_of_all_rounds else 1
    return list(islice(hold_out_rounds(counts, SETTINGS.max_groups), n_rounds))


def _choose_pseudo_count(
    start: Start, counts: PairCounts, rank: int
) -> tuple[float, str, tuple[Comparison, ...]]:
    """Best mean pseudo-count per level on held-out folds, the reason, and the comparison."""
    rounds = _plan_rounds(counts, rank)
    if not rounds:
        large = SETTINGS.is_large(counts.schema.n_levels, rank)
        why = "large tables" if large else "one fold" if counts.n_folds == 1 else "too few pairs"
        reason = f"pseudo-count {DEFAULT_PSEUDO_COUNT:g} by default, nothing was held out: {why}"
        return DEFAULT_PSEUDO_COUNT, reason, ()
    scores = _score(start, rounds)
    compared = compare_candidates(
        "pair", [{"pseudo_count": each} for each in FIT_PAIRS], [scores[each] for each in FIT_PAIRS]
    )
    chosen = float(compared.chosen.settings["pseudo_count"])
    return chosen, f"{compared.reason}, mean of {len(rounds)} rounds", (compared,)


def _score(start: Start, rounds: list[TrainingRound]) -> dict[float, float]:
    """Mean held-out log-likelihood per pair over the rounds, for each pseudo-count."""
    scores = dict.fromkeys(FIT_PAIRS, 0.0)
    for number, each in enumerate(rounds):
        report_step(number, len(rounds), "pseudo-counts on held-out folds")
        marginals, singles = Marginals.from_counts(each.training), estimate_singles(each.training)
        parameters = start(marginals, singles)
        for pseudo_count in FIT_PAIRS:
            found = _fit(marginals, singles, parameters, pseudo_count, SETTINGS.scored_iterations)
            score = score_pairs(each.held_out, (found.prior, found.factors)).sum()
            scores[pseudo_count] += float(score / each.held_out.sum()) / len(rounds)
    return scores


def _fit(
    marginals: Marginals, singles: FloatArray, start: Parameters, pseudo_count: float, max_iter: int
) -> SolverResult:
    return raise_likelihood(
        marginals, singles, start, pseudo_count, max_iter=max_iter, tol=SETTINGS.tol
    )
