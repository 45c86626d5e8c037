import numpy as np
import pytest

import pmflib as pmf


def draw(n_strata=3, n_units=4, n_each=5, seed=0):
    rng = np.random.default_rng(seed)
    n = n_strata * n_units * n_each
    stratum = np.repeat(np.arange(n_strata), n_units * n_each)
    psu = np.tile(np.repeat(np.arange(n_units), n_each), n_strata)
    return rng.random(n) * 3 + 0.5, stratum, psu, rng.integers(3, size=n)


def estimate(weights, cells):
    totals = np.bincount(cells, weights, 3)
    return totals / totals.sum()


def test_find_effective__agrees_with_the_jackknife_of_weighted_shares():
    weight, stratum, psu, cells = draw()
    design = pmf.surveys.SurveyDesign(weight, stratum=stratum, psu=psu)
    shares, n_effective = design.find_effective(cells, 3)
    np.testing.assert_allclose(shares, estimate(weight, cells), rtol=1e-6)
    replicates = list(design.iterate_replicates())
    assert len(replicates) == 12
    total = sum(
        each.factor * ((estimate(each.weights, cells) - shares) ** 2).sum() for each in replicates
    )
    # that many rows have as wide an interval by the normal distribution as units have by Student's
    of_variance = (shares * (1 - shares)).sum() / total
    ratio = (design.record.find_quantile(0.95) / 1.959964) ** 2
    assert ratio > 1.3
    assert n_effective == pytest.approx(of_variance / ratio, rel=0.1)


def test_find_effective__of_independent_rows_is_their_number():
    cells = np.repeat(np.arange(2), 500)
    design = pmf.surveys.SurveyDesign(psu=np.arange(1000))
    assert design.find_effective(cells, 2)[1] == pytest.approx(1000)
    # two of a unit are one
    design = pmf.surveys.SurveyDesign(psu=np.arange(1000) // 2)
    ratio = (design.record.find_quantile(0.95) / 1.959964) ** 2
    assert design.find_effective(cells, 2)[1] == pytest.approx(499 / ratio)


def test_find_effective__of_no_rows_and_of_one_cell():
    weight, stratum, psu, _cells = draw()
    design = pmf.surveys.SurveyDesign(weight, stratum=stratum, psu=psu)
    assert design.find_effective(np.full(60, -1), 3)[1] == 0.0
    kish = weight.sum() ** 2 / (weight**2).sum()
    assert design.find_effective(np.zeros(60, np.int64), 3)[1] == pytest.approx(kish, rel=1e-6)


@pytest.mark.parametrize(
    ("method", "options", "factor"),
    [
        ("BRR", {}, 1 / 4),
        ("Fay", {"fay": 0.5}, 1),
        ("JK1", {}, 3 / 4),
        ("JK2", {}, 1),
        ("JKn", {"factors": [0.5] * 4}, 0.5),
        ("bootstrap", {}, 1 / 3),
    ],
)
def test_survey_design__each_kind_of_replicates_has_its_factor(method, options, factor):
    weight, *_, cells = draw()
    replicates = np.random.default_rng(1).random((60, 4)) ** 9
    design = pmf.surveys.SurveyDesign(weight, replicates=replicates, method=method, **options)
    shares, n_effective = design.find_effective(cells, 3)
    gaps = [estimate(column, cells) - shares for column in replicates.T]
    # which allows for the degrees of freedom of four replicates
    widened = (design.record.find_quantile(0.95) / 1.959963984540054) ** 2
    variance = factor * sum(gap @ gap for gap in gaps) * widened
    assert n_effective == pytest.approx((shares * (1 - shares)).sum() / variance)
    assert [each.factor for each in design.iterate_replicates()] == pytest.approx([factor] * 4)


def test_dealt__no_unit_is_in_two_folds_and_each_fold_has_units_of_each_stratum():
    weight, stratum, psu, _ = draw(n_units=10)
    design = pmf.surveys.SurveyDesign(weight, stratum=stratum, psu=psu)
    folds = design.dealt % 5
    for h in range(3):
        units = {
            (int(k), int(f)) for k, f in zip(psu[stratum == h], folds[stratum == h], strict=True)
        }
        assert len(units) == 10
        assert np.bincount([f for _, f in units]).tolist() == [2] * 5


def test_survey_design__a_stratum_of_a_single_unit_is_taken_with_another():
    design = pmf.surveys.SurveyDesign(stratum=["a"] * 4 + ["b"] * 2, psu=[1, 1, 2, 2, 3, 3])
    assert (design.n_strata, design.n_units, design.degrees) == (1, 3, 2)
    first = pmf.surveys.SurveyDesign(stratum=["a"] * 2 + ["b"] * 4, psu=[3, 3, 1, 1, 2, 2])
    assert first.n_strata == 1
    several = pmf.surveys.SurveyDesign(stratum=list("aabbcc"), psu=[1, 1, 2, 2, 3, 3])
    assert (several.n_strata, several.degrees) == (1, 2)


def test_survey_design__many_units_are_left_out_in_groups_of_their_stratum():
    stratum = np.repeat([0, 1], [900, 3])
    design = pmf.surveys.SurveyDesign(np.ones(903), stratum=stratum)
    replicates = list(design.iterate_replicates())
    assert 190 <= len(replicates) <= 210
    gone = sum((each.weights == 0).astype(int) for each in replicates)
    assert (gone == 1).all()
    assert all(each.weights.sum() == pytest.approx(903, rel=0.01) for each in replicates)


def test_survey_design__a_stratum_of_few_units_that_is_most_of_the_population_keeps_them_apart():
    stratum = np.repeat([0, 1], [1000, 100])
    design = pmf.surveys.SurveyDesign(np.where(stratum == 0, 0.1, 9.0), stratum=stratum)
    replicates = list(design.iterate_replicates())
    n_left_out = np.array([(each.weights[stratum == 1] == 0).sum() for each in replicates])
    assert (n_left_out == 1).sum() == 100


NOUGHT = np.ones((6, 4)) * [1, 1, 0, 1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "None"),
        ({"weight": [1, 1], "psu": [1, 2, 3]}, "psu"),
        ({"psu": ["a", "a"]}, "unit"),
        ({"psu": ["a", None]}, r"psu\[1\]"),
        ({"stratum": [1.0, np.nan]}, r"stratum\[1\]"),
        ({"weight": [1, -1]}, r"weight\[1\]"),
        ({"weight": [1, 1], "method": "BRR"}, "method"),
        ({"replicates": [[1, 1], [1, 1]]}, "method"),
        ({"replicates": [[1, 1], [1, -1]], "method": "BRR"}, r"replicates\[1, 1\]"),
        ({"replicates": [[1], [1]], "method": "BRR"}, "replicates"),
        ({"replicates": [[1, 1], [1, 1]], "method": "Fay"}, "fay"),
        ({"replicates": [[1, 1], [1, 1]], "method": "JKn"}, "factors"),
        ({"replicates": [[1, 1]] * 2, "method": "JKn", "factors": [1]}, "factors"),
        ({"replicates": [[1, 1]] * 2, "method": "BRR", "psu": [1, 2]}, "psu"),
        ({"replicates": NOUGHT, "method": "BRR"}, r"replicates\[:, 2\]"),
        ({"weight": 3}, "weight"),
        ({"replicates": [["a", "b"]] * 4, "method": "BRR"}, "replicates"),
        ({"replicates": np.ones((4, 2)), "method": "JKn", "factors": ["a", 1]}, "factors"),
        ({"replicates": np.ones((4, 2)), "method": "JKn", "factors": [np.inf, 1]}, "factors"),
    ],
)
def test_survey_design__refuses_what_does_not_go_together(options, said):
    with pytest.raises(pmf.PmfError, match=said):
        pmf.surveys.SurveyDesign(**options)


