import numpy as np
import pytest

import pmflib as pmf
from pmflib.fitting.rank_tests import _find_tail


def draw(n_rows=200, chance=0.85, seed=0):
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 2, n_rows)
    codes = (rng.random((n_rows, 5)) < np.array([chance, 1 - chance])[classes][:, None]).astype(int)
    codes[rng.random(codes.shape) < 0.1] = -1
    return codes, pmf.Schema.from_cardinalities([2] * 5)


def test_likelihood_ratio_test__asks_for_a_class_that_is_there_and_for_no_more():
    codes, schema = draw()
    needed = pmf.likelihood_ratio_test(codes, 1, schema=schema, draws=4)
    enough = pmf.likelihood_ratio_test(codes, 2, schema=schema, draws=4)
    assert needed.p_value == 0.2
    assert needed.vuong_p < 0.01
    assert needed.statistic > 10 * max(needed.drawn)
    assert enough.p_value > 0.2
    assert needed.degrees == enough.degrees == 6


def test_likelihood_ratio_test__is_the_same_by_seed():
    codes, schema = draw(100)
    first, again = (
        pmf.likelihood_ratio_test(codes, 1, schema=schema, draws=2, seed=4) for _ in range(2)
    )
    assert first == again
    assert first.drawn != pmf.likelihood_ratio_test(codes, 1, schema=schema, draws=2).drawn


def test_likelihood_ratio_test__without_draws_has_the_limit_law_alone():
    codes, schema = draw(100)
    found = pmf.likelihood_ratio_test(codes, 1, schema=schema, draws=0)
    assert found.p_value is None
    assert found.vuong_p <= found.adjusted_p
    with pytest.raises(pmf.PmfError, match="draws"):
        pmf.likelihood_ratio_test(codes, 1, schema=schema, draws=-1)


def test_find_tail__is_chi_squared_where_weights_are_alike():
    assert abs(_find_tail(np.ones(3), 7.815) - 0.05) < 0.002
