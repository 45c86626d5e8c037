"""The digamma function next to SciPy's."""

import numpy as np
import pytest
from scipy import special

from pmflib.apps.crowd import digamma, find_rises
from pmflib.apps.crowd.kernels.digamma import CHUNK


@pytest.mark.parametrize(("low", "high"), [(-300, -6), (-6, 0), (0, 1), (1, 9)])
def test_digamma__agrees_with_scipy(low: int, high: int) -> None:
    values = 10 ** np.random.default_rng(0).uniform(low, high, 50_000)
    # next to its root, at 1.46, an absolute error is all that can be asked for
    np.testing.assert_allclose(digamma(values), special.digamma(values), rtol=5e-15, atol=5e-15)


def test_digamma__of_any_shape_and_order() -> None:
    values = np.random.default_rng(1).gamma(2.0, size=(4, 5, 3)).transpose(2, 0, 1)
    np.testing.assert_allclose(digamma(values), special.digamma(values), rtol=1e-13)
    assert digamma(np.empty((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("n_values", [0, 1, 7, CHUNK, 2 * CHUNK + 5])
@pytest.mark.parametrize("scale", [0.5, 100.0])
def test_find_rises__agrees_with_scipy(n_values: int, scale: float) -> None:
    rng = np.random.default_rng(2)
    values, shares = 10 ** rng.uniform(-9, 9, n_values), 10 ** rng.uniform(-9, 0, n_values)
    values[::5] = 0.0
    low = scale * shares
    expected = shares * (special.digamma(values + low) - special.digamma(low))
    rises = np.empty(n_values)
    find_rises(values, shares, scale, rises)
    assert float(rises @ shares) == pytest.approx(expected.sum(), rel=1e-13)


def test_find_rises__of_nothing_is_nothing() -> None:
    rises = np.ones(9)
    find_rises(np.zeros(9), np.full(9, 1e-3), 2.0, rises)
    np.testing.assert_allclose(rises, 0.0, atol=1e-9)
