"""Sampling designs: weights, strata and sampling units, or replicate weights; and design-based variances."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.errors import PmfError
from pmflib.core.hashing import mix_hashes
from pmflib.core.weights import Weights, read_weights

MOST_REPLICATES = 200
"""Maximum number of jackknife units; with more, the units of a stratum are grouped, which shows the same variance."""
NORMAL_QUANTILE = 1.959963984540054
"""Half-width of a 95 % interval in standard errors, for the normal distribution."""
METHODS = ("BRR", "Fay", "JK1", "JK2", "JKn", "bootstrap")
"""Methods of making replicate weights."""


@dataclass(frozen=True)
class Replicate:
    """Weights of one replicate, and its factor in the variance.

    Parameters
    ----------
    weights
        float64 of shape (n_rows,), at least 0.
    factor
        Above 0: the variance is the sum over replicates of factor times squared deviation.
    """

    weights: FloatArray
    factor: float


class SurveyDesign:
    """Sampling design of a survey.

    Parameters
    ----------
    weight
        Weights of the samples, numbers above 0 of shape (n_rows,); None for 1 each, in which case ``psu``, ``stratum``
        or ``replicates`` gives the number of rows.
    stratum
        Stratum of each row, strings or numbers of shape (n_rows,); None for a single stratum.
    psu
        Primary sampling unit of each row within its stratum, in the same form; None treats each row as a unit.
    replicates
        Replicate weights, at least 0, of shape (n_rows, n_replicates), in place of strata and units; each replicate
        must have rows above 0.
    method
        How the replicates were made: one of `METHODS`; only with ``replicates``.
    fay
        Fay's factor, in [0, 1), only for "Fay": the fraction of its weight that the omitted half keeps.
    factors
        Numbers above 0 of shape (n_replicates,), only for "JKn": (n_h - 1) / n_h of the stratum of the omitted unit.
    decimals
        Number of decimals of the weights; None as for `pmflib.count_pairs`.

    Raises
    ------
    PmfError
        If an argument has a different number of rows, a weight is not a finite number above 0, a stratum or unit is
        missing, all rows are one unit, or replicates, method, fay and factors are inconsistent.

    Notes
    -----
    A stratum with a single unit has no observable variance. Such strata are combined, and a remaining one is combined
    with the preceding stratum. This overestimates rather than underestimates variances.

    Units are treated as drawn with replacement, without a finite population correction.

    References
    ----------
    Wolter (2007), Introduction to Variance Estimation, chapters 3 (half samples) and 4 (jackknife); Judkins (1990),
    Journal of Official Statistics 6, for Fay's method; Kott (2001), Journal of Official Statistics 17, for groups.
    """

    def __init__(
        self,
        weight: object | None = None,
        *,
        stratum: object | None = None,
        psu: object | None = None,
        replicates: object | None = None,
        method: str | None = None,
        fay: float | None = None,
        factors: object | None = None,
        decimals: int | None = None,
    ) -> None:
        given: dict[str, Any] = {
            "weight": weight,
            "stratum": stratum,
            "psu": psu,
            "replicates": replicates,
        }
        for name, each in given.items():
            if each is not None and not hasattr(each, "__len__"):
                raise PmfError(f"{name} is {each!r}; give one value for each row")
        known = [len(each) for each in given.values() if each is not None]
        if not known:
            raise PmfError("a design takes a weight, stratum, psu or replicates; all are None")
        n_rows = known[0]
        for name, each in given.items():
            if each is not None and len(each) != n_rows:
                raise PmfError(
                    f"{name} has {len(each)} rows, and others {n_rows}; give one value for each row"
                )
        ones = np.ones(n_rows)
        self.weights: Weights = read_weights(
            ones if weight is None else weight, n_rows, decimals=decimals
        )
        self.n_rows = n_rows
        self.notes: tuple[str, ...] = ()
        self.replicates: FloatArray | None = None
        self.factors: FloatArray = np.empty(0)
        self.method = "jackknife" if method is None else method
        if replicates is None:
            if method is not None or fay is not None or factors is not None:
                raise PmfError(
                    "method, fay and factors require replicates; give replicates, or omit them"
                )
            self.strata, self.units = self._read_units(stratum, psu)
        else:
            if stratum is not None or psu is not None:
                raise PmfError(
                    "replicates are given with stratum or psu; replicate weights already reflect them"
                )
            self.strata, self.units = np.zeros(n_rows, np.int64), np.arange(n_rows)
            self.replicates = _read_replicates(replicates)
            self.factors = find_factors(method, self.replicates.shape[1], fay, factors)

    def __repr__(self) -> str:
        """Return the number of rows and a description of the design."""
        known = f"{self.n_strata} strata, {self.n_units} units"
        if self.replicates is not None:
            known = f"{self.replicates.shape[1]} replicates by {self.method}"
        return f"SurveyDesign({self.n_rows:,} rows worth {self.weights.n_effective:,.0f}, {known})"

    @property
    def n_strata(self) -> int:
        """Return the number of strata, after combining single units."""
        return int(self.strata.max()) + 1

    @property
    def n_units(self) -> int:
        """Return the number of primary sampling units."""
        return int(self.units.max()) + 1

    @property
    def is_simple(self) -> bool:
        """Return whether all rows have the same weight and are units of a single stratum, as without a design."""
        is_alone = self.replicates is None and self.n_strata == 1 and self.n_units == self.n_rows
        return is_alone and self.weights.scale() is None

    @property
    def degrees(self) -> int:
        """Return the degrees of freedom of variances: units minus strata, or from the number of replicates."""
        if self.replicates is None:
            return self.n_units - self.n_strata
        return count_degrees(self.method, int(self.replicates.shape[1]))

    def find_quantile(self, level: float) -> float:
        """Return the half-width of an interval in standard errors: Student's quantile."""
        return find_student_quantile(self.degrees, level)

    @cached_property
    def _of_units(self) -> IntArray:
        """Return the stratum of each unit, int64 of shape (n_units,)."""
        of_units = np.zeros(self.n_units, np.int64)
        of_units[self.units] = self.strata
        return of_units

    @cached_property
    def dealt(self) -> IntArray:
        """Return int64 of shape (n_rows,), whose remainder modulo the number of folds is the fold of a row.

        Units are dealt to folds by stratum, in an order determined by a hash: no unit is in two folds, and each fold
        has about the same number of units of each stratum.
        """
        order = np.lexsort((mix_hashes(np.arange(self.n_units)), self._of_units))
        place = np.empty(self.n_units, np.int64)
        place[order] = np.arange(self.n_units)
        found: IntArray = place[self.units]
        return found

    def iterate_replicates(self) -> Iterator[Replicate]:
        """Yield the given replicates, or those of a jackknife that omits one unit or group of units at a time."""
        weights = self.weights.units.astype(np.float64)
        if self.replicates is not None:
            unit = 10.0**self.weights.decimals
            for column, factor in zip(self.replicates.T, self.factors.tolist(), strict=True):
                yield Replicate(column * unit, factor)
            return
        groups = self._group_units(MOST_REPLICATES)
        of_groups = np.zeros(int(groups.max()) + 1, np.int64)
        of_groups[groups] = self.strata
        n_each = np.bincount(of_groups)
        for group, stratum in enumerate(of_groups.tolist()):
            n = int(n_each[stratum])
            left = np.where(self.strata == stratum, weights * (n / (n - 1)), weights)
            yield Replicate(np.where(groups == group, 0.0, left), (n - 1) / n)

    def find_effective(self, cells: IntArray, n_cells: int) -> tuple[FloatArray, float]:
        """Compute the weighted shares of cells among rows that have one, and their effective sample size.

        Parameters
        ----------
        cells
            int64 of shape (n_rows,): cell of each row, -1 if none.
        n_cells
            Number of cells.

        Returns
        -------
        Shares of shape (n_cells,), 0 if no row has a cell, and the effective sample size: the number n of independent
        samples for which sum q (1 - q) / n equals the sum of the design-based variances of the shares, at most the
        number of rows. If all rows are in one cell, Kish's number is used.
        """
        rows = np.flatnonzero(cells >= 0)
        if not rows.size:
            return np.zeros(n_cells), 0.0
        own, weights = cells[rows], self.weights.units[rows].astype(np.float64)
        totals = np.bincount(own, weights, n_cells)
        shares = totals / totals.sum()
        kish = float(weights.sum() ** 2 / (weights**2).sum())
        spread = float((shares * (1 - shares)).sum())
        if self.replicates is None:
            variance = self._vary_units(rows, own, weights, shares)
        else:
            each = [np.bincount(own, column[rows], n_cells) for column in self.replicates.T]
            variance = vary_replicates(np.array(each), shares, self.factors, self.degrees)
        if variance <= 0 or spread <= 0:
            return shares, kish
        return shares, min(spread / variance, float(rows.size))

    def covary_totals(self, influences: FloatArray, rows: IntArray) -> FloatArray:
        """Compute the covariance of sums over rows, from totals of units within strata or from replicate weights.

        Parameters
        ----------
        influences
            float64 of shape (n_taken, n_sums): weighted contributions of some rows.
        rows
            int64 of shape (n_taken,): the row numbers; units without any of these rows have totals of 0.

        Returns
        -------
        float64 of shape (n_sums, n_sums).
        """
        if self.replicates is not None:
            own = self.weights.units[rows] / 10.0**self.weights.decimals
            gaps = (self.replicates[rows] / own[:, None] - 1).T @ influences
            by_replicates: FloatArray = (gaps * self.factors[:, None]).T @ gaps
            return by_replicates
        totals = np.zeros((self.n_units, influences.shape[1]))
        np.add.at(totals, self.units[rows], influences)
        of_units = self._of_units
        n_each = np.bincount(of_units).astype(np.float64)
        means = np.zeros((n_each.size, influences.shape[1]))
        np.add.at(means, of_units, totals)
        apart = totals - (means / n_each[:, None])[of_units]
        scale = (n_each / (n_each - 1))[of_units]
        found: FloatArray = (apart * scale[:, None]).T @ apart
        return found

    def _vary_units(
        self, rows: IntArray, own: IntArray, weights: FloatArray, shares: FloatArray
    ) -> float:
        """Sum the variances of shares, by the linearised totals of units within strata."""
        n_cells = shares.size
        keys = self.units[rows] * n_cells + own
        by_unit: FloatArray = np.bincount(keys, weights, self.n_units * n_cells).astype(np.float64)
        return vary_totals(by_unit.reshape(-1, n_cells), shares, self._of_units)

    def draw_units(self, most: int) -> IntArray:
        """Return stratum and unit of each row, int64 of shape (n_rows, 2); more than ``most`` units are grouped."""
        return np.stack([self.strata, self._group_units(most)], axis=1)

    def _group_units(self, most: int) -> IntArray:
        """Return the jackknife group of each row: one unit or several, with at least two groups per stratum."""
        if self.n_units <= most:
            return self.units
        of_units = self._of_units
        n_each = np.bincount(of_units)
        # by weight: a stratum with few units may have most of the population, and of the variance
        held = np.bincount(self.strata, self.weights.units.astype(np.float64))
        n_groups = np.clip((held * (most / held.sum())).astype(np.int64), 2, n_each)
        first = np.concatenate([[0], np.cumsum(n_groups)[:-1]])
        starts = np.concatenate([[0], np.cumsum(n_each)[:-1]])
        place = np.empty(self.n_units, np.int64)
        order = np.lexsort((mix_hashes(np.arange(self.n_units)), of_units))
        place[order] = np.arange(self.n_units) - starts[of_units[order]]
        groups: IntArray = (first[of_units] + place % n_groups[of_units])[self.units]
        return groups

    def _read_units(self, stratum: object, psu: object) -> tuple[IntArray, IntArray]:
        """Number the strata and units of the rows from 0; strata with a single unit are combined."""
        n = self.n_rows
        strata = np.zeros(n, np.int64) if stratum is None else _number("stratum", stratum)
        within = np.arange(n) if psu is None else _number("psu", psu)
        units = np.unique(strata * (int(within.max()) + 1) + within, return_inverse=True)[1]
        n_units = int(units.max()) + 1
        if n_units < 2:
            raise PmfError(
                "all rows are one sampling unit, from which no variance can be estimated; give at least two units"
            )
        of_units = np.zeros(n_units, np.int64)
        of_units[units] = strata
        joined, n_lone = join_lone_strata(of_units)
        if n_lone:
            self.notes += (
                f"{n_lone} strata have a single unit and are combined"
                if n_lone > 1
                else "a stratum has a single unit and is combined with a neighbouring one",
            )
        return joined[units], units.astype(np.int64)


