"""Weights of samples: fixed-point integers in a stated unit, their sums, and effective numbers of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, name_type
from pmflib.base.constraints import Interval, check, check_entries, check_shapes
from pmflib.base.errors import PmfError
from pmflib.base.json_records import Form, JsonRecord

MOST_DECIMALS = 6
"""Number of decimals that are kept by default, unless all weights are exact with fewer, or small ones need more: a
weight of 1 then has a rounding error of half a millionth.
"""
LARGEST_ERROR = 1e-3
"""Largest relative change of a weight by rounding: far below the sampling error that weights cause."""
SMALL_UNITS = 6
"""Number of digits of the smallest weight where more than `MOST_DECIMALS` are kept, as of a weight of 1 otherwise."""
DOUBLE_DECIMALS = 300
"""Largest number of decimals: 10 to its power is a double."""
LIMIT = 1 << 63
"""Upper bound of a sum of weights, in units: cells of tables are int64, and none is above the sum."""
LARGEST = 1 << 53
"""Largest weight of a stored sample, in units: doubles hold whole numbers exactly up to it."""
LIMB = 21
"""Bits of a part of a weight: sums of products of two parts over two million rows stay below `LIMIT`."""


@dataclass(frozen=True)
class WeightSums(JsonRecord):
    """Sums of weights and of squared weights by fold: exact integers, which add and subtract.

    Parameters
    ----------
    decimals
        The unit of a weight is 10 ** -decimals.
    totals, squares
        Sums of the weights of each fold, in units, and of their squares.
    """

    decimals: int
    totals: tuple[int, ...]
    squares: Annotated[tuple[int, ...], Form.TEXT]

    def add(self, other: WeightSums, sign: int = 1) -> WeightSums:
        """Add the sums of others, or subtract them with a sign of -1.

        Raises
        ------
        PmfError
            If the units differ, or the sum is not below `LIMIT`.
        """
        if other.decimals != self.decimals:
            raise PmfError(
                f"weights are in units of 10**-{self.decimals} and 10**-{other.decimals}; count both under one schema, "
                f"with weight_decimals={max(self.decimals, other.decimals)}"
            )
        totals = tuple(a + sign * b for a, b in zip(self.totals, other.totals, strict=True))
        check_total(sum(totals), self.decimals)
        squares = tuple(a + sign * b for a, b in zip(self.squares, other.squares, strict=True))
        return WeightSums(self.decimals, totals, squares)

    def select(self, folds: Sequence[int]) -> WeightSums:
        """Select the sums of some folds."""
        totals, squares = (tuple(x[fold] for fold in folds) for x in (self.totals, self.squares))
        return WeightSums(self.decimals, totals, squares)

    def merge(self) -> WeightSums:
        """Merge the sums of all folds into one."""
        return WeightSums(self.decimals, (sum(self.totals),), (sum(self.squares),))

    @classmethod
    def stack(cls, parts: Sequence[WeightSums]) -> WeightSums:
        """Stack the sums of single folds, at least one."""
        totals = tuple(part.totals[0] for part in parts)
        return cls(parts[0].decimals, totals, tuple(part.squares[0] for part in parts))

    def are_equal(self, n_rows: int) -> bool:
        """Whether all rows, given their number, have the same weight."""
        return sum(self.totals) ** 2 == n_rows * sum(self.squares)

    @property
    def n_effective(self) -> float:
        """Kish's effective number of samples, (sum w)^2 / sum w^2."""
        squares = sum(self.squares)
        return sum(self.totals) ** 2 / squares if squares else 0.0

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return sum(self.totals) / 10.0**self.decimals


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of samples.

    Parameters
    ----------
    units
        int64 of shape (n_rows,), at least 1: weights in units of 10 ** -decimals.
    decimals
        Decimals that are kept.
    """

    units: IntArray
    decimals: int

    @property
    def are_ones(self) -> bool:
        """Whether all are 1."""
        return bool((self.units == 10**self.decimals).all())

    @property
    def sums(self) -> WeightSums:
        """Sums of the weights, as of one fold."""
        total = sum_exactly(self.units)
        check_total(total, self.decimals)
        return WeightSums(self.decimals, (total,), (sum_squares(self.units),))

    @property
    def n_effective(self) -> float:
        """Kish's effective number of samples."""
        return self.sums.n_effective

    def scale(self) -> FloatArray | None:
        """Scale weights to the number of samples that each row stands for; their sum is `n_effective`, rounded.

        Returns
        -------
        float64 of shape (n_rows,); None for equal weights, which count 1 each.
        """
        units = self.units
        if not units.size or int(units.min()) == int(units.max()):
            return None
        scaled: FloatArray = units.astype(np.float64) * (round(self.n_effective) / int(units.sum()))
        return scaled


