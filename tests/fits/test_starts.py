import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock
from pmflib.counts import estimate_singles
from pmflib.fits import StoredCounts, read_naive_bayes
from pmflib.fits.starts import SampleCounts, open_for_em
from tests.reference import offsets_of

CARDINALITIES = [3, 2, 4]
OFFSETS = offsets_of(CARDINALITIES)
SINGLES = np.repeat(1.0 / np.array(CARDINALITIES), CARDINALITIES)


def test_open_for_em__nothing_is_ruled_out():
    prior, factors = np.array([1.0, 0.0]), np.repeat(np.eye(9)[:, [0]], 2, axis=1)
    factors[[3, 5]] = 1.0
    prior, factors = open_for_em((prior, factors), SINGLES)
    assert prior.tolist() == pytest.approx([0.95, 0.05])
    assert factors.min() > 0
    np.testing.assert_allclose(np.add.reduceat(factors, OFFSETS[:-1], axis=0), 1.0, rtol=1e-14)


def test_stored_counts__of_the_training_folds(tmp_path):
    codes = np.random.default_rng(0).integers(0, 2, (200, 3))
    counts = pmf.count_pairs(codes, [2, 2, 2], n_folds=4)
    counts.save(tmp_path / "pairs")
    stored = StoredCounts(tmp_path / "pairs", (0, 2))
    kept = counts.select_folds([0, 2])
    np.testing.assert_array_equal(stored.load().to_dense(), kept.to_dense())
    singles = stored.estimate_singles(counts.schema.offsets)
    np.testing.assert_array_equal(singles, estimate_singles(kept))


def test_sample_counts__read_from_samples_what_counts_of_their_pairs_hold():
    sizes, rng = [3, 1, 4, 2], np.random.default_rng(0)
    codes = np.stack([rng.integers(-1, size, 5000) for size in sizes], axis=1).astype(np.int8)
    # never observed
    codes[:, 3] = -1
    schema = pmf.Schema.from_cardinalities(sizes)
    counts, pairs = SampleCounts(DenseBlock(codes), schema), pmf.count_pairs(codes, schema)
    np.testing.assert_array_equal(counts.load().tables, pairs.tables)
    singles = counts.estimate_singles(schema.offsets)
    np.testing.assert_array_equal(singles, estimate_singles(pairs))
    for target in range(4):
        found, expected = counts.read_naive_bayes(target), read_naive_bayes(pairs, target)
        np.testing.assert_array_equal(found.prior, expected.prior)
        np.testing.assert_array_equal(found.factors, expected.factors)


def test_fit_em__wide_tables_are_fitted_without_their_pairs(monkeypatch):
    def refuse(self):
        raise AssertionError("pairs were counted")

    monkeypatch.setattr(SampleCounts, "load", refuse)
    codes = np.random.default_rng(0).integers(0, 2, (60, 200)).astype(np.int8)
    for rank in (1, 2):
        assert np.isfinite(pmf.fit_em(codes, rank=rank).model.log_prob(codes)).all()
