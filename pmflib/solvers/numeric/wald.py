"""Wald's tests of estimates whose covariance is known, and p-values for several tests taken together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pmflib.core.arrays import FloatArray

NULL_SHARE = 1e-9
"""Share of the largest variance below which a direction has none: shares that sum to 1 leave 1e-16."""


class WaldTest(NamedTuple):
    """A test that some numbers are 0.

    Parameters
    ----------
    statistic, degrees
        Wald's statistic, and its degrees of freedom.
    p_value
        Chance of one as large where they are, in [0, 1]; NaN without degrees of freedom.
    """

    statistic: float
    degrees: int
    p_value: float


def find_wald_test(values: FloatArray, covariance: FloatArray) -> WaldTest:
    """Test that numbers are 0, in the directions in which they vary.

    Parameters
    ----------
    values
        float64 of shape (n_numbers,).
    covariance
        float64 of shape (n_numbers, n_numbers).
    """
    from scipy.special import chdtrc

    if not covariance.any():
        return WaldTest(0.0, 0, float("nan"))
    scale = np.sqrt(np.maximum(np.diagonal(covariance), np.finfo(np.float64).tiny))
    spreads, vectors = np.linalg.eigh(covariance / scale / scale[:, None])
    kept = spreads > NULL_SHARE * spreads.max()
    turned = vectors[:, kept].T @ (values / scale)
    statistic, degrees = float((turned**2 / spreads[kept]).sum()), int(kept.sum())
    return WaldTest(statistic, degrees, float(chdtrc(degrees, statistic)))


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """P-values for all of several tests taken together, in their order.

    References
    ----------
    Holm (1979), Scandinavian Journal of Statistics 6(2).
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for place, each in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = min(1.0, max(highest, (len(p_values) - place) * p_values[each]))
        adjusted[each] = highest
    return adjusted
