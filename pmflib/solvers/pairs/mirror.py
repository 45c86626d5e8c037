"""CNMF-OPT as published: block mirror descent in KL divergence, every pair weighed alike.

Kept for the reproduction of published results; `fit_composite` lowers the same loss far faster.
Factors are updated in turn by exponentiated gradient steps with Armijo's rule, then the prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray, Parameters
from pmflib.solvers.pairs.checks import (
    FLOOR,
    check_limits,
    check_pairs,
    check_start,
    normalise_blocks,
    read_singles,
    spread_pairs,
)
from pmflib.solvers.result import SolverResult

# Constants of the released code.
_CLIP = 1e-6
_MODEL_FLOOR = 1e-6
_STEP, _STEP_FACTOR, _STEP_LEAST = 0.1, 0.3, 1e-5
_DECREASE = 1e-4
_INNER_TOL = 1e-6

Loss = Callable[[FloatArray], float]


def fit_mirror(
    marginals: FloatArray,
    offsets: IntArray,
    observed: BoolArray,
    *,
    initial: Parameters,
    max_iter: int = 200,
    tol: float = 1e-6,
    factor_steps: int = 200,
    prior_steps: int = 50,
) -> SolverResult:
    """Fit prior and factors to pairwise marginals by the published algorithm.

    Parameters
    ----------
    marginals, offsets, observed
        As for `fit_composite`.
    initial
        Prior (rank,) and factors (n_levels, rank); factors below 1e-6 are raised to it. Published
        results start from `fit_spa` with a uniform prior.
    max_iter
        Sweeps over all factors and the prior, at least 0.
    tol
        Stop when a sweep lowers the loss by less than this share of it.
    factor_steps, prior_steps
        Limits of descent steps on one factor and on the prior, per sweep.

    Returns
    -------
    The fit. ``loss_history`` starts with the loss of the start and never rises: the mean divergence
    over the observed pairs, nats, of the model whose cells are floored at 1e-6 and scaled to sum 1
    again in each pair.

    Raises
    ------
    SchemaError, PmfError
        If the arrays do not fit each other or a number is out of range.

    Notes
    -----
    Two departures from the released code. Its step rule for the prior divides the loss by the
    number of pairs and not the gradient; here neither is divided. And its floor is 1e-7 for the
    prior, which makes the loss jump between blocks; here it is 1e-6 throughout.

    References
    ----------
    Ibrahim and Fu (2021), IEEE Transactions on Signal Processing 69, Algorithm 1, as released.
    """
    check_limits(max_iter, tol)
    check_pairs(marginals, offsets, observed)
    check_start(initial, int(offsets[-1]))
    pairs = np.where(spread_pairs(observed, offsets), marginals, 0.0)
    n_pairs = int(observed.sum()) // 2
    singles = read_singles(marginals, offsets)[:, None]
    factors = normalise_blocks(np.maximum(initial[1], _CLIP), offsets, singles)
    lone = np.repeat(~observed.any(axis=1), np.diff(offsets))
    factors = np.where(lone[:, None], singles, factors)
    prior = np.asarray(initial[0] / initial[0].sum())
    if not n_pairs:
        return SolverResult(prior, factors, (0.0,), 0, True, ("no pair was observed",))
    held = pairs[pairs > 0]
    entropy = float(held @ np.log(held)) / 2
    rows = [_Row.cut(pairs, offsets, observed, j) for j in range(observed.shape[0])]
    history = [(entropy + _measure_prior(pairs, offsets, factors, prior)[0]) / n_pairs]
    converged = False
    while not converged and len(history) <= max_iter:
        for row in rows:
            row.descend(factors, prior, factor_steps)
        prior, loss = _descend_prior(pairs, offsets, factors, prior, prior_steps)
        history.append((entropy + loss) / n_pairs)
        converged = history[-2] - history[-1] <= tol * abs(history[-2])
    return SolverResult(prior, factors, tuple(history), len(history) - 1, converged)


@dataclass(frozen=True, eq=False)
class _Row:
    """The observed pairs of one variable, side by side."""

    table: FloatArray
    mine: slice
    partners: IntArray
    offsets: IntArray

    @classmethod
    def cut(cls, pairs: FloatArray, offsets: IntArray, observed: BoolArray, j: int) -> _Row:
        sizes = np.diff(offsets)
        partners = np.flatnonzero(np.repeat(observed[j], sizes))
        mine = slice(int(offsets[j]), int(offsets[j + 1]))
        inner = np.concatenate([[0], np.cumsum(sizes[observed[j]])])
        return cls(np.ascontiguousarray(pairs[mine][:, partners]), mine, partners, inner)

    def descend(self, factors: FloatArray, prior: FloatArray, n_steps: int) -> None:
        """Lower the loss of the variable's pairs, in place of its factor."""
        if not self.partners.size:
            return
        others = factors[self.partners] * prior

        def model(factor: FloatArray) -> tuple[FloatArray, FloatArray]:
            cells = np.maximum(factor @ others.T, _MODEL_FLOOR)
            return cells, np.add.reduceat(cells.sum(axis=0), self.offsets[:-1])

        def loss(factor: FloatArray) -> float:
            cells, sums = model(factor)
            return float(np.log(sums).sum() - np.vdot(self.table, np.log(cells)))

        def slope(factor: FloatArray) -> FloatArray:
            cells, sums = model(factor)
            ratio = self.table / cells * np.repeat(sums, np.diff(self.offsets))
            return -np.asarray(ratio @ others)

        factors[self.mine], _ = _descend(factors[self.mine], loss, slope, n_steps)


