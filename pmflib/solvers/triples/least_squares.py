"""Coupled tensor decomposition: least squares on all triples, block by block, by AO-ADMM.

The model of a triple is sum_f prior[f] A_j[:, f] o A_k[:, f] o A_l[:, f]. With all other blocks held, one block is a
quadratic problem over simplices; the alternating direction method of multipliers solves it, warm from sweep to sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray, Parameters
from pmflib.errors import SchemaError
from pmflib.level_blocks import repeat_blocks
from pmflib.solvers.checks import check_limits, check_nonnegative, check_start
from pmflib.solvers.numeric.simplex import project_simplex, solve_simplex_least_squares
from pmflib.solvers.result import SolverResult


@dataclass(frozen=True)
class AdmmSettings:
    """Numbers that the alternating direction method of multipliers of `fit_ctd` works with."""

    steps: int = 5
    """Limit of steps on one block, which start from those of the sweep before. Measured on 8 variables of 4 levels: 1
    takes half as many sweeps again, and 10 take longer than 5 for the same loss."""
    tol: float = 1e-5
    """Chosen: relative change of a block, and distance from its projection, below which the steps end."""


_DEFAULT = AdmmSettings()


def fit_ctd(
    triples: FloatArray,
    offsets: IntArray,
    observed: BoolArray,
    singles: FloatArray,
    *,
    initial: Parameters,
    max_iter: int = 500,
    tol: float = 1e-6,
    settings: AdmmSettings = _DEFAULT,
) -> SolverResult:
    """Fit prior and factors to the marginals of triples by least squares.

    Parameters
    ----------
    triples
        float64 of shape (n_levels, n_levels, n_levels): block (j, k, l), j < k < l, holds the joint PMF of the three
        variables where observed; all else is 0.
    offsets
        int64 of shape (n_variables + 1,); variable j owns levels ``offsets[j]:offsets[j + 1]``.
    observed
        bool of shape (n_variables, n_variables, n_variables), True for observed triples j < k < l.
    singles
        float64 of shape (n_levels,), PMF of each variable: what a variable without a triple gets in every state.
    initial
        Prior (rank,) and factors (n_levels, rank) to start from, each a PMF.
    max_iter
        Limit of sweeps over all blocks, at least 0.
    tol
        Stop when a sweep lowers the loss by at most this share of it.
    settings
        Numbers that the method works with.

    Returns
    -------
    The fit. ``loss_history`` starts with the loss of the start, its prior made the best one, and never rises: half the
    mean over the observed triples of the squared distance between triple and model.

    Raises
    ------
    SchemaError, PmfError
        If the arrays do not fit each other or a number is out of range.

    Notes
    -----
    A sweep takes 2 n_levels^3 rank multiply-adds; memory is one more cube of levels. Unlike the released code,
    triples never observed are left out instead of standing as zeros, and projections are exact.

    References
    ----------
    Kargas, Sidiropoulos and Fu (2018), IEEE Transactions on Signal Processing 66; for AO-ADMM Huang, Sidiropoulos and
    Liavas (2016), same journal 64.
    """
    check_limits(max_iter, tol)
    check_triples(triples, offsets, observed, singles)
    check_start(initial, int(offsets[-1]))
    problem = _pose(triples, offsets, observed)
    lone = repeat_blocks(np.asarray(~problem.weights.any(axis=(1, 2))), offsets)
    prior, factors = initial[0].copy(), np.where(lone[:, None], singles[:, None], initial[1])
    notes = describe_lone(lone, offsets)
    if not problem.n_triples:
        return SolverResult(prior, factors, (0.0,), 0, True, (*notes, "no triple was observed"))
    duals = np.zeros_like(factors)
    prior, loss = _renew_prior(problem, prior, factors)
    history = [loss]
    converged = False
    while not converged and len(history) <= max_iter:
        for j in range(offsets.size - 1):
            _renew_factor(problem, prior, factors, duals, j, settings)
        prior, loss = _renew_prior(problem, prior, factors)
        # exact up to rounding, which must not appear as a rise
        history.append(min(loss, history[-1]))
        converged = history[-2] - history[-1] <= tol * history[-2]
    return SolverResult(prior, factors, tuple(history), len(history) - 1, converged, notes)


def check_triples(
    triples: FloatArray, offsets: IntArray, observed: BoolArray, singles: FloatArray
) -> None:
    """Refuse arrays, as `fit_ctd` describes them, whose shapes or signs do not fit.

    Raises
    ------
    SchemaError
        If a shape does not follow from ``offsets``, or ``observed`` holds a triple that is not j < k < l.
    PmfError
        If an entry is negative or not finite.
    """
    n_levels, n_variables = int(offsets[-1]), offsets.size - 1
    if observed.shape != (n_variables,) * 3:
        raise SchemaError(f"observed has shape {observed.shape}, not {(n_variables,) * 3}")
    j, k, l_ = np.nonzero(observed)
    if ((j >= k) | (k >= l_)).any():
        raise SchemaError("observed holds a triple (j, k, l) that is not j < k < l; sort each")
    check_nonnegative("triples", triples, (n_levels,) * 3)
    check_nonnegative("singles", singles, (n_levels,))


def describe_lone(lone: BoolArray, offsets: IntArray) -> tuple[str, ...]:
    """Say how many variables have no observed triple."""
    if not lone.any():
        return ()
    n_lone = int(lone[offsets[:-1]].sum())
    return (f"single marginals for {n_lone} variables without an observed triple",)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Triples in every order of their variables: of shape (n_levels,) * 3 and (n_variables,) * 3."""

    table: FloatArray
    weights: FloatArray
    offsets: IntArray
    n_triples: int
    square: float


