"""Rank of a real matrix factorisation V = W H from moments of the columns of V.

The published estimate is the support union of a convex problem over a fourth-order moment; the other method counts the
rows of V that are no non-negative combination of the others. Moments add over parts of the columns, so a matrix may be
larger than memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.constraints import FINITE, check_entries, check_shapes
from pmflib.base.errors import PmfError
from pmflib.papers.support_union import ConicOrder, RowSupport, fit_row_support, order_generators

Method = Literal["generators", "support_union"]

PUBLISHED_PENALTY = 10.0
"""Weight of the group norms in the published experiments, whose components have variance 1."""

SAME_SUMS = 1e-8
"""Fraction of the variance of entries below which the weighted sums of the columns do not differ."""


@dataclass(frozen=True, eq=False)
class NMFRank:
    """Estimated number of components of a matrix.

    Parameters
    ----------
    rank
        Number of components.
    rows
        int64 of shape (rank,): rows that generate all others, in the order of the matrix.
    method
        "generators" or "support_union".
    order
        Rows in the order of their elimination, with their costs (generators); ``order.rise`` near 1 means that there is
        no clear number.
    support
        Solution of the convex problem (support_union), with convergence, relative error and duality gap.
    """

    rank: int
    rows: IntArray
    method: Method
    order: ConicOrder | None = field(default=None, repr=False)
    support: RowSupport | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """Sums over columns y relative to an origin, where s is the weighted sum of a column's entries.

    Parameters
    ----------
    origin
        float64 of shape (n_rows,), subtracted from every column; near the mean, cancellation is avoided.
    weights
        float64 of shape (n_rows,): weights of the entries in s. Ones are published; other weights are needed if all
        columns have the same sum, as with counts.
    n_columns
        Number of columns summed.
    first
        float64 of shape (n_rows,): sum of y.
    second, third, fourth
        float64 of shape (n_rows, n_rows): sums of y y', s y y' and s^2 y y'.
    """

    origin: FloatArray
    weights: FloatArray
    n_columns: int
    first: FloatArray
    second: FloatArray
    third: FloatArray
    fourth: FloatArray

    @classmethod
    def zero(cls, origin: FloatArray, weights: FloatArray) -> ColumnMoments:
        """Return the moments of no columns: the identity of `merge`."""
        empty = np.zeros((origin.size, origin.size))
        return cls(origin, weights, 0, np.zeros(origin.size), empty, empty, empty)

    @classmethod
    def of_columns(
        cls, matrix: FloatArray, origin: FloatArray | None = None, weights: FloatArray | None = None
    ) -> ColumnMoments:
        """Compute the moments of the columns of a matrix.

        Parameters
        ----------
        matrix
            Array of shape (n_rows, n_columns), finite.
        origin, weights
            float64 of shape (n_rows,), the same for all partitions; by default zeros and ones.

        Raises
        ------
        PmfError
            If the shapes do not match, or an entry is not finite.
        """
        check_shapes("", PmfError, matrix=(matrix, ("n_rows", "n_columns")))
        origin = np.zeros(len(matrix)) if origin is None else origin
        weights = np.ones(len(matrix)) if weights is None else weights
        n_rows = len(matrix)
        check_shapes("", PmfError, origin=(origin, (n_rows,)), weights=(weights, (n_rows,)))
        check_entries(FINITE, matrix=matrix)
        columns = matrix.astype(np.float64) - origin[:, None]
        scaled = columns * (weights @ columns)
        return cls(
            origin,
            weights,
            matrix.shape[1],
            columns.sum(axis=1),
            columns @ columns.T,
            columns @ scaled.T,
            scaled @ scaled.T,
        )

    @property
    def nbytes(self) -> int:
        """Return the size in bytes."""
        return 3 * self.origin.nbytes + 3 * self.second.nbytes

    @staticmethod
    def merge(parts: Sequence[ColumnMoments]) -> ColumnMoments:
        """Sum moments with the same origin and weights, at least one, in the given order.

        Raises
        ------
        PmfError
            If origins or weights differ.
        """
        origin, weights = parts[0].origin, parts[0].weights
        if any(
            not (np.array_equal(part.origin, origin) and np.array_equal(part.weights, weights))
            for part in parts
        ):
            raise PmfError("moments differ in origin or weights; give every partition the same")
        first, second = parts[0].first.copy(), parts[0].second.copy()
        third, fourth = parts[0].third.copy(), parts[0].fourth.copy()
        for part in parts[1:]:
            first += part.first
            second += part.second
            third += part.third
            fourth += part.fourth
        n_columns = sum(part.n_columns for part in parts)
        return ColumnMoments(origin, weights, n_columns, first, second, third, fourth)

    def to_gram(self) -> FloatArray:
        """Return the mean of v v' over the columns v, not centred: float64 of shape (n_rows, n_rows)."""
        self._check_any()
        shift = np.outer(self.first, self.origin)
        whole = self.second + shift + shift.T
        return whole / self.n_columns + np.outer(self.origin, self.origin)

    def to_covariance(self) -> FloatArray:
        """Return the covariance matrix of the columns, float64 of shape (n_rows, n_rows)."""
        self._check_any()
        mean = self.first / self.n_columns
        return self.second / self.n_columns - np.outer(mean, mean)

    def to_cumulant_moment(self) -> FloatArray:
        """Compute the second-order moment of the fourth-order cumulant of the centred columns.

        Returns
        -------
        float64 of shape (n_rows, n_rows), symmetric: up to sampling W diag(kurtosis * u^2) W' for
        columns W h + Gaussian noise with independent entries of h, where u are the weighted sums of
        the columns of W.

        References
        ----------
        Liu, "Model selection for nonnegative matrix factorization by support union recovery",
        equations (5) and (91).
        """
        self._check_any()
        n = self.n_columns
        mean = self.first / n
        total = float(self.weights @ mean)
        by_sum = self.second @ self.weights
        # sums over the centred columns v, with p the weighted sum of a column's entries
        covariance = self.second - n * np.outer(mean, mean)
        pull = covariance @ self.weights
        squares = float(self.weights @ pull)
        weighted = self.third @ self.weights - 2 * total * by_sum + total**2 * self.first
        cross = np.outer(weighted, mean)
        quartic = self.fourth - 2 * total * self.third + total**2 * self.second
        quartic = quartic - cross - cross.T + squares * np.outer(mean, mean)
        gaussian = (squares * covariance + 2 * np.outer(pull, pull)) / n**2
        moment = quartic / n - gaussian
        return np.asarray((moment + moment.T) / 2)

    def _check_any(self) -> None:
        if not self.n_columns:
            raise PmfError("moments of no columns; pass at least one")


def choose_rank(moments: ColumnMoments, method: Method, penalty: float) -> NMFRank:
    """Estimate the number of components of the matrix whose moments these are: see `pmflib.fits.select_nmf_rank`.

    Raises
    ------
    PmfError
        If the penalty is below 0, or the columns all have the same weighted sum.
    """
    if method == "generators":
        order = order_generators(moments.to_gram())
        return NMFRank(order.rank, order.generators, method, order=order)
    covariance = moments.to_covariance()
    spread = float(moments.weights @ covariance @ moments.weights)
    if spread <= SAME_SUMS * float(moments.weights**2 @ np.diagonal(covariance)):
        raise PmfError(
            "weights: the columns of matrix all have the same weighted sum, which leaves no moment; pass weights that "
            "differ, as numpy.random.default_rng(0).random(n_rows), or take method 'generators'"
        )
    support = fit_row_support(moments.to_cumulant_moment(), penalty)
    return NMFRank(support.rank, np.flatnonzero(support.rows), method, support=support)
