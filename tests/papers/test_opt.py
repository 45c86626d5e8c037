import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmflib.base import PseudoCounts
from pmflib.papers import factor_mse, fit_composite, opt
from pmflib.papers.opt import CompositeSettings
from tests.pair_tables import (
    assert_is_model,
    divergence,
    every_pair,
    exact_marginals,
    problems,
)
from tests.reference import make_model, offsets_of


@given(problems(), st.booleans(), st.sampled_from([0.0, 0.5]), st.integers(0, 2**32 - 1))
def test_fit_composite__loss_never_rises_and_is_the_divergence(problem, weighted, pseudo, seed):
    marginals, offsets, observed, initial = problem
    rng = np.random.default_rng(seed)
    support = rng.integers(1, 50, observed.shape)
    weights = np.where(observed, support + support.T, 0)
    result = fit_composite(
        marginals,
        offsets,
        observed,
        initial=initial,
        weights=weights if weighted else None,
        pseudo_counts=PseudoCounts(np.full(offsets[-1], pseudo), pseudo),
        max_iter=20,
        tol=0,
    )
    assert_is_model(result, offsets, initial[0].size)
    assert np.all(np.diff(result.loss_history) <= 0)
    if not pseudo and observed.any():
        used = weights if weighted else observed * 1.0
        expected = divergence(marginals, offsets, result.prior, result.factors, used)
        assert result.loss_history[-1] == pytest.approx(expected, abs=1e-9)


