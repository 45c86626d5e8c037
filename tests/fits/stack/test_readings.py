import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock
from pmflib.fits import Disagreement, compare_readings
from tests.reference import make_model

SIZES = [3, 2, 4]
SCHEMA = pmf.Schema.from_cardinalities(SIZES)


def make(seed, rank):
    return pmf.JointPMF(*make_model(np.random.default_rng(seed), SIZES, rank), SCHEMA)


def test_compare_readings__gap_and_tables_of_pairs():
    stack, classes = make(0, 6), make(1, 2)
    rows = stack.sample(500, 3)
    found = compare_readings(stack, classes, DenseBlock(rows))
    gains = stack.log_prob(rows) - classes.log_prob(rows)
    assert found.n_classes == 2
    assert found.n_rows == 500
    assert found.gap == pytest.approx(gains.mean())
    assert found.error == pytest.approx(gains.std(ddof=1) / np.sqrt(500), rel=0.01)
    apart = {
        (one, other): np.abs(stack.marginal([one, other]) - classes.marginal([one, other])).sum()
        / 2
        for one, other in ((0, 1), (0, 2), (1, 2))
    }
    assert found.variation == pytest.approx(np.mean([*apart.values()]))
    assert found.largest == pytest.approx(max(apart.values()))
    assert found.pair == tuple(SCHEMA.names[place] for place in max(apart, key=lambda x: apart[x]))
    assert "2 latent classes" in found.sentence
    assert Disagreement.from_json(found.to_json()) == found


def test_compare_readings__weights_count_rows():
    stack, classes = make(0, 6), make(1, 2)
    rows = stack.sample(200, 3)
    twice = compare_readings(stack, classes, DenseBlock(np.repeat(rows, 2, axis=0)))
    weighed = compare_readings(stack, classes, DenseBlock(rows, np.full(200, 2.0)))
    assert weighed.gap == pytest.approx(twice.gap)


def test_compare_readings__one_variable_and_no_rows():
    schema = pmf.Schema.from_cardinalities([3])
    one = pmf.JointPMF(np.ones(1), np.full((3, 1), 1 / 3), schema)
    found = compare_readings(one, one, DenseBlock(np.empty((0, 1), np.int8)))
    assert (found.gap, found.error, found.variation, found.pair) == (0.0, 0.0, None, ())
    assert found.sentence == "1 latent classes to read, beside the stack that answers"
