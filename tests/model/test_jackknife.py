import numpy as np
import pytest

import pmflib as pmf
from pmflib.core.errors import SchemaError
from pmflib.model.jackknife import estimate_standard_errors, refit


def plant():
    rng = np.random.default_rng(4)
    schema = pmf.Schema.from_cardinalities([3] * 6)
    blocks = [rng.dirichlet(np.full(3, 0.8), 2).T for _ in range(6)]
    return pmf.JointPMF(np.array([0.6, 0.4]), np.vstack(blocks), schema)


def test_estimate_standard_errors__is_the_spread_over_samples():
    truth = plant()
    fits, errors = [], []
    for seed in range(40):
        counts = pmf.count_pairs(truth.sample(3000, seed), truth.schema, n_folds=8)
        prior, factors = refit(counts, (truth.prior, truth.factors))
        fits.append(factors)
        if seed < 5:
            model = pmf.JointPMF(prior, factors, truth.schema)
            errors.append(estimate_standard_errors(counts, model)[1])
    actual = np.std(fits, axis=0, ddof=1)
    # 39 degrees of freedom of the spread, 5 x 7 of the errors, 24 free parameters
    ratio = np.sqrt(np.mean(np.square(errors)) / np.mean(np.square(actual)))
    assert 0.85 < ratio < 1.15


def test_estimate_standard_errors__follow_the_states_of_the_model():
    truth = plant()
    counts = pmf.count_pairs(truth.sample(2000, 0), truth.schema, n_folds=4)
    prior, factors = estimate_standard_errors(counts, truth)
    swapped = pmf.JointPMF(truth.prior[::-1], truth.factors[:, ::-1], truth.schema)
    swapped_prior, swapped_factors = estimate_standard_errors(counts, swapped)
    np.testing.assert_allclose(swapped_prior[::-1], prior, rtol=1e-6)
    np.testing.assert_allclose(swapped_factors[:, ::-1], factors, rtol=1e-6)


def test_estimate_standard_errors__folds_that_agree_leave_none():
    truth = plant()
    one = pmf.count_pairs(truth.sample(500, 0), truth.schema, n_folds=1)
    same = pmf.PairCounts(one.schema, np.repeat(one.tables, 3, axis=0), np.repeat(one.n_rows, 3))
    prior, factors = estimate_standard_errors(same, truth)
    assert prior.max() < 1e-4
    assert factors.max() < 1e-4


def test_diagnose__shows_them():
    truth = plant()
    counts = pmf.count_pairs(truth.sample(500, 0), truth.schema, n_folds=4)
    found = pmf.diagnose(counts, truth, standard_errors=True)
    assert found.prior_errors.shape == (2,)
    assert "standard errors    prior up to 0.0" in str(found)


def test_estimate_standard_errors__refuses():
    truth = plant()
    counts = pmf.count_pairs(truth.sample(50, 0), truth.schema, n_folds=1)
    with pytest.raises(SchemaError, match="1 of 1 folds hold samples, a jackknife needs 2"):
        estimate_standard_errors(counts, truth)
    other = pmf.count_pairs(np.zeros((9, 2), np.int8), [2, 2])
    with pytest.raises(SchemaError, match="different schemas"):
        estimate_standard_errors(other, truth)
