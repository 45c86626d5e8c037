"""Whether an answer by the levels of other variables is the same for all of them: a test of counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.display.summary import decimal

LEAST_EXPECTED = 5.0
"""Samples expected in a cell from which on the law of chi-squared is near, by Cochran's rule for four cells in five."""


@dataclass(frozen=True)
class Homogeneity:
    """Pearson's test that shares are the same in all groups.

    Parameters
    ----------
    statistic, degrees, p_value
        Pearson's chi-squared, its degrees of freedom, and the chance of as much if they are.
    is_rough
        Whether more than a fifth of the cells have fewer than ``LEAST_EXPECTED`` expected samples.
    """

    statistic: float
    degrees: int
    p_value: float
    is_rough: bool

    def describe(self) -> str:
        """The test in a line."""
        said = f"chi-squared {decimal(self.statistic)} ({self.degrees}), p = {decimal(self.p_value, 2)}"
        return f"{said}; roughly, for many cells are nearly empty" if self.is_rough else said

    def to_json(self) -> dict[str, float | int | bool]:
        """Plain JSON types."""
        return {
            "statistic": self.statistic,
            "degrees": self.degrees,
            "p_value": self.p_value,
            "is_rough": self.is_rough,
        }


def find_homogeneity(counts: IntArray | FloatArray) -> Homogeneity | None:
    """Test whether the rows of a table have the same shares; None where there is nothing to compare.

    Parameters
    ----------
    counts
        Shape (n_groups, n_cells): samples, taken as independent of each other.

    References
    ----------
    Pearson (1900); Cochran (1954), "Some methods for strengthening the common chi-squared tests", Biometrics 10(4).
    """
    from scipy.special import chdtrc

    table = np.asarray(counts, np.float64)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if min(table.shape) < 2:
        return None
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    degrees = (table.shape[0] - 1) * (table.shape[1] - 1)
    is_rough = bool((expected < LEAST_EXPECTED).mean() > 0.2)
    return Homogeneity(statistic, degrees, float(chdtrc(degrees, statistic)), is_rough)
