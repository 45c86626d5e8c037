"""Replicate weights: the one form that every sampling design is reduced to, and the variances that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.errors import PmfError
from pmflib.base.hashing import HashArray

NORMAL_QUANTILE = 1.959963984540054
"""Half-width of a 95 % interval under the normal distribution, in standard errors."""
METHODS = ("BRR", "Fay", "JK1", "JK2", "JKn", "bootstrap")
"""Replication methods of given replicate weights."""


@dataclass(frozen=True, eq=False)
class ReplicateWeights:
    """How the replicates of a sampling design enter a variance.

    The weights themselves are a matrix with a row for each sample, which is passed beside this record as float64 with a
    column for each replicate. The replicates that leave out one sampling unit each have a sparse form: int64 of shape
    (n_rows,), the unit of each row, because all of these replicates follow from the sums over each unit. Code that uses
    the record adds up the samples by column in either form and knows neither strata nor units.

    Parameters
    ----------
    factors
        float64 of shape (n_columns,), above 0: a variance is the sum of factor times squared departure, as
        `find_departures` gives these.
    degrees
        Degrees of freedom of variances.
    method
        How the replicates were made: one of `METHODS`, or "jackknife" of sampling units.
    strata
        int64 of shape (n_columns,): stratum of each column of the sparse form, two columns each at least; None for
        replicate weights.
    notes
        How the design was read.
    """

    factors: FloatArray
    degrees: int
    method: str
    strata: IntArray | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of_units(
        cls, strata: IntArray, degrees: int | None = None, notes: tuple[str, ...] = ()
    ) -> ReplicateWeights:
        """Record of the jackknife of sampling units; degrees of freedom default to units less strata.

        Raises
        ------
        PmfError
            If there is a single unit.
        """
        if strata.size < 2:
            raise PmfError("all rows belong to one sampling unit; a variance needs at least two")
        n_each = np.bincount(strata)
        factors = (n_each / (n_each - 1))[strata]
        known = strata.size - n_each.size if degrees is None else degrees
        return cls(factors, known, "jackknife", strata, notes)

    @classmethod
    def of_replicates(
        cls, method: str | None, n: int, fay: float | None = None, factors: object | None = None
    ) -> ReplicateWeights:
        """Record of n given replicates; arguments and errors are those of `find_factors`."""
        found = find_factors(method, n, fay, factors)
        assert method is not None
        # replicates of a single stratum have one degree less
        degrees = max(n - int(method in ("JK1", "bootstrap")), 1)
        return cls(found, degrees, method)

    @property
    def n_columns(self) -> int:
        """Number of replicates, or of units that are left out one at a time."""
        return int(self.factors.size)

    @property
    def is_sparse(self) -> bool:
        """Whether the matrix of weights has the sparse form of units."""
        return self.strata is not None

    @property
    def refit_factors(self) -> FloatArray:
        """Factors of estimates from dense replicates, such as `leave_out` gives: float64 of shape (n_columns,)."""
        if self.strata is None:
            return self.factors
        n_each = np.bincount(self.strata)
        shares: FloatArray = ((n_each - 1) / n_each)[self.strata]
        return shares

    def find_quantile(self, level: float) -> float:
        """Half-width of an interval of some level, in standard errors: Student's quantile."""
        return find_student_quantile(self.degrees, level)

    def find_departures(self, sums: FloatArray, whole: FloatArray | float) -> FloatArray:
        """Departures of the replicates of a sum over the samples from the whole.

        Parameters
        ----------
        sums
            float64 of shape (n_columns, n_sums): sums by column.
        whole
            float64 of shape (n_sums,): sums over all samples with their own weights.

        Notes
        -----
        For units, these are deviations from the mean of the stratum. The replicate that leaves a unit out departs by
        -n / (n - 1) times as much, and its factor is (n - 1) / n: the variance is the same.
        """
        if self.strata is None:
            return sums - whole
        n_each = np.bincount(self.strata)
        means = np.zeros((n_each.size, sums.shape[1]))
        np.add.at(means, self.strata, sums)
        means /= n_each[:, None]
        departures: FloatArray = sums - means[self.strata]
        return departures

    def covary(self, departures: FloatArray) -> FloatArray:
        """Covariance of sums, float64 of shape (n_sums, n_sums), from their departures (n_columns, n_sums)."""
        covariance: FloatArray = (departures * self.factors[:, None]).T @ departures
        return covariance

    def vary_shares(self, by_column: FloatArray, shares: FloatArray) -> float:
        """Sum of the variances of the shares of some cells.

        It is larger by the square of the ratio of Student's to the normal quantile, both at 95 %, so that intervals of
        an equivalent number of independent samples allow for the degrees of freedom.

        Parameters
        ----------
        by_column
            float64 of shape (n_columns, n_cells): sums of weights.
        shares
            float64 of shape (n_cells,): shares in the whole sample.

        Notes
        -----
        Shares are linearised for units, and computed anew for each replicate otherwise. Degrees of freedom of units are
        those of the strata that have any of these samples.

        References
        ----------
        Korn and Graubard (1998), Survey Methodology 24(2).
        """
        totals = by_column.sum(axis=1, keepdims=True)
        if self.strata is None:
            gaps = by_column / np.maximum(totals, np.finfo(float).tiny) - shares
            return float(self.factors @ (gaps**2).sum(axis=1)) * _widen(self.degrees)
        scores = (by_column - totals * shares) / float(by_column.sum())
        squares = (self.find_departures(scores, 0.0) ** 2).sum(axis=1)
        n_each = np.bincount(self.strata).astype(np.float64)
        variance = float((np.bincount(self.strata, squares) * n_each / (n_each - 1)).sum())
        held = np.bincount(self.strata, totals[:, 0]) > 0
        return variance * _widen(int((n_each[held] - 1).sum()))

    def spread(self, matrix: FloatArray | IntArray, weights: FloatArray) -> FloatArray:
        """Weights of all replicates, dense, float64 of shape (n_rows, n_columns), given either form and own weights."""
        if self.strata is None:
            return np.array(matrix, np.float64)
        units, found = matrix.astype(np.int64), np.empty((weights.size, self.n_columns), order="F")
        for column in range(self.n_columns):
            found[:, column] = self.leave_out(column, units, weights)
        return found

    def leave_out(self, unit: int, columns: IntArray, weights: FloatArray) -> FloatArray:
        """Weights of the replicate that leaves one unit out and gives its weight to the others of its stratum.

        Parameters
        ----------
        unit
            Number of the unit.
        columns
            int64 of shape (n_rows,): unit of each row.
        weights
            float64 of shape (n_rows,).

        Returns
        -------
        float64 of shape (n_rows,).
        """
        assert self.strata is not None
        n = int(np.count_nonzero(self.strata == self.strata[unit]))
        is_near = self.strata[columns] == self.strata[unit]
        left = np.where(is_near, weights * (n / (n - 1)), weights)
        return np.where(columns == unit, 0.0, left)


