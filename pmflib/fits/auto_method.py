"""Method "auto": choice of starting values and pseudo-counts on held-out counts.

Counts of folds can be subtracted: training counts are the total minus one fold. Candidates are therefore compared by
the held-out log-likelihood per pair of observed cells without a pass over the samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray, Parameters, normalise_blocks
from pmflib.base.comparison import Comparison, compare_candidates
from pmflib.base.defaults import DEFAULT_PSEUDO_COUNT, FIT_PAIRS
from pmflib.base.display.progress import report_step
from pmflib.base.errors import RankError
from pmflib.base.pseudo_counts import SolverResult
from pmflib.counts.groups import narrow_counts
from pmflib.counts.marginals import Marginals, estimate_singles
from pmflib.counts.pair_counts import PairCounts
from pmflib.counts.selection import list_levels, pick_variables
from pmflib.fits.composite_likelihood import (
    TrainingRound,
    hold_out_rounds,
    raise_likelihood,
    score_pairs,
)
from pmflib.fits.pair_fits import run_random, run_spa
from pmflib.papers.pair_matrix import open_start, start_random
from pmflib.papers.spa import fit_spa
from pmflib.papers.symnmf import fit_symnmf


@dataclass(frozen=True)
class AutoSettings:
    """Limits of the method "auto", all chosen by this library; they do not affect the fit in the limit.

    An update of the composite likelihood costs a few products of matrices (n_levels, n_levels) and (n_levels, rank).
    Work is measured as n_levels^2 rank; one core performs about 3 x 10^8 per second.

    Parameters
    ----------
    max_groups
        Maximum number of groups of folds, one of which is held out at a time: four fits per pseudo-count.
    work_of_all_rounds, work_of_one_round
        Work of an update up to which all groups are held out in turn, and up to which one is: seconds of evaluation.
        Above, nothing is compared.
    work_of_fit
        Work of all updates of a fit: about a minute; EM continues from there.
    scored_iterations, iterations, least_iterations
        Maximum numbers of updates: of an evaluated fit, of the final fit, and of the final fit of huge tables even if
        ``work_of_fit`` is smaller.
    pair_iterations
        Updates of "pairs": starting values for EM need not converge, and with more states than pairs can distinguish,
        further updates fit noise.
    tol
        Relative decrease of the loss below which a fit has converged.
    opened_share
        Weight of perturbed marginals mixed into starting values, to separate empty or identical states.
    start_levels
        Number of levels of the variables fitted by "pairs"; with more levels, the most frequently observed variables
        are used and the others follow by one update.
    imputation_rounds, rotations
        Number of imputation rounds and of starting rotations for symmetric NMF.
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
        """Return whether comparing candidates would be too expensive, so that only the first start is used."""
        return n_levels**2 * rank > self.work_of_one_round

    def limit_iterations(self, n_levels: int, rank: int) -> int:
        """Return the maximum number of updates for a fit of this size."""
        within = self.work_of_fit // (n_levels**2 * rank)
        return max(self.least_iterations, min(self.iterations, within))


SETTINGS = AutoSettings()

Start = Callable[[Marginals, FloatArray], Parameters]
"""Makes starting values from marginals and the variables' own PMFs."""


