from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import SchemaError
from pmflib.model import encode_conditions, find_unseen
from tests.answering.question_models import SCHEMA, make_pets, make_survey, tabulate


def test_encode_conditions__labels_codes_and_collections():
    survey = make_survey().schema
    given: Any = {"stars": {"4", 3, "2.0"}, 1: "comedy", "income": 25}
    assert encode_conditions(survey, given) == {0: (1, 2, 3), 1: (1,), 3: (2,)}
    given = {"stars": ["4", np.float32(3)], 1: pmf.Codes([1])}
    assert encode_conditions(survey, given) == {0: (2, 3), 1: (1,)}
    assert encode_conditions(survey, None) == {}


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ({"age": "yong"}, "young"),
        ({"agee": "young"}, "age"),
        ({"age": 2}, "2"),
        ({"age": 1}, "a number is an answer, no position"),
        ({"age": pmf.Codes([2])}, "Codes"),
        ({"age": []}, "age"),
        ({"age": "old", 0: "young"}, "age|once"),
    ],
)
def test_encode_conditions__refuses(given, near):
    with pytest.raises(SchemaError, match=near):
        encode_conditions(SCHEMA, given)


def test_condition__is_the_joint_pmf_of_those_who_meet_it():
    model = make_survey()
    fixed, log_probability = model.condition_codes({0: (1, 3), 2: (0, 1)})
    joint = tabulate(model)
    kept = np.zeros_like(joint)
    kept[np.ix_([1, 3], range(3), [0, 1], range(3))] = 1
    np.testing.assert_allclose(np.exp(log_probability), (joint * kept).sum(), rtol=1e-12)
    np.testing.assert_allclose(
        tabulate(fixed), joint * kept / (joint * kept).sum(), rtol=1e-12, atol=1e-300
    )


def test_condition__impossible_conditions_are_named():
    with pytest.raises(pmf.PmfError, match="age=young and car=yes"):
        make_pets().condition_codes({0: (0,), 2: (1,)})
    with pytest.raises(pmf.PmfError, match="pet=cat and car=yes"):
        make_pets().condition_codes({1: (0,), 2: (1,)})


def test_sample__given_levels_follow_the_conditional_distribution():
    model = make_survey()
    codes = model.sample(20_000, 0, given={"stars": {"1", "4"}, "kind": "comedy"})
    assert set(codes[:, 0].tolist()) == {0, 3}
    assert set(codes[:, 1].tolist()) == {1}
    shares = np.bincount(codes[:, 2], minlength=3) / len(codes)
    probabilities = model.marginal(["free text"], {"stars": {"1", "4"}, "kind": "comedy"})
    np.testing.assert_allclose(shares, probabilities, atol=4 * 0.5 / np.sqrt(len(codes)))
    assert np.array_equal(model.sample(5, 3), model.sample(5, np.random.default_rng(3), given={}))


def test_find_impossible__one_two_and_all():
    model = make_pets()
    assert model.find_impossible({}) == ()
    assert model.find_impossible({0: (0,), 1: (0,)}) == ()
    assert model.find_impossible({1: (1,), 0: (0,), 2: (1,)}) == (0, 2)
    assert model.find_impossible({0: (0, 1), 2: (1,)}) == ()
    three = pmf.JointPMF(
        np.full(3, 1 / 3),
        np.array([[0, 1, 1], [1, 0, 0], [1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1.0]]),
        SCHEMA,
    )
    # each pair is possible, and all three are not
    assert three.find_impossible({0: (0,), 1: (0,), 2: (0,)}) == (0, 1, 2)


def test_find_impossible__no_underflow_of_many_rare_conditions():
    schema = pmf.Schema(tuple(pmf.Variable(f"v{j}", ("a", "b")) for j in range(40)))
    factors = np.tile([[1e-20], [1 - 1e-20]], (40, 1))
    rare = pmf.JointPMF(np.ones(1), factors, schema)
    assert rare.find_impossible(dict.fromkeys(range(39), (0,))) == ()
    given: dict[str | int, str] = dict.fromkeys(range(39), "a")
    np.testing.assert_allclose(rare.marginal(["v39"], given), [1e-20, 1], rtol=1e-12)
    assert rare.condition_codes(dict.fromkeys(range(39), (0,)))[1] == pytest.approx(
        39 * np.log(1e-20)
    )


def test_find_unseen__levels_pairs_and_sets():
    table = np.zeros((6, 6), np.int64)
    table[np.diag_indices(6)] = [3, 2, 3, 2, 5, 0]
    table[0, 2] = table[2, 0] = 3
    offsets = SCHEMA.offsets
    assert find_unseen(table, offsets, {}) == ()
    assert find_unseen(table, offsets, {0: (0,), 1: (0,)}) == ()
    assert find_unseen(table, offsets, {1: (1,), 0: (0,)}) == (1, 0)
    assert find_unseen(table, offsets, {1: (0, 1), 0: (0,)}) == ()
    assert find_unseen(table, offsets, {0: (0,), 2: (1,)}) == (2,)


def test_encode_conditions__truth_is_a_level_and_a_missing_text_is_none():
    schema = pmf.Schema((pmf.Variable("bo", ("true", "false")), pmf.Variable("n", ("0", "1"))))
    given: Any = {"bo": np.bool_(True)}
    assert encode_conditions(schema, given) == {0: (0,)}
    with pytest.raises(SchemaError, match="no level True"):
        encode_conditions(schema, {"n": True})
    assert encode_conditions(schema, {"bo": "True"}) == {0: (0,)}
    rest = pmf.Schema((pmf.Variable("bo", ("True", "other"), other="other"),))
    assert encode_conditions(rest, {"bo": "true"}) == {0: (0,)}
    mark = pmf.Schema((pmf.Variable("x", ("a", "b"), missing=("", "?")),))
    with pytest.raises(SchemaError, match=r"'\?'"):
        encode_conditions(mark, {"x": "?"})
    many = pmf.Schema((pmf.Variable("x", tuple(f"l{n}" for n in range(15))),))
    with pytest.raises(SchemaError, match=r"'l11', \.\.\. 3 more\]"):
        encode_conditions(many, {"x": "?"})
