"""Coupled tensor decomposition in KL divergence: the triples' composite likelihood, by closed-form updates.

As for pairs in `pmflib.solvers.pairs.composite`: each cell of a triple is a draw whose latent state is missing; its
posterior and the re-estimate from it need no step size and cannot raise the loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray, Parameters
from pmflib.level_blocks import FLOOR, normalise_blocks, repeat_blocks
from pmflib.solvers.checks import check_limits, check_nonnegative, check_start
from pmflib.solvers.numeric.accelerated_descent import descend
from pmflib.solvers.result import SolverResult
from pmflib.solvers.triples.least_squares import check_triples, describe_lone


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
    """Fit prior and factors to the marginals of triples in KL divergence.

    Parameters
    ----------
    triples, offsets, observed, singles, initial
        As for `fit_ctd`. What the start rules out stays ruled out.
    weights
        Weights of the triples, of the shape of ``observed``, >= 0. The supports give the composite likelihood; None
        weighs all observed triples alike.
    max_iter
        Limit of iterations, at least 0; an iteration is three updates, one of them extrapolated.
    tol
        Stop when an iteration lowers the loss by at most this share of it.

    Returns
    -------
    The fit. ``loss_history`` starts with the loss of the start and never rises: the weighted mean over the observed
    triples of KL(triple || model), nats.

    Raises
    ------
    SchemaError, PmfError
        If the arrays do not fit each other or a number is out of range.

    Notes
    -----
    An update takes n_levels^3 rank / 2 multiply-adds; memory is one more cube of levels.

    References
    ----------
    Kargas, Sidiropoulos and Fu (2018), IEEE Transactions on Signal Processing 66, the KL variant; Yeredor and Haardt
    (2019), IEEE Signal Processing Letters 26, whose alternating directions lower the same loss.
    """
    check_limits(max_iter, tol)
    check_triples(triples, offsets, observed, singles)
    check_start(initial, int(offsets[-1]))
    weighed = observed.astype(np.float64)
    if weights is not None:
        check_nonnegative("weights", weights, observed.shape)
        weighed *= weights
    problem = _pose(triples, offsets, weighed)
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
    """Triples of two variables and one after them: a row per pair of the two's levels, a column per later level."""

    first: slice
    second: slice
    rest: int
    table: FloatArray


@dataclass(frozen=True, eq=False)
class _Problem:
    pairs: tuple[_Pair, ...]
    offsets: IntArray
    total: float
    entropy: float


def _take_part(weights: FloatArray) -> BoolArray:
    """Whether each variable takes part in a weighted triple, bool of shape (n_variables,)."""
    parts = [weights.any(axis=others) for others in ((1, 2), (0, 2), (0, 1))]
    part: BoolArray = np.any(parts, axis=0)
    return part


def _pose(triples: FloatArray, offsets: IntArray, weights: FloatArray) -> _Problem:
    edges, sizes = offsets.tolist(), np.diff(offsets)
    pairs, entropy = [], 0.0
    for j, k in np.argwhere(weights.any(axis=2)).tolist():
        first, second = slice(edges[j], edges[j + 1]), slice(edges[k], edges[k + 1])
        rest = edges[k + 1]
        scale = np.repeat(weights[j, k, k + 1 :], sizes[k + 1 :])
        table = triples[first, second, rest:].reshape(-1, edges[-1] - rest)
        held = table[table > 0]
        shares = np.broadcast_to(scale, table.shape)[table > 0]
        entropy += float(shares @ (held * np.log(held)))
        pairs.append(_Pair(first, second, rest, table * scale))
    return _Problem(tuple(pairs), offsets, float(weights.sum()), entropy)


def _update(problem: _Problem, parameters: Parameters) -> tuple[float, Parameters]:
    """Return the loss of the parameters, and the closed-form update of them."""
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
    # each triple comes once for each of its variables, and its mass is the same for all three
    states = mass.sum(axis=0)
    loss = (problem.entropy - likelihood) / problem.total
    # a state without mass keeps its column, so that every column stays a PMF
    return loss, (states / states.sum(), normalise_blocks(mass, problem.offsets, factors))
