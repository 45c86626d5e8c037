import numpy as np
import pytest

from benchmarks.crowd.planted_crowds import LEAST_PRIOR, draw_labels, draw_published_crowd


@pytest.mark.parametrize("version", ["code", "text"])
def test_draw_published_crowd__shares_are_those_asked_for(version):
    crowd = draw_published_crowd(20_000, np.random.default_rng(0), version=version)
    np.testing.assert_allclose(crowd.confusion.sum(axis=1), 1)
    assert crowd.task.size == pytest.approx(0.3 * 25 * 20_000, rel=0.02)
    found = np.zeros((25, 3, 3))
    np.add.at(found, (crowd.worker, crowd.label, crowd.truth[crowd.task]), 1)
    np.testing.assert_allclose(found / found.sum(axis=1, keepdims=True), crowd.confusion, atol=0.1)
    expert = np.diagonal(crowd.confusion, axis1=1, axis2=2).min(axis=1).max()
    assert expert > 0.6
    assert crowd.prior.min() >= LEAST_PRIOR


def test_measure__does_not_mind_the_order_of_classes():
    crowd = draw_published_crowd(50, np.random.default_rng(0), version="text")
    order = [2, 0, 1]
    assert crowd.measure(crowd.prior[order], crowd.confusion[:, :, order]) == 0
    worse = crowd.confusion.copy()
    worse[0, 0, 0] += 0.1
    assert crowd.measure(crowd.prior, worse) == pytest.approx(0.01 / (25 * 3 + 1))


def test_draw_labels__each_row_by_its_own_probabilities():
    chances = np.repeat([[0.2, 0.0, 0.8], [0.0, 1.0, 0.0]], 20_000, axis=0)
    drawn = draw_labels(chances, np.random.default_rng(1)).reshape(2, -1)
    assert (drawn[1] == 1).all()
    np.testing.assert_allclose(np.bincount(drawn[0]) / 20_000, [0.2, 0, 0.8], atol=0.01)
