"""Bivariate residuals: pairs of variables that depend within states."""

import json

import numpy as np
import pytest
from scipy.stats import chi2_contingency

import pmflib as pmf
from pmflib.base import MemoryPlanError, PmfError, SchemaError
from pmflib.inference.checks import count_work
from tests.families.traits.planted_traits import draw_samples, plant_items
from tests.inference.errors.test_standard_errors import plant


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
    (found,) = pmf.inference.bivariate_residuals(result.model, codes).pairs
    table = np.zeros((3, 3))
    np.add.at(table, tuple(codes.T), 1)
    expected = chi2_contingency(table)
    assert found.degrees == expected.dof == 4
    assert found.statistic == pytest.approx(expected.statistic, rel=0.05)
    shares = (table - expected.expected_freq) / len(codes)
    assert found.excess == pytest.approx(shares.flat[np.abs(shares).argmax()])


def test_bivariate_residuals__a_dependent_pair_is_found_and_others_are_not():
    codes, result = draw(4000, copied=0.2)
    found = pmf.inference.bivariate_residuals(result.model, codes)
    assert found.pairs[0].variables == ("v0", "v1")
    assert found.pairs[0].adjusted < 1e-6
    assert found.pairs[0].excess > 0
    assert found.pairs[0].levels[0] == found.pairs[0].levels[1]
    assert len(found.pairs) == 10
    codes, result = draw(4000)
    assert not pmf.inference.bivariate_residuals(result.model, codes).large


def test_bivariate_residuals__p_values_are_uniform_where_nothing_depends():
    values = []
    for seed in range(40):
        truth = plant((2,) * 6, 2, seed)
        codes = truth.sample(1000, seed)
        codes[np.random.default_rng(seed).random(codes.shape) < 0.2] = -1
        pairs = pmf.fit_em(codes, truth, max_passes=5000, accelerate=True).residuals.pairs
        values += [each.p_value for each in pairs if each.degrees]
    # 600 p-values, 40 independent surveys: two standard errors around .05, and some more for the asymptotics
    assert 0.02 < np.mean(np.array(values) < 0.05) < 0.1
    assert 0.4 < np.mean(values) < 0.6


@pytest.mark.parametrize("copied", [0.0, 0.3])
def test_bivariate_residuals__levels_that_a_state_hardly_ever_has_hide_nothing(copied):
    """Pseudo-counts hold their probabilities above 0: all p-values were next to 1, that of a dependent pair too."""
    rng = np.random.default_rng(0)
    chances = np.array([[0.5, 0.5, 0, 0, 0], [0, 0.3, 0.4, 0.3, 0], [0, 0, 0, 0.5, 0.5]])
    states = rng.choice(3, 1500, p=[0.3, 0.3, 0.4])
    ends = chances.cumsum(axis=1)[states][:, None, :-1]
    codes = (rng.random((1500, 6, 1)) > ends).sum(axis=2)
    codes[:, 1] = np.where(rng.random(1500) < copied, codes[:, 0], codes[:, 1])
    schema = pmf.Schema.from_cardinalities([5] * 6)
    model = pmf.fit_em(codes, rank=3, schema=schema, dependence="none", pseudo_count=1.0).model
    found = pmf.inference.bivariate_residuals(model, codes)
    if copied:
        assert found.pairs[0].variables == ("v0", "v1")
        assert found.pairs[0].adjusted < 1e-6
    else:
        assert 0.2 < np.median([each.p_value for each in found.pairs]) < 0.8


def test_bivariate_residuals__rows_without_one_of_the_two_say_nothing_of_them():
    codes, result = draw(2000, copied=0.1)
    found = pmf.inference.bivariate_residuals(result.model, codes)
    by_pair = {each.variables: each for each in found.pairs}
    both = (codes[:, 2] >= 0) & (codes[:, 4] >= 0)
    assert by_pair["v2", "v4"].support == both.sum()
    codes[:, 3] = np.where(codes[:, 2] >= 0, -1, codes[:, 3])
    pairs = {
        each.variables for each in pmf.inference.bivariate_residuals(result.model, codes).pairs
    }
    assert ("v2", "v3") not in pairs
    assert ("v2", "v4") in pairs


