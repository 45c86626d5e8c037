import json

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import IdentificationWarning
from pmflib.inference.three_steps import three_steps
from pmflib.inference.three_steps.assigned_classes import Logits, Penalised

MEANS = np.array([0.0, 1.0, 2.0])


def plant(n_rows=1000, chance=0.8, seed=0):
    """A survey of three classes with an outcome, a tenth of the answers missing, and its fit from the truth."""
    rng = np.random.default_rng(seed)
    classes = rng.choice(3, n_rows, p=[0.5, 0.3, 0.2])
    high = np.array([[1] * 6, [1, 1, 1, 0, 0, 0], [0] * 6])
    chances = np.where(high == 1, chance, 1 - chance)
    codes = (rng.random((n_rows, 6)) < chances[classes]).astype(np.int64)
    codes[rng.random(codes.shape) < 0.1] = -1
    schema = pmf.Schema.from_cardinalities([2] * 6)
    factors = np.stack([1 - chances, chances], axis=2).transpose(1, 2, 0).reshape(12, 3)
    truth = pmf.JointPMF(np.array([0.5, 0.3, 0.2]), factors, schema)
    model = pmf.fit_em(codes, truth, pseudo_count=0.0, tol=1e-10, accelerate=True).model
    return model, codes, classes, MEANS[classes] + rng.normal(size=n_rows)


@pytest.mark.parametrize("correction", ["bch", "ml"])
@pytest.mark.parametrize("assignment", ["modal", "proportional"])
def test_distal_outcome__undoes_what_assignment_mixes(correction, assignment):
    model, codes, _, number = plant(20_000)
    found = pmf.inference.distal_outcome(
        model, codes, number, correction=correction, assignment=assignment
    )
    assert (np.abs(found.values - MEANS) < 4 * found.errors).all()
    assert (found.errors > found.third_step_errors).all()
    plain = [number[model.posterior(codes).argmax(axis=1) == each].mean() for each in range(3)]
    assert (np.abs(plain - MEANS) > 4 * found.errors).any()
    assert found.test.p_value < 1e-6
    assert all(pair.adjusted < 1e-6 for pair in found.pairs)


def test_distal_outcome__errors_are_those_of_surveys_drawn_again():
    found = []
    for seed in range(40):
        model, codes, _, number = plant(seed=seed)
        found.append(pmf.inference.distal_outcome(model, codes, number))
    spread = np.std([each.values for each in found], axis=0)
    errors = np.mean([each.errors for each in found], axis=0)
    assert (np.abs(errors / spread - 1) < 0.35).all()


def test_distal_outcome__of_levels_is_shares_that_sum_to_one_with_intervals_inside():
    model, codes, classes, _ = plant()
    texts = np.where(
        np.random.default_rng(1).random(1000) < 0.2, "z", np.array(list("abc"))[classes]
    )
    found = pmf.inference.distal_outcome(model, codes, texts, correction="ml")
    assert found.levels == ("a", "b", "c", "z")
    assert found.values.shape == (3, 4)
    assert np.allclose(found.values.sum(axis=1), 1)
    assert (found.lower >= 0).all()
    assert (found.upper <= 1).all()
    assert found.test.degrees <= 6
    assert found.table.num_rows == 12


def test_distal_outcome__both_corrections_agree_on_shares_inside():
    model, codes, classes, _ = plant()
    texts = np.where(np.random.default_rng(1).random(1000) < 0.3 + 0.2 * classes, "y", "n")
    by_bch, by_ml = (
        pmf.inference.distal_outcome(model, codes, texts, correction=each) for each in ("bch", "ml")
    )
    assert np.allclose(by_bch.values, by_ml.values, atol=1e-6)
    assert np.allclose(by_bch.errors, by_ml.errors, atol=1e-5)


