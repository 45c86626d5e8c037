"""Conic generators: rows of a matrix that no nonnegative combination of the other rows makes up.

Where each component has a row of its own (separability: W holds a scaled identity), all other rows lie
in the cone of these, whatever the sign of the coefficients H and their distribution. Rows are dropped
one after another, the one that the remaining make up best first; the last to go are the generators.
The Gram matrix of the rows is all that is needed: it is additive over columns.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError
from pmflib.solvers.numeric.nnls import solve_nnls

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
    """Cut where the costs rise most; no cut leaves all rows, or none if all are zero."""
    if not costs.size or costs[-1] <= rounding:
        return ConicOrder(order, costs, 0, 1.0)
    if costs.size == 1 or costs[0] == costs[-1]:
        return ConicOrder(order, costs, costs.size, 1.0)
    rises = costs[1:] / costs[:-1]
    place = int(np.argmax(rises))
    return ConicOrder(order, costs, costs.size - 1 - place, float(rises[place]))
