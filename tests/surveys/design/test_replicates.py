import numpy as np
import pytest

import pmflib as pmf


def draw(n_strata=4, n_units=8, n_each=15, seed=0):
    """Units differ: the share of the first state varies from one to the next."""
    rng = np.random.default_rng(seed)
    n = n_strata * n_units * n_each
    stratum = np.repeat(np.arange(n_strata), n_units * n_each)
    psu = np.arange(n) // n_each
    state = rng.random(n) < rng.uniform(0.1, 0.9, n // n_each)[psu]
    codes = np.where(rng.random((n, 5)) < 0.9, state[:, None], ~state[:, None]).astype(np.int8)
    return codes, np.where(stratum < 2, 0.5, 2.0), stratum, psu


@pytest.fixture(scope="module")
def fitted():
    codes, weight, stratum, psu = draw()
    design = pmf.surveys.SurveyDesign(weight, stratum=stratum, psu=psu)
    result = pmf.fit_em(codes, rank=2, weight=design, pseudo_count=0.0)
    return codes, design, result


def test_standard_errors__of_units_that_differ_are_larger_than_of_independent_rows(fitted):
    codes, design, result = fitted
    errors = pmf.inference.standard_errors(result.model, codes, design)
    rows = pmf.inference.standard_errors(
        result.model, codes, pmf.surveys.SurveyDesign(design.weights.units)
    )
    assert errors.method == "32 units to first order (jackknife), 28 degrees of freedom"
    assert errors["prior"].errors[0] > 1.8 * rows["prior"].errors[0]
    assert (errors["factors"].lower <= errors["factors"].values).all()
    assert (errors["factors"].values <= errors["factors"].upper).all()
    assert errors.distance < 0.1


def test_standard_errors__of_independent_rows_agree_with_the_information():
    codes, *_ = draw(n_each=1, n_units=250, seed=3)
    model = pmf.fit_em(codes, rank=2, pseudo_count=0.0, tol=1e-10).model
    by_rows = pmf.inference.standard_errors(model, codes, pmf.surveys.SurveyDesign(np.ones(1000)))
    by_information = pmf.inference.standard_errors(model, codes)
    # the larger of the information's and White's, which are those of rows but for one degree of freedom
    ratio = by_rows["factors"].errors / by_information["factors"].errors
    np.testing.assert_allclose(ratio, np.sqrt(1000 / 999), atol=0.02)
    refits = pmf.inference.standard_errors(
        model, codes, pmf.surveys.SurveyDesign(np.ones(1000)), method="refit"
    )
    ratio = refits["factors"].errors / by_information["factors"].errors
    assert np.sqrt((ratio**2).mean()) == pytest.approx(1.0, abs=0.15)


def test_fit_replicates__errors_of_many_people_are_not_cut_short_by_the_end_of_passes(monkeypatch):
    rng = np.random.default_rng(1)
    state = rng.integers(2, size=(20_000, 1))
    codes = (rng.random((20_000, 12)) < np.where(state, 0.6, 0.4)).astype(np.int8)
    weight = rng.uniform(0.5, 1.5, 20_000)
    kept = np.repeat(rng.random((100, 4)) < 0.5, 200, axis=0)
    replicates = np.where(kept, 1.5, 0.5) * weight[:, None]
    design = pmf.surveys.SurveyDesign(weight, replicates=replicates, method="Fay", fay=0.5)
    yes = np.where(np.arange(2) == 1, 0.6, 0.4)
    factors = np.tile(np.stack([1 - yes, yes]), (12, 1))
    start = pmf.JointPMF(np.full(2, 0.5), factors, pmf.Schema.from_cardinalities([2] * 12))
    model = pmf.fit_em(codes, start, weight=weight, pseudo_count=0.0, max_passes=3000).model
    refits = pmf.surveys.fit_replicates(model, codes, design, method="refit")
    found = refits.find_errors(lambda model: model.prior)[1]
    monkeypatch.setattr("pmflib.surveys.design.replicates.GAIN", 1e-8)
    refits = pmf.surveys.fit_replicates(model, codes, design, method="refit")
    exact = refits.find_errors(lambda model: model.prior)[1]
    np.testing.assert_allclose(found, exact, rtol=0.02)
    # where classes are so much alike, replicates are too far for the first order to be all there is
    linear = pmf.surveys.fit_replicates(model, codes, design).find_errors(
        lambda model: model.prior
    )[1]
    np.testing.assert_allclose(linear, exact, rtol=0.1)


def test_fit_replicates__a_replicate_that_empties_a_level_and_one_that_is_the_whole():
    codes, weight, *_ = draw(n_units=2)
    codes[:, 0] = 0
    codes[:15, 0] = 1
    left = weight.copy()
    left[:15] = 0
    design = pmf.surveys.SurveyDesign(
        weight, replicates=np.stack([weight, left], axis=1), method="JK2"
    )
    model = pmf.fit_em(codes, rank=2, weight=weight, pseudo_count=0.0).model
    refits = pmf.surveys.fit_replicates(model, codes, design, method="refit")
    whole, without = (each.marginal([0]) for each in refits.models)
    np.testing.assert_allclose(whole, refits.model.marginal([0]), atol=1e-6)
    assert without[1] == pytest.approx(0, abs=1e-9)
    linear = pmf.surveys.fit_replicates(model, codes, design)
    np.testing.assert_array_equal(linear.models[0].factors, linear.model.factors)
    for found, tolerance in ((refits, 1e-4), (linear, 0.1)):
        values, errors = found.find_errors(lambda model: model.marginal([0]))
        np.testing.assert_allclose(errors[1], values[1], rtol=tolerance)


def test_find_intervals__hold_the_value_and_stay_probabilities(fitted):
    codes, design, result = fitted
    found = pmf.surveys.fit_replicates(result.model, codes, design)
    values, low, high = found.find_intervals(lambda model: model.marginal([0, 1]))
    assert (0 < low).all()
    assert (low < values).all()
    assert (values < high).all()
    assert (high < 1).all()
    _, narrow_low, narrow_high = found.find_intervals(lambda model: model.marginal([0, 1]), 0.5)
    assert (low < narrow_low).all()
    assert (narrow_high < high).all()


def test_ask__with_a_design_n_is_what_the_shares_are_worth(fitted):
    codes, design, result = fitted
    model = result.model
    plain = model.ask("P(v0=1 | v1=1)", codes, design=pmf.surveys.SurveyDesign(np.ones(len(codes))))
    designed = model.ask("P(v0=1 | v1=1)", codes, design=design)
    alone = model.ask("P(v0=1)", codes, design=design, source="counts")
    assert f"{round(design.weights.n_effective):,} effective samples" in str(designed)
    width = [
        each.table["high"][0].as_py() - each.table["low"][0].as_py() for each in (plain, designed)
    ]
    assert width[1] > width[0]
    share = np.average(codes[:, 0] == 1, weights=design.weights.units)
    assert alone.table["probability"][0].as_py() == pytest.approx(share, abs=0.01)


def test_fit_em__no_unit_is_both_fitted_and_held_out_where_a_design_is_given():
    # rows of a unit are copies: by a hash of rows they would be held out from their own copies
    codes = np.repeat(np.random.default_rng(5).integers(0, 4, (60, 6)).astype(np.int8), 20, axis=0)
    design = pmf.surveys.SurveyDesign(psu=np.repeat(np.arange(60), 20))
    with_design = pmf.fit_em(codes, rank=8, weight=design)
    without = pmf.fit_em(codes, rank=8)
    assert with_design.held_out_score.per_row < -6 * np.log(4)
    assert without.held_out_score.per_row > with_design.held_out_score.per_row + 1


def test_fit_replicates__refuses_what_has_no_errors_by_design(fitted):
    codes, design, result = fitted
    with pytest.raises(pmf.PmfError, match="design"):
        pmf.surveys.fit_replicates(result.model, codes[:10], design)
    with pytest.raises(pmf.PmfError):
        pmf.surveys.fit_replicates(pmf.families.fit_item_responses(codes, 1).model, codes, design)
    counts = pmf.count_pairs(codes, result.model.schema)
    with pytest.raises(pmf.PmfError, match="counts"):
        result.model.ask("P(v0)", counts, design=design)


def test_ask__a_model_makes_nobody_surer_of_people_who_were_drawn_together(fitted):
    codes, design, result = fitted
    # a fit that says nothing of how many rows it is worth
    model = pmf.JointPMF(result.model.prior, result.model.factors, result.model.schema)
    both = model.ask("P(v0=1)", codes, design=design).table
    counts = model.ask("P(v0=1)", codes, design=design, source="counts").table
    widths = [each["high"][0].as_py() - each["low"][0].as_py() for each in (both, counts)]
    assert widths[0] == pytest.approx(widths[1], rel=0.02)
