"""Variances of what is estimated from samples in memory: their weights, and how the samples vary together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.constraints import at_least, check, check_rows, check_shapes
from pmflib.base.errors import PmfError
from pmflib.base.hashing import mix_hashes
from pmflib.base.replicate_weights import ReplicateWeights, group_units
from pmflib.base.weights import Weights, find_effective_size, read_weights, vary_independent

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


class Variance:
    """How estimates from samples in memory vary: their weights, and sampling units in strata or replicate weights.

    Answers, errors and margins ask an instance, and know no sampling design: `pmflib.surveys.SurveyDesign` reads one,
    and is this class of it. Rows that are drawn one by one are `of_rows`.

    Parameters
    ----------
    weights
        Weights of the rows.
    record
        Factors, degrees of freedom and notes.
    units
        int64 of shape (n_rows,): sampling unit of each row, numbered from 0.
    strata
        int64 of shape (n_units,): stratum of each unit, numbered from 0.
    replicates
        Replicate weights, float64 of shape (n_rows, n_replicates), whose factors are those of ``record``; None for the
        jackknife of units.
    row_names
        Index of the rows, if they have one.
    """

    def __init__(
        self,
        weights: Weights,
        record: ReplicateWeights,
        units: IntArray,
        strata: IntArray,
        replicates: FloatArray | None = None,
        row_names: Any = None,
    ) -> None:
        self.weights = weights
        self.record = record
        self.units = units
        self.strata = strata
        self.replicates = replicates
        self.row_names = row_names
        self.n_rows = units.size

    @classmethod
    def of_rows(cls, weight: object, row_names: Any = None) -> Variance:
        """Variance of rows that are drawn one by one, each with a weight: numbers above 0 of shape (n_rows,).

        Raises
        ------
        PmfError
            If a weight is no finite number above 0, or there is a single row.
        """
        if not hasattr(weight, "__len__"):
            raise PmfError(f"weight is {weight!r}; pass something for each row")
        weights = read_weights(weight, len(weight))
        strata = np.zeros(weights.units.size, np.int64)
        record = ReplicateWeights.of_units(strata)
        return cls(weights, record, np.arange(strata.size), strata, None, row_names)

    def __repr__(self) -> str:
        """Number of rows, effective number of rows, and the design."""
        known = f"{self.n_strata} strata, {self.n_units} units"
        if self.replicates is not None:
            known = f"{self.record.n_columns} replicates by {self.record.method}"
        name, worth = type(self).__name__, self.weights.n_effective
        return f"{name}({self.n_rows:,} rows worth {worth:,.0f}, {known})"

    @property
    def n_strata(self) -> int:
        """Number of strata, after those with a single unit were joined."""
        return int(self.strata.max()) + 1

    @property
    def n_units(self) -> int:
        """Number of primary sampling units."""
        return self.strata.size

    @property
    def is_simple(self) -> bool:
        """Whether all rows have one weight, and each is a unit of one stratum: a simple random sample."""
        return self._are_rows_alone and self.weights.scale() is None

    @property
    def _are_rows_alone(self) -> bool:
        """Whether rows are drawn one by one."""
        return self.replicates is None and self.n_strata == 1 and self.n_units == self.n_rows

    @property
    def degrees(self) -> int:
        """Degrees of freedom of variances."""
        return self.record.degrees

    @property
    def notes(self) -> tuple[str, ...]:
        """How the design was read."""
        return self.record.notes

    @cached_property
    def dealt(self) -> IntArray:
        """Position of each row, int64 of shape (n_rows,), whose remainder by a number of folds is its fold.

        Units are dealt one after another, stratum by stratum, in an order by hash: no unit is in two folds, and folds
        have about as many units of each stratum.
        """
        order = np.lexsort((mix_hashes(np.arange(self.n_units)), self.strata))
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
        strata = self.strata
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
        be as uncertain, all cells together: see `pmflib.base.weights.find_effective_size`.
        """
        rows = np.flatnonzero(cells >= 0)
        if not rows.size:
            return np.zeros(n_cells), 0.0
        own, weights = cells[rows], self.weights.units[rows].astype(np.float64)
        totals = np.bincount(own, weights, n_cells)
        shares = totals / totals.sum()
        kish = float(weights.sum() ** 2 / (weights**2).sum())
        if self._are_rows_alone:
            squared = np.bincount(own, weights**2, n_cells) / totals.sum() ** 2
            variance = vary_independent(shares, squared)
            return shares, find_effective_size(shares, variance, kish, float(rows.size))
        if self.replicates is None:
            keys = self.units[rows] * n_cells + own
            by_column = np.bincount(keys, weights, self.n_units * n_cells).reshape(-1, n_cells)
        else:
            by_column = np.array(
                [np.bincount(own, column[rows], n_cells) for column in self.replicates.T]
            )
        variance = self.record.vary_shares(by_column.astype(np.float64), shares)
        return shares, find_effective_size(shares, variance, kish, float(rows.size))

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


def check_replicates(replicates: Any) -> FloatArray:
    """Check replicate weights: float64 of shape (n_rows, n_replicates), at least 0, each with rows above 0."""
    try:
        found = np.asarray(replicates, np.float64)
    except (TypeError, ValueError):
        raise PmfError("replicates has something that is no number; pass numbers") from None
    check_shapes(
        "pass two replicates at least", PmfError, replicates=(found, ("n_rows", "n_replicates"))
    )
    check(at_least(2), n_replicates=found.shape[1])
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
    samples: object, weight: object | Variance | None, decimals: int | None
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
        raise PmfError("weight is given and samples are stored; pass samples in memory")
    if weight is None:
        return samples
    if not isinstance(weight, Variance):
        weights = read_weights(weight, len(samples), decimals=decimals)
        return DenseBlock(samples.codes, weights.scale())
    check_rows(len(samples), design=weight)
    return DenseBlock(samples.codes, weight.weights.scale(), weight.dealt)
