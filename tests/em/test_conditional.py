import numpy as np
import pytest

import pmflib as pmf
from pmflib.em import BlocksInMemory, ConditionalObjective, raise_conditional
from tests.reference import make_codes, make_model

SIZES = [3, 2, 4]
SCHEMA = pmf.Schema.from_cardinalities(SIZES)
OFFSETS = SCHEMA.offsets


@pytest.fixture
def codes():
    return make_codes(np.random.default_rng(0), 200, SIZES)


def make_objective(codes, share, pseudo_count=0.5):
    samples = BlocksInMemory.cut(codes, OFFSETS, 2)
    counts = np.full(9, pseudo_count)
    return ConditionalObjective(samples, samples.hide(1), OFFSETS, share, counts, pseudo_count)


def test_evaluate__is_the_likelihood_of_the_target_given_the_others(codes):
    model = make_model(np.random.default_rng(1), SIZES, 2)
    found, _ = make_objective(codes, 1.0, 0.0).evaluate(model)
    known = codes[:, 1] >= 0
    chances = pmf.JointPMF(*model, SCHEMA).predict_proba(codes[known], 1)
    expected = np.log(chances[np.arange(known.sum()), codes[known, 1]]).sum() / len(codes)
    assert found == pytest.approx(expected)
    joint, _ = make_objective(codes, 0.0, 0.0).evaluate(model)
    assert joint == pytest.approx(pmf.JointPMF(*model, SCHEMA).log_prob(codes).mean())


@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
def test_evaluate__gradient_is_that_of_differences(codes, share):
    objective = make_objective(codes, share)
    rng = np.random.default_rng(2)
    logs = [np.log(each) for each in make_model(rng, SIZES, 2)]

    def open_logs(prior, factors):
        weights = np.exp(factors)
        sums = np.add.reduceat(weights, OFFSETS[:-1], axis=0)
        return np.exp(prior) / np.exp(prior).sum(), weights / np.repeat(sums, SIZES, axis=0)

    _, gradient = objective.evaluate(open_logs(*logs))
    for which, index in ((0, (1,)), (1, (0, 1)), (1, (4, 0)), (1, (8, 1))):
        ends = []
        for step in (-1e-5, 1e-5):
            moved = [each.copy() for each in logs]
            moved[which][index] += step
            ends.append(objective.evaluate(open_logs(*moved))[0])
        assert gradient[which][index] == pytest.approx((ends[1] - ends[0]) / 2e-5, abs=1e-7)


def test_raise_conditional__rises_stays_a_model_and_stops_when_told(codes):
    objective = make_objective(codes, 1.0)
    start = make_model(np.random.default_rng(1), SIZES, 2)
    values, models = [], []

    def follow(n_steps, model, value):
        values.append(value)
        models.append(model)
        return n_steps < 7

    assert not raise_conditional(objective, start, 50, follow)
    assert len(values) == 7
    assert (np.diff(values) > 0).all()
    assert values[0] > objective.evaluate(start)[0]
    assert values[-1] == pytest.approx(objective.evaluate(models[-1])[0])
    pmf.JointPMF(models[-1][0], models[-1][1], SCHEMA)
    assert raise_conditional(objective, start, 500, lambda *_: True)
    assert not raise_conditional(objective, start, 0, lambda *_: True)
