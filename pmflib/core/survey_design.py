"""How a sample was drawn: weights, strata and sampling units, or replicate weights; variances that follow from it."""

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
"""Units of the jackknife at most: of more, those of a stratum are put into groups, whose spread shows the same."""
NORMAL_QUANTILE = 1.959963984540054
"""Standard errors to either side of an interval of 95 %, by the normal distribution."""
METHODS = ("BRR", "Fay", "JK1", "JK2", "JKn", "bootstrap")
"""Ways in which replicate weights are made."""


@dataclass(frozen=True)
class Replicate:
    """Weights of one replicate, and the share of its squared departure from the whole in the variance.

    Parameters
    ----------
    weights
        float64 of shape (n_rows,), at least 0.
    factor
        Above 0: the variance is the sum over the replicates of factor times squared departure.
    """

    weights: FloatArray
    factor: float


class SurveyDesign:
    """How a sample was drawn from its population.

    Parameters
    ----------
    weight
        Weights of the samples, numbers above 0 of shape (n_rows,); None is 1 each, and then ``psu``, ``stratum`` or
        ``replicates`` gives the number of rows.
    stratum
        Stratum of each row, texts or numbers of shape (n_rows,); None is one stratum.
    psu
        Primary sampling unit of each row within its stratum, likewise; None takes each row as a unit.
    replicates
        Replicate weights, at least 0, of shape (n_rows, n_replicates), in place of strata and units; each replicate has
        rows above 0.
    method
        How these were made: a name of `METHODS`, with replicates alone.
    fay
        Fay's factor, in [0, 1), of "Fay": the share of its weight that a half that is left out keeps.
    factors
        Numbers above 0 of shape (n_replicates,) of "JKn": (n_h - 1) / n_h of the stratum of the unit that is left out.
    decimals
        Decimals of the weights that are kept; None as for `pmflib.count_pairs`.

    Raises
    ------
    PmfError
        If an argument has another number of rows, a weight is no finite number above 0, a stratum or unit is missing,
        all rows are one unit, or replicates, method, fay and factors do not go together.

    Notes
    -----
    A stratum with a single unit shows no spread: such strata are taken as one, and a lone one together with the stratum
    before it in order. That overstates variances rather than understates them.

    Units are taken as drawn with replacement: no correction for a finite population.

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
                raise PmfError(f"{name} is {each!r}; give something for each row")
        known = [len(each) for each in given.values() if each is not None]
        if not known:
            raise PmfError("a design takes a weight, stratum, psu or replicates; all are None")
        n_rows = known[0]
        for name, each in given.items():
            if each is not None and len(each) != n_rows:
                raise PmfError(
                    f"{name} has {len(each)} rows, and others {n_rows}; give one of each row"
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
                    "method, fay and factors are of replicates; give these, or leave them out"
                )
            self.strata, self.units = self._read_units(stratum, psu)
        else:
            if stratum is not None or psu is not None:
                raise PmfError("replicates are given with stratum or psu; they hold these already")
            self.strata, self.units = np.zeros(n_rows, np.int64), np.arange(n_rows)
            self.replicates = _read_replicates(replicates)
            self.factors = find_factors(method, self.replicates.shape[1], fay, factors)

    def __repr__(self) -> str:
        """Rows, and what is known of how they were drawn."""
        known = f"{self.n_strata} strata, {self.n_units} units"
        if self.replicates is not None:
            known = f"{self.replicates.shape[1]} replicates by {self.method}"
        return f"SurveyDesign({self.n_rows:,} rows worth {self.weights.n_effective:,.0f}, {known})"

    @property
    def n_strata(self) -> int:
        """Number of strata, single units put together."""
        return int(self.strata.max()) + 1

    @property
    def n_units(self) -> int:
        """Number of primary sampling units."""
        return int(self.units.max()) + 1

    @property
    def is_simple(self) -> bool:
        """Whether all rows have one weight, and each is a unit of one stratum: that of no design."""
        is_alone = self.replicates is None and self.n_strata == 1 and self.n_units == self.n_rows
        return is_alone and self.weights.scale() is None

    @property
    def degrees(self) -> int:
        """Degrees of freedom of a variance: units less strata; replicates, less 1 where all are of one stratum."""
        if self.replicates is None:
            return self.n_units - self.n_strata
        return count_degrees(self.method, int(self.replicates.shape[1]))

    def find_quantile(self, level: float) -> float:
        """Standard errors to either side that an interval of some level reaches to: Student's quantile."""
        return find_student_quantile(self.degrees, level)

    @cached_property
    def _of_units(self) -> IntArray:
        """Stratum of each unit, int64 of shape (n_units,)."""
        of_units = np.zeros(self.n_units, np.int64)
        of_units[self.units] = self.strata
        return of_units

    @cached_property
    def dealt(self) -> IntArray:
        """Number of each row, int64 of shape (n_rows,), whose remainder by a number of folds is its fold.

        Units are dealt one after another, stratum by stratum, in an order by hash: no unit is in two folds, and each
        fold has about as many units of each stratum.
        """
        order = np.lexsort((mix_hashes(np.arange(self.n_units)), self._of_units))
        place = np.empty(self.n_units, np.int64)
        place[order] = np.arange(self.n_units)
        found: IntArray = place[self.units]
        return found

    def iterate_replicates(self) -> Iterator[Replicate]:
        """Replicates: those given, or of the jackknife that leaves out one unit, or group of units, after another."""
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
        """Weighted shares of some cells among the rows that have one, and how many samples they are worth.

        Parameters
        ----------
        cells
            int64 of shape (n_rows,): the cell of each row, -1 where it has none.
        n_cells
            Number of cells.

        Returns
        -------
        Shares of shape (n_cells,), 0 where no row has a cell, and the number of independent samples whose shares would
        be as uncertain, all cells together: n with sum q (1 - q) / n equal to the sum of the variances of the shares by
        the design, at most the number of rows. Where all rows are in one cell it is Kish's number.
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
        """Covariance of sums over rows, by the totals of units within strata, or of rows weighted as in each replicate.

        Parameters
        ----------
        influences
            float64 of shape (n_taken, n_sums): what each of some rows adds, with its weight.
        rows
            int64 of shape (n_taken,): these rows; units of which none is among them have totals of 0.

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
        """Sum of the variances of shares, by the linearised totals of units within strata."""
        n_cells = shares.size
        keys = self.units[rows] * n_cells + own
        by_unit: FloatArray = np.bincount(keys, weights, self.n_units * n_cells).astype(np.float64)
        return vary_totals(by_unit.reshape(-1, n_cells), shares, self._of_units)

    def draw_units(self, most: int) -> IntArray:
        """Stratum and unit of each row, int64 of shape (n_rows, 2); of more units than some number, groups of these."""
        return np.stack([self.strata, self._group_units(most)], axis=1)

    def _group_units(self, most: int) -> IntArray:
        """Group of each row for the jackknife: its unit, or several, two a stratum at least."""
        if self.n_units <= most:
            return self.units
        of_units = self._of_units
        n_each = np.bincount(of_units)
        # by what they weigh: a stratum of few units may be most of the population, and of the variance
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
        """Strata and units of the rows, numbered from 0; strata of a single unit are put together."""
        n = self.n_rows
        strata = np.zeros(n, np.int64) if stratum is None else _number("stratum", stratum)
        within = np.arange(n) if psu is None else _number("psu", psu)
        units = np.unique(strata * (int(within.max()) + 1) + within, return_inverse=True)[1]
        n_units = int(units.max()) + 1
        if n_units < 2:
            raise PmfError(
                "all rows are one sampling unit, which shows no spread; a variance takes two"
            )
        of_units = np.zeros(n_units, np.int64)
        of_units[units] = strata
        joined, n_lone = join_lone_strata(of_units)
        if n_lone:
            self.notes += (
                f"{n_lone} strata have a single unit, and are taken together"
                if n_lone > 1
                else "a stratum has a single unit, and is taken with the one next to it",
            )
        return joined[units], units.astype(np.int64)


