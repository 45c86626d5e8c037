"""Coupled tensor decomposition of the marginals of triples, in KL divergence and by least squares.

The model of a triple is sum_f prior[f] A_j[:, f] o A_k[:, f] o A_l[:, f]. In least squares, with all other blocks
fixed, one block is a quadratic problem over simplices. It is solved by ADMM (alternating direction method of
multipliers), warm-started from sweep to sweep.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from pmflib.base.arrays import (
    FLOOR,
    BoolArray,
    FloatArray,
    IntArray,
    Parameters,
    normalise_blocks,
    repeat_blocks,
)
from pmflib.base.constraints import check_shapes
from pmflib.base.errors import SchemaError
from pmflib.base.pseudo_counts import SolverResult, check_limits, check_nonnegative, check_start
from pmflib.papers.least_squares import project_simplex, solve_simplex_least_squares
from pmflib.papers.squarem import descend


@dataclass(frozen=True)
class AdmmSettings:
    """Settings of ADMM in `fit_ctd`."""

    steps: int = 5
    """Maximum number of steps per block and sweep. Measured on 8 variables with 4 levels: 1 step needs half as many
    sweeps again, and 10 take longer than 5 for the same loss.
    """
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
    """Fit the prior and factors to the marginals of triples by least squares.

    Parameters
    ----------
    triples
        float64 of shape (n_levels, n_levels, n_levels): block (j, k, l), j < k < l, contains the joint PMF of the three
        variables if observed; all other entries are 0.
    offsets
        int64 of shape (n_variables + 1,); variable j owns levels ``offsets[j]:offsets[j + 1]``.
    observed
        bool of shape (n_variables, n_variables, n_variables), True for observed triples j < k < l.
    singles
        float64 of shape (n_levels,), PMF of each variable: used in every state for a variable without an observed
        triple.
    initial
        Starting values: prior (rank,) and factors (n_levels, rank), each a PMF.
    max_iter
        Maximum number of sweeps over all blocks, at least 0.
    tol
        Stop when the relative decrease of the loss in a sweep is at most this.
    settings
        Settings of the method.

    Returns
    -------
    The fit. ``loss_history`` starts with the loss of the start (with the best prior for its factors) and never
    increases: half the mean over the observed triples of the squared distance between triple and model.

    Raises
    ------
    SchemaError, PmfError
        If arrays are inconsistent or a number is out of range.

    Notes
    -----
    A sweep takes 2 n_levels^3 rank multiply-adds; memory is one more cube of levels. Unlike in the released code,
    unobserved triples are left out instead of counting as zeros, and projections are exact.

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
        # exact up to rounding, which must not appear as an increase
        history.append(min(loss, history[-1]))
        converged = history[-2] - history[-1] <= tol * history[-2]
    return SolverResult(prior, factors, tuple(history), len(history) - 1, converged, notes)


def check_triples(
    triples: FloatArray, offsets: IntArray, observed: BoolArray, singles: FloatArray
) -> None:
    """Check the shapes and signs of arrays as described in `fit_ctd`.

    Raises
    ------
    SchemaError
        If a shape does not match ``offsets``, or ``observed`` contains a triple that is not j < k < l.
    PmfError
        If an entry is negative or not finite.
    """
    n_levels, n_variables = int(offsets[-1]), offsets.size - 1
    check_shapes("", observed=(observed, (n_variables,) * 3))
    j, k, l_ = np.nonzero(observed)
    if ((j >= k) | (k >= l_)).any():
        raise SchemaError(
            "observed contains a triple (j, k, l) that is not j < k < l; sort the indices of each triple"
        )
    check_nonnegative("triples", triples, (n_levels,) * 3)
    check_nonnegative("singles", singles, (n_levels,))


def describe_lone(lone: BoolArray, offsets: IntArray) -> tuple[str, ...]:
    """Describe how many variables have no observed triple."""
    if not lone.any():
        return ()
    n_lone = int(lone[offsets[:-1]].sum())
    return (f"single marginals for {n_lone} variables without an observed triple",)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Triples in every order of their variables: arrays of shape (n_levels,) * 3 and (n_variables,) * 3."""

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
    """Compute A_j' A_j for every variable: (n_variables, rank, rank)."""
    blocks = np.split(factors, problem.offsets[1:-1])
    return np.stack([block.T @ block for block in blocks])