def test_distal_outcome__weights_that_are_whole_are_rows_again():
    model, codes, _, number = plant(300)
    weight = np.random.default_rng(0).integers(0, 3, 300)
    weighted = pmf.inference.distal_outcome(model, codes, number, weight=weight)
    rows = np.repeat(np.arange(300), weight)
    again = pmf.inference.distal_outcome(model, codes[rows], number[rows])
    assert np.allclose(weighted.values, again.values)
    assert weighted.n_left_out == (weight == 0).sum()


def test_distal_outcome__rows_without_an_outcome_or_any_answer_are_left_out():
    model, codes, _, number = plant(500)
    codes[0] = -1
    number[1] = np.nan
    found = pmf.inference.distal_outcome(model, codes, number)
    assert (found.n_rows, found.n_left_out) == (498, 2)


def test_distal_outcome__of_one_class_is_the_mean():
    rng = np.random.default_rng(0)
    codes, number = rng.integers(0, 2, (200, 2)), rng.normal(size=200)
    model = pmf.fit_em(codes, rank=1, schema=pmf.Schema.from_cardinalities([2, 2])).model
    found = pmf.inference.distal_outcome(model, codes, number)
    assert np.isclose(found.values[0], number.mean())
    assert np.isclose(found.errors[0], number.std() / np.sqrt(200))
    assert found.pairs == ()


def test_class_regression__finds_what_classes_were_drawn_by():
    rng = np.random.default_rng(3)
    n_rows = 5000
    number = rng.normal(size=n_rows)
    text = np.array(["a", "b"])[rng.integers(0, 2, n_rows)]
    logit = -0.5 + number - 0.8 * (text == "b")
    classes = (rng.random(n_rows) < 1 / (1 + np.exp(-logit))).astype(int)
    codes = (rng.random((n_rows, 5)) < np.array([0.2, 0.8])[classes][:, None]).astype(np.int64)
    schema = pmf.Schema.from_cardinalities([2] * 5)
    factors = np.tile([[0.8, 0.2], [0.2, 0.8]], (5, 1))
    model = pmf.fit_em(codes, pmf.JointPMF(np.array([0.5, 0.5]), factors, schema)).model
    table = {"number": number, "text": text, "noise": rng.normal(size=n_rows)}
    found = pmf.inference.class_regression(model, codes, table, reference=0)
    assert found.covariates == ("intercept", "number", "text = b", "noise")
    truth = np.array([-0.5, 1.0, -0.8, 0.0])
    assert (np.abs(found.values[1] - truth) < 4 * found.errors[1]).all()
    assert (found.values[0] == 0).all()
    assert (found.errors[0] == 0).all()
    assert found.tests["number"].p_value < 1e-6 < found.tests["noise"].p_value
    # in other units and from the other side it is the same
    other = pmf.inference.class_regression(
        model, codes, {**table, "number": 1000 * number + 7}, reference=1
    )
    assert np.isclose(other.values[0, 1] * 1000, -found.values[1, 1])
    assert np.isclose(other.errors[0, 1] * 1000, found.errors[1, 1])


def test_class_regression__refuses_what_it_cannot_tell_apart():
    model, codes, _, number = plant(300)
    with pytest.raises(pmf.PmfError, match="x"):
        pmf.inference.class_regression(model, codes, {"x": np.ones(300)})
    with pytest.raises(pmf.PmfError, match="covariates"):
        pmf.inference.class_regression(model, codes, {"x": number, "y": 2 * number})
    with pytest.raises(pmf.PmfError, match="reference is 3"):
        pmf.inference.class_regression(model, codes, {"x": number}, reference=3)
    with pytest.raises(pmf.PmfError, match="x"):
        pmf.inference.class_regression(model, codes, {"x": number[1:]})


def test_three_steps__refuse_arguments_out_of_range():
    model, codes, _, number = plant(300)
    with pytest.raises(pmf.PmfError, match="correction"):
        pmf.inference.distal_outcome(model, codes, number, correction="none")  # type: ignore[arg-type]
    with pytest.raises(pmf.PmfError, match="weight"):
        pmf.inference.distal_outcome(model, codes, number, weight=-np.ones(300))
    with pytest.raises(pmf.PmfError, match="outcome"):
        pmf.inference.distal_outcome(model, codes, np.full(300, np.nan))


