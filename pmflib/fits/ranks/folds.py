"""Fit of one rank to counts without some folds, and its score on these folds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, Parameters, spread_pairs
from pmflib.base.pseudo_counts import SolverResult
from pmflib.counts.marginals import Marginals, estimate_singles
from pmflib.fits.composite_likelihood import TrainingRound, raise_likelihood, score_pairs
from pmflib.fits.ranks.fit_runs import RankFit
from pmflib.papers.pair_matrix import open_start, start_random
from pmflib.papers.ranks import add_state, count_confirmed, merge_states
from pmflib.papers.rotation import improve_root, root_of, rotate_nonnegative
from pmflib.papers.symnmf import impute_pairs, read_parameters


@dataclass(frozen=True)
class RankFitSettings:
    """Limits of the fits for evaluating ranks, which need only be accurate enough to order ranks.

    All are choices of this library, tested on simulated models (``benchmarks/rank.py``).

    Parameters
    ----------
    tried_iterations
        Number of updates of each start before only the best continues.
    iterations
        Maximum number of updates of the best start.
    tol
        Relative decrease of the loss below which it has converged.
    root_steps, rotation_tol
        Limits of the start by symmetric NMF, which need not converge to be useful: steps toward the best root, and
        relative change at which its rotation stops.
    opened_share
        Weight of perturbed marginals mixed into that start, to separate identical states.
    """

    tried_iterations: int = 6
    iterations: int = 60
    tol: float = 5e-5
    root_steps: int = 3
    rotation_tol: float = 1e-4
    opened_share: float = 0.02


SETTINGS = RankFitSettings()


@dataclass(frozen=True, eq=False)
class RankFold:
    """Counts to fit, and counts of other samples for evaluation.

    Parameters
    ----------
    marginals
        Marginals of the training folds.
    singles
        float64 of shape (n_levels,), PMF of each variable in the training folds, positive.
    held_out
        int64 of shape (n_parts, n_levels, n_levels), upper triangles without diagonal blocks: each held-out fold with
        pairs.
    guess
        Number of directions in the training pairs that held-out pairs confirm.
    """

    marginals: Marginals
    singles: FloatArray
    held_out: IntArray
    guess: int

    @classmethod
    def of_round(cls, split: TrainingRound) -> RankFold:
        """Make a fold from a round of training and held-out counts."""
        rest = split.training
        return cls(
            Marginals.from_counts(rest), estimate_singles(rest), split.held_out, _guess_rank(split)
        )

    @property
    def n_pairs(self) -> IntArray:
        """Return the number of pairs in each held-out part: int64 of shape (n_parts,)."""
        return np.asarray(self.held_out.sum(axis=(1, 2)))


def _guess_rank(split: TrainingRound) -> int:
    """Count the directions that held-out pairs confirm, for two splits of the variables; return the maximum."""
    offsets = split.training.schema.offsets
    training, held_out = split.training.tables.sum(axis=0), split.held_out.sum(axis=0)
    variables = np.arange(offsets.size - 1)
    splits = [variables % 2 == 0, variables < variables.size // 2]
    both = training + training.T, held_out + held_out.T
    return max(count_confirmed(*both, offsets, first) for first in splits)


@dataclass(frozen=True, eq=False)
class RankJob:
    """Arguments of `fit_rank` for a fold.

    Parameters
    ----------
    rank
        Number of latent states, at least 1.
    pseudo_count
        Mean pseudo-count per level and state, at least 0.
    near
        Fits of the same training folds at this and neighbouring ranks: states are added or merged to reach this rank.
    seed
        Seed of the random starts.
    """

    rank: int
    pseudo_count: float
    near: tuple[Parameters, ...]
    seed: int


def fit_rank(work: tuple[RankFold, RankJob]) -> RankFit:
    """Fit the training folds at a rank from several starts, and score the fit with the smallest loss.

    Parameters
    ----------
    work
        Data, and settings of the fit: a single argument, for maps on Dask.

    Returns
    -------
    The fit. Starts are the given fits and, if none has the requested rank, symmetric NMF, or perturbed marginals if
    symmetric NMF does not support the rank.
    """
    fold, job = work
    rank = job.rank
    starts = [_move(fold, each, rank) for each in job.near]
    if not any(each[0].size == rank for each in job.near):
        starts.append(_start_from_symnmf(fold, rank, job.seed))
    tried = [_raise(fold, start, job.pseudo_count, SETTINGS.tried_iterations) for start in starts]
    best = min(tried, key=lambda each: each.loss_history[-1])
    found = _raise(fold, (best.prior, best.factors), job.pseudo_count, SETTINGS.iterations)
    parameters = found.prior, found.factors
    # an iteration has three updates, and each fit begins with one
    n_steps = sum(3 * each.n_iter + 1 for each in (*tried, found))
    scores = score_pairs(fold.held_out, parameters)
    return RankFit(parameters, found.loss_history[-1], scores, n_steps)


def _start_from_symnmf(fold: RankFold, rank: int, seed: int) -> Parameters:
    """Start from symmetric NMF mixed with perturbed marginals, or from these alone if the rank is not supported."""
    rng = np.random.default_rng([seed, rank])
    marginals, offsets = fold.marginals, fold.marginals.offsets
    uniform, perturbed = start_random(fold.singles, offsets, rank=rank, rng=rng)
    if not 1 < rank <= offsets[-1]:
        return uniform, perturbed
    filled = impute_pairs(marginals.pairs, offsets, marginals.observed, rank=rank)
    known = spread_pairs(marginals.observed, offsets)
    root = root_of(filled, rank)
    for _ in range(SETTINGS.root_steps):
        root = improve_root(np.where(known, filled, root @ root.T), root)
    rotated, _ = rotate_nonnegative(root, tol=SETTINGS.rotation_tol)
    found = read_parameters(rotated, offsets, fold.singles)
    share = SETTINGS.opened_share
    return open_start(found, perturbed, prior_share=share, factor_share=share)


def _move(fold: RankFold, parameters: Parameters, rank: int) -> Parameters:
    """Add or merge states to reach the requested rank."""
    marginals = fold.marginals
    while parameters[0].size > rank:
        parameters = merge_states(parameters)
    while parameters[0].size < rank:
        weights = spread_pairs(
            np.where(marginals.observed, marginals.support, 0), marginals.offsets
        )
        parameters = add_state(
            parameters, marginals.pairs, weights, marginals.offsets, fold.singles
        )
    return parameters


def _raise(fold: RankFold, start: Parameters, pseudo_count: float, max_iter: int) -> SolverResult:
    return raise_likelihood(
        fold.marginals, fold.singles, start, pseudo_count, max_iter=max_iter, tol=SETTINGS.tol
    )
