"""Method "auto": several starts and pseudo-counts, judged on counts that were held out.

Counts of folds subtract: training counts are the total minus a fold, so that candidates are compared
without a pass over the samples, by the held-out log-likelihood per pair of answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from pmflib.arrays import FloatArray, Parameters
from pmflib.counting.marginals import Marginals, estimate_singles
from pmflib.counting.pair_counts import PairCounts
from pmflib.errors import RankError
from pmflib.fitting.composite_likelihood import raise_likelihood, score_pairs
from pmflib.fitting.pair_methods import run_random, run_spa
from pmflib.fitting.rounds import Round, deal_rounds
from pmflib.solvers.pairs.opening import open_start
from pmflib.solvers.pairs.random_start import start_random
from pmflib.solvers.pairs.spa import fit_spa
from pmflib.solvers.pairs.symnmf import fit_symnmf
from pmflib.solvers.result import SolverResult

PSEUDO_COUNTS = (0.0, 1.0, 2.0)
"""Pseudo-counts per level and state that are compared."""

DEFAULT_PSEUDO_COUNT = 1.0
"""Pseudo-count where nothing can be held out."""

MAX_GROUPS = 4
"""Groups that folds are added up to; one is held out at a time."""

# Rounds of judging end where n_levels^2 rank, the cost of an update, passes these.
_WORK_FOR_ALL_ROUNDS = 1_000_000
_WORK_FOR_ONE_ROUND = 20_000_000
_JUDGED_ITERATIONS = 60
_ITERATIONS = 200
# n_levels^2 rank times iterations that a fit of huge tables stops at, and the least iterations even so: a minute, and
# EM goes on from there.
_WORK_OF_A_FIT = 20_000_000_000
_LEAST_ITERATIONS = 10
_TOL = 1e-5
# Iterations of a start that is not to converge: with more states than pairs can tell apart, the rest fits noise.
_PAIR_ITERATIONS = 50
_OPENING = 0.05
# Rounds of imputation of a start that symmetric NMF makes.
_STARTED = 10

Start = Callable[[Marginals, FloatArray], Parameters]


@dataclass(frozen=True)
class Choice:
    """What was chosen, and why.

    Parameters
    ----------
    method
        What ran: the start that was chosen and "opt", or "pairs".
    pseudo_count
        Mean pseudo-count per level and state.
    notes
        One sentence each.
    """

    method: str
    pseudo_count: float
    notes: tuple[str, ...]


def run_auto(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Fit by `fit_chosen`; a single state by spa, a single variable by a random start.

    Parameters
    ----------
    counts, rank, rng
        As for `pmflib.fit`.
    """
    if counts.schema.n_variables == 1 or rank == 1:
        return _fit_trivial(counts, rank, rng)
    found, choice = fit_chosen(counts, rank, rng)
    return replace(found, notes=choice.notes, method=choice.method)


