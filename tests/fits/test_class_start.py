import numpy as np
import pytest

import pmflib as pmf
from pmflib.fits import read_naive_bayes
from pmflib.fits.starts import start_classes

SCHEMA = pmf.Schema.from_cardinalities([3, 2, 4])


@pytest.fixture
def counts():
    rng = np.random.default_rng(0)
    codes = np.stack([rng.choice(3, 200, p=[0.2, 0.5, 0.3]), *rng.integers(0, 2, (2, 200))], axis=1)
    return pmf.count_pairs(codes, SCHEMA)


def test_start_classes__one_state_per_level_is_naive_bayes(counts):
    prior, factors = start_classes(read_naive_bayes(counts, 0), 0, 3, np.random.default_rng(0))
    bayes = read_naive_bayes(counts, 0)
    np.testing.assert_allclose(prior, bayes.prior)
    np.testing.assert_allclose(factors[3:], bayes.factors[3:])
    np.testing.assert_allclose(np.diagonal(factors[:3]), 1 - 0.01 * 2 / 3)


def test_start_classes__more_states_divide_levels_and_differ(counts):
    prior, factors = start_classes(read_naive_bayes(counts, 0), 0, 5, np.random.default_rng(0))
    model = pmf.JointPMF(prior, factors, SCHEMA)
    np.testing.assert_allclose(
        np.bincount(factors[:3].argmax(axis=0), prior), read_naive_bayes(counts, 0).prior
    )
    # levels 1 and 2 are the most frequent ones
    assert factors[:3].argmax(axis=0).tolist() == [0, 1, 1, 2, 2]
    assert np.abs(model.factor(1)[:, 1] - model.factor(1)[:, 2]).max() > 0.01
