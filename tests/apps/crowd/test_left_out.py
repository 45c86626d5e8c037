"""Labels weighed without their task's share, next to SciPy's digamma function."""

import numpy as np
import pytest
from scipy import special

from pmflib.apps.crowd import digamma
from pmflib.apps.crowd.kernels.left_out import LEAST, LOWEST, add_shares, weigh_left_out


@pytest.mark.parametrize("scale", [0.3, 1.0, 40.0, 3e4])
def test_weigh_left_out__takes_out_the_share_of_the_task(scale):
    rng = np.random.default_rng(3)
    n_workers, n_classes, n_tasks = 30, 3, 300
    mass = scale * rng.gamma(0.5, size=(n_workers, n_classes, n_classes)) + 0.01
    lengths = rng.integers(0, 7, n_tasks)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = rng.integers(0, n_workers * n_classes, indptr[-1]).astype(np.int32)
    shares = rng.dirichlet(np.full(n_classes, 0.2), n_tasks)
    cells, totals = mass.reshape(-1, n_classes), mass.sum(axis=1)
    scores = np.empty(shares.shape)
    weights, means = np.empty((2, indices.size, n_classes))
    tables = cells, totals, digamma(cells), digamma(totals)
    weigh_left_out(indptr, indices, n_classes, shares, *tables, scores, weights, means)
    own = np.repeat(shares, lengths, axis=0)
    left = np.maximum(cells[indices] - own, LEAST)
    all_left = np.maximum(totals[indices // n_classes] - own, LEAST)
    expected = np.maximum(special.digamma(left) - special.digamma(all_left), LOWEST)
    np.testing.assert_allclose(weights, expected, rtol=1e-7, atol=2e-8)
    np.testing.assert_allclose(means, np.minimum(left / all_left, 1.0))
    rows = np.repeat(np.arange(n_tasks), lengths)
    summed = np.zeros(shares.shape)
    np.add.at(summed, rows, weights)
    np.testing.assert_allclose(scores, summed)
    # the same without room for each label
    alone = np.empty(shares.shape)
    none = np.empty((0, n_classes))
    weigh_left_out(indptr, indices, n_classes, shares, *tables, alone, none, none)
    np.testing.assert_array_equal(alone, scores)
    added = np.zeros(cells.shape)
    add_shares(indptr, indices, shares, added)
    slow = np.zeros(cells.shape)
    np.add.at(slow, indices, own)
    np.testing.assert_allclose(added, slow)
