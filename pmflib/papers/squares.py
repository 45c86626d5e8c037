"""Coupled factorisation of pairwise marginals by least squares: the Euclidean distance of equation (5)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pmflib.base.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Parameters,
    spread_pairs,
)
from pmflib.base.pseudo_counts import SolverResult, check_limits, check_nonnegative, check_start
from pmflib.papers.least_squares import solve_simplex_least_squares
from pmflib.papers.pair_matrix import check_pairs, find_isolated, read_singles
from pmflib.papers.triples import AdmmSettings, solve_on_simplices

_ADMM = AdmmSettings()


def fit_pair_squares(
    marginals: FloatArray,
    offsets: IntArray,
    observed: BoolArray,
    *,
    initial: Parameters,
    weights: FloatArray | IntArray | None = None,
    max_iter: int = 500,
    tol: float = 1e-6,
) -> SolverResult:
    """Fit the prior and factors to pairwise marginals by least squares.

    Parameters
    ----------
    marginals, offsets, observed, initial, weights
        As for `pmflib.papers.opt.fit_composite`.
    max_iter
        Maximum number of sweeps over all factors and the prior, at least 0.
    tol
        Stop when the relative decrease of the loss in a sweep is at most this.

    Returns
    -------
    The fit. ``loss_history`` starts with the loss of the start and never increases: the weighted mean over the observed
    pairs of the squared Frobenius distance between marginal and model, halved.

    Raises
    ------
    SchemaError, PmfError
        If arrays are inconsistent or a number is out of range.

    Notes
    -----
    A sweep takes 2 n_levels^2 rank multiply-adds. Variables without an observed pair get their single marginal.

    References
    ----------
    Ibrahim and Fu (2021), IEEE Transactions on Signal Processing 69, equation (5) with the Euclidean distance, which
    Kargas, Sidiropoulos and Fu (2018), same journal 66, also use for pairs.
    """
    check_limits(max_iter, tol)
    check_pairs(marginals, offsets, observed)
    check_start(initial, int(offsets[-1]))
    of_pairs = observed.astype(np.float64)
    if weights is not None:
        check_nonnegative("weights", weights, observed.shape)
        of_pairs *= weights
    table = marginals * spread_pairs(of_pairs, offsets)
    lone = find_isolated(of_pairs > 0, offsets)
    singles = read_singles(marginals, offsets)
    prior, factors = initial[0].copy(), np.where(lone[:, None], singles[:, None], initial[1])
    total = float(of_pairs.sum())
    if not total:
        return SolverResult(prior, factors, (0.0,), 0, True, ("no pair was observed",))
    square = float(np.vdot(table, marginals))
    rows = [slice(int(a), int(b)) for a, b in pairwise(offsets)]
    duals = np.zeros_like(factors)

    def pose_prior() -> tuple[FloatArray, FloatArray]:
        blocks = np.stack([factors[each].T @ factors[each] for each in rows])
        gram = np.einsum("jk,jfg,kfg->fg", of_pairs, blocks, blocks, optimize=True)
        return gram, np.einsum("af,af->f", table @ factors, factors)

    def measure() -> float:
        gram, cross = pose_prior()
        return max(float(square + prior @ gram @ prior - 2 * cross @ prior), 0.0) / (2 * total)

    history = [measure()]
    converged = False
    while not converged and len(history) <= max_iter:
        blocks = np.stack([factors[each].T @ factors[each] for each in rows])
        for j, mine in enumerate(rows):
            gram = np.tensordot(of_pairs[j], blocks, 1) * np.outer(prior, prior)
            pull: FloatArray = (table[mine] @ factors) * prior
            found, dual = solve_on_simplices(gram, pull, factors[mine], duals[mine], _ADMM)
            # ADMM does not decrease the loss at every step: stopped at its limit, it need not be better
            before, after = (
                np.vdot(each @ gram, each) / 2 - np.vdot(pull, each)
                for each in (factors[mine], found)
            )
            if of_pairs[j].any() and after <= before:
                factors[mine], duals[mine], blocks[j] = found, dual, found.T @ found
        gram, cross = pose_prior()
        best = solve_simplex_least_squares(gram, cross)
        prior = min(prior, best, key=lambda each: float(each @ gram @ each / 2 - cross @ each))
        # exact up to rounding, which must not appear as an increase
        history.append(min(measure(), history[-1]))
        converged = history[-2] - history[-1] <= tol * history[-2]
    return SolverResult(prior, factors, tuple(history), len(history) - 1, converged)
