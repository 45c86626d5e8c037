"""Rubin's rules: one estimate with its error from those of several imputed tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pmflib.core.arrays import FloatArray
from pmflib.core.errors import PmfError


@dataclass(frozen=True, eq=False)
class PooledEstimate:
    """Estimates that are pooled over draws; every field but the last two has the shape of one table's estimates.

    Parameters
    ----------
    estimate
        Mean of the estimates of the tables.
    within
        Mean of their variances: what complete tables of so many rows would leave open.
    between
        Variance of the estimates from table to table: what the gaps leave open.
    variance
        Variance of the pooled estimate, ``within + (1 + 1 / draws) * between``.
    dof
        Degrees of freedom of the t distribution that intervals are of, above 0; infinite where nothing varies.
    low, high
        Ends of the interval.
    fraction_missing
        Share of the information on the quantity that is missing, in [0, 1].
    level
        Probability of the interval.
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
        """Standard error of the pooled estimate."""
        return np.asarray(np.sqrt(self.variance))


def pool(
    estimates: ArrayLike,
    variances: ArrayLike,
    *,
    dof: ArrayLike = np.inf,
    level: float = 0.95,
) -> PooledEstimate:
    """Pool what was estimated from each of several imputed tables, by Rubin's rules.

    Parameters
    ----------
    estimates
        Shape (draws,), or (draws, ...) of many quantities at once: what each table gives, at least two tables. Take
        quantities on a scale where they are about normal: of a correlation ``arctanh``, with variance 1 / (n - 3).
    variances
        The same shape, at least 0: squared standard errors, as each table would have them were it observed.
    dof
        Degrees of freedom that a complete table would have, above 0: n - 1 of a mean, n less the number of coefficients
        of a regression; one number, or the shape of one table's estimates. Infinite is for large tables.
    level
        Probability of the interval, in (0, 1).

    Returns
    -------
    Estimate, variance, degrees of freedom, interval and fraction of missing information of each quantity, NaN where an
    estimate or a variance is NaN.

    Raises
    ------
    PmfError
        If there are fewer than two tables, shapes do not agree, a variance is below 0, or an option is out of range.

    Notes
    -----
    With T the variance of the pooled estimate and l = (1 + 1/m) B / T its share from between m tables, the degrees of
    freedom are 1 / (1 / v_m + 1 / v_obs), with v_m = (m - 1) / l^2 and v_obs = (1 - l) dof (dof + 1) / (dof + 3); the
    fraction of missing information is (r + 2 / (v + 3)) / (r + 1), r = l / (1 - l).

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
    if each.shape != squares.shape:
        raise PmfError(
            f"estimates has shape {each.shape} and variances {squares.shape}; give a variance for every estimate"
        )
    if each.ndim < 1 or len(each) < 2:
        raise PmfError(
            f"estimates has shape {each.shape}; give those of at least 2 imputed tables, along the first axis"
        )
    if (squares < 0).any():
        raise PmfError(f"variances has {float(np.nanmin(squares))}, below 0; square the errors")
    if not (complete > 0).all():
        raise PmfError(f"dof has {float(complete.min())}; give numbers above 0, or infinity")
    if not 0 < level < 1:
        raise PmfError(f"level is {level}; give a probability in (0, 1), such as 0.95")
    if complete.ndim and complete.shape != each.shape[1:]:
        raise PmfError(
            f"dof has shape {complete.shape}; give one number, or shape {each.shape[1:]}"
        )
    draws = len(each)
    estimate, within = each.mean(axis=0), squares.mean(axis=0)
    # equal estimates have no variance, however their mean is rounded
    between = np.where((each == each[0]).all(axis=0), 0.0, each.var(axis=0, ddof=1))
    extra = (1 + 1 / draws) * between
    variance = within + extra
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(extra == 0, 0.0, extra / variance)
        of_draws = (draws - 1) / share**2
        weight = np.where(np.isinf(complete), 1.0, (complete + 1) / (complete + 3))
        # where tables have no variance of their own there is nothing but the draws to go by
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
