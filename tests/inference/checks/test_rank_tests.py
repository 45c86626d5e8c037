import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock
from pmflib.inference.checks import rank_tests
from pmflib.inference.checks.rank_tests import _find_tail


def draw(n_rows=200, chance=0.85, seed=0):
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 2, n_rows)
    codes = (rng.random((n_rows, 5)) < np.array([chance, 1 - chance])[classes][:, None]).astype(int)
    codes[rng.random(codes.shape) < 0.1] = -1
    return codes, pmf.Schema.from_cardinalities([2] * 5)


def test_likelihood_ratio_test__asks_for_a_class_that_is_there_and_for_no_more():
    codes, schema = draw()
    needed = pmf.inference.likelihood_ratio_test(codes, 1, schema=schema, draws=4)
    enough = pmf.inference.likelihood_ratio_test(codes, 2, schema=schema, draws=4)
    assert needed.p_value == 0.2
    assert needed.vuong_p < 0.01
    assert needed.statistic > 10 * max(needed.drawn)
    assert enough.p_value > 0.2
    assert needed.degrees == enough.degrees == 6


def test_likelihood_ratio_test__is_the_same_by_seed():
    codes, schema = draw(100)
    first, again = (
        pmf.inference.likelihood_ratio_test(codes, 1, schema=schema, draws=2, seed=4)
        for _ in range(2)
    )
    assert first == again
    assert (
        first.drawn != pmf.inference.likelihood_ratio_test(codes, 1, schema=schema, draws=2).drawn
    )


def test_likelihood_ratio_test__without_draws_has_the_limit_law_alone():
    codes, schema = draw(100)
    found = pmf.inference.likelihood_ratio_test(codes, 1, schema=schema, draws=0)
    assert found.p_value is None
    assert found.vuong_p <= found.adjusted_p
    with pytest.raises(pmf.PmfError, match="draws"):
        pmf.inference.likelihood_ratio_test(codes, 1, schema=schema, draws=-1)


def test_find_tail__is_chi_squared_where_weights_are_alike():
    assert abs(_find_tail(np.ones(3), 7.815) - 0.05) < 0.002


def test_distinct_rows__update_is_em_of_the_rows_with_gaps_and_weights():
    rng = np.random.default_rng(4)
    schema = pmf.Schema.from_cardinalities([2, 3, 2])
    codes = np.concatenate([rng.integers(-1, [2, 3, 2], (40, 3)), [[-1, -1, -1]]])
    weights = rng.integers(1, 5, 41).astype(float)
    prior = rng.dirichlet([1, 1])
    factors = np.concatenate([rng.dirichlet(np.ones(n), 2).T for n in (2, 3, 2)])
    rows = rank_tests._DistinctRows.of(DenseBlock(codes, weights), schema.offsets)
    loss, (new_prior, new_factors) = rows.update((prior, factors))
    total, states, levels = 0.0, np.zeros(2), np.zeros((7, 2))
    for row, weight in zip(codes[:-1], weights[:-1], strict=True):
        held = [schema.offsets[place] + code for place, code in enumerate(row) if code >= 0]
        if not held:
            continue
        joint = prior * factors[held].prod(axis=0)
        total += weight * np.log(joint.sum())
        states += weight * joint / joint.sum()
        levels[held] += weight * joint / joint.sum()
    kept = weights[(codes >= 0).any(axis=1)].sum()
    assert loss == pytest.approx(-total / kept)
    np.testing.assert_allclose(new_prior, states / kept)
    for place in range(3):
        own = slice(schema.offsets[place], schema.offsets[place + 1])
        np.testing.assert_allclose(new_factors[own], levels[own] / levels[own].sum(axis=0))


def test_likelihood_ratio_test__rows_without_answers_change_nothing():
    codes, schema = draw()
    padded = np.concatenate([codes, np.full((5, 5), -1)])
    alone, more = (
        pmf.inference.likelihood_ratio_test(each, 1, schema=schema, draws=0)
        for each in (codes, padded)
    )
    assert more.statistic == pytest.approx(alone.statistic, abs=1e-4)
