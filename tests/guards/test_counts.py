import numpy as np
import pytest
from scipy.stats import chi2_contingency

from pmflib_tasks.guards import compare_counts, estimate_correlation
from pmflib_tasks.guards.counts import carry_dependence, compare_dependence, estimate_design_effect


def test_compare_counts__is_the_g_test_of_a_table():
    new, reference = np.array([40, 50, 60]), np.array([500, 400, 600])
    found = compare_counts(new, reference, np.array([0, 3]))
    table = np.stack([new, reference])
    expected = chi2_contingency(table, correction=False, lambda_="log-likelihood")
    total, sides, cells = table.sum(), table.sum(axis=1), table.sum(axis=0)
    williams = 1 + (total * (1 / sides).sum() - 1) * (total * (1 / cells).sum() - 1) / (
        6 * total * expected.dof
    )
    from scipy.stats import chi2

    p_value = chi2.sf(expected.statistic / williams, expected.dof)
    assert found.p_value[0] == pytest.approx(p_value)
    shares = table / sides[:, None]
    variation = np.abs(shares[0] - shares[1]).sum() / 2
    assert found.total_variation[0] == pytest.approx(variation)
    index = ((shares[0] - shares[1]) * np.log(shares[0] / shares[1])).sum()
    bias = 2 * (1 / sides).sum()
    assert found.stability_index[0] == pytest.approx(index - bias, abs=5e-4)
    assert found.least_index[0] < found.stability_index[0]


@pytest.mark.parametrize(("n_new", "n_reference"), [(30, 300), (200, 5000), (5000, 100_000)])
def test_compare_counts__chance_alone(n_new, n_reference):
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(5), 10_000)
    new, reference = (rng.multinomial(n, shares).ravel() for n in (n_new, n_reference))
    found = compare_counts(new, reference, np.arange(10_001) * 5)
    # four standard errors of a share of 10,000
    for level in (0.1, 0.01):
        allowed = 4 * np.sqrt(level / 10_000)
        assert np.mean(found.p_value < level) == pytest.approx(level, abs=allowed)
    assert abs(found.stability_index.mean()) < 0.2 * 4 * (1 / n_new + 1 / n_reference)
    assert np.mean(found.least_index > 0) < 0.01


def test_compare_counts__clusters_need_their_design_effect():
    # a person gives the same answer eight times
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.full(5, 5.0), 4000)
    new, reference = (8 * rng.multinomial(n, shares).ravel() for n in (200, 5000))
    offsets = np.arange(4001) * 5
    naive = compare_counts(new, reference, offsets)
    corrected = compare_counts(new, reference, offsets, 8.0, 8.0)
    assert np.mean(naive.p_value < 0.01) > 0.5
    assert np.mean(corrected.p_value < 0.01) == pytest.approx(0.01, abs=0.007)
    assert abs(corrected.stability_index.mean()) < 0.1 * naive.stability_index.mean()


def test_compare_counts__too_few_or_one_level():
    new, reference = np.array([10, 19, 50, 0]), np.array([100, 100, 900, 0])
    found = compare_counts(new, reference, np.array([0, 2, 4]))
    assert found.tested.tolist() == [False, False]
    assert found.p_value.tolist() == [1.0, 1.0]


def test_compare_counts__a_level_never_seen_before():
    found = compare_counts(np.array([60, 0, 40]), np.array([600, 400, 0]), np.array([0, 3]))
    assert found.p_value[0] < 1e-10
    assert 1.0 < found.least_index[0] < found.stability_index[0] < np.inf


def test_compare_counts__rare_levels_are_one_cell():
    # forty levels of a few observations each: together as many as before
    rng = np.random.default_rng(2)
    shares = np.array([0.5, 0.4, *np.full(40, 0.1 / 40)])
    new, reference = rng.multinomial(60, shares, 5000), rng.multinomial(600, shares, 5000)
    found = compare_counts(new.ravel(), reference.ravel(), np.arange(5001) * 42)
    assert np.mean(found.p_value < 0.01) == pytest.approx(0.01, abs=0.006)


def test_carry_dependence__new_margins_old_odds_ratios():
    reference = np.array([[[800, 200], [100, 900]]])
    new = np.array([[[10, 60], [20, 10]]])
    fitted = carry_dependence(reference, new)
    assert fitted.sum(axis=1) == pytest.approx(new.sum(axis=1))
    assert fitted.sum(axis=2) == pytest.approx(new.sum(axis=2))
    odds = fitted[0, 0, 0] * fitted[0, 1, 1] / (fitted[0, 0, 1] * fitted[0, 1, 0])
    assert odds == pytest.approx(800.5 * 900.5 / (200.5 * 100.5))


def test_compare_dependence__moved_margins_are_no_change_of_dependence():
    rng = np.random.default_rng(3)
    table = rng.dirichlet(np.full(9, 0.7), 3000).reshape(-1, 3, 3)
    # other margins, the same odds ratios
    tilted = table * rng.uniform(0.5, 2, (3000, 3, 1)) * rng.uniform(0.5, 2, (3000, 1, 3))
    tilted /= tilted.sum(axis=(1, 2), keepdims=True)
    reference = rng.multinomial(20_000, table.reshape(-1, 9)).reshape(-1, 3, 3)
    size = np.full(3000, 20_000)
    kept = rng.multinomial(500, tilted.reshape(-1, 9)).reshape(-1, 3, 3)
    found = compare_dependence(kept, carry_dependence(reference, kept), size)
    assert np.mean(found.p_value < 0.01) < 0.02
    assert np.mean(found.least_index > 0.02) < 0.001
    other = rng.multinomial(500, tilted[::-1].reshape(-1, 9)).reshape(-1, 3, 3)
    found = compare_dependence(other, carry_dependence(reference, other), size)
    assert np.mean(found.p_value < 0.01) > 0.9


def test_estimate_design_effect__folds_of_independent_and_of_clustered_samples():
    rng = np.random.default_rng(4)
    shares = np.full(5, 0.2)
    groups = rng.multinomial(2000, shares, (16, 200)).reshape(16, -1)
    offsets = np.arange(201) * 5
    plain = estimate_design_effect(groups, offsets)
    clustered = estimate_design_effect(6 * groups, offsets)
    assert plain.min() == 1.0
    assert plain.mean() == pytest.approx(1.0, abs=0.1)
    assert clustered.mean() == pytest.approx(6.0, abs=0.2)


def test_estimate_correlation__files_that_differ():
    rng = np.random.default_rng(5)
    n_tests, concentration = 300, 50.0
    # Dirichlet-multinomial counts: the correlation is 1 / (1 + concentration)
    shares = rng.dirichlet(np.full(4, concentration / 4), (12, n_tests))
    groups = rng.multinomial(400, shares).reshape(12, -1)
    offsets = np.arange(n_tests + 1) * 4
    found = estimate_correlation(groups, offsets)
    assert found.mean() == pytest.approx(1 / (1 + concentration), rel=0.05)
    same = rng.multinomial(400, np.full(4, 0.25), (12, n_tests)).reshape(12, -1)
    assert estimate_correlation(same, offsets).mean() < 0.001
