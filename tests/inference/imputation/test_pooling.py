import numpy as np
import pytest
from scipy import stats

import pmflib as pmf


def pool_one(estimates, variances, dof, level):
    """Rubin's rules for one quantity, as the papers write them."""
    m = len(estimates)
    within, between = np.mean(variances), np.var(estimates, ddof=1)
    total = within + (1 + 1 / m) * between
    r = (1 + 1 / m) * between / within
    share = r / (1 + r)
    v_m = (m - 1) * (1 + 1 / r) ** 2
    v_obs = (dof + 1) / (dof + 3) * dof * (1 - share)
    v = v_m * v_obs / (v_m + v_obs)
    low, high = stats.t.interval(level, v, np.mean(estimates), np.sqrt(total))
    return np.mean(estimates), total, v, low, high, (r + 2 / (v + 3)) / (r + 1)


def test_pool__many_quantities_at_once_as_one_by_one():
    rng = np.random.default_rng(0)
    estimates, variances = rng.normal(size=(7, 2, 3)), rng.uniform(0.5, 2, (7, 2, 3))
    dof = rng.uniform(5, 200, (2, 3))
    found = pmf.inference.pool(estimates, variances, dof=dof, level=0.9)
    for cell in np.ndindex(2, 3):
        every = (slice(None), *cell)
        expected = pool_one(estimates[every], variances[every], dof[cell], 0.9)
        got = [
            found.estimate[cell],
            found.variance[cell],
            found.dof[cell],
            found.low[cell],
            found.high[cell],
            found.fraction_missing[cell],
        ]
        np.testing.assert_allclose(got, expected, rtol=1e-10)
    np.testing.assert_allclose(found.error**2, found.variance)
    assert (found.level, found.draws) == (0.9, 7)


def test_pool__intervals_of_means_cover_as_they_say():
    # normal samples of 15 with 40 % missing at random, imputed from the posterior of mean and variance
    rng, n, n_seen, draws, repeats = np.random.default_rng(1), 15, 9, 10, 4000
    seen = rng.normal(size=(repeats, n_seen))
    mean, square = seen.mean(axis=1), seen.var(axis=1, ddof=1)
    sigma = np.sqrt((n_seen - 1) * square / rng.chisquare(n_seen - 1, (draws, repeats)))
    mu = mean + sigma / np.sqrt(n_seen) * rng.normal(size=(draws, repeats))
    made = mu[..., None] + sigma[..., None] * rng.normal(size=(draws, repeats, n - n_seen))
    tables = np.concatenate([np.broadcast_to(seen, (draws, *seen.shape)), made], axis=2)
    found = pmf.inference.pool(tables.mean(axis=2), tables.var(axis=2, ddof=1) / n, dof=n - 1)
    covered = ((found.low <= 0) & (found.high >= 0)).mean()
    assert covered == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / repeats))
    # an interval without the gaps' part does not
    reach = stats.t.ppf(0.975, n - 1) * np.sqrt(found.within)
    assert (np.abs(found.estimate) <= reach).mean() < 0.93


def test_pool__where_draws_agree_it_is_the_interval_of_one_table():
    found = pmf.inference.pool([0.1 + 0.2] * 3, [0.04] * 3)
    assert found.between == 0
    assert found.fraction_missing == 0
    assert np.isinf(found.dof)
    np.testing.assert_allclose([found.low, found.high], stats.norm.interval(0.95, 0.3, 0.2))
    nothing = pmf.inference.pool([0.5, 0.5], [0.0, 0.0])
    assert nothing.low == 0.5
    assert nothing.high == 0.5


def test_pool__where_tables_leave_nothing_open_the_draws_do():
    found = pmf.inference.pool([0.4, 0.6, 0.5], [0.0, 0.0, 0.0], dof=50)
    assert found.dof == 2
    assert found.fraction_missing == 1
    expected = stats.t.interval(0.95, 2, 0.5, np.sqrt(4 / 3) * 0.1)
    np.testing.assert_allclose([found.low, found.high], expected)


def test_pool__not_a_number_stays_with_its_quantity():
    found = pmf.inference.pool([[1.0, np.nan], [2.0, 3.0]], [[1.0, 1.0], [1.0, 1.0]])
    assert np.isfinite(found.high[0])
    for values in (found.estimate, found.dof, found.low, found.high, found.fraction_missing):
        assert np.isnan(values[1])


@pytest.mark.parametrize(
    ("estimates", "variances", "options", "message"),
    [
        ([0.5], [0.1], {}, "estimates"),
        (0.5, 0.1, {}, "estimates"),
        ([0.5, 0.6], [0.1], {}, "variances"),
        ([0.5, 0.6], [0.1, -0.1], {}, "variances"),
        ([0.5, 0.6], [0.1, 0.1], {"dof": 0}, "dof"),
        ([0.5, 0.6], [0.1, 0.1], {"dof": [5, 6]}, "dof"),
        ([0.5, 0.6], [0.1, 0.1], {"level": 95}, "level"),
    ],
)
def test_pool__mistakes(estimates, variances, options, message):
    with pytest.raises(pmf.PmfError, match=message):
        pmf.inference.pool(estimates, variances, **options)
