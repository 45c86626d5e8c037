import itertools
from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from pmflib.base import SolverResult
from pmflib.papers import factor_mse, fit_ctd, fit_ctd_kl
from pmflib.papers import triples as triples_solvers
from tests.pair_tables import assert_is_model
from tests.reference import make_model, offsets_of

FITS: dict[str, Callable[..., SolverResult]] = {"squares": fit_ctd, "kl": fit_ctd_kl}


def rising(n_variables):
    observed = np.zeros((n_variables,) * 3, np.bool_)
    for triple in itertools.combinations(range(n_variables), 3):
        observed[triple] = True
    return observed


def exact_triples(prior, factors, offsets, observed):
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    cube = np.einsum("f,af,bf,cf->abc", prior, factors, factors, factors)
    return np.where(observed[np.ix_(owners, owners, owners)], cube, 0)


@st.composite
def triple_problems(draw):
    """Marginals of sparse random triples, some unobserved; singles; a start."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cardinalities = draw(st.lists(st.integers(1, 3), min_size=3, max_size=5))
    offsets = offsets_of(cardinalities)
    share = draw(st.sampled_from([0.0, 0.6, 1.0]))
    observed = rising(len(cardinalities)) & (rng.random((len(cardinalities),) * 3) < share)
    triples = np.zeros((offsets[-1],) * 3)
    for triple in np.argwhere(observed):
        block = rng.poisson(1.0, [cardinalities[j] for j in triple]) * 1.0
        block[0, 0, 0] += 1
        triples[tuple(slice(offsets[j], offsets[j + 1]) for j in triple)] = block / block.sum()
    prior, factors = make_model(rng, cardinalities, draw(st.integers(1, 4)))
    return triples, offsets, observed, factors @ prior, (prior, factors)


@pytest.mark.parametrize("loss", FITS)
@given(triple_problems())
def test_fit__loss_never_rises_and_is_what_it_says(loss, problem):
    triples, offsets, observed, singles, initial = problem
    result = FITS[loss](triples, offsets, observed, singles, initial=initial, max_iter=6, tol=0)
    assert_is_model(result, offsets, initial[0].size)
    assert np.all(np.diff(result.loss_history) <= 0)
    if not observed.any():
        return
    model = exact_triples(result.prior, result.factors, offsets, observed)
    if loss == "squares":
        expected = np.sum((triples - model) ** 2) / 2
    else:
        positive = triples > 0
        expected = np.sum(triples[positive] * np.log(triples[positive] / model[positive]))
    assert result.loss_history[-1] == pytest.approx(expected / observed.sum(), abs=1e-12)


@given(triple_problems(), st.integers(0, 2**32 - 1))
def test_fit_ctd_kl__update_is_the_expected_count_of_each_state(problem, seed):
    triples, offsets, observed, _, (prior, factors) = problem
    if not observed.any():
        return
    weights = np.random.default_rng(seed).integers(0, 5, observed.shape)
    if not weights[observed].any():
        return
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    mass, states = np.zeros_like(factors), np.zeros_like(prior)
    for cell in np.argwhere(triples > 0):
        posterior = prior * factors[cell].prod(axis=0)
        posterior *= triples[tuple(cell)] * weights[tuple(owners[cell])] / posterior.sum()
        mass[cell] += posterior
        states += posterior
    # of a single update: an iteration of `fit_ctd_kl` makes three, and extrapolates
    posed = triples_solvers._pose_kl(triples, offsets, observed * weights * 1.0)
    _, (found_prior, found) = triples_solvers._update(posed, (prior, factors))
    np.testing.assert_allclose(found_prior, states / states.sum(), rtol=1e-9)
    sums = np.repeat(np.add.reduceat(mass, offsets[:-1], axis=0), np.diff(offsets), axis=0)
    expected = np.where(sums > 0, mass / np.where(sums > 0, sums, 1), factors)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", FITS)
def test_fit__finds_the_model_of_exact_triples(loss):
    rng = np.random.default_rng(5)
    offsets = offsets_of([4, 5, 3, 4])
    blocks = [rng.dirichlet(np.full(size, 0.5), 3).T for size in [4, 5, 3, 4]]
    truth = np.array([0.5, 0.3, 0.2]), np.vstack(blocks)
    observed = rising(4)
    triples = exact_triples(*truth, offsets, observed)
    start = make_model(rng, [4, 5, 3, 4], 3)
    result = FITS[loss](
        triples, offsets, observed, truth[1] @ truth[0], initial=start, max_iter=200, tol=1e-4
    )
    assert factor_mse(result.prior, result.factors, *truth, 4) < 1e-4