def test_three_steps__say_where_classes_overlap_too_much():
    model, codes, _, number = plant(300)
    factors = np.repeat(model.factors[:, :1], 3, axis=1)
    alike = pmf.JointPMF(model.prior, factors, model.schema)
    with pytest.raises(pmf.PmfError):
        pmf.inference.distal_outcome(alike, codes, number)


def test_three_steps__say_where_the_model_is_too_large_for_its_errors(monkeypatch):
    monkeypatch.setattr(three_steps, "MAX_ENTRIES", 5)
    model, codes, _, number = plant(300)
    with pytest.warns(IdentificationWarning):
        found = pmf.inference.distal_outcome(model, codes, number)
    # what classification errors are themselves uncertain by is still in
    assert np.isfinite(found.errors).all()


def test_distal_outcome__a_design_of_rows_is_their_weights():
    model, codes, _, number = plant(600)
    weight = np.random.default_rng(2).uniform(0.5, 2.0, 600).round(3)
    by_weights = pmf.inference.distal_outcome(model, codes, number, weight=weight)
    by_design = pmf.inference.distal_outcome(
        model, codes, number, design=pmf.surveys.SurveyDesign(weight)
    )
    assert np.allclose(by_design.values, by_weights.values)
    # the design divides by one row less
    assert np.allclose(by_design.errors, by_weights.errors, rtol=2 / 600)
    assert by_design.quantile > by_weights.quantile


def test_distal_outcome__units_that_are_alike_say_less():
    model, codes, _, number = plant(600)
    rows = np.repeat(np.arange(600), 4)
    design = pmf.surveys.SurveyDesign(psu=rows)
    alone = pmf.inference.distal_outcome(model, codes[rows], number[rows])
    clustered = pmf.inference.distal_outcome(model, codes[rows], number[rows], design=design)
    once = pmf.inference.distal_outcome(model, codes, number)
    assert np.allclose(clustered.values, alone.values)
    assert np.allclose(clustered.errors, 2 * alone.errors, rtol=0.01)
    assert np.allclose(clustered.errors, once.errors, rtol=0.01)


def test_distal_outcome__strata_take_out_what_differs_between_them():
    model, codes, _, number = plant(600)
    stratum = np.argsort(np.argsort(number)) // 30
    stratified = pmf.inference.distal_outcome(
        model, codes, number, design=pmf.surveys.SurveyDesign(np.ones(600), stratum=stratum)
    )
    assert (stratified.errors < pmf.inference.distal_outcome(model, codes, number).errors).all()


def test_distal_outcome__errors_with_units_are_those_of_surveys_drawn_again():
    rng, found = np.random.default_rng(7), []
    chances = np.array([[0.85] * 6, [0.15] * 6])
    schema = pmf.Schema.from_cardinalities([2] * 6)
    factors = np.stack([1 - chances, chances], axis=2).transpose(1, 2, 0).reshape(12, 2)
    truth = pmf.JointPMF(np.array([0.5, 0.5]), factors, schema)
    for _ in range(40):
        unit = np.repeat(np.arange(40), 15)
        kind = (rng.random(600) < rng.uniform(0.2, 0.8, 40)[unit]).astype(int)
        codes = (rng.random((600, 6)) < chances[kind]).astype(np.int64)
        number = kind + rng.normal(size=40)[unit] + rng.normal(size=600)
        model = pmf.fit_em(codes, truth, pseudo_count=0.0, tol=1e-9).model
        design = pmf.surveys.SurveyDesign(psu=unit)
        found.append(pmf.inference.distal_outcome(model, codes, number, design=design))
    spread = np.std([each.values for each in found], axis=0)
    errors = np.mean([each.errors for each in found], axis=0)
    assert (np.abs(errors / spread - 1) < 0.35).all()


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_distal_outcome__rows_that_the_model_has_not_seen_say_nothing_of_it(share):
    model, codes, _, number = plant(3000)
    fitted = np.arange(3000) < share * 3000
    found = pmf.inference.distal_outcome(model, codes, number, fitted=fitted)
    whole = pmf.inference.distal_outcome(model, codes, number)
    assert np.allclose(found.values, whole.values)
    assert np.allclose(found.third_step_errors, whole.third_step_errors)
    # of fewer rows less is known of the classes
    assert (found.errors > whole.errors).all()
    everyone = pmf.inference.distal_outcome(model, codes, number, fitted=np.ones(3000, bool))
    assert (everyone.errors == whole.errors).all()