def test_survey_design__of_one_unit_and_of_one_stratum():
    weight, _, psu, cells = draw(n_strata=1)
    named = pmf.surveys.SurveyDesign(weight, stratum=np.full(weight.size, "all"), psu=psu)
    alone = pmf.surveys.SurveyDesign(weight, psu=psu)
    assert named.notes == ()
    assert named.find_effective(cells, 3)[1] == alone.find_effective(cells, 3)[1]
    assert (named.dealt == alone.dealt).all()


def test_survey_design__a_weight_of_a_thousand_million_is_one_person():
    weight, stratum, psu, cells = draw()
    weight[7] = 1e9
    design = pmf.surveys.SurveyDesign(weight, stratum=stratum, psu=psu)
    shares, n_effective = design.find_effective(cells, 3)
    assert shares[cells[7]] == pytest.approx(1, abs=1e-6)
    assert design.weights.n_effective == pytest.approx(1, abs=1e-6)
    assert 0 < n_effective <= weight.size
    assert all(np.isfinite(each.weights).all() for each in design.iterate_replicates())


def test_covary_totals__agrees_with_the_jackknife_of_a_sum():
    weight, stratum, psu, _ = draw(n_each=4)
    values = np.random.default_rng(1).normal(size=(weight.size, 2))
    design = pmf.surveys.SurveyDesign(weight, stratum=stratum, psu=psu)
    influences = design.weights.units[:, None] * values
    found = design.covary_totals(influences, np.arange(weight.size))
    whole = influences.sum(axis=0)
    expected = np.zeros((2, 2))
    for each in design.iterate_replicates():
        gap = (each.weights[:, None] * values).sum(axis=0) - whole
        expected += each.factor * np.outer(gap, gap)
    np.testing.assert_allclose(found, expected)
    # rows that are left out add nothing, and their units count
    some = np.flatnonzero(psu > 0)
    zeroed = np.where((psu > 0)[:, None], influences, 0.0)
    again = design.covary_totals(influences[some], some)
    np.testing.assert_allclose(again, design.covary_totals(zeroed, np.arange(weight.size)))


def test_covary_totals__of_replicates_is_what_their_sums_differ_by():
    weight, _, _, _ = draw()
    rng = np.random.default_rng(2)
    replicates = (weight[:, None] * rng.choice([0.5, 1.5], (weight.size, 8))).round(4)
    design = pmf.surveys.SurveyDesign(weight.round(4), replicates=replicates, method="Fay", fay=0.5)
    values = rng.normal(size=(weight.size, 2))
    found = design.covary_totals(weight.round(4)[:, None] * values, np.arange(weight.size))
    gaps = replicates.T @ values - weight.round(4) @ values
    np.testing.assert_allclose(found, gaps.T @ gaps / (8 * 0.25), rtol=1e-6)


def test_find_effective__of_one_stratum_is_that_of_its_own_units():
    weight, stratum, psu, cells = draw()
    inside = stratum == 1
    alone = pmf.surveys.SurveyDesign(weight[inside], psu=psu[inside])
    whole = pmf.surveys.SurveyDesign(weight, stratum=stratum, psu=psu)
    expected = alone.find_effective(cells[inside], 3)[1]
    assert whole.find_effective(np.where(inside, cells, -1), 3)[1] == pytest.approx(expected)
