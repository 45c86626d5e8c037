import numpy as np
import pytest

import pmflib as pmf
from pmflib.counting.marginals import estimate_singles
from pmflib.fitting.starts import StoredCounts, open_for_em
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
