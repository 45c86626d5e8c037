import numpy as np
import pytest

from pmflib.papers import descend

OFFSETS = np.array([0, 2])
TARGET = np.array([0.2, 0.8])


def halve_the_distance(parameters):
    """Loss and update of a contraction to `TARGET`, of which extrapolation finds the limit at once."""
    prior, factors = parameters
    return float(((factors[:, 0] - TARGET) ** 2).sum()), (prior, (factors + TARGET[:, None]) / 2)


def start():
    return np.ones(1), np.array([[0.6], [0.4]])


def test_descend__extrapolation_finds_the_limit_of_a_contraction():
    found = descend(halve_the_distance, start(), OFFSETS, max_iter=100, tol=0, exact_loss=1e-20)
    np.testing.assert_allclose(found.factors[:, 0], TARGET, atol=1e-10)
    assert found.converged
    assert found.n_iter == 1
    assert found.loss_history[0] == pytest.approx(2 * 0.4**2)


def test_descend__an_exact_start_is_kept():
    exact = np.ones(1), TARGET[:, None].copy()
    found = descend(halve_the_distance, exact, OFFSETS, max_iter=100, tol=0, exact_loss=0.0)
    assert (found.n_iter, found.converged, found.loss_history) == (0, True, (0.0,))
    assert found.factors is exact[1]


def test_descend__stops_at_its_limit():
    found = descend(halve_the_distance, start(), OFFSETS, max_iter=0, tol=0)
    assert (found.n_iter, found.converged, len(found.loss_history)) == (0, False, 1)
    np.testing.assert_array_equal(found.factors, start()[1])


def test_descend__an_extrapolation_that_raises_the_loss_is_refused():
    def update(parameters):
        """Plain updates do not come as near to the limit as the extrapolation."""
        loss, updated = halve_the_distance(parameters)
        return (loss if parameters[1][0, 0] > 0.201 else 10.0), updated

    found = descend(update, start(), OFFSETS, max_iter=3, tol=0)
    assert np.all(np.diff(found.loss_history) < 0)
    np.testing.assert_allclose(found.factors[0, 0], 0.2 + 0.4 / 2**6)


def test_descend__a_loss_that_only_rises_keeps_the_start():
    losses = iter(range(100))
    found = descend(lambda each: (float(next(losses)), each), start(), OFFSETS, max_iter=9, tol=0)
    assert (found.loss_history, found.converged) == ((0.0, 0.0), True)
    np.testing.assert_array_equal(found.factors, start()[1])
