"""Survey designs of samples in memory, and their reduction to replicate weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, check_row_order, find_row_names
from pmflib.base.blocks import DenseBlock
from pmflib.base.errors import PmfError
from pmflib.base.hashing import mix_hashes
from pmflib.base.replicate_weights import ReplicateWeights, group_units, join_lone_strata
from pmflib.base.weights import Weights, read_weights

MOST_REPLICATES = 200
"""Maximum number of jackknife refits; more units are left out in groups within their strata."""


@dataclass(frozen=True)
class Replicate:
    """Weights of one replicate and its factor.

    Parameters
    ----------
    weights
        float64 of shape (n_rows,), at least 0.
    factor
        Above 0: the variance is the sum over the replicates of factor times squared departure from the whole.
    """

    weights: FloatArray
    factor: float


class SurveyDesign:
    """Sampling design of a sample: weights, and strata and sampling units or replicate weights.

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
        Replication method of ``replicates``: "BRR", "Fay", "JK1", "JK2", "JKn" or "bootstrap".
    fay
        Fay's factor, in [0, 1), of "Fay": the share of its weight that the half left out keeps.
    factors
        Numbers above 0 of shape (n_replicates,) of "JKn": (n_h - 1) / n_h of the stratum of the unit left out.
    decimals
        Decimals of the weights that are kept; None as for `pmflib.count_pairs`.

    Attributes
    ----------
    row_names
        Index of the rows, if an argument is a pandas object; otherwise None.
    record
        Factors, degrees of freedom and notes of the design: a `pmflib.base.replicate_weights.ReplicateWeights`.

    Raises
    ------
    PmfError
        If an argument has another number of rows, a weight is not a finite number above 0, a stratum or unit is
        missing, all rows are one unit, or replicates, method, fay and factors do not go together.

    Notes
    -----
    A stratum with a single unit shows no spread: such strata are joined, and a lone one is joined with the stratum
    before it. That overstates variances rather than understates them.

    Units are taken as drawn with replacement: there is no correction for a finite population.

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
        self.row_names: Any = next(
            (names for each in given.values() if (names := find_row_names(each)) is not None), None
        )
        check_row_order(self, **given)
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
        self.replicates: FloatArray | None = None
        self.record: ReplicateWeights
        if replicates is None:
            if method is not None or fay is not None or factors is not None:
                raise PmfError(
                    "method, fay and factors are of replicates; give these, or leave them out"
                )
            self.units, self.record = _read_units(n_rows, stratum, psu)
        else:
            if stratum is not None or psu is not None:
                raise PmfError("replicates are given with stratum or psu; they hold these already")
            self.units, self.replicates = np.arange(n_rows), _read_replicates(replicates)
            n_replicates = self.replicates.shape[1]
            self.record = ReplicateWeights.of_replicates(method, n_replicates, fay, factors)

    def __repr__(self) -> str:
        """Number of rows, effective number of rows, and the design."""
        known = f"{self.n_strata} strata, {self.n_units} units"
        if self.replicates is not None:
            known = f"{self.record.n_columns} replicates by {self.record.method}"
        return f"SurveyDesign({self.n_rows:,} rows worth {self.weights.n_effective:,.0f}, {known})"

    @property
    def n_strata(self) -> int:
        """Number of strata, after those with a single unit were joined."""
        return int(self._strata.max()) + 1

    @property
    def n_units(self) -> int:
        """Number of primary sampling units."""
        return self._strata.size

    @property
    def is_simple(self) -> bool:
        """Whether all rows have one weight, and each is a unit of one stratum: a simple random sample."""
        is_alone = self.replicates is None and self.n_strata == 1 and self.n_units == self.n_rows
        return is_alone and self.weights.scale() is None

    @property
    def degrees(self) -> int:
        """Degrees of freedom of variances."""
        return self.record.degrees

    @property
    def notes(self) -> tuple[str, ...]:
        """How the design was read."""
        return self.record.notes

    @property
    def _strata(self) -> IntArray:
        """Stratum of each unit, int64 of shape (n_units,); with replicate weights, a single one."""
        if self.record.strata is None:
            return np.zeros(self.n_rows, np.int64)
        return self.record.strata

    @cached_property
    def dealt(self) -> IntArray:
        """Position of each row, int64 of shape (n_rows,), whose remainder by a number of folds is its fold.

        Units are dealt one after another, stratum by stratum, in an order by hash: no unit is in two folds, and folds
        have about as many units of each stratum.
        """
        order = np.lexsort((mix_hashes(np.arange(self.n_units)), self._strata))
        place = np.empty(self.n_units, np.int64)
        place[order] = np.arange(self.n_units)
        found: IntArray = place[self.units]
        return found

    def reduce(self, most: int) -> tuple[ReplicateWeights, FloatArray | IntArray]:
        """Reduce the design to replicate weights.

        Parameters
        ----------
        most
            Maximum number of units, at least twice the number of strata; more are put into groups of their stratum.

        Returns
        -------
        The record, and the weights: float64 of shape (n_rows, n_replicates), as they were given; or the sparse form of
        units, int64 of shape (n_rows,).
        """
        if self.replicates is not None:
            return self.record, self.replicates
        if self.n_units <= most:
            return self.record, self.units
        # groups by weight: a stratum of few units may be most of the population, and of the variance
        strata = self._strata
        held = np.bincount(strata[self.units], self.weights.units.astype(np.float64))
        shares = (held * (most / held.sum())).astype(np.int64)
        n_groups = np.clip(shares, 2, np.bincount(strata))
        groups, of_groups = group_units(strata, mix_hashes(np.arange(self.n_units)), n_groups)
        note = f"{self.n_units:,} units are put into groups, which are taken as units"
        known = self.record.degrees, (*self.record.notes, note)
        return ReplicateWeights.of_units(of_groups, *known), groups[self.units]

    def iterate_replicates(self) -> Iterator[Replicate]:
        """Iterate over the replicates: those given, or of the jackknife that leaves out units, or groups of these."""
        record, matrix = self.reduce(MOST_REPLICATES)
        weights, unit = self.weights.units.astype(np.float64), 10.0**self.weights.decimals
        for column, factor in enumerate(record.refit_factors.tolist()):
            if self.replicates is None:
                yield Replicate(record.leave_out(column, matrix.astype(np.int64), weights), factor)
            else:
                yield Replicate(np.asarray(matrix[:, column] * unit, np.float64), factor)

    def find_effective(self, cells: IntArray, n_cells: int) -> tuple[FloatArray, float]:
        """Find the weighted shares of cells among the rows that have one, and the effective number of these rows.

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
            keys = self.units[rows] * n_cells + own
            by_column = np.bincount(keys, weights, self.n_units * n_cells).reshape(-1, n_cells)
        else:
            by_column = np.array(
                [np.bincount(own, column[rows], n_cells) for column in self.replicates.T]
            )
        variance = self.record.vary_shares(by_column.astype(np.float64), shares)
        if variance <= 0 or spread <= 0:
            return shares, kish
        return shares, min(spread / variance, float(rows.size))

    def covary_totals(self, influences: FloatArray, rows: IntArray) -> FloatArray:
        """Find the covariance of sums over rows.

        Parameters
        ----------
        influences
            float64 of shape (n_taken, n_sums): what each of some rows adds, with its weight.
        rows
            int64 of shape (n_taken,): these rows; units without any of them have totals of 0.

        Returns
        -------
        float64 of shape (n_sums, n_sums).
        """
        if self.replicates is not None:
            own = self.weights.units[rows] / 10.0**self.weights.decimals
            gaps = (self.replicates[rows] / own[:, None] - 1).T @ influences
            return self.record.covary(gaps)
        totals = np.zeros((self.n_units, influences.shape[1]))
        np.add.at(totals, self.units[rows], influences)
        return self.record.covary(self.record.find_departures(totals, 0.0))


def _read_units(n: int, stratum: object, psu: object) -> tuple[IntArray, ReplicateWeights]:
    """Number the sampling units of n rows from 0; strata of a single unit are joined."""
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
    notes: tuple[str, ...] = ()
    if n_lone:
        notes += (
            f"{n_lone} strata have a single unit, and are taken together"
            if n_lone > 1
            else "a stratum has a single unit, and is taken with the one next to it",
        )
    return units.astype(np.int64), ReplicateWeights.of_units(joined, notes=notes)


def _number(name: str, labels: Any) -> IntArray:
    """Number labels in sorted order: int64 of shape (n_rows,)."""
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


def _read_replicates(replicates: Any) -> FloatArray:
    """Check replicate weights: float64 of shape (n_rows, n_replicates)."""
    try:
        found = np.asarray(replicates, np.float64)
    except (TypeError, ValueError):
        raise PmfError("replicates has something that is no number; give numbers") from None
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


def weigh_samples(
    samples: object, weight: object | SurveyDesign | None, decimals: int | None
) -> DenseBlock:
    """Attach weights to samples in memory, and the fold order of a design.

    Parameters
    ----------
    samples
        Samples; stored ones are refused.
    weight
        A design, numbers above 0 of shape (n_rows,), or None.
    decimals
        Decimals of the weights that are kept; None as for `read_weights`.

    Raises
    ------
    PmfError
        If samples are stored, or the weights are of another number of rows.
    """
    if not isinstance(samples, DenseBlock):
        raise PmfError("weight is given and samples are stored; give samples in memory")
    if weight is None:
        return samples
    if not isinstance(weight, SurveyDesign):
        weights = read_weights(weight, len(samples), decimals=decimals)
        return DenseBlock(samples.codes, weights.scale())
    if len(samples) != weight.n_rows:
        raise PmfError(
            f"samples has {len(samples)} rows, and the design {weight.n_rows}; give a design of these rows"
        )
    return DenseBlock(samples.codes, weight.weights.scale(), weight.dealt)