def _pose(triples: FloatArray, offsets: IntArray, observed: BoolArray) -> _Problem:
    kept = observed
    for axis in range(3):
        kept = repeat_blocks(kept, offsets, axis)
    upper = np.where(kept, triples, 0.0)
    table, weights = np.zeros_like(upper), np.zeros(observed.shape)
    for order in permutations(range(3)):
        table += upper.transpose(order)
        weights += observed.transpose(order)
    square = float(np.vdot(upper, upper))
    return _Problem(table, weights, offsets, int(observed.sum()), square)


def _grams(problem: _Problem, factors: FloatArray) -> FloatArray:
    """A_j' A_j of every variable: (n_variables, rank, rank)."""
    blocks = np.split(factors, problem.offsets[1:-1])
    return np.stack([block.T @ block for block in blocks])


def _contract(problem: _Problem, prior: FloatArray, factors: FloatArray, j: int) -> FloatArray:
    """Table of variable j times the factors of all pairs of others, and the prior: (levels of j, rank)."""
    first, last = problem.offsets[j], problem.offsets[j + 1]
    n_levels, rank = factors.shape
    once = problem.table[first:last].reshape(-1, n_levels) @ factors
    twice: FloatArray = np.einsum("abf,bf->af", once.reshape(last - first, n_levels, rank), factors)
    return twice * prior / 2


def _weigh(problem: _Problem, grams: FloatArray, j: int) -> FloatArray:
    """Sum over the observed pairs of partners of j of their Gram matrices' products: (rank, rank)."""
    summed: FloatArray = np.einsum(
        "kl,kfg,lfg->fg", problem.weights[j], grams, grams, optimize=True
    )
    return summed / 2


def _renew_factor(
    problem: _Problem,
    prior: FloatArray,
    factors: FloatArray,
    duals: FloatArray,
    j: int,
    settings: AdmmSettings,
) -> None:
    """Lower the loss in the factor of one variable, in place of it and its dual."""
    if not problem.weights[j].any():
        return
    rows = slice(int(problem.offsets[j]), int(problem.offsets[j + 1]))
    gram = _weigh(problem, _grams(problem, factors), j) * np.outer(prior, prior)
    pull = _contract(problem, prior, factors, j)
    found, dual = _solve_on_simplices(gram, pull, factors[rows], duals[rows], settings)

    def loss(factor: FloatArray) -> float:
        return float(np.vdot(factor @ gram, factor)) / 2 - float(np.vdot(pull, factor))

    # ADMM does not fall at every step: what it found short of its limit need not be better
    if loss(found) <= loss(factors[rows]):
        factors[rows], duals[rows] = found, dual


def _solve_on_simplices(
    gram: FloatArray,
    pull: FloatArray,
    factor: FloatArray,
    dual: FloatArray,
    settings: AdmmSettings,
) -> tuple[FloatArray, FloatArray]:
    """Minimise tr(B G B')/2 - tr(P'B) over B with PMFs as columns; return B and its scaled dual."""
    rho = float(np.trace(gram)) / gram.shape[0]
    if rho <= 0:
        return factor, dual
    solver = np.linalg.inv(gram + rho * np.eye(gram.shape[0]))
    for _ in range(settings.steps):
        free = (pull + rho * (factor + dual)) @ solver
        moved = project_simplex(free - dual)
        gap, step = moved - free, moved - factor
        dual = dual + gap
        factor = moved
        least = settings.tol**2 * float(np.vdot(moved, moved))
        if np.vdot(gap, gap) < least and np.vdot(step, step) < least:
            break
    return factor, dual


def _pose_prior(
    problem: _Problem, prior: FloatArray, factors: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return Gram matrix and cross products of the least squares problem of the prior."""
    grams = _grams(problem, factors)
    gram, cross = np.zeros((prior.size,) * 2), np.zeros(prior.size)
    for j, block in enumerate(np.split(factors, problem.offsets[1:-1])):
        # every triple comes once for each of its variables
        gram += _weigh(problem, grams, j) * grams[j] / 3
        cross += (
            np.einsum("af,af->f", _contract(problem, np.ones_like(prior), factors, j), block) / 3
        )
    return gram, cross


def _renew_prior(
    problem: _Problem, prior: FloatArray, factors: FloatArray
) -> tuple[FloatArray, float]:
    """Return the best prior for the factors, and the loss there."""
    gram, cross = _pose_prior(problem, prior, factors)

    def fall(weights: FloatArray) -> float:
        return float(weights @ gram @ weights) / 2 - float(cross @ weights)

    prior = min(prior, solve_simplex_least_squares(gram, cross), key=fall)
    return prior, max(problem.square / 2 + fall(prior), 0.0) / problem.n_triples