def _contract(problem: _Problem, prior: FloatArray, factors: FloatArray, j: int) -> FloatArray:
    """Contract the triples of variable j with the factors of all pairs of others and the prior: (levels of j, rank)."""
    first, last = problem.offsets[j], problem.offsets[j + 1]
    n_levels, rank = factors.shape
    once = problem.table[first:last].reshape(-1, n_levels) @ factors
    twice: FloatArray = np.einsum("abf,bf->af", once.reshape(last - first, n_levels, rank), factors)
    return twice * prior / 2


def _weigh(problem: _Problem, grams: FloatArray, j: int) -> FloatArray:
    """Sum the products of Gram matrices over the observed pairs of partners of j: (rank, rank)."""
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
    """Decrease the loss in the factor of one variable; updates it and its dual in place."""
    if not problem.weights[j].any():
        return
    rows = slice(int(problem.offsets[j]), int(problem.offsets[j + 1]))
    gram = _weigh(problem, _grams(problem, factors), j) * np.outer(prior, prior)
    pull = _contract(problem, prior, factors, j)
    found, dual = solve_on_simplices(gram, pull, factors[rows], duals[rows], settings)

    def loss(factor: FloatArray) -> float:
        return float(np.vdot(factor @ gram, factor)) / 2 - float(np.vdot(pull, factor))

    # ADMM does not decrease the loss at every step: stopped at its limit, it need not be better
    if loss(found) <= loss(factors[rows]):
        factors[rows], duals[rows] = found, dual


def solve_on_simplices(
    gram: FloatArray,
    pull: FloatArray,
    factor: FloatArray,
    dual: FloatArray,
    settings: AdmmSettings,
) -> tuple[FloatArray, FloatArray]:
    """Minimise tr(B G B')/2 - tr(P'B) over B whose columns are PMFs; return B and its scaled dual."""
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
    """Return the Gram matrix and cross products of the least-squares problem for the prior."""
    grams = _grams(problem, factors)
    gram, cross = np.zeros((prior.size,) * 2), np.zeros(prior.size)
    for j, block in enumerate(np.split(factors, problem.offsets[1:-1])):
        # every triple appears once for each of its variables
        gram += _weigh(problem, grams, j) * grams[j] / 3
        cross += (
            np.einsum("af,af->f", _contract(problem, np.ones_like(prior), factors, j), block) / 3
        )
    return gram, cross


def _renew_prior(
    problem: _Problem, prior: FloatArray, factors: FloatArray
) -> tuple[FloatArray, float]:
    """Return the best prior for the factors, and its loss."""
    gram, cross = _pose_prior(problem, prior, factors)

    def fall(weights: FloatArray) -> float:
        return float(weights @ gram @ weights) / 2 - float(cross @ weights)

    prior = min(prior, solve_simplex_least_squares(gram, cross), key=fall)
    return prior, max(problem.square / 2 + fall(prior), 0.0) / problem.n_triples