def test_class_regression__of_a_design():
    model, codes, _, number = plant(500)
    weight = np.random.default_rng(4).uniform(0.5, 2.0, 500).round(3)
    design = pmf.surveys.SurveyDesign(weight, psu=np.arange(500) // 5)
    found = pmf.inference.class_regression(model, codes, {"x": number}, design=design)
    plain = pmf.inference.class_regression(model, codes, {"x": number}, weight=weight)
    assert np.allclose(found.values, plain.values)
    assert (found.errors[0] != plain.errors[0]).any() or (found.errors[1] != plain.errors[1]).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"weight": np.ones(60), "design": pmf.surveys.SurveyDesign(np.ones(60))},
            "weight and design",
        ),
        ({"design": pmf.surveys.SurveyDesign(np.ones(59))}, "design"),
        ({"fitted": np.ones(59, bool)}, "fitted"),
        ({"fitted": np.ones(60)}, "fitted"),
    ],
)
def test_distal_outcome__designs_that_are_refused(options, message):
    model, codes, _, number = plant(60)
    with pytest.raises(pmf.PmfError, match=message):
        pmf.inference.distal_outcome(model, codes, number, **options)


def test_distal_outcome__replicates_have_the_errors_of_the_units_that_they_leave_out():
    model, codes, _, number = plant(600)
    unit = np.arange(600) // 10
    weight = np.random.default_rng(5).uniform(0.5, 2.0, 600).round(3)
    left = np.stack([np.where(unit == each, 0.0, weight * 60 / 59) for each in range(60)], axis=1)
    by_units = pmf.inference.distal_outcome(
        model, codes, number, design=pmf.surveys.SurveyDesign(weight, psu=unit)
    )
    replicated = pmf.surveys.SurveyDesign(weight, replicates=left, method="JK1")
    found = pmf.inference.distal_outcome(model, codes, number, design=replicated)
    assert np.allclose(found.values, by_units.values)
    assert np.allclose(found.errors, by_units.errors, rtol=0.01)
    assert found.quantile == by_units.quantile


@pytest.mark.parametrize("weight", [None, np.linspace(0.5, 2.0, 1000)])
def test_distal_outcome__refuses_classes_that_no_row_with_the_outcome_is_assigned_to(weight):
    model, codes, _, number = plant()
    known = np.where(model.posterior(codes).argmax(axis=1) == 1, np.nan, number)
    with pytest.raises(pmf.PmfError, match="none"):
        pmf.inference.distal_outcome(model, codes, known, weight=weight)
    with pytest.raises(pmf.PmfError, match="none"):
        pmf.inference.class_regression(model, codes, {"x": known}, weight=weight)


SPLIT = np.random.default_rng(0).integers(0, 2, 600)
TWO = (np.random.default_rng(1).random((600, 5)) < np.where(SPLIT == 1, 0.85, 0.2)[:, None]) * 1
TWO_MODEL = pmf.fit_em(TWO, rank=2, pseudo_count=1.0, max_passes=100).model
NOISE = np.random.default_rng(2).normal(size=600)
RARE = np.where(np.random.default_rng(3).random(600) < 0.15, SPLIT, 0)