def read_weights(
    weight: object, n_rows: int, *, decimals: int | None = None, name: str = "weight"
) -> Weights:
    """Read the weights of samples.

    Parameters
    ----------
    weight
        Numbers above 0 of shape (n_rows,), as an array, a list or a column of a frame.
    n_rows
        Number of samples.
    decimals
        Decimals that are kept, 0 to 18; None is as for `find_decimals`.
    name
        Name of the argument in messages.

    Raises
    ------
    PmfError
        If a weight is missing, 0, negative, infinite or changed by rounding by more than `LARGEST_ERROR`; if the number
        of weights is not that of the rows; if their sum, in units, is not below 2**63.
    """
    values = _read_numbers(weight, n_rows, name)
    check(Interval(0, 18, also=(None,)), weight_decimals=decimals)
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if bad.size:
        row = int(bad[0])
        raise PmfError(
            f"{name}[{row}] is {values[row]:g} ({bad.size} such rows); weights are finite numbers above zero: leave "
            "these rows out, or give them the weight that they have by design"
        )
    kept = find_decimals(values) if decimals is None else decimals
    scaled = np.rint(values * 10.0**kept)
    # in doubles, which do not overflow
    check_total(float(scaled.sum()), kept, name)
    moved = np.abs(scaled / 10.0**kept - values) / values
    if moved.max(initial=0.0) > LARGEST_ERROR:
        row = int(moved.argmax())
        remedy = "set weight_decimals of the schema higher"
        if decimals is None:
            remedy = f"the largest is {values.max():g}: trim the weights, or leave rows of such small ones out"
        raise PmfError(
            f"{name}[{row}] is {values[row]:g}, which rounding to {kept} decimals changes by {moved[row]:.1%}, above "
            f"{LARGEST_ERROR:.1%} ({int((moved > LARGEST_ERROR).sum())} such rows); {remedy}"
        )
    return Weights(scaled.astype(np.int64), kept)


def read_shares(weight: object | None, n_rows: int) -> FloatArray:
    """Read weights of at least 0, which leave rows out: float64 of shape (n_rows,), 1 each for None.

    Raises
    ------
    PmfError
        If they are of another shape, or one is below 0 or not finite.
    """
    if weight is None:
        return np.ones(n_rows)
    weights = _read_numbers(weight, n_rows, "weight")
    check_entries(Interval(0, closed="left", hint="0 to leave a row out"), weight=weights)
    return weights


def _read_numbers(weight: object, n_rows: int, name: str) -> FloatArray:
    """Read numbers of any value: float64 of shape (n_rows,)."""
    try:
        given = np.asarray(weight)
        values = np.asarray(given, None if np.iscomplexobj(given) else np.float64)
    except (TypeError, ValueError):
        raise PmfError(
            f"{name} is {name_type(weight)}, which is not a number for each row; pass an array or a column of numbers"
        ) from None
    check_shapes("pass one number for each row", PmfError, **{name: (values, (n_rows,))})
    if np.iscomplexobj(values):
        raise PmfError(f"{name} has complex numbers; pass a real number for each row")
    return values


