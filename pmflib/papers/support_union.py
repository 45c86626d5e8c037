"""Rank estimation by support-union recovery: how few rows generate all others, and the conic generators.

With M of rank K and M = M X, the group lasso on the rows of X selects few rows; their number estimates K. Rows are
updated one at a time in closed form, and the active rows also jointly, until the duality gap is small.

The conic generators are the rows that are no non-negative combination of the other rows. If each component has a row of
its own (separability: W contains a scaled identity), all other rows lie in the cone of these rows, whatever the sign
and distribution of the coefficients H. Rows are eliminated one after another, starting with the row best represented by
the remaining ones; the generators are eliminated last. Only the Gram matrix of the rows is needed, which is additive
over columns.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray, IntArray
from pmflib.base.constraints import (
    FINITE,
    NONNEGATIVE,
    at_least,
    check,
    check_entries,
    check_shapes,
)
from pmflib.base.errors import PmfError
from pmflib.base.pseudo_counts import check_limits
from pmflib.papers.least_squares import solve_nnls

LEAST_NORM = 1e-6
"""Norm at or below which a row counts as zero, as published."""

INNER_ROUNDS = 10
"""Number of rounds over the active rows between two rounds over all rows (`benchmarks/ranks/support_union.py`: with 50
rows, as published, 10 rounds take a tenth of the time of none, and 30 hardly less).
"""


@dataclass(frozen=True, eq=False)
class RowSupport:
    """A solution of the group lasso.

    Parameters
    ----------
    coefficients
        float64 of shape (n_rows, n_rows): X.
    penalty
        Weight of the group norms, at least 0.
    objective
        1/2 ||M - M X||_F^2 + penalty * (sum of the norms of the rows of X).
    gap
        Duality gap: upper bound for the distance of the objective from its minimum.
    n_iter
        Number of rounds over all rows.
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
        """Return which rows are active, bool of shape (n_rows,)."""
        return np.asarray(np.linalg.norm(self.coefficients, axis=1) > LEAST_NORM)

    @property
    def rank(self) -> int:
        """Return the number of active rows."""
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
        Weight of the group norms, at least 0.
    initial
        Starting value of X; None starts from zero.
    max_iter
        Maximum number of rounds over all rows, at least 0.
    tol
        Stop when the duality gap is at most this fraction of the objective, or at rounding level.

    Returns
    -------
    The solution.

    Raises
    ------
    PmfError
        If a shape or number is out of range, or an entry is not finite.

    Notes
    -----
    A round costs n_rows^2 multiply-adds for each row whose coefficients change. The active rows are also solved
    jointly, with the norms of the last round in a quadratic upper bound of the penalty, so the objective never
    increases. With a small penalty, this step is what makes the method converge.

    References
    ----------
    Liu, "Model selection for nonnegative matrix factorization by support union recovery", Algorithm
    1; Yuan and Lin (2006), Journal of the Royal Statistical Society B 68, for the row update.
    """
    check_limits(max_iter, tol)
    check_shapes("", PmfError, moment=(moment, ("n_rows", "n_rows")))
    check_entries(FINITE, moment=moment)
    check(NONNEGATIVE, penalty=penalty)
    if initial is not None:
        check_shapes("", PmfError, initial=(initial, moment.shape))
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
    """Minimise over each row in turn; ``product`` is updated to gram @ solution."""
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
    """Minimise over the active rows jointly, with a quadratic upper bound of the penalty."""
    norms = np.linalg.norm(solution[used], axis=1)
    if not used.size or not norms.all():
        return
    system = gram[np.ix_(used, used)] + np.diag(penalty / norms)
    try:
        solution[used] = np.linalg.solve(system, gram[used])
    except np.linalg.LinAlgError:
        # linearly dependent rows without a penalty: continue with row-wise updates only
        return


def _measure(gram: FloatArray, solution: FloatArray, penalty: float) -> tuple[float, float, float]:
    """Return the objective, the duality gap, and the relative error."""
    product = gram @ solution
    whole = float(np.trace(gram))
    fitted = float(np.vdot(solution, gram))
    residual = max(0.0, whole - 2 * fitted + float(np.vdot(solution, product)))
    norms = np.linalg.norm(solution, axis=1)
    objective = residual / 2 + penalty * float(norms.sum())
    # the residual, scaled to be feasible, is a point of the dual problem
    steepest = float(np.linalg.norm(gram - product, axis=1).max(initial=0.0))
    most = penalty / steepest if steepest > 0 else 1.0
    best = (whole - fitted) / residual if residual > 0 else 1.0
    scale = min(max(best, -most), most)
    dual = scale * (whole - fitted) - scale**2 * residual / 2
    error = float(np.sqrt(residual / whole)) if whole > 0 else 0.0
    return objective, max(0.0, objective - dual), error


# Costs below this fraction of the largest row are rounding error.
_ROUNDING = 1e-10


@dataclass(frozen=True, eq=False)
class ConicOrder:
    """Rows in the order of their elimination.

    Parameters
    ----------
    order
        int64 of shape (n_rows,), row indices.
    costs
        float64 of shape (n_rows,): mean squared distance of each row from the cone of the remaining rows when it is
        eliminated.
    rank
        Estimated number of generators: where the non-decreasing costs have the largest ratio between neighbours.
    rise
        That ratio. A value near 1 means that there is no clear number.
    """

    order: IntArray
    costs: FloatArray
    rank: int
    rise: float

    @property
    def generators(self) -> IntArray:
        """Return the generators in the order of the matrix: int64 of shape (rank,)."""
        return np.sort(self.order[self.order.size - self.rank :])


def order_generators(gram: FloatArray) -> ConicOrder:
    """Eliminate rows one by one, and estimate how many are no combination of others.

    Parameters
    ----------
    gram
        float64 of shape (n_rows, n_rows), symmetric positive semidefinite: mean of v v' over the columns v, as returned
        by `ColumnMoments.to_gram` or `to_covariance`.

    Returns
    -------
    The order and the estimate; 0 if all rows are zero.

    Raises
    ------
    PmfError
        If the matrix is not square, contains a non-finite entry, or a negative one on its diagonal.

    Notes
    -----
    The cost of a row never decreases as others are eliminated, and does not change unless one of the rows that
    represent it is eliminated, so few non-negative least-squares problems are solved again. The cost of the last row is
    its own square. Of equal rows, all but one are eliminated first.

    References
    ----------
    Arora, Ge, Kannan and Moitra (2012), Computing a nonnegative matrix factorization - provably, for separability and
    for testing a row against the others.
    """
    check_shapes("", PmfError, gram=(gram, ("n_rows", "n_rows")))
    diagonal = np.diagonal(gram).copy()
    check_entries(FINITE, gram=gram)
    check_entries(at_least(0), **{"diagonal of gram": diagonal})
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
        # equal costs up to rounding must not change the order
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
    """Split at the largest ratio of costs; without a split the rank is all rows, or 0 if all are zero."""
    if not costs.size or costs[-1] <= rounding:
        return ConicOrder(order, costs, 0, 1.0)
    if costs.size == 1 or costs[0] == costs[-1]:
        return ConicOrder(order, costs, costs.size, 1.0)
    rises = costs[1:] / costs[:-1]
    index = int(np.argmax(rises))
    return ConicOrder(order, costs, costs.size - 1 - index, float(rises[index]))
