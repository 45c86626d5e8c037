"""No answer is surer than the samples of a fit make it, were the model right."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.model.questions.evidence import Evidence
from pmflib.model.questions.posterior import MAX_ENTRIES, find_known_rows, is_measurable
from pmflib.synthetic.planted_models import planted_factors

SIZES = [3, 2, 4, 3]
SCHEMA = pmf.Schema.from_cardinalities(SIZES)


def make(rank, seed=0, sizes=SIZES):
    prior, factors = planted_factors(sizes, rank, np.random.default_rng(seed), concentration=0.7)
    return pmf.JointPMF(prior, factors, pmf.Schema.from_cardinalities(sizes))


def find(model, codes, targets, given=None, by=()):
    evidence = Evidence.of(codes, model)
    return find_known_rows(model, evidence, len(codes), by, targets, given or {})


def test_of_independent_variables_conditions_take_nothing_away():
    model = make(1)
    codes = model.sample(1000, 0)
    for given in ({}, {1: (0,)}, {1: (1,), 2: (3, 0)}):
        assert find(model, codes, (0,), given)[0] == pytest.approx(1000, rel=0.1)


def test_what_is_missing_says_nothing():
    model = make(1)
    codes = model.sample(1000, 0)
    codes[::2, 0] = -1
    assert find(model, codes, (0,))[0] == pytest.approx(500, rel=0.1)
    assert find(model, codes, (1,))[0] == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize("dependence", ["none", "tree"])
def test_variances_are_those_of_models_that_are_fitted_again(dependence):
    truth = make(2, 3, [2] * 6)
    if dependence == "tree":
        codes = truth.sample(20_000, 0)
        truth = pmf.fit_em(codes, rank=1, schema=truth.schema, dependence="tree").model
    codes = truth.sample(500, 0)
    known = find(truth, codes, (0,), {1: (1,), 2: (1,)})[0]
    p = truth.marginal([0], {"v1": "1", "v2": "1"})[0]
    found = []
    for seed in range(25):
        drawn = truth.sample(500, 1 + seed)
        again = pmf.fit_em(drawn, truth, pseudo_count=0, max_passes=200).model
        found.append(again.marginal([0], {"v1": "1", "v2": "1"})[0])
    # the spread of 25 draws is known to three tenths within two errors
    assert np.std(found) == pytest.approx(np.sqrt(p * (1 - p) / (known + 1)), rel=0.35)


def test_tables_given_each_level_are_those_given_that_level():
    model = make(2)
    codes = model.sample(400, 0)
    many = find(model, codes, (0, 2), {3: (1,)}, by=(1,))
    assert many.shape == (2,)
    for level in range(2):
        one = find(model, codes, (0, 2), {3: (1,), 1: (level,)})
        assert many[level] == pytest.approx(one[0], rel=1e-9)


def test_what_is_not_determined_or_too_large_is_not_known():
    pair = make(2, 0, [2, 2])
    codes = pair.sample(300, 0)
    # a state's share of two variables is open, the table of both is not
    assert np.isfinite(find(pair, codes, (0, 1))).all()
    wide = make(2, 0, [70, 70])
    assert np.isinf(find(wide, wide.sample(100, 0), (0, 1))).all()


def test_large_models_averages_and_traits_are_left_alone():
    model = make(2)
    assert is_measurable(model)
    assert not is_measurable(make(MAX_ENTRIES // 12 + 1))
    average = pmf.JointPMF(model.prior, model.factors, SCHEMA, {"final": True})
    assert not is_measurable(average)
    answers = average.ask("P(v0 | v1=0)", model.sample(200, 0))
    assert answers.standard_errors is not None


def test_rare_conditions_of_few_rows_widen_the_interval():
    model = make(3, 7, [3] * 8)
    codes = model.sample(300, 0)
    (low, high) = model.ask("P(v0=0 | v1=0, v2=1, v3=0, v4=1)", codes).interval
    # the ninety rows that are assumed would leave a sixth
    assert high - low > 0.25
    assert 0 <= low < high <= 1


@pytest.mark.parametrize(
    "question", ["E(v0 | v1=0)", "TV(v0; v1)", "TV(v0 | v1=0; v1=1)", "MI(v0; v1)", "H(v0)"]
)
def test_intervals_stay_where_the_measure_can_be(question):
    codes = np.repeat(np.arange(3)[:, None], 2, axis=1)
    schema = pmf.Schema.from_cardinalities([3, 3])
    model = pmf.JointPMF(np.full(3, 1 / 3), np.tile(np.eye(3), (2, 1)), schema)
    found = model.ask(question, codes)
    low, high = found.interval
    greatest = {"E": 2.0, "T": 1.0, "M": np.log(3), "H": np.log(3)}[question[0]]
    assert 0 <= low <= found.value <= high <= greatest + 1e-12
