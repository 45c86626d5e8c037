import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import RankError
from pmflib.counts import TripleCounts
from pmflib.papers import factor_mse
from tests.reference import make_codes


@pytest.mark.parametrize("loss", ["kl", "squares"])
def test_fit_triples__finds_the_model_of_many_samples(loss):
    rng = np.random.default_rng(2)
    schema = pmf.Schema.from_cardinalities([4, 3, 4, 5])
    blocks = [rng.dirichlet(np.full(size, 1.0), 2).T for size in schema.cardinalities]
    truth = pmf.JointPMF(np.array([0.6, 0.4]), np.vstack(blocks), schema)
    codes = truth.sample(50_000, rng)
    codes[rng.random(codes.shape) < 0.1] = -1
    result = pmf.fits.fit_triples(pmf.counts.count_triples(codes, schema), 2, loss=loss, rng=1)
    assert result.converged
    assert result.method == f"triples-{loss}"
    assert np.all(np.diff(result.loss_history) <= 0)
    model = result.model
    assert factor_mse(model.prior, model.factors, truth.prior, truth.factors, 4) < 2e-3


@pytest.mark.parametrize("loss", ["kl", "squares"])
def test_fit_triples__variables_without_a_triple_keep_their_marginals(loss):
    codes = np.array([[0, 0, 1, -1, 1], [1, 0, 0, -1, -1], [1, 1, 1, -1, -1], [-1, -1, -1, -1, 0]])
    codes[0, 4] = -1
    result = pmf.fits.fit_triples(pmf.counts.count_triples(codes, [2, 2, 2, 3, 2]), 2, loss=loss)
    np.testing.assert_allclose(result.model.factor(3), 1 / 3)
    np.testing.assert_allclose(result.model.factor(4), [[1, 1], [0, 0]])


@pytest.mark.parametrize("loss", ["kl", "squares"])
def test_fit_triples__of_no_samples_is_defined(loss):
    counts = TripleCounts.zero(pmf.Schema.from_cardinalities([2, 1, 2]))
    result = pmf.fits.fit_triples(counts, 1, loss=loss)
    np.testing.assert_allclose(result.model.factors[:, 0], [0.5, 0.5, 1, 0.5, 0.5])


def test_fit_triples__same_seed_same_bits():
    codes = make_codes(np.random.default_rng(3), 200, [3, 2, 3])
    counts = pmf.counts.count_triples(codes, [3, 2, 3])
    with pytest.warns(pmf.errors.ConvergenceWarning, match="triples-kl"):
        one, two = (pmf.fits.fit_triples(counts, 5, rng=7).model for _ in range(2))
    assert np.array_equal(one.factors, two.factors)


@pytest.mark.parametrize(
    ("cardinalities", "rank", "loss", "error", "match"),
    [
        ([2, 2, 2], 0, "kl", RankError, "rank"),
        ([2, 2, 2], 1, "mse", pmf.PmfError, "loss"),
        ([2, 2], 1, "kl", pmf.PmfError, "variables"),
    ],
)
def test_fit_triples__refuses(cardinalities, rank, loss, error, match):
    counts = TripleCounts.zero(pmf.Schema.from_cardinalities(cardinalities))
    with pytest.raises(error, match=match):
        pmf.fits.fit_triples(counts, rank, loss=loss)
