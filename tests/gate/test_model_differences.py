import numpy as np
import pytest

import pmflib as pmf
from pmflib_tasks.gate import compare_models
from pmflib_tasks.guards import align_levels

SCHEMA = pmf.Schema((pmf.Variable("a", ("x", "y")), pmf.Variable("b", ("0", "1", "2"))))
PRIOR = np.array([0.5, 0.3, 0.2])
FACTORS = np.array(
    [
        [0.9, 0.2, 0.5],
        [0.1, 0.8, 0.5],
        [0.1, 0.1, 0.8],
        [0.2, 0.8, 0.1],
        [0.7, 0.1, 0.1],
    ]
)


def make(schema, prior, factors):
    return pmf.JointPMF(prior, factors, schema)


MODEL = make(SCHEMA, PRIOR, FACTORS)


def test_compare_models__states_in_another_order_are_the_same():
    order = [2, 0, 1]
    other = make(SCHEMA, PRIOR[order], FACTORS[:, order])
    found = compare_models(align_levels(SCHEMA, SCHEMA), MODEL, other)
    assert [(change.first, change.second) for change in found] == [(0, 1), (1, 2), (2, 0)]
    assert [change.prior_first for change in found] == PRIOR.tolist()
    assert [change.variation for change in found] == [0.0, 0.0, 0.0]


def test_compare_models__says_which_variable_of_a_state_has_changed():
    factors = FACTORS.copy()
    factors[2:, 1] = 0.3, 0.5, 0.2
    found = compare_models(
        align_levels(SCHEMA, SCHEMA), MODEL, make(SCHEMA, np.array([0.45, 0.35, 0.2]), factors)
    )
    change = found[1]
    assert (change.first, change.second, change.variable) == (1, 1, "b")
    assert change.variation == pytest.approx(0.3)
    assert change.mean_variation == pytest.approx(0.15)
    assert (change.prior_first, change.prior_second) == (0.3, 0.35)


def test_compare_models__states_without_a_partner():
    two = make(SCHEMA, np.array([0.6, 0.4]), FACTORS[:, :2])
    levels = align_levels(SCHEMA, SCHEMA)
    more = compare_models(levels, two, MODEL)
    assert [(change.first, change.second) for change in more] == [(0, 0), (1, 1), (None, 2)]
    assert (more[2].prior_first, more[2].prior_second, more[2].variable) == (None, 0.2, None)
    less = compare_models(levels, MODEL, two)
    assert [(change.first, change.second) for change in less] == [(0, 0), (1, 1), (2, None)]


def test_compare_models__of_another_schema():
    other = pmf.Schema((pmf.Variable("new", ("n", "m")), pmf.Variable("b", ("2", "1", "0", "3"))))
    factors = np.vstack([np.full((2, 3), 0.5), FACTORS[[4, 3, 2]], np.zeros((1, 3))])
    found = compare_models(align_levels(SCHEMA, other), MODEL, make(other, PRIOR, factors))
    assert [change.variation for change in found] == pytest.approx([0.0, 0.0, 0.0])
    alone = pmf.Schema((pmf.Variable("c", ("n", "m")),))
    model = make(alone, PRIOR, np.full((2, 3), 0.5))
    found = compare_models(align_levels(SCHEMA, alone), MODEL, model)
    assert [(change.prior_second, change.variable) for change in found] == [
        (0.5, None), (0.3, None), (0.2, None),
    ]  # fmt: skip
