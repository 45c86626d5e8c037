"""Bivariate residuals: pairs of variables that depend within states."""

import json

import numpy as np
import pytest
from scipy.stats import chi2_contingency

import pmflib as pmf
from pmflib.core.errors import MemoryPlanError, PmfError, SchemaError
from tests.fitting.test_standard_errors import plant


def draw(n_rows, sizes=(3,) * 5, seed=0, missing=0.2, copied=0.0):
    """Samples of two states, and their fit; a share of the second answers is copied from the first."""
    truth, rng = plant(sizes, 2, seed), np.random.default_rng(seed)
    codes = truth.sample(n_rows, seed)
    codes[:, 1] = np.where(rng.random(n_rows) < copied, codes[:, 0], codes[:, 1])
    codes[rng.random(codes.shape) < missing] = -1
    return codes, pmf.fit_em(codes, rank=2, schema=truth.schema, rng=seed)


def test_bivariate_residuals__one_state_is_the_test_of_independence():
    """Of one state it is the score test of a table's independence, which Pearson's chi-squared is."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, (20_000, 2))
    codes[:, 1] = np.where(rng.random(20_000) < 0.03, codes[:, 0], codes[:, 1])
    result = pmf.fit_em(codes, rank=1, schema=pmf.Schema.from_cardinalities([3, 3]), pseudo_count=0)
    (found,) = pmf.bivariate_residuals(result.model, codes).pairs
    table = np.zeros((3, 3))
    np.add.at(table, tuple(codes.T), 1)
    expected = chi2_contingency(table)
    assert found.degrees == expected.dof == 4
    assert found.statistic == pytest.approx(expected.statistic, rel=0.05)
    shares = (table - expected.expected_freq) / len(codes)
    assert found.excess == pytest.approx(shares.flat[np.abs(shares).argmax()])


def test_bivariate_residuals__a_dependent_pair_is_found_and_others_are_not():
    codes, result = draw(4000, copied=0.2)
    found = pmf.bivariate_residuals(result.model, codes)
    assert found.pairs[0].variables == ("v0", "v1")
    assert found.pairs[0].adjusted < 1e-6
    assert found.pairs[0].excess > 0
    assert found.pairs[0].levels[0] == found.pairs[0].levels[1]
    assert len(found.pairs) == 10
    assert "most of all v0 and v1" in found.summary().to_text()
    codes, result = draw(4000)
    assert not pmf.bivariate_residuals(result.model, codes).large


def test_bivariate_residuals__p_values_are_uniform_where_nothing_depends():
    values = []
    for seed in range(40):
        codes, result = draw(1000, sizes=(2,) * 6, seed=seed)
        pairs = pmf.bivariate_residuals(result.model, codes).pairs
        values += [each.p_value for each in pairs if each.degrees]
    # 600 p-values, 40 independent surveys: two standard errors around .05, and some more for the asymptotics
    assert 0.02 < np.mean(np.array(values) < 0.05) < 0.1
    assert 0.4 < np.mean(values) < 0.6


def test_bivariate_residuals__rows_without_one_of_the_two_say_nothing_of_them():
    codes, result = draw(2000, copied=0.1)
    found = pmf.bivariate_residuals(result.model, codes)
    by_pair = {each.variables: each for each in found.pairs}
    both = (codes[:, 2] >= 0) & (codes[:, 4] >= 0)
    assert by_pair["v2", "v4"].support == both.sum()
    codes[:, 3] = np.where(codes[:, 2] >= 0, -1, codes[:, 3])
    pairs = {each.variables for each in pmf.bivariate_residuals(result.model, codes).pairs}
    assert ("v2", "v3") not in pairs
    assert ("v2", "v4") in pairs


def test_bivariate_residuals__what_the_parameters_take_up_leaves_nothing_to_test():
    """Two states of three binary variables have as many parameters as there are free cells."""
    truth = plant([2, 2, 2], 2)
    codes = truth.sample(3000, 0)
    result = pmf.fit_em(codes, truth, pseudo_count=0, tol=1e-12, max_passes=5000, accelerate=True)
    found = pmf.bivariate_residuals(result.model, codes)
    assert [each.degrees for each in found.pairs] == [0, 0, 0]
    assert np.isnan([each.p_value for each in found.pairs]).all()
    assert not found.large
    assert "leave no pair to test" in str(found.summary())


def test_bivariate_residuals__of_corner_cases():
    schema = pmf.Schema.from_cardinalities([2, 1, 3])
    codes = np.array([[0, 0, -1], [1, 0, -1], [1, -1, -1]])
    result = pmf.fit_em(codes, rank=1, schema=schema)
    found = pmf.bivariate_residuals(result.model, codes)
    # a variable of one level depends on nothing, and no sample holds the other two
    assert found.pairs == ()
    assert "leave no pair to test" in str(found.summary())


def test_bivariate_residuals__are_in_what_a_small_fit_says():
    codes, result = draw(1000, copied=0.3)
    again = pmf.bivariate_residuals(result.model, codes)
    assert result.residuals.pairs == again.pairs
    assert "within states" in str(result.summary())
    written = json.loads(json.dumps(again.to_json(), allow_nan=False))
    assert written["n_contradicting"] == len(again.large)
    assert written["pairs"][0]["variables"] == ["v0", "v1"]
    assert again.table.num_rows == len(again.pairs)


def test_bivariate_residuals__refuses_what_has_no_independence_within_states():
    codes, result = draw(300)
    forests = pmf.fit_em(codes, rank=2, schema=result.model.schema, dependence="tree").model
    with pytest.raises(PmfError, match="forests"):
        pmf.bivariate_residuals(forests, codes)
    with pytest.raises(SchemaError):
        pmf.bivariate_residuals(result.model, codes[:, :3])
    wide = pmf.Schema.from_cardinalities([50] * 40)
    model = pmf.JointPMF(np.ones(1), np.full((2000, 1), 0.02), wide)
    with pytest.raises(MemoryPlanError, match="entries"):
        pmf.bivariate_residuals(model, np.zeros((3, 40), dtype=np.int64))