def group_units(
    strata: IntArray, hashes: HashArray, n_groups: IntArray
) -> tuple[IntArray, IntArray]:
    """Put units into groups within their strata, in an order by hash.

    Parameters
    ----------
    strata, hashes
        int64 and uint64 of shape (n_units,): stratum of each unit, numbered from 0, and the key of its order.
    n_groups
        int64 of shape (n_strata,): number of groups of each stratum, at most that of its units.

    Returns
    -------
    Group of each unit, int64 of shape (n_units,), and stratum of each group; groups are numbered stratum by stratum.
    """
    n_each = np.bincount(strata)
    order = np.lexsort((hashes, strata))
    place = np.empty(strata.size, np.int64)
    place[order] = np.arange(strata.size) - (np.cumsum(n_each) - n_each)[strata[order]]
    groups: IntArray = (np.cumsum(n_groups) - n_groups)[strata] + place % n_groups[strata]
    return groups, np.repeat(np.arange(n_groups.size), n_groups)


def join_lone_strata(strata: IntArray) -> tuple[IntArray, int]:
    """Join the strata that have a single unit, and a lone one with the stratum before it, or after if it is the first.

    Parameters
    ----------
    strata
        int64 of shape (n_units,), at least two: stratum of each unit, numbered from 0.

    Returns
    -------
    Strata of the units, numbered from 0, and how many had a single unit.
    """
    lone = np.flatnonzero(np.bincount(strata) == 1)
    if not lone.size:
        return strata, 0
    others = np.array([lone[0] - 1 if lone[0] else 1]) if lone.size == 1 else lone[:1]
    joined = np.where(np.isin(strata, lone), others[0], strata)
    return np.unique(joined, return_inverse=True)[1].astype(np.int64), int(lone.size)


def find_student_quantile(degrees: int, level: float) -> float:
    """Half-width of an interval of some level, in standard errors, by Student's distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + level) / 2))


def _widen(degrees: int) -> float:
    """Square of the ratio of Student's to the normal quantile, both at 95 %."""
    return (find_student_quantile(degrees, 0.95) / NORMAL_QUANTILE) ** 2


def find_factors(
    method: str | None, n: int, fay: float | None = None, factors: object | None = None
) -> FloatArray:
    """Factor of each of n replicates in a variance, float64 of shape (n,).

    Parameters
    ----------
    method, fay, factors
        As for `pmflib.surveys.SurveyDesign`.
    n
        Number of replicates, at least two.

    Raises
    ------
    PmfError
        If the arguments do not go together.
    """
    if method not in METHODS:
        raise PmfError(f"method is {method!r}; replicates were made by one of {METHODS}")
    if (method == "Fay") != (fay is not None) or (fay is not None and not 0 <= fay < 1):
        raise PmfError(f"method is {method!r} and fay is {fay}; 'Fay' alone takes one, in [0, 1)")
    if (method == "JKn") != (factors is not None):
        raise PmfError(f"method is {method!r}; 'JKn', and no other, takes factors, one a replicate")
    if factors is not None:
        try:
            found = np.asarray(factors, np.float64)
        except (TypeError, ValueError):
            raise PmfError("factors has something that is no number; pass numbers") from None
        if found.shape != (n,) or not (np.isfinite(found) & (found > 0)).all():
            raise PmfError(f"factors is {found} of shape {found.shape}; pass {n} numbers above 0")
        return found
    each = {
        "BRR": 1 / n,
        "Fay": 1 / (n * (1 - (fay or 0.0)) ** 2),
        "JK1": (n - 1) / n,
        "JK2": 1.0,
        "bootstrap": 1 / (n - 1),
    }[method]
    return np.full(n, each)