def find_student_quantile(degrees: int, level: float) -> float:
    """Return the half-width of an interval in standard errors, by Student's distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + level) / 2))


def join_lone_strata(of_units: IntArray) -> tuple[IntArray, int]:
    """Combine strata with a single unit; a remaining one joins a neighbouring stratum.

    Parameters
    ----------
    of_units
        int64 of shape (n_units,), at least two: stratum of each unit, numbered from 0.

    Returns
    -------
    Strata of the units, numbered from 0, and the number of strata that had a single unit.
    """
    lone = np.flatnonzero(np.bincount(of_units) == 1)
    if not lone.size:
        return of_units, 0
    others = np.array([lone[0] - 1 if lone[0] else 1]) if lone.size == 1 else lone[:1]
    joined = np.where(np.isin(of_units, lone), others[0], of_units)
    return np.unique(joined, return_inverse=True)[1].astype(np.int64), int(lone.size)


def vary_totals(by_unit: FloatArray, shares: FloatArray, of_units: IntArray) -> float:
    """Sum the variances of shares, by the linearised totals of units within strata.

    Variances are multiplied by the squared ratio of Student's to the normal quantile, both for 95 %, so that intervals
    based on the effective sample size reflect the degrees of freedom: units minus strata, counting strata with any of
    the samples. See Korn and Graubard (1998), Survey Methodology 24(2).

    Parameters
    ----------
    by_unit
        float64 of shape (n_units, n_cells): weights of each unit by cell; a unit without samples is 0 and still counts
        as a unit of its stratum.
    shares
        float64 of shape (n_cells,): share of each cell in the total.
    of_units
        int64 of shape (n_units,): stratum of each unit; each stratum has at least two units.
    """
    scores = (by_unit - by_unit.sum(axis=1, keepdims=True) * shares) / float(by_unit.sum())
    n_each = np.bincount(of_units).astype(np.float64)
    means = np.stack([np.bincount(of_units, each) for each in scores.T], axis=1) / n_each[:, None]
    squares = ((scores - means[of_units]) ** 2).sum(axis=1)
    variance = float((np.bincount(of_units, squares) * n_each / (n_each - 1)).sum())
    # strata without any of the samples carry no information on the variance
    held = np.bincount(of_units, by_unit.sum(axis=1)) > 0
    return variance * _widen(int((n_each[held] - 1).sum()))


def _widen(degrees: int) -> float:
    """Return the squared ratio of Student's to the normal quantile, both for 95 %."""
    return (find_student_quantile(degrees, 0.95) / NORMAL_QUANTILE) ** 2


