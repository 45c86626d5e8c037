"""Tables of samples with weights: shares of the weights, and how many independent samples they are worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmflib.core.arrays import IntArray
from pmflib.core.blocks import Block
from pmflib.core.weights import WeightSums
from pmflib.counting.table_requests import TablePlan

SQUARES_BITS = 61
"""Bits that sums of squared weights are kept with."""


@dataclass(frozen=True, eq=False)
class WeightedTables:
    """Tables of sums of weights and of their squares, beside those of the numbers of samples.

    Parameters
    ----------
    sums
        int64 tables: weights of the samples of each cell, in units.
    squares
        int64 tables: squares of these weights, times 2 ** shift, each rounded.
    shift
        Such that squares of all samples fit into 62 bits: their sums are the same in any order.
    totals
        What the weights of all samples counted add up to.
    sizes
        Independent samples that each table is worth by its sampling units or replicates, infinite where their totals do
        not vary; None where these are not known.
    """

    sums: list[IntArray]
    squares: list[IntArray]
    shift: int
    totals: WeightSums
    sizes: list[float] | None = None

    def to_samples(self, tables: Sequence[IntArray], n_rows: int) -> tuple[list[Any], int]:
        """Tables in effective samples, and the effective number of all so many rows.

        A table has the shares of the weights, and the number of independent samples whose shares would vary as much:
        by the linearised variance of a ratio, added up over the cells; of units, where these are known. It is another
        one for every table, and never above the number of samples in it. Equal weights, without units, give the tables
        of samples, int64.

        References
        ----------
        Kish (1965), Survey Sampling, for design effects; Wolter (2007), Introduction to Variance Estimation, chapter 6.
        """
        if self.sizes is None and self.totals.are_equal(n_rows):
            return list(tables), n_rows
        worth = self._find_worth(tables)
        found = [
            each * (n / max(int(each.sum()), 1)) for each, n in zip(self.sums, worth, strict=True)
        ]
        return found, round(self.totals.n_effective)

    def find_effects(self, tables: Sequence[IntArray]) -> list[float]:
        """Samples that each table is worth, for each that its rows are worth by weights alone (Kish); 1 of no rows."""
        found = []
        for sums, squares, n in zip(self.sums, self.squares, self._find_worth(tables), strict=True):
            squared = math.ldexp(float(squares.sum()), -self.shift)
            found.append(n * squared / float(sums.sum()) ** 2 if n else 1.0)
        return found

    def _find_worth(self, tables: Sequence[IntArray]) -> list[float]:
        sizes = [None] * len(self.sums) if self.sizes is None else self.sizes
        each = zip(tables, self.sums, self.squares, sizes, strict=True)
        return [_find_worth(*one, self.shift) for one in each]


def _find_worth(
    rows: IntArray, sums: IntArray, squares: IntArray, size: float | None, shift: int
) -> float:
    """Number of samples that a table is worth: see `WeightedTables.to_samples`."""
    total = float(sums.sum())
    if not total:
        return 0.0
    shares, squared = sums / total, np.ldexp(squares.astype(np.float64), -shift)
    spread = float((shares * (1 - shares)).sum())
    variance = float((squared * (1 - 2 * shares) + shares**2 * squared.sum()).sum()) / total**2
    # where all are in one cell, their number is Kish's
    n = spread / variance if spread > 0 < variance else total**2 / float(squared.sum())
    if size is not None and math.isfinite(size):
        n = size
    return min(n, float(rows.sum()))


def add_weighted(block: Block, plan: TablePlan, shift: int, total: IntArray) -> None:
    """Add samples, their weights in units and squares of these to the cells of all tables, in place."""
    assert block.weights is not None
    codes, squares = block.to_codes(plan.offsets), np.ldexp(block.weights**2, shift)
    added = np.stack([np.ones(len(codes)), block.weights, np.rint(squares)]).astype(np.int64)
    for request, table in plan.tables.items():
        rows, cells = request.find_cells(codes, table.shape)
        for part, each in zip(total, added, strict=True):
            np.add.at(part[table.start : table.stop], cells, each[rows])
