"""Moments of the columns of a real matrix, up to the fourth: additive over partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.errors import PmfError


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """Sums over columns y, counted from an origin, with s the weighted sum of a column's entries.

    Parameters
    ----------
    origin
        float64 of shape (n_rows,), taken from every column: near the mean, nothing cancels.
    weights
        float64 of shape (n_rows,): weights of the entries in s. Ones are published; where columns all have the
        same sum, as those of counts may, other weights are needed.
    n_columns
        Columns summed.
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
        """Moments of no columns: the identity of `merge`."""
        empty = np.zeros((origin.size, origin.size))
        return cls(origin, weights, 0, np.zeros(origin.size), empty, empty, empty)

    @classmethod
    def of_columns(
        cls, matrix: FloatArray, origin: FloatArray | None = None, weights: FloatArray | None = None
    ) -> ColumnMoments:
        """Moments of the columns of a matrix.

        Parameters
        ----------
        matrix
            Array of shape (n_rows, n_columns), finite.
        origin, weights
            float64 of shape (n_rows,), the same for all partitions; None are zeros, and ones.

        Raises
        ------
        PmfError
            If the shapes do not fit, or an entry is not finite.
        """
        if matrix.ndim != 2:
            raise PmfError(f"matrix has shape {matrix.shape}; give (n_rows, n_columns)")
        origin = np.zeros(len(matrix)) if origin is None else origin
        weights = np.ones(len(matrix)) if weights is None else weights
        if not origin.shape == weights.shape == matrix.shape[:1]:
            raise PmfError(
                f"origin has shape {origin.shape} and weights {weights.shape}; matrix has "
                f"{len(matrix)} rows"
            )
        if not np.isfinite(matrix).all():
            raise PmfError("matrix holds an entry that is not finite; every entry must be known")
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
        """Size in bytes."""
        return 3 * self.origin.nbytes + 3 * self.second.nbytes

    @staticmethod
    def merge(parts: Sequence[ColumnMoments]) -> ColumnMoments:
        """Sum of moments of one origin and weights, at least one, added in the order given.

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
        """Mean of v v' over the columns v, not centred: float64 of shape (n_rows, n_rows)."""
        self._check_any()
        shift = np.outer(self.first, self.origin)
        whole = self.second + shift + shift.T
        return whole / self.n_columns + np.outer(self.origin, self.origin)

    def to_covariance(self) -> FloatArray:
        """Covariance matrix of the columns, float64 of shape (n_rows, n_rows)."""
        self._check_any()
        mean = self.first / self.n_columns
        return self.second / self.n_columns - np.outer(mean, mean)

    def to_cumulant_moment(self) -> FloatArray:
        """Second-order moment of the fourth-order cumulant of the centred columns.

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
            raise PmfError("moments of no columns; give at least one")
