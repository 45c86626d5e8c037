import numpy as np
import pytest
from hypothesis import given

from pmflib.papers import factor_mse, fit_symnmf, impute_pairs
from tests.pair_tables import (
    assert_is_model,
    every_pair,
    exact_marginals,
    owners_of,
    problems,
)
from tests.reference import make_model, offsets_of


def make_separable(rng, n_variables, rank):
    """Each variable has a level for each state, mostly its own, and one for all."""
    prior = rng.dirichlet(np.full(rank, 8.0))
    blocks = []
    for _ in range(n_variables):
        own = np.diag(rng.uniform(0.4, 0.8, rank))
        blocks.append(np.vstack([own, 1 - own.sum(axis=0)]))
    return prior, np.vstack(blocks)


def test_impute_pairs__exact_marginals_give_exact_diagonal_blocks():
    rng = np.random.default_rng(4)
    prior, factors = make_model(rng, [4] * 6, 3)
    offsets = offsets_of([4] * 6)
    marginals = exact_marginals(prior, factors, offsets, every_pair(6))
    filled = impute_pairs(marginals, offsets, every_pair(6), rank=3)
    np.testing.assert_allclose(filled, (factors * prior) @ factors.T, atol=1e-9)


@given(problems())
def test_impute_pairs__keeps_what_was_observed(problem):
    marginals, offsets, observed, (prior, _) = problem
    filled = impute_pairs(marginals, offsets, observed, rank=prior.size)
    known = observed[np.ix_(owners_of(offsets), owners_of(offsets))]
    np.testing.assert_array_equal(filled[known], marginals[known])
    np.testing.assert_allclose(filled, filled.T, atol=1e-12)
    assert (filled >= 0).all()
    sums = np.add.reduceat(np.add.reduceat(filled, offsets[:-1]), offsets[:-1], axis=1)
    np.testing.assert_allclose(sums, 1, atol=1e-9)


@pytest.mark.parametrize("missing", [False, True])
def test_fit_symnmf__recovers_a_separable_model(missing):
    rng = np.random.default_rng(5)
    prior, factors = make_separable(rng, 9, 3)
    offsets, observed = offsets_of([4] * 9), every_pair(9)
    if missing:
        observed[0, 1] = observed[1, 0] = observed[4, 7] = observed[7, 4] = False
    marginals = exact_marginals(prior, factors, offsets, observed)
    found = fit_symnmf(
        marginals, offsets, observed, rank=3, rng=rng, max_iter=2000, tol=1e-12, n_starts=20
    )
    assert factor_mse(found.prior, found.factors, prior, factors, 9) < 1e-6
    assert np.all(np.diff(found.loss_history) <= 1e-12)


def test_fit_symnmf__imputes_from_another_fit():
    rng = np.random.default_rng(6)
    prior, factors = make_separable(rng, 2, 3)
    offsets, observed = offsets_of([4] * 2), every_pair(2)
    marginals = exact_marginals(prior, factors, offsets, observed)
    found = fit_symnmf(
        marginals, offsets, observed, rank=3, rng=rng, initial=(prior, factors), max_iter=0
    )
    assert factor_mse(found.prior, found.factors, prior, factors, 2) < 1e-6


@given(problems())
def test_fit_symnmf__always_gives_a_model(problem):
    marginals, offsets, observed, (prior, _) = problem
    rank = min(prior.size, int(offsets[-1]))
    found = fit_symnmf(
        marginals,
        offsets,
        observed,
        rank=rank,
        rng=np.random.default_rng(0),
        max_iter=5,
        n_starts=2,
    )
    assert_is_model(found, offsets, rank)
