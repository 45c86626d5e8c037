import numpy as np
import pytest

import pmflib as pmf
from pmflib.model import ModelOrigin, describe_states, tabulate_states

SCHEMA = pmf.Schema(
    (
        pmf.Variable("colour", ("red", "green", "blue")),
        pmf.Variable("size", ("s", "l"), (1.0, 2.0)),
        pmf.Variable("same", ("a", "b")),
    )
)
PRIOR = np.array([0.25, 0.75])
FACTORS = np.array(
    [
        [0.80, 0.10],
        [0.15, 0.85],
        [0.05, 0.05],
        [0.10, 0.60],
        [0.90, 0.40],
        [0.50, 0.50],
        [0.50, 0.50],
    ]
)


def test_describe_states__levels_by_lift_and_probability():
    large, small = describe_states(pmf.JointPMF(PRIOR, FACTORS, SCHEMA))
    assert (large.state, small.state) == (1, 0)
    assert large.prior == 0.75
    named = [(each.variable, each.level) for each in small.frequent]
    # one level of a variable, nothing of what is the same in all states, the most distinguishing first
    assert named == [("colour", "red"), ("size", "l")]
    assert small.frequent[0].lift == pytest.approx(0.8 / 0.275)
    assert [(each.variable, each.level) for each in small.rare] == [
        ("colour", "green"),
        ("size", "s"),
    ]
    assert (small.n_higher, small.n_lower, large.n_lower) == (1, 0, 1)
    assert [each.variable for each in small.shifted] == ["size"]
    assert small.shifted[0].expected == pytest.approx(1.9)
    assert small.shifted[0].overall == pytest.approx(1.525)


def test_describe_states__no_more_than_asked_and_only_beyond_chance():
    model = pmf.JointPMF(PRIOR, FACTORS, SCHEMA)
    assert [len(each.frequent) for each in describe_states(model, most=1)] == [1, 1]
    few = np.array([2, 2, 1, 3, 2, 3, 2])
    assert not any(each.frequent or each.rare for each in describe_states(model, level_counts=few))
    assert not any(each.shifted for each in describe_states(model, level_counts=few))
    many = describe_states(model, level_counts=1000 * few)
    assert [each.frequent for each in many] == [each.frequent for each in describe_states(model)]


def test_describe_states__a_variable_never_observed_and_a_single_state():
    model = pmf.JointPMF(PRIOR, FACTORS, SCHEMA)
    unseen = np.array([0, 0, 0, 900, 900, 900, 900])
    found = describe_states(model, level_counts=unseen)
    assert {each.variable for profile in found for each in profile.frequent} == {"size"}
    alone = pmf.JointPMF(np.ones(1), FACTORS[:, :1], SCHEMA)
    assert not describe_states(alone)[0].frequent
    with pytest.raises(pmf.PmfError, match="most"):
        describe_states(model, most=-1)
    with pytest.raises(pmf.PmfError, match="level_counts"):
        describe_states(model, level_counts=np.ones(2, np.int64))


def test_tabulate_states__members_of_an_average_that_found_a_state_are_one_row():
    moved = FACTORS.copy()
    moved[:2, 1] += [0.06, -0.06]
    empty = np.full((len(FACTORS), 1), 0.5)
    empty[:3] = 1 / 3
    prior, factors = np.append(np.tile(PRIOR, 2) / 2, 0.0), np.hstack([FACTORS, moved, empty])
    rows = tabulate_states(pmf.JointPMF(prior, factors, SCHEMA, ModelOrigin(average=2))).rows
    assert [row[:2] for row in rows] == [("1, 3", "75 %"), ("0, 2", "25 %")]
    assert "colour=red 80 % (2.7 times)" in rows[1][2]
    assert len(tabulate_states(pmf.JointPMF(prior, factors, SCHEMA)).rows) == 5