def _measure_prior(
    pairs: FloatArray, offsets: IntArray, factors: FloatArray, prior: FloatArray
) -> tuple[float, FloatArray]:
    """Loss but for the entropy, and its slope, in the prior."""
    cells = np.maximum((factors * prior) @ factors.T, _MODEL_FLOOR)
    sums = np.add.reduceat(np.add.reduceat(cells, offsets[:-1]), offsets[:-1], axis=1)
    held = np.add.reduceat(np.add.reduceat(pairs, offsets[:-1]), offsets[:-1], axis=1)
    loss = float(np.vdot(held, np.log(sums)) - np.vdot(pairs, np.log(cells))) / 2
    ratio = pairs / cells * spread_pairs(sums, offsets)
    return loss, -np.einsum("af,af->f", ratio @ factors, factors) / 2


def _descend_prior(
    pairs: FloatArray, offsets: IntArray, factors: FloatArray, prior: FloatArray, n_steps: int
) -> tuple[FloatArray, float]:
    def loss(column: FloatArray) -> float:
        return _measure_prior(pairs, offsets, factors, column[:, 0])[0]

    def slope(column: FloatArray) -> FloatArray:
        return _measure_prior(pairs, offsets, factors, column[:, 0])[1][:, None]

    column, value = _descend(prior[:, None], loss, slope, n_steps)
    return column[:, 0], value


def _descend(
    columns: FloatArray, loss: Loss, slope: Callable[[FloatArray], FloatArray], n_steps: int
) -> tuple[FloatArray, float]:
    """Exponentiated gradient steps with Armijo's rule; columns stay PMFs."""
    value = loss(columns)
    for _ in range(n_steps):
        gradient = slope(columns)
        step = _STEP
        while step >= _STEP_LEAST:
            moved = _exponentiate(columns, step * gradient)
            moved_value = loss(moved)
            fall = float(np.vdot(gradient, columns - moved))
            if moved_value <= value - _DECREASE * fall and moved_value <= value:
                break
            step *= _STEP_FACTOR
        else:
            break
        change = float(np.linalg.norm(moved - columns) / np.linalg.norm(columns))
        columns, value = moved, moved_value
        if change < _INNER_TOL:
            break
    return columns, value


def _exponentiate(columns: FloatArray, scaled_gradient: FloatArray) -> FloatArray:
    """Multiply by exp(-gradient), in logarithms so that nothing overflows; sums are 1 again."""
    logs = np.log(np.maximum(columns, FLOOR)) - scaled_gradient
    raised = np.exp(logs - logs.max(axis=0))
    return np.asarray(raised / raised.sum(axis=0))
