"""Support-union recovery: how many rows of a matrix are enough to write all of it, and its conic generators.

With M of rank K and M = M X, the group lasso on the rows of X keeps few rows; their number is the
estimate of K. Rows are updated one at a time in closed form, the rows in use also all at once, until
the duality gap is small.

The conic generators are the rows that no nonnegative combination of the other rows makes up. Where each component has a
row of its own (separability: W holds a scaled identity), all other rows lie in the cone of these, whatever the sign of
the coefficients H and their distribution. Rows are dropped one after another, the one that the remaining make up best
first; the last to go are the generators. The Gram matrix of the rows is all that is needed: it is additive over
columns.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import BoolArray, FloatArray, IntArray
from pmflib.core.errors import PmfError
from pmflib.solvers import check_limits
from pmflib.solvers.numeric.least_squares import solve_nnls

LEAST_NORM = 1e-6
"""Rows of a norm at most this large count as zero: as published."""

INNER_ROUNDS = 10
"""Rounds over the rows in use between two rounds over all rows (`benchmarks/ranks/support_union.py`: on the published
setting of 50 rows, 10 take a tenth of the time of none, and 30 hardly less)."""


@dataclass(frozen=True, eq=False)
class RowSupport:
    """A solution of the group lasso.

    Parameters
    ----------
    coefficients
        float64 of shape (n_rows, n_rows): X.
    penalty
        Weight of the norms, at least 0.
    objective
        1/2 ||M - M X||_F^2 + penalty * (sum of the norms of the rows of X).
    gap
        Duality gap: the objective is at most so far above the least possible.
    n_iter
        Rounds over all rows.
    converged
        Whether the gap met the tolerance.
    error
        ||M - M X||_F / ||M||_F.
    """

    coefficients: FloatArray
    penalty: float
    objective: float
    gap: float
    n_iter: int
    converged: bool
    error: float

    @property
    def rows(self) -> BoolArray:
        """Rows in use, bool of shape (n_rows,)."""
        return np.asarray(np.linalg.norm(self.coefficients, axis=1) > LEAST_NORM)

    @property
    def rank(self) -> int:
        """Number of rows in use."""
        return int(self.rows.sum())


def fit_row_support(
    moment: FloatArray,
    penalty: float,
    *,
    initial: FloatArray | None = None,
    max_iter: int = 1000,
    tol: float = 1e-8,
) -> RowSupport:
    """Minimise 1/2 ||M - M X||_F^2 + penalty * (sum of the norms of the rows of X).

    Parameters
    ----------
    moment
        float64 of shape (n_rows, n_rows): M, as `ColumnMoments.to_cumulant_moment` gives it.
    penalty
        Weight of the norms, at least 0.
    initial
        X to start from; None starts from zero.
    max_iter
        Limit of rounds over all rows, at least 0.
    tol
        Stop when the duality gap is at most this share of the objective, or rounding.

    Returns
    -------
    The solution.

    Raises
    ------
    PmfError
        If a shape or number is out of range, or an entry is not finite.

    Notes
    -----
    A round costs n_rows^2 multiply-adds for each row whose coefficients change. The rows in use are
    also solved for together with the norms of the last round in the penalty, which bounds it from
    above, so that the objective never rises; with a small penalty that is what converges.

    References
    ----------
    Liu, "Model selection for nonnegative matrix factorization by support union recovery", Algorithm
    1; Yuan and Lin (2006), Journal of the Royal Statistical Society B 68, for the row update.
    """
    check_limits(max_iter, tol)
    if moment.ndim != 2 or moment.shape[0] != moment.shape[1] or not np.isfinite(moment).all():
        raise PmfError(f"moment of shape {moment.shape} must be square and finite")
    if not 0 <= penalty < np.inf:
        raise PmfError(f"penalty is {penalty}; give a number of at least 0")
    if initial is not None and initial.shape != moment.shape:
        raise PmfError(f"initial has shape {initial.shape}, not {moment.shape}")
    gram = moment.T @ moment
    solution = np.zeros_like(gram) if initial is None else initial.copy()
    rounding = np.finfo(np.float64).eps * gram.shape[0] * float(np.trace(gram))
    n_iter = 0
    while True:
        objective, gap, error = _measure(gram, solution, penalty)
        converged = bool(gap <= max(tol * objective, rounding))
        if converged or n_iter >= max_iter:
            return RowSupport(solution, penalty, objective, gap, n_iter, converged, error)
        product = gram @ solution
        _sweep(gram, solution, product, penalty, np.arange(gram.shape[0]))
        used = np.flatnonzero(solution.any(axis=1))
        for _ in range(INNER_ROUNDS):
            _solve_together(gram, solution, penalty, used)
        product = gram @ solution
        _sweep(gram, solution, product, penalty, used)
        n_iter += 1


def _sweep(
    gram: FloatArray, solution: FloatArray, product: FloatArray, penalty: float, rows: IntArray
) -> None:
    """Set each row to its best value given the others; ``product`` is kept as gram @ solution."""
    for row in rows:
        own = gram[row, row]
        if own <= 0:
            solution[row] = 0.0
            continue
        pull = gram[row] - product[row] + own * solution[row]
        norm = float(np.linalg.norm(pull))
        new = pull * (max(0.0, 1 - penalty / norm) / own) if norm > 0 else np.zeros_like(pull)
        change = new - solution[row]
        if change.any():
            product += np.outer(gram[:, row], change)
            solution[row] = new


def _solve_together(gram: FloatArray, solution: FloatArray, penalty: float, used: IntArray) -> None:
    """Minimise over the rows in use with the penalty bounded by a parabola through their norms."""
    norms = np.linalg.norm(solution[used], axis=1)
    if not used.size or not norms.all():
        return
    system = gram[np.ix_(used, used)] + np.diag(penalty / norms)
    try:
        solution[used] = np.linalg.solve(system, gram[used])
    except np.linalg.LinAlgError:
        # rows that depend on each other, without a penalty: the sweeps go on alone
        return


def _measure(gram: FloatArray, solution: FloatArray, penalty: float) -> tuple[float, float, float]:
    """Return the objective, the duality gap, and the relative error."""
    product = gram @ solution
    whole = float(np.trace(gram))
    fitted = float(np.vdot(solution, gram))
    residual = max(0.0, whole - 2 * fitted + float(np.vdot(solution, product)))
    norms = np.linalg.norm(solution, axis=1)
    objective = residual / 2 + penalty * float(norms.sum())
    # the residual, scaled until it is feasible, is a point of the dual problem
    steepest = float(np.linalg.norm(gram - product, axis=1).max(initial=0.0))
    most = penalty / steepest if steepest > 0 else 1.0
    best = (whole - fitted) / residual if residual > 0 else 1.0
    scale = min(max(best, -most), most)
    dual = scale * (whole - fitted) - scale**2 * residual / 2
    error = float(np.sqrt(residual / whole)) if whole > 0 else 0.0
    return objective, max(0.0, objective - dual), error


# Costs below this share of the largest row are rounding.
_ROUNDING = 1e-10


@dataclass(frozen=True, eq=False)
class ConicOrder:
    """Rows in the order in which they are dropped.

    Parameters
    ----------
    order
        int64 of shape (n_rows,), rows.
    costs
        float64 of shape (n_rows,): mean squared distance of each row from the cone of those that are
        left when it goes.
    rank
        Estimate of the number of generators: where the costs, which never fall, rise most in ratio.
    rise
        That ratio. Near 1 there is no clear number.
    """

    order: IntArray
    costs: FloatArray
    rank: int
    rise: float

    @property
    def generators(self) -> IntArray:
        """The rows left, in the order of the matrix: int64 of shape (rank,)."""
        return np.sort(self.order[self.order.size - self.rank :])


def order_generators(gram: FloatArray) -> ConicOrder:
    """Drop rows until none is left, and estimate how many are no combination of others.

    Parameters
    ----------
    gram
        float64 of shape (n_rows, n_rows), symmetric positive semidefinite: mean of v v' over the
        columns v, as `ColumnMoments.to_gram` or `to_covariance` give it.

    Returns
    -------
    The order and the estimate, 0 where all rows are zero.

    Raises
    ------
    PmfError
        If the matrix is not square, or holds an entry that is not finite or a negative on its
        diagonal.

    Notes
    -----
    A row's cost never falls as others go, and stays while none of those it is made up from goes:
    few nonnegative least squares are solved again after a row is dropped. The last row to go costs
    its own square. Of equal rows all but one go at once.

    References
    ----------
    Arora, Ge, Kannan and Moitra (2012), Computing a nonnegative matrix factorization - provably, for
    separability and the test of a row against the others.
    """
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
        raise PmfError(f"gram has shape {gram.shape}; give (n_rows, n_rows)")
    diagonal = np.diagonal(gram).copy()
    if not np.isfinite(gram).all() or (diagonal < 0).any():
        raise PmfError("gram must be finite, and nonnegative on its diagonal")
    rounding = _ROUNDING * float(diagonal.max(initial=0.0))
    left = np.ones(diagonal.size, np.bool_)
    used: dict[int, set[int]] = {}
    queue: list[tuple[float, int]] = []
    costs_so_far = np.zeros(diagonal.size)

    def visit(row: int) -> None:
        left[row] = False
        others = np.flatnonzero(left)
        left[row] = True
        cross = gram[others, row]
        weights = solve_nnls(gram[np.ix_(others, others)], cross[:, None])[:, 0]
        used[row] = set(others[weights > 0].tolist())
        # the same cost up to rounding must not reorder rows
        costs_so_far[row] = max(costs_so_far[row], rounding, float(diagonal[row] - cross @ weights))
        heapq.heappush(queue, (costs_so_far[row], row))

    for row in range(diagonal.size):
        visit(row)
    order: list[int] = []
    costs: list[float] = []
    while queue:
        cost, row = heapq.heappop(queue)
        if any(not left[other] for other in used[row]):
            visit(row)
            continue
        left[row] = False
        order.append(row)
        costs.append(max(cost, costs[-1]) if costs else cost)
    return _read_rise(np.array(order, np.int64), np.array(costs), rounding)


def _read_rise(order: IntArray, costs: FloatArray, rounding: float) -> ConicOrder:
    """Split where the costs rise most; no split leaves all rows, or none if all are zero."""
    if not costs.size or costs[-1] <= rounding:
        return ConicOrder(order, costs, 0, 1.0)
    if costs.size == 1 or costs[0] == costs[-1]:
        return ConicOrder(order, costs, costs.size, 1.0)
    rises = costs[1:] / costs[:-1]
    index = int(np.argmax(rises))
    return ConicOrder(order, costs, costs.size - 1 - index, float(rises[index]))