def run_pairs(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Fit by `fit_pairs`; a single state by spa, a single variable by a random start.

    Parameters
    ----------
    counts, rank, rng
        As for `pmflib.fit`.
    """
    if counts.schema.n_variables == 1 or rank == 1:
        return _fit_trivial(counts, rank, rng)
    return replace(fit_pairs(counts, rank, rng), notes=())


def _fit_trivial(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Fit one variable or one state, where there is nothing to choose."""
    if counts.schema.n_variables == 1:
        lone = ("random start: a single variable has no pairs",)
        return run_random(counts, rank, rng).with_notes(lone, "random")
    return replace(run_spa(counts, rank, rng), method="spa")


def fit_chosen(
    counts: PairCounts, rank: int, rng: np.random.Generator
) -> tuple[SolverResult, Choice]:
    """Choose pseudo-counts on held-out folds and the start by the loss, and fit all counts.

    Parameters
    ----------
    counts
        Of at least two variables; a single fold leaves nothing to judge on.
    rank
        Latent states, at least 1.
    rng
        Source of the random starts; the same seed gives the same fit.

    Returns
    -------
    The composite-likelihood fit to all counts, with weights by support, and the choice behind it.

    Notes
    -----
    Starts are symmetric NMF, CNMF-SPA and shaken marginals; one that refuses the rank is left out.
    Pseudo-counts are chosen on held-out folds from the first of these starts, then the start by the
    loss. Large tables are judged on one fold; larger ones get the first start and no choice. Where the
    tables are huge, or the rank is above what pairs can tell apart, it is `fit_pairs`.
    """
    carried = count_carried(counts)
    if rank > carried:
        why = f"pairs tell at most {carried} states apart: random start, few iterations, no pseudo-count"
        return fit_pairs(counts, rank, rng), Choice("pairs", 0.0, (why,))
    if _limit_iterations(counts.schema.n_levels, rank) < _ITERATIONS:
        why = "huge tables: random start, few iterations, no pseudo-count"
        return fit_pairs(counts, rank, rng), Choice("pairs", 0.0, (why,))
    starts, notes = _list_starts(rank, int(rng.integers(2**63))), []
    marginals, singles = Marginals.from_counts(counts), estimate_singles(counts)
    begun: dict[str, Parameters] = {}
    for name, start in starts.items():
        if begun and _is_large(counts.schema.n_levels, rank):
            break
        try:
            begun[name] = start(marginals, singles)
        except RankError as error:
            notes.append(f"no {name} start: {error}")
    pseudo_count, reason = _choose_pseudo_count(starts[next(iter(begun))], counts, rank)
    fits = {
        name: _polish(marginals, singles, start, pseudo_count, _ITERATIONS)
        for name, start in begun.items()
    }
    # under one pseudo_count all starts lower one loss, so that the training counts can tell
    name = min(fits, key=lambda each: fits[each].loss_history[-1])
    losses = ", ".join(f"{each}: {fit.loss_history[-1]:.6g}" for each, fit in fits.items())
    notes += [reason, f"start {name}: least loss ({losses})"]
    return fits[name], Choice(f"{name}+opt", pseudo_count, (*notes, *fits[name].notes))


def count_carried(counts: PairCounts) -> int:
    """Largest rank of a matrix of pairwise marginals: columns of a variable sum to the same vector."""
    return counts.schema.n_levels - counts.schema.n_variables + 1


def fit_pairs(counts: PairCounts, rank: int, rng: np.random.Generator) -> SolverResult:
    """Shaken marginals, brought near the pairs by a few iterations: a start for EM, another for every seed.

    Where the rank is far above what pairs can tell apart, EM on the rows ends higher from here than from random starts,
    and higher than from a fit of the pairs that has converged.

    Parameters
    ----------
    counts
        Of at least two variables.
    rank
        Latent states, at least 1.
    rng
        Source of the noise.
    """
    marginals, singles = Marginals.from_counts(counts), estimate_singles(counts)
    begun = start_random(singles, marginals.offsets, rank=rank, rng=rng)
    limit = min(_PAIR_ITERATIONS, _limit_iterations(counts.schema.n_levels, rank))
    return _polish(marginals, singles, begun, 0.0, limit)


def group_folds(folds: tuple[int, ...], n_levels: int, rank: int) -> list[tuple[int, ...]]:
    """Deal folds to the groups that `fit_chosen` can make use of, at most `MAX_GROUPS`.

    Parameters
    ----------
    folds
        Training folds.
    n_levels, rank
        Size of the fit: one group where the tables are too large to be judged.
    """
    n_groups = 1 if _is_large(n_levels, rank) else MAX_GROUPS
    return [folds[first::n_groups] for first in range(min(n_groups, len(folds)))]


def _is_large(n_levels: int, rank: int) -> bool:
    """Whether candidates would cost too much: then the first start is all there is."""
    return n_levels**2 * rank > _WORK_FOR_ONE_ROUND


def _limit_iterations(n_levels: int, rank: int) -> int:
    within = _WORK_OF_A_FIT // (n_levels**2 * rank)
    return max(_LEAST_ITERATIONS, min(_ITERATIONS, within))


def _list_starts(rank: int, seed: int) -> dict[str, Start]:
    """Starts by name; each call begins its own stream of random numbers."""

    def symnmf(marginals: Marginals, singles: FloatArray) -> Parameters:
        found = fit_symnmf(
            marginals.pairs,
            marginals.offsets,
            marginals.observed,
            rank=rank,
            rng=np.random.default_rng(seed),
            n_starts=4,
            max_iter=_STARTED,
        )
        return found.prior, found.factors

    def spa(marginals: Marginals, singles: FloatArray) -> Parameters:
        found = fit_spa(marginals.pairs, marginals.offsets, marginals.observed, rank=rank)
        return found.prior, found.factors

    def random(marginals: Marginals, singles: FloatArray) -> Parameters:
        return start_random(singles, marginals.offsets, rank=rank, rng=np.random.default_rng(seed))

    def opened(start: Start) -> Start:
        # States that came out empty or equal part again only if something tells them apart.
        def begin(marginals: Marginals, singles: FloatArray) -> Parameters:
            prior, factors = start(marginals, singles)
            _, perturbed = random(marginals, singles)
            return open_start(
                (prior, factors), perturbed, prior_share=_OPENING, factor_share=_OPENING
            )

        return begin

    return {"symnmf": opened(symnmf), "spa": opened(spa), "random": random}


def _plan_rounds(counts: PairCounts, rank: int) -> list[Round]:
    """Rounds of judging, as many as the size of the fit allows."""
    work = counts.schema.n_levels**2 * rank
    if counts.n_folds == 1 or work > _WORK_FOR_ONE_ROUND:
        return []
    n_rounds = MAX_GROUPS if work <= _WORK_FOR_ALL_ROUNDS else 1
    return list(islice(deal_rounds(counts, MAX_GROUPS), n_rounds))


def _choose_pseudo_count(start: Start, counts: PairCounts, rank: int) -> tuple[float, str]:
    """Mean pseudo-count per level that does best on held-out folds, and a sentence on why."""
    rounds = _plan_rounds(counts, rank)
    if not rounds:
        large = _is_large(counts.schema.n_levels, rank)
        why = "large tables" if large else "one fold" if counts.n_folds == 1 else "too few pairs"
        return DEFAULT_PSEUDO_COUNT, (
            f"pseudo-count {DEFAULT_PSEUDO_COUNT:g} by default, nothing was held out: {why}"
        )
    scores = _judge(start, rounds)
    pseudo_count = max(scores, key=lambda each: scores[each])
    told = ", ".join(f"{each:g}: {score:.5f}" for each, score in scores.items())
    return pseudo_count, (
        f"pseudo-count {pseudo_count:g}: best held-out log-likelihood per pair, mean of {len(rounds)} "
        f"rounds ({told})"
    )


def _judge(start: Start, rounds: list[Round]) -> dict[float, float]:
    """Held-out log-likelihood per pair under each pseudo_count, the mean of the rounds."""
    scores = dict.fromkeys(PSEUDO_COUNTS, 0.0)
    for each in rounds:
        marginals, singles = Marginals.from_counts(each.training), estimate_singles(each.training)
        begun = start(marginals, singles)
        for pseudo_count in PSEUDO_COUNTS:
            found = _polish(marginals, singles, begun, pseudo_count, _JUDGED_ITERATIONS)
            score = score_pairs(each.held_out, (found.prior, found.factors)).sum()
            scores[pseudo_count] += float(score / each.held_out.sum()) / len(rounds)
    return scores


def _polish(
    marginals: Marginals, singles: FloatArray, begun: Parameters, pseudo_count: float, max_iter: int
) -> SolverResult:
    return raise_likelihood(marginals, singles, begun, pseudo_count, max_iter=max_iter, tol=_TOL)
