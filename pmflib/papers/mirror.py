"""CNMF-OPT as published: block mirror descent in KL divergence with equal weights for all pairs.

Included to reproduce published results; `fit_composite` minimises the same loss far faster. Factors are updated in turn
by exponentiated gradient steps with Armijo's rule, followed by the prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import (
    FLOOR,
    BoolArray,
    FloatArray,
    IntArray,
    Parameters,
    normalise_blocks,
    repeat_blocks,
    spread_pairs,
    sum_blocks,
    sum_pairs,
)
from pmflib.base.pseudo_counts import SolverResult, check_limits, check_start
from pmflib.papers.pair_matrix import check_pairs, find_isolated, read_singles


@dataclass(frozen=True)
class MirrorSettings:
    """Settings of `fit_mirror`; the defaults are those of the released code unless noted."""

    factor_steps: int = 200
    """Maximum number of descent steps per factor and sweep."""
    prior_steps: int = 50
    """Maximum number of descent steps on the prior per sweep."""
    first_step: float = 0.1
    """Initial step size of the Armijo line search."""
    step_shrinkage: float = 0.3
    """Factor by which a rejected step size is reduced."""
    least_step: float = 1e-5
    """Step size below which the descent ends."""
    decrease: float = 1e-4
    """Smallest fraction of the decrease predicted by the slope at which a step is accepted."""
    inner_tol: float = 1e-6
    """Relative change of the columns below which the descent ends."""
    factor_floor: float = 1e-6
    """Lower bound for entries of the initial factors."""
    cell_floor: float = 1e-6
    """Lower bound for cells of the model. The released code uses 1e-7 for the prior, which makes the loss jump between
    blocks.
    """


_RELEASED = MirrorSettings()

Loss = Callable[[FloatArray], float]


def fit_mirror(
    marginals: FloatArray,
    offsets: IntArray,
    observed: BoolArray,
    *,
    initial: Parameters,
    max_iter: int = 200,
    tol: float = 1e-6,
    settings: MirrorSettings = _RELEASED,
) -> SolverResult:
    """Fit the prior and factors to pairwise marginals by the published algorithm.

    Parameters
    ----------
    marginals, offsets, observed
        As for `fit_composite`.
    initial
        Prior (rank,) and factors (n_levels, rank). Published results start from `fit_spa` with a uniform prior.
    max_iter
        Maximum number of sweeps over all factors and the prior, at least 0.
    tol
        Stop when the relative decrease of the loss in a sweep is at most this.
    settings
        Settings of the method.

    Returns
    -------
    The fit. ``loss_history`` starts with the loss of the start and never increases: the mean KL divergence over the
    observed pairs, nats, from model tables whose cells are floored and rescaled to sum to 1.

    Raises
    ------
    SchemaError, PmfError
        If arrays are inconsistent or a number is out of range.

    Notes
    -----
    There are two differences from the released code. Its step rule for the prior divides the loss, but not the
    gradient, by the number of pairs; here neither is divided. It also uses two different floors for cells; see
    `MirrorSettings`.

    References
    ----------
    Ibrahim and Fu (2021), IEEE Transactions on Signal Processing 69, equation (6) and Algorithm 1, as released.
    """
    check_limits(max_iter, tol)
    check_pairs(marginals, offsets, observed)
    check_start(initial, int(offsets[-1]))
    pairs = np.where(spread_pairs(observed, offsets), marginals, 0.0)
    n_pairs = int(observed.sum()) // 2
    singles = read_singles(marginals, offsets)[:, None]
    factors = normalise_blocks(np.maximum(initial[1], settings.factor_floor), offsets, singles)
    isolated = find_isolated(observed, offsets)
    factors = np.where(isolated[:, None], singles, factors)
    prior = np.asarray(initial[0] / initial[0].sum())
    if not n_pairs:
        return SolverResult(prior, factors, (0.0,), 0, True, ("no pair was observed",))
    positive = pairs[pairs > 0]
    entropy = float(positive @ np.log(positive)) / 2
    rows = [_Row.make(pairs, offsets, observed, j, settings) for j in range(observed.shape[0])]
    floor = settings.cell_floor
    history = [(entropy + measure_prior(pairs, offsets, factors, prior, floor)[0]) / n_pairs]
    converged = False
    while not converged and len(history) <= max_iter:
        for row in rows:
            row.descend(factors, prior)
        prior, loss = _descend_prior(pairs, offsets, factors, prior, settings)
        history.append((entropy + loss) / n_pairs)
        converged = history[-2] - history[-1] <= tol * abs(history[-2])
    return SolverResult(prior, factors, tuple(history), len(history) - 1, converged)


@dataclass(frozen=True, eq=False)
class _Row:
    """Observed pairs of one variable, concatenated."""

    table: FloatArray
    mine: slice
    partners: IntArray
    offsets: IntArray
    settings: MirrorSettings

    @classmethod
    def make(
        cls,
        pairs: FloatArray,
        offsets: IntArray,
        observed: BoolArray,
        j: int,
        settings: MirrorSettings,
    ) -> _Row:
        sizes = np.diff(offsets)
        partners = np.flatnonzero(repeat_blocks(observed[j], offsets))
        mine = slice(int(offsets[j]), int(offsets[j + 1]))
        inner = np.concatenate([[0], np.cumsum(sizes[observed[j]])])
        table = np.ascontiguousarray(pairs[mine][:, partners])
        return cls(table, mine, partners, inner, settings)

    def descend(self, factors: FloatArray, prior: FloatArray) -> None:
        """Decrease the loss of the variable's pairs by updating its factor in place."""
        if not self.partners.size:
            return
        others = factors[self.partners] * prior

        def model(factor: FloatArray) -> tuple[FloatArray, FloatArray]:
            cells = np.maximum(factor @ others.T, self.settings.cell_floor)
            return cells, sum_blocks(cells.sum(axis=0), self.offsets)

        def loss(factor: FloatArray) -> float:
            cells, sums = model(factor)
            return float(np.log(sums).sum() - np.vdot(self.table, np.log(cells)))

        def slope(factor: FloatArray) -> FloatArray:
            cells, sums = model(factor)
            ratio = self.table / cells * repeat_blocks(sums, self.offsets)
            return -np.asarray(ratio @ others)

        n_steps = self.settings.factor_steps
        factors[self.mine], _ = _descend(factors[self.mine], loss, slope, n_steps, self.settings)