def test_bivariate_residuals__what_the_parameters_take_up_leaves_nothing_to_test():
    """Two states of three binary variables have as many parameters as there are free cells."""
    truth = plant([2, 2, 2], 2)
    codes = truth.sample(3000, 0)
    result = pmf.fit_em(codes, truth, pseudo_count=0, tol=1e-12, max_passes=5000, accelerate=True)
    found = pmf.inference.bivariate_residuals(result.model, codes)
    assert [each.degrees for each in found.pairs] == [0, 0, 0]
    assert np.isnan([each.p_value for each in found.pairs]).all()
    assert not found.large


def test_bivariate_residuals__of_corner_cases():
    schema = pmf.Schema.from_cardinalities([2, 1, 3])
    codes = np.array([[0, 0, -1], [1, 0, -1], [1, -1, -1]])
    result = pmf.fit_em(codes, rank=1, schema=schema)
    found = pmf.inference.bivariate_residuals(result.model, codes)
    # a variable of one level depends on nothing, and no sample holds the other two
    assert found.pairs == ()


def test_bivariate_residuals__are_in_what_a_small_fit_says():
    codes, result = draw(1000, copied=0.3)
    again = pmf.inference.bivariate_residuals(result.model, codes)
    assert result.residuals.pairs == again.pairs
    written = json.loads(json.dumps(again.to_json(), allow_nan=False))
    assert written["n_contradicting"] == len(again.large)
    assert written["pairs"][0]["variables"] == ["v0", "v1"]
    assert again.table.num_rows == len(again.pairs)


def plant_triangle(n_rows, seed, share, *, missing=0.2, rank=2):
    """Samples of some states: the second copies the first, and a third, at a share, the one or the other."""
    truth, rng = plant((2,) * 7, rank, seed), np.random.default_rng(seed)
    codes = truth.sample(n_rows, seed)
    codes[:, 1] = np.where(rng.random(n_rows) < 0.3, codes[:, 0], codes[:, 1])
    either = codes[np.arange(n_rows), rng.integers(0, 2, n_rows)]
    codes[:, 2] = np.where(rng.random(n_rows) < share, either, codes[:, 2])
    codes[rng.random(codes.shape) < missing] = -1
    return codes, truth.schema


@pytest.mark.slow
def test_bivariate_residuals__of_forests_name_what_no_forest_has():
    values, found = [], 0
    for seed in range(10):
        codes, schema = plant_triangle(1500, seed, 0.0)
        model = pmf.fit_em(codes, rank=2, schema=schema, dependence="tree", rng=seed).model
        values += [each.p_value for each in pmf.inference.bivariate_residuals(model, codes).pairs]
        codes, schema = plant_triangle(4000, seed, 0.7, rank=1)
        model = pmf.fit_em(codes, rank=1, schema=schema, dependence="tree", rng=seed).model
        large = pmf.inference.bivariate_residuals(model, codes).large
        found += any({"v0", "v1", "v2"}.issuperset(each.variables) for each in large)
    tested = np.array(values)[~np.isnan(values)]
    assert 0.02 < np.mean(tested < 0.05) < 0.1
    assert found >= 7


def test_bivariate_residuals__neighbours_in_all_states_leave_nothing_to_test():
    codes, schema = plant_triangle(2000, 0, 0.0)
    result = pmf.fit_em(codes, rank=1, schema=schema, dependence="tree", rng=0)
    assert ("v0", "v1") in {tuple(sorted(each[:2])) for each in result.model.edges()}
    pairs = {each.variables: each for each in result.residuals.pairs}
    assert pairs["v0", "v1"].degrees == 0
    again = pmf.inference.bivariate_residuals(result.model, codes)
    assert result.residuals.to_json() == again.to_json()


