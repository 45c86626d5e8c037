"""What levels are worth: answered and high, or levels that are asked for."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.apps.recommending.worths import weigh_levels
from pmflib.base import QuestionError, SchemaError

RATED = pmf.Variable("a", ("1", "2", "3"), (1.0, 2.0, 3.0))
SCHEMA = pmf.Schema(
    (RATED, pmf.Variable("b", ("2", "3"), (2.0, 3.0)), pmf.Variable("c", ("x", "y")))
)


@pytest.mark.parametrize(
    ("counts", "high"), [((1, 8, 8), 3), ((8, 1, 1), 2), ((1, 1, 8), 3), ((4, 4, 2), 2)]
)
def test_weigh_levels__high_answers_are_about_half(counts, high):
    worths, meaning = weigh_levels(
        SCHEMA, np.array([0, 1]), "auto", np.array([*counts, 0, 0, 9, 9])
    )
    assert worths[:3].tolist() == [2.0 if number >= high else 1.0 for number in (1, 2, 3)]
    # levels without answers, and variables without numbers
    assert worths[3:].tolist() == [0.0] * 4
    assert meaning == f"answered, and {high} or more"


def test_weigh_levels__one_level_is_answered_alone():
    schema = pmf.Schema((pmf.Variable("a", ("bought",)),))
    worths, meaning = weigh_levels(schema, np.array([0]), "auto", np.array([3]))
    assert (worths.tolist(), meaning) == ([1.0], "answered")


def test_weigh_levels__levels_that_are_asked_for():
    worths, _ = weigh_levels(SCHEMA, np.array([0, 1]), "P(item>=2)", np.zeros(7, int))
    assert worths.tolist() == [0, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        ("auto", SchemaError, "'c'"),
        ("P(item=2)", QuestionError, "2"),
        ("E(item)", QuestionError, "E"),
        ("P(item)", QuestionError, "P"),
        ("P(a=2)", QuestionError, "item"),
        ("P(item=2 | a=2)", QuestionError, "item"),
    ],
)
def test_weigh_levels__refuses(value, kind, said):
    with pytest.raises(kind, match=said):
        weigh_levels(SCHEMA, np.array([0, 2]), value, np.ones(7, int))
