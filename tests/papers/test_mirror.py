import numpy as np
import pytest
from hypothesis import given

from pmflib.papers import fit_composite, fit_mirror
from pmflib.papers.mirror import MirrorSettings, measure_prior
from tests.pair_tables import (
    assert_is_model,
    divergence,
    every_pair,
    exact_marginals,
    problems,
)
from tests.reference import make_model, offsets_of


@given(problems())
def test_fit_mirror__loss_never_rises(problem):
    marginals, offsets, observed, initial = problem
    settings = MirrorSettings(factor_steps=10)
    result = fit_mirror(
        marginals, offsets, observed, initial=initial, max_iter=3, settings=settings
    )
    assert_is_model(result, offsets, initial[0].size)
    assert np.all(np.diff(result.loss_history) <= 1e-12)


def test_fit_mirror__loss_is_the_mean_divergence():
    rng = np.random.default_rng(0)
    offsets, truth, start = offsets_of([3, 2, 4]), *(make_model(rng, [3, 2, 4], 2) for _ in "ab")
    marginals = exact_marginals(*truth, offsets, every_pair(3))
    result = fit_mirror(marginals, offsets, every_pair(3), initial=start, max_iter=5)
    expected = divergence(marginals, offsets, result.prior, result.factors, every_pair(3) * 1.0)
    assert result.loss_history[-1] == pytest.approx(expected, abs=1e-9)


def test_fit_mirror__reaches_what_the_closed_form_reaches():
    rng = np.random.default_rng(1)
    offsets = offsets_of([3] * 4)
    marginals = exact_marginals(*make_model(rng, [3] * 4, 5), offsets, every_pair(4))
    start = make_model(rng, [3] * 4, 2)
    published = fit_mirror(marginals, offsets, every_pair(4), initial=start, max_iter=300, tol=1e-9)
    ours = fit_composite(marginals, offsets, every_pair(4), initial=start, max_iter=3000, tol=1e-12)
    assert ours.loss_history[-1] <= published.loss_history[-1] < ours.loss_history[-1] + 1e-6


def test_measure_prior__slope_is_the_derivative_along_the_simplex():
    rng = np.random.default_rng(2)
    offsets, (prior, factors) = offsets_of([3, 2, 4]), make_model(rng, [3, 2, 4], 3)
    truth = make_model(rng, [3, 2, 4], 2)
    observed = every_pair(3)
    owners = np.repeat(np.arange(3), [3, 2, 4])
    pairs = np.where(owners[:, None] == owners, 0, exact_marginals(*truth, offsets, observed))
    _, slope = measure_prior(pairs, offsets, factors, prior, 1e-6)
    along = np.array([1.0, -1.0, 0.0]) * 1e-6
    high = measure_prior(pairs, offsets, factors, prior + along, 1e-6)[0]
    low = measure_prior(pairs, offsets, factors, prior - along, 1e-6)[0]
    assert (high - low) / 2 == pytest.approx(slope @ along, rel=1e-5)


def test_fit_mirror__no_pair_and_a_lone_variable():
    offsets, observed = offsets_of([2, 2, 2]), np.zeros((3, 3), np.bool_)
    start = make_model(np.random.default_rng(3), [2, 2, 2], 2)
    marginals = np.diag([0.2, 0.8, 0.5, 0.5, 0.0, 0.0])
    nothing = fit_mirror(marginals, offsets, observed, initial=start)
    np.testing.assert_array_equal(nothing.factors[:, 0], [0.2, 0.8, 0.5, 0.5, 0.5, 0.5])
    observed[0, 1] = observed[1, 0] = True
    marginals[:2, 2:4] = [[0.1, 0.1], [0.4, 0.4]]
    marginals[2:4, :2] = marginals[:2, 2:4].T
    result = fit_mirror(marginals, offsets, observed, initial=start)
    np.testing.assert_array_equal(result.factors[4:], 0.5)
    assert result.loss_history[-1] < 1e-6
