import numpy as np
import pytest

from pmflib.errors import PmfError, SchemaError
from pmflib.model import JointPMF
from pmflib.model.conditions import find_impossible, find_unseen
from pmflib.model.query import answer, describe_conditions, parse_question
from pmflib.schema import Schema, Variable

SCHEMA = Schema(
    (
        Variable("age", ("young", "old")),
        Variable("pet", ("cat", "dog")),
        Variable("car", ("no", "yes")),
    )
)
# nobody young has a car, and nobody has both a cat and a car
FACTORS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.0], [0.4, 1.0], [1.0, 0.3], [0.0, 0.7]])


@pytest.fixture
def model():
    return JointPMF(np.array([0.5, 0.5]), FACTORS, SCHEMA)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pet given age=young and age=old", "'age' is given as 'young' and as 'old'"),
        ("pet given age=young, age=old", "'age' is given as 'young' and as 'old'"),
        ("pet given pet=dog", "'pet' is asked for and given as 'dog'"),
        ("pet, pet given age=old", "asked for twice"),
    ],
)
def test_parse_question__contradictions(text, message):
    with pytest.raises(PmfError, match=message):
        parse_question(text)


def test_parse_question__the_same_condition_twice_is_one():
    assert parse_question("pet given age=old and age=old").given == {"age": "old"}


def test_answer__is_bayes_rule(model):
    found = answer(model, parse_question("pet given car=no"))
    expected = np.array([0.5 * 0.6, 0.5 * 0.4 + 0.5 * 0.3]) / (0.5 + 0.5 * 0.3)
    chances = {each["level"]["pet"]: each["probability"] for each in found["levels"]}
    np.testing.assert_allclose([chances["cat"], chances["dog"]], expected, rtol=1e-12)


def test_answer__impossible_conditions_are_named(model):
    with pytest.raises(PmfError, match=r"nobody can have age=young and car=yes: .*probability 0"):
        answer(model, parse_question("pet given age=young and car=yes"))
    with pytest.raises(PmfError, match="nobody can have pet=cat and car=yes"):
        answer(model, parse_question("age given pet=cat and car=yes"))


def test_answer__typos(model):
    with pytest.raises(SchemaError, match=r"did you mean \['age'\]"):
        answer(model, parse_question("pet given agee=young"))
    with pytest.raises(SchemaError, match=r"no level 'yong'; did you mean \['young'\]"):
        answer(model, parse_question("pet given age=yong"))


def test_find_impossible__one_two_and_all(model):
    assert find_impossible(model, {}) == ()
    assert find_impossible(model, {0: 0, 1: 0}) == ()
    assert find_impossible(model, {1: 1, 0: 0, 2: 1}) == (0, 2)
    three = JointPMF(
        np.full(3, 1 / 3),
        np.array([[0, 1, 1], [1, 0, 0], [1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1.0]]),
        SCHEMA,
    )
    # each pair is possible, and all three are not
    assert find_impossible(three, {0: 0, 1: 0, 2: 0}) == (0, 1, 2)


def test_find_impossible__no_underflow_of_many_rare_conditions():
    schema = Schema(tuple(Variable(f"v{j}", ("a", "b")) for j in range(40)))
    factors = np.tile([[1e-20], [1 - 1e-20]], (40, 1))
    rare = JointPMF(np.ones(1), factors, schema)
    assert find_impossible(rare, dict.fromkeys(range(39), 0)) == ()
    given: dict[str | int, int] = dict.fromkeys(range(39), 0)
    found = rare.marginal(["v39"], given)
    np.testing.assert_allclose(found, [1e-20, 1], rtol=1e-12)


def test_find_unseen__levels_and_pairs():
    table = np.zeros((6, 6), np.int64)
    table[np.diag_indices(6)] = [3, 2, 3, 2, 5, 0]
    table[0, 2] = 3
    assert find_unseen(table, SCHEMA, {}) == ()
    assert find_unseen(table, SCHEMA, {0: 0, 1: 0}) == ()
    assert find_unseen(table, SCHEMA, {1: 1, 0: 0}) == (1, 0)
    assert find_unseen(table, SCHEMA, {0: 0, 2: 1}) == (2,)
    assert describe_conditions(SCHEMA, {0: 0, 2: 1}, (0, 2)) == "age=young and car=yes"


def test_answer__a_level_that_counts_as_other_is_said():
    schema = Schema(
        (Variable("country", ("de", "fr", "other"), other="other"), *SCHEMA.variables[1:])
    )
    factors = np.vstack([[[0.5, 0.2], [0.3, 0.2], [0.2, 0.6]], FACTORS[2:]])
    model = JointPMF(np.array([0.5, 0.5]), factors, schema)
    found = answer(model, parse_question("pet given country=dee"))
    assert found["as_other"] == {"country": "dee"}
    plain = answer(model, parse_question("pet given country=other"))
    assert plain == {key: value for key, value in found.items() if key != "as_other"}
