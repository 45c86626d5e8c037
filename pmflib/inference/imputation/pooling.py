"""Rubin's rules for pooling estimates from several imputed tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pmflib.base.arrays import FloatArray
from pmflib.base.constraints import Interval, at_least, check, check_entries, check_shapes
from pmflib.base.errors import PmfError


@dataclass(frozen=True, eq=False)
class PooledEstimate:
    """Pooled estimates; every field except the last two has the shape of the estimates from one table.

    Parameters
    ----------
    estimate
        Mean of the estimates over tables.
    within
        Mean of their variances (within-imputation variance).
    between
        Variance of the estimates over tables (between-imputation variance).
    variance
        Variance of the pooled estimate, ``within + (1 + 1 / draws) * between``.
    dof
        Degrees of freedom of the t distribution used for intervals, above 0; infinite if the estimates do not vary.
    low, high
        Limits of the interval.
    fraction_missing
        Fraction of missing information, in [0, 1].
    level
        Confidence level of the interval.
    draws
        Number of tables.
    """

    estimate: FloatArray
    within: FloatArray
    between: FloatArray
    variance: FloatArray
    dof: FloatArray
    low: FloatArray
    high: FloatArray
    fraction_missing: FloatArray
    level: float
    draws: int

    @property
    def error(self) -> FloatArray:
        """Return the standard error of the pooled estimate."""
        return np.asarray(np.sqrt(self.variance))


def pool(
    estimates: ArrayLike,
    variances: ArrayLike,
    *,
    dof: ArrayLike = np.inf,
    level: float = 0.95,
) -> PooledEstimate:
    """Pool estimates from several imputed tables by Rubin's rules.

    Parameters
    ----------
    estimates
        Shape (draws,), or (draws, ...) for several quantities: estimates from each table, at least two tables. Use a
        scale on which the estimates are approximately normal; for a correlation, ``arctanh`` with variance 1 / (n - 3).
    variances
        The same shape, at least 0: squared standard errors, each computed as if the table were fully observed.
    dof
        Degrees of freedom of a complete table, above 0: n - 1 for a mean, n minus the number of coefficients for a
        regression. A number, or an array of the shape of one table's estimates. Use infinity for large tables.
    level
        Confidence level of the interval, in (0, 1).

    Returns
    -------
    Estimate, variance, degrees of freedom, interval and fraction of missing information of each quantity; NaN if an
    estimate or a variance is NaN.

    Raises
    ------
    PmfError
        If there are fewer than two tables, shapes do not match, a variance is negative, or an option is out of range.

    Notes
    -----
    Let T be the variance of the pooled estimate and l = (1 + 1/m) B / T the share of the between-imputation variance
    with m tables. The degrees of freedom are 1 / (1 / v_m + 1 / v_obs), with v_m = (m - 1) / l^2 and v_obs = (1 - l)
    dof (dof + 1) / (dof + 3); the fraction of missing information is (r + 2 / (v + 3)) / (r + 1), r = l / (1 - l).

    References
    ----------
    Rubin (1987), "Multiple imputation for nonresponse in surveys", section 3.3; Barnard, Rubin (1999), "Small-sample
    degrees of freedom with multiple imputation", Biometrika 86(4), equation 3.

    Examples
    --------
    >>> found = pool([0.50, 0.54, 0.49, 0.53], [0.0025, 0.0025, 0.0025, 0.0025], dof=99)
    >>> [round(float(each), 3) for each in (found.estimate, found.error, found.low, found.high)]
    [0.515, 0.057, 0.4, 0.63]
    """
    from scipy.special import stdtrit

    each, squares = np.asarray(estimates, np.float64), np.asarray(variances, np.float64)
    complete = np.asarray(dof, np.float64)
    check_shapes("pass a variance for every estimate", PmfError, variances=(squares, each.shape))
    n_tables = len(each) if each.ndim else 0
    check(at_least(2, "along the first axis"), **{"number of estimates": n_tables})
    check_entries(Interval(0, hint="the squares of errors"), variances=squares)
    check_entries(Interval(0, closed="right"), dof=complete)
    check(Interval(0, 1, "neither", "as 0.95"), level=level)
    if complete.ndim:
        check_shapes("or pass one number", PmfError, dof=(complete, each.shape[1:]))
    draws = len(each)
    estimate, within = each.mean(axis=0), squares.mean(axis=0)
    # equal estimates have no variance, whatever the rounding of their mean
    between = np.where((each == each[0]).all(axis=0), 0.0, each.var(axis=0, ddof=1))
    extra = (1 + 1 / draws) * between
    variance = within + extra
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(extra == 0, 0.0, extra / variance)
        of_draws = (draws - 1) / share**2
        weight = np.where(np.isinf(complete), 1.0, (complete + 1) / (complete + 3))
        # if tables have no variance of their own, only the variance over draws is left
        of_rows = np.where(share < 1, weight * complete * (1 - share), np.inf)
        found = 1 / (1 / of_draws + 1 / of_rows)
        missing = np.where(share > 0, share + (1 - share) * 2 / (found + 3), 0.0)
        reach = stdtrit(found, (1 + level) / 2) * np.sqrt(variance)
    is_known = ~np.isnan(variance)
    return PooledEstimate(
        estimate=estimate,
        within=within,
        between=between,
        variance=variance,
        dof=np.where(is_known, found, np.nan),
        low=np.asarray(estimate - reach),
        high=np.asarray(estimate + reach),
        fraction_missing=np.where(is_known, missing, np.nan),
        level=level,
        draws=draws,
    )
