import numpy as np
import pytest
from scipy.optimize import minimize

from pmflib.fits.stack.weights import learn_weights, mix_scores

RNG = np.random.default_rng(0)
SCORES = RNG.normal(-3, 1, (400, 4)) + np.array([0.0, 0.2, 0.5, -2.0])
HIDDEN = SCORES * 0.6 + RNG.normal(0, 0.3, SCORES.shape)
COUNTS = RNG.integers(1, 4, 400).astype(float)
PRIOR = np.array([2.0, 1.0, 0.5, 0.5])


def lose(angles, hidden=None):
    """Minus the penalised log-likelihood, with weights as a softmax."""
    weights = np.exp(angles - angles.max())
    weights /= weights.sum()
    scores = mix_scores(SCORES, weights)
    if hidden is not None:
        scores = scores - mix_scores(hidden, weights)
    return -(COUNTS @ scores + PRIOR @ np.log(weights))


@pytest.mark.parametrize("hidden", [None, HIDDEN])
def test_learn_weights__maximum_of_a_reference_optimiser(hidden):
    found = learn_weights(SCORES, COUNTS, PRIOR, hidden)
    assert found.sum() == pytest.approx(1)
    starts = [np.zeros(4), *np.random.default_rng(1).normal(0, 2, (4, 4))]
    best = min(minimize(lose, start, args=(hidden,)).fun for start in starts)
    assert lose(np.log(found), hidden) <= best + 1e-4


def test_learn_weights__equal_models_keep_the_prior():
    equal = np.repeat(SCORES[:, :1], 4, axis=1) + 1e-15 * np.arange(4)
    np.testing.assert_allclose(learn_weights(equal, COUNTS, PRIOR), PRIOR / 4, atol=1e-9)
    np.testing.assert_allclose(learn_weights(SCORES[:0], COUNTS[:0], PRIOR), PRIOR / 4)


def test_learn_weights__shares_of_a_planted_mixture():
    rng = np.random.default_rng(2)
    chances = rng.dirichlet(np.ones(30), 3)
    rows = rng.choice(30, 50_000, p=np.array([0.6, 0.3, 0.1]) @ chances)
    scores = np.log(chances[:, rows]).T
    found = learn_weights(scores, np.ones(rows.size), np.ones(3))
    np.testing.assert_allclose(found, [0.6, 0.3, 0.1], atol=0.02)


def test_learn_weights__very_unlikely_rows_are_finite():
    found = learn_weights(SCORES - 2000, COUNTS, PRIOR)
    np.testing.assert_allclose(found, learn_weights(SCORES, COUNTS, PRIOR), atol=1e-9)
    assert np.isfinite(mix_scores(SCORES - 2000, found)).all()