@pytest.mark.slow
def test_bivariate_residuals__repeated_rows_with_gaps_are_drawn_one_by_one():
    """Many equal rows whose common neighbour is missing spread as many, not as one that many times."""
    values, rng = [], np.random.default_rng(0)
    for seed in range(60):
        codes = rng.integers(0, 2, (1000, 3))
        for copied in (0, 2):
            codes[:, copied] = np.where(rng.random(1000) < 0.5, codes[:, 1], codes[:, copied])
        codes[rng.random(1000) < 0.6, 1] = -1
        schema = pmf.Schema.from_cardinalities([2] * 3)
        model = pmf.fit_em(codes, rank=1, schema=schema, dependence="tree", rng=seed).model
        if len(model.edges()) == 2:
            pairs = {
                each.variables: each
                for each in pmf.inference.bivariate_residuals(model, codes).pairs
            }
            values.append(pairs["v0", "v2"].p_value)
    assert len(values) > 30
    assert np.mean(np.array(values) < 0.05) < 0.12


def test_bivariate_residuals__of_traits():
    truth, values = plant_items([2] * 8, 1, 0), []
    for seed in range(15):
        codes = draw_samples(truth, 1000, seed, missing=0.2)[0]
        result = pmf.families.fit_item_responses(codes, 1, schema=truth.schema)
        values += [each.p_value for each in result.residuals.pairs if each.degrees]
    assert len(values) > 300
    assert 0.02 < np.mean(np.array(values) < 0.05) < 0.1
    codes[:, 5] = np.where(np.random.default_rng(0).random(1000) < 0.4, codes[:, 2], codes[:, 5])
    result = pmf.families.fit_item_responses(codes, 1, schema=truth.schema)
    assert result.residuals.large[0].variables == ("v2", "v5")
    assert result.residuals.large[0].excess > 0


def test_bivariate_residuals__of_many_samples_are_found_by_some(monkeypatch):
    codes, result = draw(6000, copied=0.3)
    assert result.residuals.n_taken is None
    n_entries, n_cells = count_work(result.model)
    work = (n_entries + n_cells + 2) * n_entries
    monkeypatch.setattr("pmflib.inference.checks.bivariate_residuals.SMALL_WORK", work * 2000)
    drawn = pmf.fit_em(codes, rank=2, schema=result.model.schema, rng=0).residuals
    assert 1800 < drawn.n_taken < 2200
    assert drawn.large[0].variables == ("v0", "v1")
    assert drawn.pairs[0].support < result.residuals.pairs[0].support
    monkeypatch.setattr("pmflib.inference.checks.bivariate_residuals.SMALL_WORK", work * 900)
    assert pmf.fit_em(codes, rank=2, schema=result.model.schema, rng=0).residuals is None


def test_bivariate_residuals__refuses_what_has_no_parameters_of_one_likelihood():
    codes, result = draw(300)
    average = pmf.fit_em(codes, rank=2, schema=result.model.schema, members=3).model
    with pytest.raises(PmfError, match="average"):
        pmf.inference.bivariate_residuals(average, codes)
    people = pmf.families.fit_traits(codes, result.model.schema, dimensions=1).model
    with pytest.raises(PmfError, match="fit_item_responses"):
        pmf.inference.bivariate_residuals(people, codes)
    with pytest.raises(SchemaError):
        pmf.inference.bivariate_residuals(result.model, codes[:, :3])
    wide = pmf.Schema.from_cardinalities([50] * 40)
    model = pmf.JointPMF(np.ones(1), np.full((2000, 1), 0.02), wide)
    with pytest.raises(MemoryPlanError, match="2001"):
        pmf.inference.bivariate_residuals(model, np.zeros((3, 40), dtype=np.int64))