def run_auto(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Choose the pseudo-count on held-out folds and the start by its loss, and fit all counts.

    Parameters
    ----------
    counts
        Co-occurrence counts; with a single fold there is nothing to evaluate on.
    rank
        Number of latent states, at least 1.
    rng
        Random generator for the starts; equal seeds give equal fits.

    Returns
    -------
    The composite-likelihood fit to all counts, weighted by support. Its method is the chosen start and "opt", or the
    method used instead; its notes explain why.

    Notes
    -----
    Starts are symmetric NMF, CNMF-SPA and perturbed marginals; those that do not support the rank are skipped.
    Pseudo-counts are chosen on held-out folds with the first start, then the start is chosen by its loss. Large tables
    are evaluated on one fold; larger ones use the first start without comparison. For huge tables, or a rank above what
    pairs can distinguish, `run_pairs` is used. A single state is fitted by spa, and a single variable from a random
    start.
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
    # with the same pseudo-count all starts have the same loss function, so the training loss can choose
    name = min(fits, key=lambda each: fits[each].loss_history[-1])
    losses = ", ".join(f"{each}: {fit.loss_history[-1]:.6g}" for each, fit in fits.items())
    notes += [reason, f"start {name}: least loss ({losses})"]
    found = fits[name].with_notes(tuple(notes), f"{name}+opt")
    return replace(found, comparisons=comparisons)


def run_pairs(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Make starting values for EM from perturbed marginals and a few iterations on pairs, depending on the seed.

    If the rank is far above what pairs can distinguish, EM on the samples reaches a higher likelihood from here than
    from random starts or from a converged fit of pairs. A single state is fitted by spa, and a single variable from a
    random start.

    Parameters
    ----------
    counts
        Co-occurrence counts; their folds are summed.
    rank
        Number of latent states, at least 1.
    rng
        Random generator for the noise.

    Notes
    -----
    For wide tables, the most frequently observed variables with up to ``start_levels`` levels are fitted, because the
    cost grows with the square of the number of levels. The other variables follow by one update given the states.
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
    """Extend factors of some variables to all variables by one update from their own PMFs.

    Each level of a fitted variable has a posterior over states, by which the levels observed with it are distributed.
    """
    schema, (prior, factors) = counts.schema, parameters
    rows = list_levels(schema, kept)
    joint = factors * prior
    posteriors = joint / np.maximum(joint.sum(axis=1, keepdims=True), FLOOR)
    # the upper triangle contains each pair once
    mass = np.zeros((schema.n_levels, prior.size))
    for table in counts.tables:
        mass += table[rows].T @ posteriors + table[:, rows] @ posteriors
    # half a pair of every variable's own PMF, so that levels never seen with the others keep a positive probability
    singles = estimate_singles(counts)[:, None]
    widened = normalise_blocks(mass + 0.5 * singles, schema.offsets, singles)
    widened[rows] = factors
    return widened


def group_folds(folds: tuple[int, ...], n_levels: int, rank: int) -> list[tuple[int, ...]]:
    """Assign folds to the groups used by `run_auto`, at most ``max_groups``.

    Parameters
    ----------
    folds
        Training folds.
    n_levels, rank
        Size of the fit; a single group if the tables are too large for evaluation.
    """
    n_groups = 1 if SETTINGS.is_large(n_levels, rank) else SETTINGS.max_groups
    return [folds[first::n_groups] for first in range(min(n_groups, len(folds)))]


def _fit_trivial(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Fit a single variable or a single state."""
    if counts.schema.n_variables == 1:
        lone = ("random start: a single variable has no pairs",)
        return run_random(counts, rank, rng).with_notes(lone, "random")
    return replace(run_spa(counts, rank, rng), method="spa")


def _list_starts(rank: int, seed: int) -> dict[str, Start]:
    """Return the starts by name; each call has its own random stream."""

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
    """Plan the rounds of evaluation, fewer for larger fits."""
    work = counts.schema.n_levels**2 * rank
    if counts.n_folds == 1 or work > SETTINGS.work_of_one_round:
        return []
    n_rounds = SETTINGS.max_groups if work <= SETTINGS.work_of_all_rounds else 1
    return list(islice(hold_out_rounds(counts, SETTINGS.max_groups), n_rounds))


def _choose_pseudo_count(
    start: Start, counts: PairCounts, rank: int
) -> tuple[float, str, tuple[Comparison, ...]]:
    """Choose the mean pseudo-count per level on held-out folds; returns it with the reason and the comparison."""
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
    """Compute the mean held-out log-likelihood per pair over the rounds, for each pseudo-count."""
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