def measure_prior(
    pairs: FloatArray, offsets: IntArray, factors: FloatArray, prior: FloatArray, floor: float
) -> tuple[float, FloatArray]:
    """Compute the loss of a prior and its gradient.

    Parameters
    ----------
    pairs
        float64 of shape (n_levels, n_levels), symmetric: tables of observed pairs, 0 elsewhere.
    offsets
        int64 of shape (n_variables + 1,).
    factors, prior
        float64 of shapes (n_levels, rank) and (rank,).
    floor
        Lower bound for cells of the model.

    Returns
    -------
    Sum of divergences over pairs without their entropy, nats, and its gradient in the prior, (rank,). The gradient is
    valid only along the simplex.
    """
    cells = np.maximum((factors * prior) @ factors.T, floor)
    sums, masses = sum_pairs(cells, offsets), sum_pairs(pairs, offsets)
    loss = float(np.vdot(masses, np.log(sums)) - np.vdot(pairs, np.log(cells))) / 2
    ratio = pairs / cells * spread_pairs(sums, offsets)
    return loss, -np.einsum("af,af->f", ratio @ factors, factors) / 2


def _descend_prior(
    pairs: FloatArray,
    offsets: IntArray,
    factors: FloatArray,
    prior: FloatArray,
    settings: MirrorSettings,
) -> tuple[FloatArray, float]:
    """Return a prior whose loss is not higher than that of the given prior, and its loss without the entropy."""
    floor = settings.cell_floor

    def loss(column: FloatArray) -> float:
        return measure_prior(pairs, offsets, factors, column[:, 0], floor)[0]

    def slope(column: FloatArray) -> FloatArray:
        return measure_prior(pairs, offsets, factors, column[:, 0], floor)[1][:, None]

    column, value = _descend(prior[:, None], loss, slope, settings.prior_steps, settings)
    return column[:, 0], value


def _descend(
    columns: FloatArray,
    loss: Loss,
    slope: Callable[[FloatArray], FloatArray],
    n_steps: int,
    settings: MirrorSettings,
) -> tuple[FloatArray, float]:
    """Take exponentiated gradient steps with Armijo's rule; columns remain PMFs."""
    value = loss(columns)
    for _ in range(n_steps):
        gradient = slope(columns)
        step = settings.first_step
        while step >= settings.least_step:
            moved = _exponentiate(columns, step * gradient)
            moved_value = loss(moved)
            fall = float(np.vdot(gradient, columns - moved))
            if moved_value <= value - settings.decrease * fall and moved_value <= value:
                break
            step *= settings.step_shrinkage
        else:
            break
        change = float(np.linalg.norm(moved - columns) / np.linalg.norm(columns))
        columns, value = moved, moved_value
        if change < settings.inner_tol:
            break
    return columns, value


def _exponentiate(columns: FloatArray, scaled_gradient: FloatArray) -> FloatArray:
    """Multiply by exp(-gradient) in the log domain to avoid overflow, and normalise."""
    logs = np.log(np.maximum(columns, FLOOR)) - scaled_gradient
    raised = np.exp(logs - logs.max(axis=0))
    return np.asarray(raised / raised.sum(axis=0))
