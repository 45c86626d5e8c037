"""Arrays that hold answers, such as 1, 2, 7 and 99, mean the same at every door."""

import warnings

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import SchemaError

RNG = np.random.default_rng(0)
STATES = RNG.integers(0, 2, 300)
CODES = np.where(RNG.random((300, 5)) < 0.7, 3 * STATES[:, None], RNG.integers(0, 4, (300, 5)))
CODES[RNG.random(CODES.shape) < 0.05] = -1
LEVELS = np.array([1, 2, 7, 99, -1])
ANSWERS = LEVELS[CODES]
GROUP = np.where(RNG.random(300) < 0.5, "a", "b")


def fit(samples):
    return pmf.fit_em(samples, rank=2, pseudo_count=1.0, max_passes=40).model


MODEL, PLAIN = fit(ANSWERS), fit(CODES)


def test_fit_em__levels_are_the_answers_that_occur():
    assert [each.levels for each in MODEL.schema] == [("1", "2", "7", "99")] * 5
    np.testing.assert_array_equal(MODEL.factors, PLAIN.factors)
    np.testing.assert_array_equal(MODEL.schema.encode(ANSWERS), CODES)
    assert PLAIN.schema == pmf.Schema.from_cardinalities([4] * 5)


@pytest.mark.parametrize(
    "convert",
    [
        lambda array: np.where(array < 0, np.nan, array),
        lambda array: np.where(array < 0, None, array),
        lambda array: np.where(array < 0, "", array.astype(str)),
        lambda array: array.astype(np.int32),
    ],
)
def test_fit_em__floats_and_texts_are_answers_as_well(convert):
    model = fit(convert(ANSWERS))
    assert [each.levels for each in model.schema] == [each.levels for each in MODEL.schema]
    np.testing.assert_array_equal(model.factors, PLAIN.factors)
    np.testing.assert_array_equal(model.log_prob(convert(ANSWERS)), PLAIN.log_prob(CODES))


def compare(model, samples, function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(model, samples)


@pytest.mark.parametrize(
    "function",
    [
        lambda model, samples: model.log_prob(samples),
        lambda model, samples: model.posterior(samples),
        lambda model, samples: model.predict_proba(samples, 1),
        lambda model, samples: model.predict(samples, 1),
        lambda model, samples: model.complete(samples),
        lambda model, samples: pmf.inference.classify(model, samples).errors,
        lambda model, samples: pmf.inference.standard_errors(model, samples)["prior"].errors,
        lambda model, samples: [pair.statistic for pair in pmf.inference.bivariate_residuals(model, samples).pairs],
        lambda model, samples: pmf.inference.class_regression(model, samples, {"group": GROUP}).values,
        lambda model, samples: pmf.inference.distal_outcome(model, samples, GROUP).errors,
        lambda model, samples: pmf.fit_em(samples, model, max_passes=3).model.factors,
        lambda model, samples: pmf.fit_em(samples[:200], rank=2, schema=model.schema,
                                          validation=samples[200:], max_passes=3).model.factors,
        lambda model, samples: pmf.count_pairs(samples).tables,
        lambda model, samples: pmf.count_pairs(samples, model.schema).tables,
        lambda model, samples: pmf.families.fit_groups(samples, GROUP, rank=1).fits["equal"].models["a"].factors,
        lambda model, samples: pmf.answering.ask(
            model, f"P(v1={model.schema[1].levels[3]} | v0={model.schema[0].levels[3]})", samples
        ).value,
        lambda model, samples: pmf.PMFImputer(2).fit(samples).model_.factors,
    ],
)  # fmt: skip
def test_answers__mean_the_same_at_every_door(function):
    found, plain = compare(MODEL, ANSWERS, function), compare(PLAIN, CODES, function)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(plain))


def test_answers__codes_of_the_model_itself_are_codes(tmp_path):
    codes = MODEL.schema.encode(ANSWERS)
    np.testing.assert_array_equal(MODEL.log_prob(codes), PLAIN.log_prob(CODES))
    np.testing.assert_array_equal(MODEL.sample(9, 0), PLAIN.sample(9, 0))
    MODEL.save(tmp_path / "model")
    loaded = pmf.JointPMF.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.log_prob(ANSWERS), PLAIN.log_prob(CODES))


def test_answers__of_any_integer_type_are_answers():
    assert pmf.Schema.infer(ANSWERS.astype(np.int8)) == MODEL.schema
    assert pmf.Schema.infer(CODES.astype(np.int8)) == PLAIN.schema


def test_answers__minus_one_is_asked_about_where_it_may_be_an_answer():
    opinions = RNG.integers(-1, 2, (200, 2))
    with pytest.raises(SchemaError, match=r"column 0 of the array holds -1 in .* of answers pass"):
        pmf.Schema.infer(opinions)
    assert pmf.Schema.infer(opinions.astype(float))[0].levels == ("-1", "0", "1")
    assert pmf.Schema.infer(pmf.Codes(opinions))[0].levels == ("0", "1")


@pytest.mark.parametrize("array", [np.empty((0, 2)), np.ones(3), np.full((4, 2), np.nan)])
def test_answers__that_are_no_table_are_refused(array):
    with pytest.raises(SchemaError, match="array"):
        pmf.fit_em(array, rank=2)