@given(problems())
def test_fit_composite__extrapolation_and_panels_do_not_change_the_update(problem):
    marginals, offsets, observed, (prior, factors) = problem
    if not observed.any():
        return
    pseudo_counts = PseudoCounts(np.ones(offsets[-1]), 2.0)
    # of a single update: an iteration of `fit_composite` makes three, and extrapolates
    posed = opt._pose(marginals, offsets, observed, None, pseudo_counts)
    start, _ = opt._open(posed, (prior, factors), CompositeSettings())
    loss, (found_prior, found) = opt._update(posed, start)
    states, mass = np.full(prior.size, 2.0), np.where(posed.isolated, 0, 1.0)[:, None] + 0 * factors
    for a, b in np.argwhere(posed.table > 0):
        posterior = start[0] * start[1][a] * start[1][b]
        posterior *= posed.table[a, b] / posterior.sum()
        mass[a] += posterior
        states += posterior / 2
    mass = np.where(posed.isolated[:, None], start[1], mass)
    sums = np.repeat(np.add.reduceat(mass, offsets[:-1], axis=0), np.diff(offsets), axis=0)
    np.testing.assert_allclose(found, mass / sums, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found_prior, states / states.sum(), rtol=1e-9, atol=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opt, "PANEL", 3)
        panel_loss, panelled = opt._update(posed, start)
    assert panel_loss == pytest.approx(loss, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(panelled[1], found, rtol=1e-9, atol=1e-12)


def test_fit_composite__recovers_a_model_with_pure_levels():
    rng = np.random.default_rng(0)
    offsets = offsets_of([4] * 8)
    truth = make_model(rng, [4] * 8, 3)
    for j in range(0, 32, 4):
        # the last level belongs to no state, each other one to a state of its own
        truth[1][j : j + 4] = np.vstack([0.6 * np.eye(3), np.full((1, 3), 0.4)])
    marginals = exact_marginals(*truth, offsets, every_pair(8))
    start = make_model(rng, [4] * 8, 3)
    result = fit_composite(marginals, offsets, every_pair(8), initial=start, max_iter=20_000, tol=0)
    assert result.converged
    assert result.loss_history[-1] <= 1e-12
    assert factor_mse(result.prior, result.factors, *truth, 8) < 1e-4


def test_fit_composite__unobserved_pair_is_predicted():
    rng = np.random.default_rng(1)
    offsets, observed = offsets_of([3] * 6), every_pair(6)
    observed[0, 1] = observed[1, 0] = False
    truth = make_model(rng, [3] * 6, 2)
    marginals = exact_marginals(*truth, offsets, observed)
    start = make_model(rng, [3] * 6, 2)
    result = fit_composite(marginals, offsets, observed, initial=start, max_iter=5000, tol=0)
    model = (result.factors * result.prior) @ result.factors.T
    expected = (truth[1] * truth[0]) @ truth[1].T
    np.testing.assert_allclose(model[:3, 3:6], expected[:3, 3:6], atol=1e-4)


def test_fit_composite__variable_never_observed_level_never_seen_and_a_single_level():
    offsets = offsets_of([2, 3, 1, 2])
    observed = every_pair(4)
    observed[3] = observed[:, 3] = False
    marginals = np.zeros((8, 8))
    marginals[0, 2], marginals[1, 3] = 0.25, 0.75
    marginals[[0, 1], 5], marginals[[2, 3], 5] = [0.25, 0.75], [0.25, 0.75]
    marginals += marginals.T
    marginals += np.diag([0.25, 0.75, 0.25, 0.75, 0, 1, 0, 0])
    start = make_model(np.random.default_rng(2), [2, 3, 1, 2], 4)
    result = fit_composite(marginals, offsets, observed, initial=start)
    assert_is_model(result, offsets, 4)
    np.testing.assert_array_equal(result.factors[6:], 0.5)
    np.testing.assert_array_equal(result.factors[4], 0.0)
    np.testing.assert_array_equal(result.factors[5], 1.0)
    assert result.loss_history[-1] == pytest.approx(0, abs=1e-6)


def test_fit_composite__no_pair_at_all():
    offsets, nothing = offsets_of([2, 2]), np.zeros((2, 2), np.bool_)
    start = make_model(np.random.default_rng(3), [2, 2], 2)
    marginals = np.diag([0.2, 0.8, 0.0, 0.0])
    result = fit_composite(marginals, offsets, nothing, initial=start)
    np.testing.assert_array_equal(result.factors, [[0.2] * 2, [0.8] * 2, [0.5] * 2, [0.5] * 2])
    assert result.converged
    assert result.loss_history == (0.0,)


def test_fit_composite__rank_one_of_two_variables_is_the_product():
    marginals = np.zeros((4, 4))
    marginals[:2, 2:] = [[0.1, 0.2], [0.3, 0.4]]
    marginals += marginals.T
    marginals += np.diag([0.3, 0.7, 0.4, 0.6])
    start = (np.ones(1), np.full((4, 1), 0.5))
    result = fit_composite(marginals, offsets_of([2, 2]), every_pair(2), initial=start)
    np.testing.assert_allclose(result.factors[:, 0], [0.3, 0.7, 0.4, 0.6], rtol=1e-12)


def test_fit_composite__opens_a_start_that_rules_out_what_was_observed():
    marginals = np.zeros((4, 4))
    marginals[:2, 2:] = 0.25
    marginals += marginals.T
    marginals += np.diag([0.5] * 4)
    shut = (np.array([0.5, 0.5]), np.array([[1.0, 0], [0, 1], [1, 0], [0, 1]]))
    result = fit_composite(marginals, offsets_of([2, 2]), every_pair(2), initial=shut, tol=1e-9)
    assert result.loss_history[-1] == pytest.approx(0, abs=1e-6)


def test_fit_composite__pseudo_counts_of_states_keep_the_prior_from_emptying():
    rng = np.random.default_rng(4)
    offsets, cardinalities = offsets_of([3] * 4), [3] * 4
    truth = make_model(rng, cardinalities, 1)
    marginals = exact_marginals(*truth, offsets, every_pair(4))
    start = make_model(rng, cardinalities, 3)
    empty, kept = (
        fit_composite(
            marginals,
            offsets,
            every_pair(4),
            initial=start,
            pseudo_counts=PseudoCounts(np.full(12, 0.1), of_states),
            max_iter=3000,
            tol=0,
        )
        for of_states in (0.0, 1.0)
    )
    assert kept.prior.min() > 0.3
    assert empty.prior.min() < kept.prior.min()


def test_fit_composite__stops_at_its_limit_unconverged():
    rng = np.random.default_rng(5)
    truth, start = make_model(rng, [4] * 4, 3), make_model(rng, [4] * 4, 3)
    marginals = exact_marginals(*truth, offsets_of([4] * 4), every_pair(4))
    arguments = marginals, offsets_of([4] * 4), every_pair(4)
    result = fit_composite(*arguments, initial=start, max_iter=2, tol=1e-12)
    assert (result.n_iter, result.converged, len(result.loss_history)) == (2, False, 3)
    still = fit_composite(*arguments, initial=start, max_iter=0)
    np.testing.assert_array_equal(still.factors, start[1])


def test_fit_composite__fifteen_variables_settle_in_some_hundred_iterations():
    rng = np.random.default_rng(6)
    offsets, sizes = offsets_of([10] * 15), [10] * 15
    truth, start = make_model(rng, sizes, 10), make_model(rng, sizes, 10)
    marginals = exact_marginals(*truth, offsets, every_pair(15))
    # as rough as marginals of 2,500 samples; a perfect fit would never stop falling
    rough = np.triu(rng.poisson(2500 * marginals), 1) / 2500
    rough += rough.T
    support = np.add.reduceat(np.add.reduceat(rough, offsets[:-1]), offsets[:-1], axis=1)
    np.fill_diagonal(support, 1)
    rough = rough / np.repeat(np.repeat(support, 10, axis=0), 10, axis=1)
    result = fit_composite(
        rough + np.diag(np.diagonal(marginals)),
        offsets,
        every_pair(15),
        initial=start,
        max_iter=2000,
    )
    assert result.converged
    assert result.n_iter < 800
