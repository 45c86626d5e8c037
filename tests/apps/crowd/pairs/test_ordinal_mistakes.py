import numpy as np
import pytest
from scipy.special import gammaln

import pmflib as pmf
from pmflib.apps.crowd import AnnotatorModel
from pmflib.apps.crowd.m_step import share_mistakes, update_crowd_model

STEPS = np.abs(np.arange(5)[:, None] - np.arange(5))


def decay(log_factor, n_subclasses=1):
    weights = np.where(STEPS > 0, np.exp(log_factor * STEPS), 0)
    return np.tile(weights / weights.sum(axis=0), n_subclasses)


def test_share_mistakes__few_follow_the_distance_that_all_show():
    counts = 40 * decay(-1.2)
    counts[:, 2] = 0
    counts[1, 2] = 1.0
    found = share_mistakes(counts + 100 * np.eye(5))
    np.testing.assert_allclose(found.sum(axis=0), 1)
    assert np.diagonal(found).tolist() == [0] * 5
    np.testing.assert_allclose(found[:, 0], decay(-1.2)[:, 0], atol=0.03)
    # of one mistake, the other neighbour is as good as known
    assert found[3, 2] > 0.3
    assert found[3, 2] > 3 * found[4, 2]


@pytest.mark.parametrize("log_factor", [-1.0, 0.0, 0.7])
def test_share_mistakes__many_are_what_they_are(log_factor):
    rng = np.random.default_rng(3)
    counts = rng.poisson(4000 * decay(log_factor) * rng.gamma(2, 0.5, (5, 5))).astype(float)
    found = share_mistakes(counts)
    np.testing.assert_allclose(found, counts / counts.sum(axis=0), atol=0.01)


def test_share_mistakes__are_the_most_probable_of_their_prior():
    rng = np.random.default_rng(4)
    counts = np.where(STEPS > 0, rng.poisson(6 * decay(-0.8, 1)), 0).astype(float)
    found = share_mistakes(counts)
    totals = counts.sum(axis=0)

    def weigh(log_factor, concentration):
        shares = concentration * decay(log_factor)
        wrong = STEPS > 0
        gained = (gammaln(counts[wrong] + shares[wrong]) - gammaln(shares[wrong])).sum()
        spent = (gammaln(totals + concentration) - gammaln(concentration)).sum()
        return gained - spent + np.log(concentration) - concentration / 4

    # what was added says which prior it was
    best, log_factor = max(
        (weigh(b, c), b) for b in np.linspace(-3, 1, 41) for c in np.geomspace(0.5, 100, 60)
    )
    concentrations = np.geomspace(0.5, 100, 400)
    gaps = [
        np.abs((counts + c * decay(b)) / (totals + c) - found).max()
        for b in np.linspace(-3, 1, 81)
        for c in concentrations
    ]
    index = int(np.argmin(gaps))
    chosen = np.linspace(-3, 1, 81)[index // 400], concentrations[index % 400]
    assert min(gaps) < 0.01
    assert weigh(*chosen) > best - 0.5
    assert chosen[0] == pytest.approx(log_factor, abs=0.4)


def test_share_mistakes__one_class_has_none():
    assert share_mistakes(np.array([[3.0, 1.0]])).tolist() == [[0, 0]]
    assert share_mistakes(np.array([[3.0, 1.0], [0.0, 5.0]])).tolist() == [[0, 1], [1, 0]]
    assert np.isfinite(share_mistakes(np.zeros((4, 8)))).all()


@pytest.mark.parametrize("n_subclasses", [1, 2])
def test_update_crowd_model__two_classes_have_no_order(n_subclasses):
    mass = np.random.default_rng(0).gamma(1.0, 9.0, (14, 2 * n_subclasses))
    plain, ordinal = (
        update_crowd_model(
            mass,
            np.ones(2 * n_subclasses),
            AnnotatorModel(n_subclasses=n_subclasses, ordinal=each),
        )
        for each in (False, True)
    )
    np.testing.assert_allclose(plain.mass, ordinal.mass, rtol=1e-12)


def test_update_crowd_model__order_changes_how_mistakes_are_shared_and_not_how_many():
    mass = np.random.default_rng(1).gamma(0.5, 2.0, (150, 5))
    mass += np.tile(np.eye(5), (30, 1)) * 6
    plain, ordinal = (
        update_crowd_model(mass, np.ones(5), AnnotatorModel(pseudo_count=4.0, ordinal=each)).mass
        for each in (False, True)
    )
    right = np.diagonal(plain, axis1=1, axis2=2)
    np.testing.assert_allclose(np.diagonal(ordinal, axis1=1, axis2=2), right, rtol=1e-9)
    assert np.abs(plain - ordinal).max() > 1e-3


def test_annotator_model__refuses_an_order_that_has_no_use():
    for other in ({"one_coin": True}, {"pseudo_count": 0.0}):
        with pytest.raises(pmf.PmfError, match="ordinal is true, with pseudo_count"):
            AnnotatorModel(ordinal=True, **other)
