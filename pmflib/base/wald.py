"""Wald tests for estimates with known covariance, and p-values adjusted for multiple tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pmflib.base.arrays import FloatArray

NULL_SHARE = 1e-9
"""Relative variance below which a direction has none; shares that sum to 1 leave 1e-16."""
LEVEL = 0.05
"""Familywise error rate of tests of all pairs."""


class WaldTest(NamedTuple):
    """Wald test of the hypothesis that several parameters are 0.

    Parameters
    ----------
    statistic, degrees
        Wald statistic and its degrees of freedom.
    p_value
        Probability of a statistic at least as large under the hypothesis, in [0, 1]; NaN without degrees of freedom.
    """

    statistic: float
    degrees: int
    p_value: float


def find_wald_test(values: FloatArray, covariance: FloatArray) -> WaldTest:
    """Test whether parameters are 0, using the directions in which they have variance.

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
    """Adjust the p-values of several tests by Holm's method; the order is preserved.

    References
    ----------
    Holm (1979), Scandinavian Journal of Statistics 6(2).
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for place, each in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = min(1.0, max(highest, (len(p_values) - place) * p_values[each]))
        adjusted[each] = highest
    return adjusted