def count_degrees(method: str, n: int) -> int:
    """Return the degrees of freedom of variances from n replicates: n, or n - 1 for a single stratum."""
    return max(n - int(method in ("JK1", "bootstrap")), 1)


def vary_replicates(
    by_replicate: FloatArray, shares: FloatArray, factors: FloatArray, degrees: int
) -> float:
    """Sum the variances of shares from replicates, adjusted for the degrees of freedom as in `vary_totals`.

    Parameters
    ----------
    by_replicate
        float64 of shape (n_replicates, n_cells): sums of the weights of each replicate; a replicate without any of
        these samples has no shares.
    shares
        float64 of shape (n_cells,): shares with full weights.
    factors
        float64 of shape (n_replicates,): factor of each squared deviation.
    degrees
        Degrees of freedom.
    """
    totals = by_replicate.sum(axis=1, keepdims=True)
    gaps = by_replicate / np.maximum(totals, np.finfo(float).tiny) - shares
    return float(factors @ (gaps**2).sum(axis=1)) * _widen(degrees)


def _number(name: str, labels: Any) -> IntArray:
    """Number labels in sorted order, int64 of shape (n_rows,)."""
    given = np.asarray(labels)
    if given.ndim != 1:
        raise PmfError(f"{name} has shape {given.shape}; give one label for each row")
    values = given.tolist()
    for row, value in enumerate(values):
        if value is None or value != value:
            raise PmfError(f"{name}[{row}] is missing; give a value, or omit the row")
    if given.dtype == object:
        given = np.array([str(value) for value in values])
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def _read_floats(name: str, values: Any) -> FloatArray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise PmfError(f"{name} contains a value that is not a number; give numbers") from None


