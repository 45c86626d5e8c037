import gzip
from pathlib import Path

import cvxpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmflib.papers import ColumnMoments, fit_row_support, order_generators

SWIMMER = Path(__file__).parents[2].parent / "shared" / "data" / "swimmer"


def draw_columns(n_rows, n_columns, *, rank=10, spread=0.1, noise=0.01, seed=0):
    """The published generator: rows of the first sources, and of weak mixtures of them."""
    rng = np.random.default_rng(seed)
    mixing = np.vstack([np.eye(rank), spread * rng.random((n_rows - rank, rank))])
    sources = rng.exponential(1.0, (rank, n_columns)) - 1
    return mixing @ sources + noise * rng.standard_normal((n_rows, n_columns))


def find_largest_penalty(moment):
    """Least penalty at which no row is in use, by the gradient at zero."""
    return np.linalg.norm(moment.T @ moment, axis=1).max()


def cumulant_moment(matrix, weights):
    """Sum over the last two axes of the fourth-order cumulant tensor, entry by entry."""
    centred = matrix - matrix.mean(axis=1, keepdims=True)
    n = centred.shape[1]
    fourth = np.einsum("in,jn,ln,mn->ijlm", *[centred] * 4) / n
    pairs = centred @ centred.T / n
    fourth -= np.einsum("ij,lm->ijlm", pairs, pairs)
    fourth -= np.einsum("il,jm->ijlm", pairs, pairs)
    fourth -= np.einsum("im,jl->ijlm", pairs, pairs)
    return np.einsum("ijlm,l,m->ij", fourth, weights, weights)


@given(st.integers(0, 2**32 - 1))
def test_column_moments__are_those_of_the_tensor_whatever_the_origin_and_the_parts(seed):
    rng = np.random.default_rng(seed)
    n_rows, n_columns = rng.integers(1, 5), rng.integers(1, 30)
    matrix = rng.gamma(1.0, size=(n_rows, n_columns)) + 3
    origin, weights = rng.normal(size=n_rows), rng.normal(size=n_rows)
    edges = np.sort(rng.integers(0, n_columns + 1, 3))
    parts = [
        ColumnMoments.of_columns(part, origin, weights) for part in np.split(matrix, edges, axis=1)
    ]
    total = ColumnMoments.merge([ColumnMoments.zero(origin, weights), *parts])
    assert total.n_columns == n_columns
    np.testing.assert_allclose(
        total.to_cumulant_moment(), cumulant_moment(matrix, weights), atol=1e-8, rtol=1e-7
    )
    np.testing.assert_allclose(total.to_gram(), matrix @ matrix.T / n_columns)
    np.testing.assert_allclose(
        total.to_covariance(), np.atleast_2d(np.cov(matrix, bias=True)), atol=1e-10
    )


@pytest.mark.parametrize("share", [0.9, 0.3, 0.03, 0.001])
def test_fit_row_support__is_the_optimum_of_a_general_solver(share):
    columns = draw_columns(9, 300, rank=4)
    moment = ColumnMoments.of_columns(columns).to_cumulant_moment()
    penalty = share * find_largest_penalty(moment)
    found = fit_row_support(moment, penalty, tol=1e-10)
    unknown = cvxpy.Variable(moment.shape)
    loss = cvxpy.sum_squares(moment - moment @ unknown) / 2
    problem = cvxpy.Problem(
        cvxpy.Minimize(loss + penalty * cvxpy.sum(cvxpy.norm(unknown, 2, axis=1)))
    )
    problem.solve(solver=cvxpy.CLARABEL)
    assert found.converged
    assert found.objective <= problem.value * (1 + 1e-7)
    assert found.objective >= problem.value * (1 - 1e-5)
    np.testing.assert_allclose(found.coefficients, unknown.value, atol=2e-3)


def test_fit_row_support__the_gap_bounds_how_far_the_optimum_is():
    moment = ColumnMoments.of_columns(draw_columns(12, 200, rank=5)).to_cumulant_moment()
    best = fit_row_support(moment, 1.0, tol=1e-12).objective
    rounds = [fit_row_support(moment, 1.0, tol=0.0, max_iter=n) for n in range(5)]
    for found in rounds:
        assert found.objective - best <= found.gap * (1 + 1e-9) + 1e-9 * best
    objectives = [found.objective for found in rounds]
    assert np.all(np.diff(objectives) <= 1e-12 * objectives[0])
    assert not rounds[1].converged


def test_fit_row_support__nothing_is_used_above_the_largest_penalty():
    moment = ColumnMoments.of_columns(draw_columns(12, 200, rank=5)).to_cumulant_moment()
    edge = find_largest_penalty(moment)
    assert fit_row_support(moment, 1.0001 * edge).rank == 0
    assert fit_row_support(moment, 0.99 * edge).rank > 0
    assert fit_row_support(np.zeros((3, 3)), 1.0).rank == 0


def test_fit_row_support__published_setting_finds_ten():
    for seed in range(3):
        moment = ColumnMoments.of_columns(draw_columns(20, 10_000, seed=seed)).to_cumulant_moment()
        assert fit_row_support(moment, 10.0).rank == 10


@pytest.mark.parametrize(("n_rows", "spread"), [(20, 0.1), (50, 0.02)])
def test_order_generators__finds_ten_from_few_columns(n_rows, spread):
    for seed in range(3):
        columns = draw_columns(n_rows, 100, spread=spread, seed=seed)
        found = order_generators(ColumnMoments.of_columns(columns).to_covariance())
        assert found.rank == 10
        assert found.generators.tolist() == list(range(10))
        assert (np.diff(found.costs) >= 0).all()


def test_order_generators__of_equal_rows_one_is_left():
    rng = np.random.default_rng(0)
    corners = rng.dirichlet(np.ones(40), 4)
    rows = np.vstack([corners, corners, rng.random((5, 4)) @ corners, np.zeros((2, 40))])
    found = order_generators(rows @ rows.T / 40)
    assert found.rank == 4
    assert len({row % 4 for row in found.generators}) == 4
    assert (found.generators < 8).all()


def test_order_generators__nothing_and_one_and_all():
    assert order_generators(np.zeros((3, 3))).rank == 0
    assert order_generators(np.empty((0, 0))).rank == 0
    assert order_generators(np.array([[2.0]])).rank == 1
    everything = order_generators(np.eye(4))
    assert everything.rank == 4
    assert everything.rise == 1


def test_order_generators__swimmer_has_sixteen_limbs():
    file = SWIMMER / "swimmer_clean.txt.gz"
    if not file.exists():
        pytest.skip("the swimmer images are not on this machine")
    with gzip.open(file, "rt") as lines:
        images = np.array([[int(pixel) for pixel in line.strip()] for line in lines], float)
    assert order_generators(ColumnMoments.of_columns(images.T).to_gram()).rank == 16
