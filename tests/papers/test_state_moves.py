import numpy as np
import pytest

from pmflib.base import spread_pairs
from pmflib.papers import add_state, count_confirmed, merge_states
from pmflib.papers.ranks import scale_pairs
from tests.pair_tables import every_pair, exact_marginals, owners_of
from tests.reference import offsets_of

OFFSETS = offsets_of([3, 2, 4, 3])


def draw_model(rank, seed=0):
    rng = np.random.default_rng(seed)
    factors = np.concatenate([rng.dirichlet(np.ones(n), rank).T for n in np.diff(OFFSETS)])
    return rng.dirichlet(np.full(rank, 5.0)), factors


def test_add_state__is_what_holders_of_the_level_answer():
    prior, factors = draw_model(2)
    marginals = exact_marginals(prior, factors, OFFSETS, every_pair(4))
    singles = np.diagonal(marginals).copy()
    weights = spread_pairs(every_pair(4) * 100, OFFSETS)
    lone = np.ones(1), singles[:, None]
    new_prior, new_factors = add_state(lone, marginals, weights, OFFSETS, singles)
    assert new_prior.shape == (2,)
    assert new_prior.sum() == pytest.approx(1)
    np.testing.assert_array_equal(new_factors[:, 0], singles)
    np.testing.assert_allclose(np.add.reduceat(new_factors, OFFSETS[:-1], axis=0), 1)
    residual = (weights * (marginals - np.outer(singles, singles)) ** 2) / np.outer(
        singles, singles
    )
    level = residual.sum(axis=1).argmax()
    elsewhere = owners_of(OFFSETS) != owners_of(OFFSETS)[level]
    conditional = marginals[level] / singles[level]
    np.testing.assert_allclose(
        new_factors[elsewhere, 1], (conditional / 2 + singles / 2)[elsewhere]
    )


def test_merge_states__joins_equal_states_and_changes_no_pair():
    prior, factors = draw_model(3)
    split = np.append(prior, 0.4 * prior[1])
    split[1] *= 0.6
    merged = merge_states((split, np.column_stack([factors, factors[:, 1]])))
    np.testing.assert_allclose(merged[0], prior)
    np.testing.assert_allclose(merged[1], factors)


def test_scale_pairs__independent_pairs_have_one_direction():
    left, right = np.array([3, 7]), np.array([2, 5, 3])
    table = np.zeros((5, 5))
    table[:2, 2:] = np.outer(left, right)
    table += table.T
    scaled, noise = scale_pairs(table, offsets_of([2, 3]))
    assert np.linalg.svd(scaled[:2, 2:])[1] == pytest.approx([1, 0], abs=1e-12)
    assert noise[0, 2] == pytest.approx(1 / 100)
    assert noise[0, 0] == 0


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_count_confirmed__counts_directions_that_are_not_noise(rank):
    rng = np.random.default_rng(rank)
    prior, factors = draw_model(rank, seed=3)
    pairs = exact_marginals(prior, factors, OFFSETS, every_pair(4))
    both = []
    for _ in range(2):
        table = np.triu(rng.poisson(1e6 * pairs), 1)
        both.append(table + table.T)
    first = np.array([True, False, False, True])
    assert count_confirmed(both[0], both[1], OFFSETS, first) == rank