@pytest.mark.parametrize("correction", ["ml", "bch"])
@pytest.mark.parametrize(
    ("covariate", "open_columns"),
    [
        # classes that are separated wholly say nothing of other covariates
        ((TWO.sum(axis=1) > 2).astype(int), [0, 1, 2]),
        (TWO.sum(axis=1) * 1000.0, [0, 1, 2]),
        (RARE, [1]),
        (1 - RARE, [0, 1]),
        (np.where(RARE == 1, "rare", "frequent"), [1]),
    ],
)
def test_class_regression__names_covariates_that_separate_classes(
    covariate, open_columns, correction
):
    table = {"k": covariate, "noise": NOISE}
    with pytest.warns(pmf.errors.IdentificationWarning, match="covariate 'k"):
        found = pmf.inference.class_regression(TWO_MODEL, TWO, table, correction=correction)
    values, errors = (each[1 - found.reference] for each in (found.values, found.errors))
    assert np.isinf(values[1])
    assert np.flatnonzero(~np.isfinite(values)).tolist() == open_columns
    np.testing.assert_array_equal(np.isnan(errors), ~np.isfinite(values))
    assert np.isnan(found.tests["k"].p_value)
    assert np.isnan(found.tests["noise"].p_value) == (2 in open_columns)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["tests"]["k"]["p"] is None


def test_class_regression__penalised_estimates_are_finite_and_near_the_others_elsewhere():
    found = pmf.inference.class_regression(
        TWO_MODEL, TWO, {"k": RARE, "noise": NOISE}, penalised=True
    )
    assert np.isfinite(found.values).all()
    assert np.isfinite(found.errors).all()
    assert abs(found.values[1 - found.reference, 1]) < 8
    plain = pmf.inference.class_regression(TWO_MODEL, TWO, {"noise": NOISE})
    near = pmf.inference.class_regression(TWO_MODEL, TWO, {"noise": NOISE}, penalised=True)
    np.testing.assert_allclose(near.values, plain.values, atol=0.02)
    with pytest.raises(pmf.PmfError, match="bch"):
        pmf.inference.class_regression(
            TWO_MODEL, TWO, {"k": RARE}, penalised=True, correction="bch"
        )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_penalised__of_known_classes_adds_half_a_row_to_each_cell(n_classes):
    # Jeffreys' prior of a saturated logit; without it an empty cell has no finite estimate
    table = np.array([[20, 7, 5], [0, 9, 30]])[:, :n_classes]
    group, classes = (np.repeat(each.ravel(), table.ravel()) for each in np.indices(table.shape))
    logits = Logits(np.stack([np.ones(group.size), group], axis=1), n_classes)
    rows = Penalised(np.eye(n_classes)[classes], np.eye(n_classes), np.ones(group.size), "ml")
    solution = rows.solve(logits)
    assert solution.converged
    found = solution.parameters.reshape(n_classes, 2)
    shares = np.exp(found @ np.array([[1, 1], [0, 1]]))
    expected = (table + 0.5) / (table + 0.5).sum(axis=1, keepdims=True)
    np.testing.assert_allclose((shares / shares.sum(axis=0)).T, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "covariate",
    [
        np.arange("2024-01-01", "2025-08-23", dtype="datetime64[D]"),
        [f"2024-{n % 12 + 1:02d}-01" for n in range(600)],
        [f"person {n}" for n in range(600)],
        np.arange(600),
        ["same"] * 600,
        np.full(600, 3),
        [None] * 600,
        [f"place {n % 200}" for n in range(600)],
    ],
)
def test_class_regression__names_covariates_that_are_no_quantities(covariate):
    with pytest.raises(pmf.PmfError, match="covariate 'k'"):
        pmf.inference.class_regression(TWO_MODEL, TWO, {"noise": NOISE, "k": covariate})