def find_student_quantile(degrees: int, level: float) -> float:
    """Standard errors to either side that an interval of some level reaches to, by Student's distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + level) / 2))


def join_lone_strata(of_units: IntArray) -> tuple[IntArray, int]:
    """Put strata of a single unit together, and a lone one with the stratum before it, or after it if it is the first.

    Parameters
    ----------
    of_units
        int64 of shape (n_units,), at least two: stratum of each unit, numbered from 0.

    Returns
    -------
    Strata of the units, numbered from 0, and how many had a single unit.
    """
    lone = np.flatnonzero(np.bincount(of_units) == 1)
    if not lone.size:
        return of_units, 0
    others = np.array([lone[0] - 1 if lone[0] else 1]) if lone.size == 1 else lone[:1]
    joined = np.where(np.isin(of_units, lone), others[0], of_units)
    return np.unique(joined, return_inverse=True)[1].astype(np.int64), int(lone.size)


def vary_totals(by_unit: FloatArray, shares: FloatArray, of_units: IntArray) -> float:
    """Sum of the variances of shares, by the linearised totals of units within strata.

    They are larger by the square of Student's quantile over the normal one, both of 95 %, so that intervals of as many
    independent samples allow for the degrees of freedom: units less strata, of the strata that have any of the samples.
    See Korn and Graubard (1998), Survey Methodology 24(2).

    Parameters
    ----------
    by_unit
        float64 of shape (n_units, n_cells): weights of each unit, by cell; 0 where it has none, and then it counts
        among those of its stratum.
    shares
        float64 of shape (n_cells,): share of each cell in the sum of all.
    of_units
        int64 of shape (n_units,): stratum of each unit, of which each has two at least.
    """
    scores = (by_unit - by_unit.sum(axis=1, keepdims=True) * shares) / float(by_unit.sum())
    n_each = np.bincount(of_units).astype(np.float64)
    means = np.stack([np.bincount(of_units, each) for each in scores.T], axis=1) / n_each[:, None]
    squares = ((scores - means[of_units]) ** 2).sum(axis=1)
    variance = float((np.bincount(of_units, squares) * n_each / (n_each - 1)).sum())
    # strata without any of the samples say nothing of how these vary
    held = np.bincount(of_units, by_unit.sum(axis=1)) > 0
    return variance * _widen(int((n_each[held] - 1).sum()))


def _widen(degrees: int) -> float:
    """Square of Student's quantile over the normal one, both of 95 %."""
    return (find_student_quantile(degrees, 0.95) / NORMAL_QUANTILE) ** 2


