from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pmflib as pmf
from pmflib.base import FloatArray, MemoryPlanError, RankError, SchemaError
from pmflib.papers import metrics

CARDINALITIES = (3, 2, 4)
OFFSETS = np.array([0, 3, 5, 9])


def make_model(seed, rank=3) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    blocks = [rng.dirichlet(np.ones(size), rank).T for size in CARDINALITIES]
    return rng.dirichlet(np.ones(rank)), np.vstack(blocks)


def build_tensor(prior, factors):
    tensor = np.zeros(CARDINALITIES)
    for cell in product(*(range(size) for size in CARDINALITIES)):
        for state in range(prior.size):
            term = prior[state]
            for j, level in enumerate(cell):
                term *= factors[OFFSETS[j] + level, state]
            tensor[cell] += term
    return tensor


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.permutations(range(4)))
def test_match_factors__finds_a_permutation(seed, order):
    prior, factors = make_model(seed, rank=4)
    shuffled = list(order)
    found = metrics.match_factors(prior, factors, prior[shuffled], factors[:, shuffled])
    np.testing.assert_array_equal(np.array(shuffled)[found], np.arange(4))


def test_match_factors__is_the_best_of_all_permutations():
    prior_a, factors_a = make_model(0, rank=4)
    prior_b, factors_b = make_model(1, rank=4)

    def distance(order):
        gaps = np.sum((factors_a - factors_b[:, order]) ** 2)
        return gaps + np.sum((prior_a - prior_b[order]) ** 2)

    best = min((list(order) for order in permutations(range(4))), key=distance)
    assert metrics.match_factors(prior_a, factors_a, prior_b, factors_b).tolist() == best


def test_match_factors__unequal_ranks_match_the_smaller():
    prior, factors = make_model(2, rank=4)
    kept = [2, 0]
    few = (prior[kept], factors[:, kept])
    assert metrics.match_factors(*few, prior, factors).tolist() == [2, 0]
    assert metrics.match_factors(prior, factors, *few).tolist() == [1, -1, 0, -1]


def test_factor_mse__is_zero_for_a_permuted_truth():
    prior, factors = make_model(3)
    order = [2, 0, 1]
    assert metrics.factor_mse(prior[order], factors[:, order], prior, factors, 3) == 0.0


def test_factor_mse__by_hand():
    prior, factors = np.array([0.75, 0.25]), np.array([[1.0, 0.0], [0.0, 1.0]] * 2)
    estimate = np.array([[0.1, 0.8], [0.9, 0.2], [0.0, 1.0], [1.0, 0.0]])
    error = metrics.factor_mse(np.array([0.35, 0.65]), estimate, prior, factors, 2)
    expected = 2 * 0.1**2 + (2 * 0.1**2 + 2 * 0.2**2) / (2 * 2)
    assert error == pytest.approx(expected, rel=1e-12)


def test_factor_mse__refuses_another_rank_and_size():
    with pytest.raises(RankError, match="rank"):
        metrics.factor_mse(*make_model(0, rank=2), *make_model(0), 3)
    with pytest.raises(SchemaError, match="n_variables"):
        metrics.factor_mse(*make_model(0), *make_model(0), 10)


def test_published_factor_mse__perfect_estimate_has_the_published_floor():
    _, factors = make_model(4)
    prior = np.full(3, 1 / 3)
    order = [1, 2, 0]
    error = metrics.published_factor_mse(prior, factors[:, order], prior, factors, OFFSETS)
    floor = (1 - 1 / 3) ** 2 * np.sum(factors[:3] ** 2) / (3 * 3)
    assert error == pytest.approx(floor, rel=1e-12)


def test_published_factor_mse__by_the_printed_formula():
    prior, factors = make_model(5)
    estimate_prior, estimate = make_model(5)
    estimate = 0.9 * estimate + 0.1 / 3
    squares = np.sum((estimate[:3] - factors[:3] * prior) ** 2)
    squares += np.sum((estimate[3:] - factors[3:]) ** 2)
    error = metrics.published_factor_mse(estimate_prior, estimate, prior, factors, OFFSETS)
    assert error == pytest.approx(squares / 9, rel=1e-12)


def test_relative_error__equals_the_tensors_cell_by_cell():
    estimate, truth = make_model(6, rank=2), make_model(7, rank=4)
    tensor = build_tensor(*truth)
    expected = np.linalg.norm(tensor - build_tensor(*estimate)) / np.linalg.norm(tensor)
    error = metrics.relative_error(*estimate, *truth, OFFSETS)
    assert error == pytest.approx(expected, rel=1e-12)
    assert metrics.relative_error(*truth, *truth, OFFSETS) == 0.0


def test_relative_error__single_variable():
    prior, factors = make_model(8)
    error = metrics.relative_error(prior, factors[:3], prior[::-1], factors[:3], np.array([0, 3]))
    expected = factors[:3] @ (prior - prior[::-1])
    scale = np.linalg.norm(factors[:3] @ prior[::-1])
    assert error == pytest.approx(np.linalg.norm(expected) / scale, rel=1e-12)


def test_relative_error__refuses_a_large_tensor_with_both_numbers():
    with pytest.raises(MemoryPlanError, match="max_cells"):
        metrics.relative_error(*make_model(0), *make_model(0), OFFSETS, max_cells=23)
    factors = np.full((80, 1), 0.5)
    with pytest.raises(MemoryPlanError, match="max_cells"):
        metrics.relative_error(np.ones(1), factors, np.ones(1), factors, np.arange(41) * 2)


def test_scores__by_hand():
    predicted, actual = np.array([1, 2, 3, 5], np.int8), np.array([1, 0, 3, 4], np.int8)
    assert metrics.accuracy(predicted, actual) == 0.5
    assert metrics.rmse(predicted, actual) == pytest.approx(np.sqrt(5 / 4))
    assert metrics.mae(predicted, actual) == 0.75


def test_scores__small_integers_do_not_wrap_around():
    predicted, actual = np.array([127], np.int8), np.array([-128], np.int8)
    assert metrics.rmse(predicted, actual) == 255.0
    assert metrics.mae(predicted, actual) == 255.0


@pytest.mark.parametrize("name", ["accuracy", "rmse", "mae"])
def test_scores__refuse_shapes_that_differ(name):
    score = getattr(metrics, name)
    with pytest.raises(SchemaError, match="predicted"):
        score(np.zeros(3), np.zeros((3, 1)))
    with pytest.raises(pmf.PmfError):
        score(np.zeros(0), np.zeros(0))
