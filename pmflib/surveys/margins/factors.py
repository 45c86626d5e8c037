"""Raking: factors of the cells of a table that give it known margins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.errors import PmfError

TOLERANCE = 1e-12
"""Largest difference of a share from the known one at which steps end: the rounding error of some thousand sums."""
ACCEPTED = 1e-6
"""Largest difference that is accepted after `MOST_STEPS`: that of margins with six digits."""
MOST_STEPS = 1_000
"""Maximum number of passes over the margins. Margins that agree take some tens."""
EXTREME = 1e100
"""Largest factor before it is bounded, far from what doubles hold."""


@dataclass(frozen=True, eq=False)
class Raked:
    """Result of raking.

    Parameters
    ----------
    factors
        float64 of shape (n_cells, n_columns): factor of the share of each cell.
    gaps
        float64 of shape (n_columns,): largest difference of a share from the known one.
    worst
        Margin with the largest difference in the first column, its level there, and the share reached.
    """

    factors: FloatArray
    gaps: FloatArray
    worst: tuple[int, int, float]


def rake_cells(
    sums: FloatArray,
    cells: IntArray,
    margins: Sequence[FloatArray],
    bounds: tuple[float, float] | None = None,
    start: FloatArray | None = None,
) -> Raked:
    """Rake tables to known margins by iterative proportional fitting.

    Parameters
    ----------
    sums
        float64 of shape (n_cells, n_columns), at least 0: one table in each column, whose sum is above 0.
    cells
        int64 of shape (n_cells, n_margins): level of each cell in each margin; the number of levels if it has none.
    margins
        Known shares of the levels of each margin, float64 of shape (n_levels,).
    bounds
        Lower and upper bound of a factor, where 1 is the mean factor; None for no bounds.
    start
        Factors to start from, float64 of shape (n_cells, 1); None starts from 1.

    Returns
    -------
    The factors. Cells without a level in a margin keep their share, and the others have the known shares of the rest.
    Levels that a table lacks are left out, and the others have their share.

    Notes
    -----
    The factors are products of one factor for each level, cut at the bounds. Among all tables of the same margins and
    bounds, the raked one is nearest to the given one in Kullback-Leibler divergence (Deming and Stephan 1940; Deville
    and Särndal 1992, case 2, and with bounds their truncated form).
    """
    shares = sums / sums.sum(axis=0)
    sides = [_Side.make(shares, cells[:, n], each) for n, each in enumerate(margins)]
    raw = np.ones_like(shares) if start is None else np.repeat(start, shares.shape[1], axis=1)
    low, high = (0.0, np.inf) if bounds is None else bounds
    for _ in range(MOST_STEPS):
        gaps = np.zeros(shares.shape[1])
        worst = (0, 0, 0.0)
        for n, side in enumerate(sides):
            now = side.add(shares * np.clip(raw, low, high))
            missed = np.abs(now - side.target)
            if missed[:, 0].max() >= gaps[0]:
                row = int(missed[:, 0].argmax())
                worst = (n, int(side.levels[row]), float(now[row, 0]))
            gaps = np.maximum(gaps, missed.max(axis=0))
            ratio = np.divide(side.target, now, out=np.ones_like(now), where=now > 0)
            # margins that cannot be reached drive factors to zero and infinity
            raw = np.clip(raw * ratio[side.places], 1 / EXTREME, EXTREME)
        if gaps.max() <= TOLERANCE:
            break
    return Raked(np.clip(raw, low, high), gaps, worst)


def find_levels(
    codes: IntArray, positions: Sequence[tuple[int, ...]], shapes: Sequence[tuple[int, ...]]
) -> IntArray:
    """Find the cell of each row in the table of each margin.

    Parameters
    ----------
    codes
        Integers of shape (n_rows, n_variables); -1 is missing.
    positions, shapes
        Variables of each margin, and their numbers of levels.

    Returns
    -------
    int64 of shape (n_rows, n_margins), in row-major order of the table; its size if a value is missing.
    """
    found = np.empty((len(codes), len(positions)), np.int64)
    for place, (variables, shape) in enumerate(zip(positions, shapes, strict=True)):
        mine = codes[:, list(variables)].astype(np.int64)
        cells = np.ravel_multi_index(tuple(np.maximum(mine, 0).T), shape)
        found[:, place] = np.where((mine < 0).any(axis=1), np.prod(shape), cells)
    return found


@dataclass(frozen=True, eq=False)
class _Side:
    """One margin of some tables.

    Parameters
    ----------
    order, starts
        Cells sorted by level, and the first of each level.
    levels, places
        Levels that cells have, and the row of the level of each cell.
    target
        float64 of shape (n_present, n_columns): shares to be reached.
    """

    order: IntArray
    starts: IntArray
    levels: IntArray
    places: IntArray
    target: FloatArray

    @classmethod
    def make(cls, shares: FloatArray, cells: IntArray, known: FloatArray) -> _Side:
        levels, starts = np.unique(np.sort(cells), return_index=True)
        order, places = np.argsort(cells, kind="stable"), np.searchsorted(levels, cells)
        held = np.add.reduceat(shares[order], starts, axis=0)
        has_none = levels == known.size
        wanted = np.where(held > 0, np.append(known, 0.0)[levels][:, None], 0.0)
        among = wanted.sum(axis=0)
        scale = (1 - held[has_none].sum(axis=0)) / np.where(among > 0, among, 1.0)
        target = np.where(has_none[:, None], held, wanted * scale)
        return cls(order, starts, levels, places, target)

    def add(self, values: FloatArray) -> FloatArray:
        """Sums by level: float64 of shape (n_present, n_columns)."""
        found: FloatArray = np.add.reduceat(values[self.order], self.starts, axis=0)
        return found


def check_bounds(bounds: tuple[float, float] | None) -> None:
    """Check the bounds of factors.

    Raises
    ------
    PmfError
        If they do not enclose 1.
    """
    if bounds is not None and not (len(bounds) == 2 and 0 <= bounds[0] < 1 < bounds[1]):
        raise PmfError(
            f"bounds is {bounds}; pass the smallest and largest factor relative to the mean, as (0.3, 3)"
        )