def count_degrees(method: str, n: int) -> int:
    """Degrees of freedom of variances by n replicates: all of them, less 1 where they are of one stratum."""
    return max(n - int(method in ("JK1", "bootstrap")), 1)


def vary_replicates(
    by_replicate: FloatArray, shares: FloatArray, factors: FloatArray, degrees: int
) -> float:
    """Sum of the variances of shares, by replicates, larger for the degrees of freedom as by `vary_totals`.

    Parameters
    ----------
    by_replicate
        float64 of shape (n_replicates, n_cells): sums of the weights of each replicate; one without any of these
        samples has no shares.
    shares
        float64 of shape (n_cells,), of the whole.
    factors
        float64 of shape (n_replicates,): share of each squared departure from the whole.
    degrees
        Degrees of freedom.
    """
    totals = by_replicate.sum(axis=1, keepdims=True)
    gaps = by_replicate / np.maximum(totals, np.finfo(float).tiny) - shares
    return float(factors @ (gaps**2).sum(axis=1)) * _widen(degrees)


def _number(name: str, labels: Any) -> IntArray:
    """Numbers of labels in their order, int64 of shape (n_rows,)."""
    given = np.asarray(labels)
    if given.ndim != 1:
        raise PmfError(f"{name} has shape {given.shape}; give one label for each row")
    values = given.tolist()
    for row, value in enumerate(values):
        if value is None or value != value:
            raise PmfError(f"{name}[{row}] is missing; name it, or leave the row out")
    if given.dtype == object:
        given = np.array([str(value) for value in values])
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def _read_floats(name: str, values: Any) -> FloatArray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise PmfError(f"{name} has something that is no number; give numbers") from None


def _read_replicates(replicates: Any) -> FloatArray:
    """Replicate weights, float64 of shape (n_rows, n_replicates)."""
    found = _read_floats("replicates", replicates)
    if found.ndim != 2 or found.shape[1] < 2:
        raise PmfError(
            f"replicates has shape {found.shape}; give (n_rows, n_replicates), two at least"
        )
    bad = np.argwhere(~(np.isfinite(found) & (found >= 0)))
    if len(bad):
        row, column = bad[0].tolist()
        raise PmfError(
            f"replicates[{row}, {column}] is {found[row, column]:g}; replicate weights are finite numbers of at least 0"
        )
    if (empty := np.flatnonzero(~found.any(axis=0))).size:
        raise PmfError(
            f"replicates[:, {empty[0]}] is 0 in all rows ({empty.size} such replicates), of which nothing can be "
            "estimated; leave it out, or read the column again"
        )
    return found


def find_factors(
    method: str | None, n: int, fay: float | None = None, factors: object | None = None
) -> FloatArray:
    """Factor of each of n replicates in a variance, float64 of shape (n,).

    Parameters
    ----------
    method, fay, factors
        As of a `SurveyDesign`.
    n
        Number of replicates, at least two.

    Raises
    ------
    PmfError
        If these do not go together.
    """
    if method not in METHODS:
        raise PmfError(f"method is {method!r}; replicates were made by one of {METHODS}")
    if (method == "Fay") != (fay is not None) or (fay is not None and not 0 <= fay < 1):
        raise PmfError(f"method is {method!r} and fay is {fay}; 'Fay' alone takes one, in [0, 1)")
    if (method == "JKn") != (factors is not None):
        raise PmfError(f"method is {method!r}; 'JKn', and no other, takes factors, one a replicate")
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
