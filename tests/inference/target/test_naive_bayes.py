import numpy as np
import pytest
from sklearn.naive_bayes import CategoricalNB

import pmflib as pmf
from pmflib.fits import read_naive_bayes, starts

SIZES = (3, 2, 4)


def draw(missing=0.0):
    rng = np.random.default_rng(3)
    codes = np.stack([rng.integers(0, n, 400) for n in SIZES], axis=1)
    codes[:, 1] = np.where(rng.random(400) < 0.6, codes[:, 2] // 2, codes[:, 1])
    codes[rng.random(codes.shape) < missing] = -1
    return codes


@pytest.mark.parametrize("target", [0, 1, 2])
def test_read_naive_bayes__equals_scikit_learn(target, monkeypatch):
    monkeypatch.setattr(starts, "PSEUDO_COUNT", 1e-9)
    codes = draw()
    found = read_naive_bayes(pmf.count_pairs(codes, SIZES), target)
    others = np.delete(codes, target, axis=1)
    peer = CategoricalNB(alpha=1e-9, force_alpha=True, class_prior=found.prior).fit(
        others, codes[:, target]
    )
    np.testing.assert_allclose(
        found.predict_proba(codes, target), peer.predict_proba(others), atol=1e-6
    )


def test_read_naive_bayes__shares_of_the_samples_where_both_are_observed():
    codes = draw(missing=0.4)
    found = read_naive_bayes(pmf.count_pairs(codes, SIZES), 2)
    both = codes[(codes[:, 0] >= 0) & (codes[:, 2] == 1), 0]
    alone = np.bincount(codes[codes[:, 0] >= 0, 0], minlength=3) + 0.5
    expected = np.bincount(both, minlength=3) + alone / alone.sum()
    np.testing.assert_allclose(found.factor(0)[:, 1], expected / expected.sum())