def find_decimals(values: FloatArray) -> int:
    """Find the number of decimals of weights, of which only the ratios count.

    The least number with which all weights are exact up to the precision of doubles; otherwise `MOST_DECIMALS`; or, if
    these change a weight by more than `LARGEST_ERROR`, as many as give the smallest `SMALL_UNITS` digits, while the sum
    in units stays below `LIMIT`.
    """
    for decimals in range(MOST_DECIMALS):
        scaled = values * 10.0**decimals
        if (np.abs(scaled - np.rint(scaled)) <= 1e-12 * scaled).all():
            return decimals
    scaled = values * 10.0**MOST_DECIMALS
    if (np.abs(scaled - np.rint(scaled)) <= LARGEST_ERROR * scaled).all():
        return MOST_DECIMALS
    wanted = SMALL_UNITS - math.floor(math.log10(values.min()))
    room = math.floor(math.log10(LIMIT / 2) - math.log10(values.sum()))
    return max(MOST_DECIMALS, min(wanted, room, DOUBLE_DECIMALS))


def check_total(total: float, decimals: int, name: str = "weight") -> None:
    """Check that a sum of weights, in units, is below `LIMIT`.

    Raises
    ------
    PmfError
        If it is not.
    """
    if total >= LIMIT:
        raise PmfError(
            f"{name} adds up to {float(total):.3g} units of 10**-{decimals}, which is not below 2**63 = 9.22e18; "
            "divide all weights by one number, or set weight_decimals of the schema lower"
        )


def sum_exactly(units: IntArray) -> int:
    """Exact sum of int64 of at least 0, which may exceed 63 bits."""
    return (int((units >> 32).sum()) << 32) + int((units & 0xFFFFFFFF).sum())


def sum_squares(units: IntArray) -> int:
    """Exact sum of squares of int64."""
    total = 0
    for start in range(0, units.size, 1 << LIMB):
        part = units[start : start + (1 << LIMB)]
        limbs = np.stack([(part >> (LIMB * n)) & ((1 << LIMB) - 1) for n in range(3)])
        products = limbs @ limbs.T
        total += sum(int(products[i, j]) << (LIMB * (i + j)) for i in range(3) for j in range(3))
    return total


def vary_independent(shares: FloatArray, squares: FloatArray) -> float:
    """Sum of the variances of the shares of some cells, linearised, if samples are drawn one by one.

    Parameters
    ----------
    shares, squares
        float64 of shape (n_cells,): sums of the weights of the samples of each cell, and of the squared weights, where
        all weights sum to 1.
    """
    return float((squares * (1 - 2 * shares) + shares**2 * squares.sum()).sum())


def find_effective_size(shares: FloatArray, variance: float, kish: float, n_rows: float) -> float:
    """Find the number of independent samples whose shares vary as much as those of a table.

    Parameters
    ----------
    shares
        float64 of shape (n_cells,), summing to 1.
    variance
        Sum of the estimated variances of the shares; 0 if unknown.
    kish
        Kish's effective number of the samples in the table.
    n_rows
        Number of these samples, the largest result.

    Notes
    -----
    The number is n with sum q (1 - q) / n equal to the variance, and Kish's where all samples are in one cell. A sample
    with most of the weight is nearly the whole estimate, from which it hardly departs: variances are then far too
    small. A number above Kish's is therefore at most that of the same samples and one more, of their average weight and
    spread evenly over the cells.
    """
    spread = float((shares * (1 - shares)).sum())
    if spread <= 0 or variance <= 0:
        return min(kish, n_rows)
    n = spread / variance
    if n > kish:
        even = (kish * shares + 1 / shares.size) / (kish + 1)
        squared = float(even @ even)
        own = (1 - 2 / shares.size + squared) / (kish + 1) ** 2
        most = (1 - squared) / (variance * (kish / (kish + 1)) ** 2 + own) - 1
        n = min(n, max(kish, most))
    return min(n, n_rows)


def note_weights(n_rows: int, n_effective: float) -> str:
    """Write a note on the effective number of weighted samples."""
    return (
        f"weighted: {n_rows:,} samples are worth {n_effective:,.0f} (Kish), in which likelihoods, criteria and "
        "pseudo-counts are"
    )