def fit_ctd_kl(
    triples: FloatArray,
    offsets: IntArray,
    observed: BoolArray,
    singles: FloatArray,
    *,
    initial: Parameters,
    weights: FloatArray | IntArray | None = None,
    max_iter: int = 500,
    tol: float = 1e-6,
) -> SolverResult:
    """Fit the prior and factors to the marginals of triples in KL divergence.

    Parameters
    ----------
    triples, offsets, observed, singles, initial
        As for `fit_ctd`. Cells with probability 0 under the start keep probability 0.
    weights
        Weights of the triples, of the shape of ``observed``, >= 0. The supports give the composite likelihood; None
        weights all observed triples equally.
    max_iter
        Maximum number of iterations, at least 0; an iteration consists of three updates, one of them extrapolated.
    tol
        Stop when the relative decrease of the loss in an iteration is at most this.

    Returns
    -------
    The fit. ``loss_history`` starts with the loss of the start and never increases: the weighted mean over the observed
    triples of KL(triple || model), nats.

    Raises
    ------
    SchemaError, PmfError
        If arrays are inconsistent or a number is out of range.

    Notes
    -----
    An update takes n_levels^3 rank / 2 multiply-adds; memory is one more cube of levels.

    References
    ----------
    Kargas, Sidiropoulos and Fu (2018), IEEE Transactions on Signal Processing 66, the KL variant; Yeredor and Haardt
    (2019), IEEE Signal Processing Letters 26, minimise the same loss by alternating directions.
    """
    check_limits(max_iter, tol)
    check_triples(triples, offsets, observed, singles)
    check_start(initial, int(offsets[-1]))
    weighed = observed.astype(np.float64)
    if weights is not None:
        check_nonnegative("weights", weights, observed.shape)
        weighed *= weights
    problem = _pose_kl(triples, offsets, weighed)
    lone = repeat_blocks(~_take_part(weighed), offsets)
    start = initial[0].copy(), np.where(lone[:, None], singles[:, None], initial[1])
    notes = describe_lone(lone, offsets)
    if not problem.total:
        return SolverResult(*start, (0.0,), 0, True, (*notes, "no triple was observed"))
    found = descend(
        lambda parameters: _update(problem, parameters), start, offsets, max_iter=max_iter, tol=tol
    )
    return replace(found, notes=notes)


@dataclass(frozen=True, eq=False)
class _Pair:
    """Triples of two variables with each later one: a row per pair of levels, a column per later level."""

    first: slice
    second: slice
    rest: int
    table: FloatArray


@dataclass(frozen=True, eq=False)
class _KLProblem:
    pairs: tuple[_Pair, ...]
    offsets: IntArray
    total: float
    entropy: float


def _take_part(weights: FloatArray) -> BoolArray:
    """Return whether each variable is part of a weighted triple, bool of shape (n_variables,)."""
    parts = [weights.any(axis=others) for others in ((1, 2), (0, 2), (0, 1))]
    part: BoolArray = np.any(parts, axis=0)
    return part


def _pose_kl(triples: FloatArray, offsets: IntArray, weights: FloatArray) -> _KLProblem:
    edges, sizes = offsets.tolist(), np.diff(offsets)
    pairs, entropy = [], 0.0
    for j, k in np.argwhere(weights.any(axis=2)).tolist():
        first, second = slice(edges[j], edges[j + 1]), slice(edges[k], edges[k + 1])
        rest = edges[k + 1]
        scale = np.repeat(weights[j, k, k + 1 :], sizes[k + 1 :])
        table = triples[first, second, rest:].reshape(-1, edges[-1] - rest)
        positive = table[table > 0]
        shares = np.broadcast_to(scale, table.shape)[table > 0]
        entropy += float(shares @ (positive * np.log(positive)))
        pairs.append(_Pair(first, second, rest, table * scale))
    return _KLProblem(tuple(pairs), offsets, float(weights.sum()), entropy)


def _update(problem: _KLProblem, parameters: Parameters) -> tuple[float, Parameters]:
    """Return the loss of the parameters and their closed-form update."""
    prior, factors = parameters
    pull = np.zeros_like(factors)
    likelihood = 0.0
    for pair in problem.pairs:
        first, second, rest = factors[pair.first], factors[pair.second], factors[pair.rest :]
        scaled = first * prior
        spread = (scaled[:, None] * second).reshape(-1, prior.size)
        model = np.maximum(spread @ rest.T, FLOOR)
        likelihood += float(np.vdot(pair.table, np.log(model)))
        ratio = np.divide(pair.table, model, out=model)
        pull[pair.rest :] += ratio.T @ spread
        inner = (ratio @ rest).reshape(len(first), len(second), prior.size)
        pull[pair.first] += prior * np.einsum("abf,bf->af", inner, second)
        pull[pair.second] += np.einsum("abf,af->bf", inner, scaled)
    mass = factors * pull
    # each triple appears once for each of its variables, with the same mass
    states = mass.sum(axis=0)
    loss = (problem.entropy - likelihood) / problem.total
    # a state without mass keeps its column, so that every column remains a PMF
    return loss, (states / states.sum(), normalise_blocks(mass, problem.offsets, factors))
