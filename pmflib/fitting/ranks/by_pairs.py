"""Rank selection by pairs: cross-validation over folds of counts, without a pass over the samples.

Counts of folds can be subtracted: a rank is fitted to the total minus some folds, and scored by the log-likelihood of
the pairs in these folds. Ranks are compared by the differences of their scores by fold, which vary far less than the
scores themselves; among ranks within one standard error of the best, the smallest is chosen.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

import numpy as np

from pmflib.core.arrays import check_counts
from pmflib.core.defaults import RANKS_BY_PAIRS
from pmflib.core.errors import PmfError, RankError
from pmflib.counting.groups import narrow_counts, pick_variables
from pmflib.counting.pair_counts import PairCounts
from pmflib.display.progress import find_report, reports_progress
from pmflib.fitting.composite_likelihood import hold_out_rounds
from pmflib.fitting.ranks.choice import RankChoice, report_ranks
from pmflib.fitting.ranks.fit_runs import DEFAULT_BUDGET, FitRuns, RunOptions, limit_levels
from pmflib.fitting.ranks.folds import RankFold
from pmflib.fitting.ranks.pair_search import RankSearch, make_rank_grid

N_ROUNDS = 4
"""Number of fits per rank, each with a quarter of the folds held out."""

MAX_LEVELS = 600
"""Larger tables are evaluated on the most frequently observed variables."""

VERSION = 2
"""Increased when fits change; saved fits of earlier versions are not used."""


@reports_progress
def select_rank(
    counts: PairCounts,
    *,
    ranks: Sequence[int] | None = None,
    pseudo_counts: Sequence[float] = RANKS_BY_PAIRS,
    max_rank: int | None = None,
    rng: np.random.Generator | int = 0,
    **run: Unpack[RunOptions],
) -> RankChoice:
    """Choose the number of latent states, and the pseudo-counts, by the pairs of held-out folds.

    Parameters
    ----------
    counts
        Co-occurrence counts of at least two variables in at least two folds.
    ranks
        Ranks to compare, each at least 1. None searches from the number of directions confirmed by held-out pairs, up
        and down while the score improves.
    pseudo_counts
        Mean pseudo-counts per level and state to compare, each at least 0. Ranks are compared under the first; if
        another is better at the selected rank, they are compared again.
    max_rank
        Upper limit of the search; None uses the number of states that pairs can distinguish, `Schema.max_pairs_rank`.
    rng
        Random generator, or a seed; equal seeds give equal choices.
    **run
        Fields of `pmflib.fitting.ranks.fit_runs.RunOptions`: ``client`` (Dask client; None fits in this thread, to the
        same bits), ``budget`` (600 seconds of processor time, by a model of costs), ``checkpoint`` (folder from which
        the same call continues) and ``on_progress``.

    Returns
    -------
    The choice, all ranks with their scores and errors, and the reason.

    Raises
    ------
    RankError
        If a rank is below 1.
    PmfError
        If fewer than two folds have pairs, a pseudo-count is negative, or there is nothing to compare.

    Notes
    -----
    Each rank costs four fits of the composite likelihood, in total a few thousand products of matrices
    (n_levels, n_levels) and (n_levels, rank), whatever the number of samples. Fits start from symmetric NMF, from the
    next lower rank with a state added where the pairs fit worst, and from the next higher rank with two states merged.
    Ranks close to the decision are refitted until the choice no longer changes. The best rank for samples may be
    larger, because pairs do not show dependence among three variables.

    References
    ----------
    Breiman, Friedman, Olshen and Stone (1984), section 3.4.3, for the one-standard-error rule.

    Examples
    --------
    >>> from pmflib import count_pairs
    >>> rng = np.random.default_rng(0)
    >>> side = rng.integers(2, size=(4000, 1))
    >>> codes = np.where(rng.random((4000, 5)) < 0.9, side, 1 - side)
    >>> select_rank(count_pairs(codes, [2] * 5)).rank
    2
    """
    check_counts(counts, PairCounts)
    counts = counts.to_samples()
    _check(ranks, pseudo_counts, max_rank)
    seed = int(np.random.default_rng(rng).integers(2**31))
    budget = run.get("budget", DEFAULT_BUDGET)
    notes: tuple[str, ...] = ()
    most = limit_levels(budget, MAX_LEVELS)
    if counts.schema.n_levels > most:
        kept = pick_variables(counts.schema, counts.count_levels(), most)
        notes = (
            f"judged on the {kept.size} of {counts.schema.n_variables} variables that are observed most",
        )
        counts = narrow_counts(counts, kept)
    folds = [RankFold.of_round(split) for split in hold_out_rounds(counts, N_ROUNDS)]
    if len(folds) < 2:
        raise PmfError(
            f"counts has {counts.n_folds} folds and pairs to fit and to hold out in "
            f"{len(folds)} rounds of them; a choice takes 2: count with n_folds=16, or give a rank"
        )
    schema = counts.schema
    limit = max_rank or schema.max_pairs_rank
    grid = make_rank_grid(limit) if ranks is None else sorted(set(ranks))
    choice = ""
    if run.get("checkpoint") is not None:
        choice = _digest(counts, [VERSION, grid, ranks is None, list(pseudo_counts), seed, budget])
    if run.get("on_progress") is None and (report := find_report()) is not None:
        run["on_progress"] = partial(report_ranks, report)
    runs = FitRuns(choice, **run)
    search = RankSearch(folds, grid, float(pseudo_counts[0]), seed, runs)
    if ranks is None:
        search.start(sorted(fold.guess for fold in folds)[len(folds) // 2])
    else:
        search.fit(grid)
    rank = search.settle()
    compared, gain = search.compare_pseudo_counts(rank, [float(each) for each in pseudo_counts[1:]])
    pseudo_count = float(compared.chosen.settings["pseudo_count"])
    if gain >= search.margin:
        # a gain this large may change the order of the ranks
        search = search.restart(pseudo_count)
        rank = search.settle()
    return RankChoice(
        rank,
        pseudo_count,
        search.compare(),
        compared if len(compared.points) > 1 else None,
        (*notes, *search.notes),
    )


def _digest(counts: PairCounts, options: Sequence[Any]) -> str:
    """Compute the SHA-256 digest of what the fits of a choice depend on."""
    total = hashlib.sha256(json.dumps([counts.schema.digest, *options]).encode())
    total.update(np.ascontiguousarray(counts.tables).tobytes())
    return total.hexdigest()


def _check(
    ranks: Sequence[int] | None, pseudo_counts: Sequence[float], max_rank: int | None
) -> None:
    """Check the candidates."""
    if ranks is not None and not isinstance(ranks, Sequence | range | np.ndarray):
        raise RankError(f"ranks is {ranks!r}; give a list of ranks to compare, as range(1, 9)")
    if ranks is not None and (not ranks or min(ranks) < 1):
        raise RankError(f"ranks is {list(ranks)}; give at least one rank, each at least 1")
    if max_rank is not None and max_rank < 1:
        raise RankError(f"max_rank is {max_rank}; give at least 1")
    if not pseudo_counts or not all(0 <= each < math.inf for each in pseudo_counts):
        raise PmfError(f"pseudo_counts is {list(pseudo_counts)}; give pseudo-counts of at least 0")