def _read_replicates(replicates: Any) -> FloatArray:
    """Return replicate weights as float64 of shape (n_rows, n_replicates)."""
    found = _read_floats("replicates", replicates)
    if found.ndim != 2 or found.shape[1] < 2:
        raise PmfError(
            f"replicates has shape {found.shape}; give (n_rows, n_replicates) with at least two replicates"
        )
    bad = np.argwhere(~(np.isfinite(found) & (found >= 0)))
    if len(bad):
        row, column = bad[0].tolist()
        raise PmfError(
            f"replicates[{row}, {column}] is {found[row, column]:g}; replicate weights are finite numbers of at least 0"
        )
    if (empty := np.flatnonzero(~found.any(axis=0))).size:
        raise PmfError(
            f"replicates[:, {empty[0]}] is 0 in all rows ({empty.size} such replicates), from which nothing can be "
            "estimated; omit it, or read the column again"
        )
    return found


def find_factors(
    method: str | None, n: int, fay: float | None = None, factors: object | None = None
) -> FloatArray:
    """Return the factor of each of n replicates in a variance, float64 of shape (n,).

    Parameters
    ----------
    method, fay, factors
        As for `SurveyDesign`.
    n
        Number of replicates, at least two.

    Raises
    ------
    PmfError
        If these are inconsistent.
    """
    if method not in METHODS:
        raise PmfError(f"method is {method!r}; replicates were made by one of {METHODS}")
    if (method == "Fay") != (fay is not None) or (fay is not None and not 0 <= fay < 1):
        raise PmfError(f"method is {method!r} and fay is {fay}; only 'Fay' takes fay, in [0, 1)")
    if (method == "JKn") != (factors is not None):
        raise PmfError(f"method is {method!r}; only 'JKn' takes factors, one per replicate")
    if factors is not None:
        found = _read_floats("factors", factors)
        if found.shape != (n,) or not (np.isfinite(found) & (found > 0)).all():
            raise PmfError(f"factors is {found} of shape {found.shape}; give {n} numbers above 0")
        return found
    each = {
        "BRR": 1 / n,
        "Fay": 1 / (n * (1 - (fay or 0.0)) ** 2),
        "JK1": (n - 1) / n,
        "JK2": 1.0,
        "bootstrap": 1 / (n - 1),
    }[method]
    return np.full(n, each)
