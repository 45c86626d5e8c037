"""Nonnegative least squares on the Gram matrix."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from pmflib.papers.kernels.nnls import solve_columns
from pmflib.papers.least_squares import solve_nnls

KKT = 1e-10


def kkt_violation(gram, cross, solution):
    """Largest breach of the optimality conditions, relative to the gradient's own terms."""
    lengths = np.sqrt(np.diagonal(gram))
    worst = 0.0
    for k in range(cross.shape[1]):
        used = lengths > 0
        x = solution[used, k] * lengths[used]
        c = cross[used, k] / lengths[used]
        if not x.size or not c.any():
            assert not x.any()
            continue
        gradient = (gram[np.ix_(used, used)] @ solution[used, k] - cross[used, k]) / lengths[used]
        breach = np.where(x > 0, np.abs(gradient), np.maximum(-gradient, 0))
        worst = max(worst, breach.max() / (np.abs(c).max() + x.sum()))
    return worst


@st.composite
def designs(draw):
    """A design and targets: well or badly scaled, with repeated, dependent or empty columns."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, rank = draw(st.integers(1, 30)), draw(st.integers(1, 12))
    design = rng.normal(size=(n_rows, rank))
    if draw(st.booleans()):
        design = rng.dirichlet(np.full(n_rows, 0.3), rank).T
    kind = draw(st.sampled_from(["plain", "scaled", "near", "dependent", "empty", "integer"]))
    if kind == "scaled":
        design = design * 10.0 ** rng.uniform(-8, 8, rank)
    elif kind == "near":
        distance = 10.0 ** draw(st.integers(-14, -2))
        design[:, -1] = design[:, 0] + distance * rng.normal(size=n_rows)
    elif kind == "dependent":
        design[:, -1] = design @ rng.random(rank)
        design[:, 0] = design[:, rank // 2]
    elif kind == "empty":
        design[:, rng.integers(rank)] = 0.0
    elif kind == "integer":
        design = rng.integers(0, 2, (n_rows, rank)).astype(np.float64)
    noise = 10.0 ** draw(st.integers(-15, 0))
    weights = np.maximum(rng.normal(size=(rank, 4)), 0)
    return design, design @ weights + noise * rng.normal(size=(n_rows, 4))


@settings(max_examples=400, deadline=None)
@given(designs())
def test_solve_nnls__meets_kkt(case):
    design, targets = case
    gram, cross = design.T @ design, design.T @ targets
    solution = solve_nnls(gram, cross)
    assert np.isfinite(solution).all()
    assert (solution >= 0).all()
    assert kkt_violation(gram, cross, solution) <= KKT


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 10))
def test_solve_nnls__equals_scipy_on_full_rank(seed, rank):
    rng = np.random.default_rng(seed)
    design = np.vstack([rng.normal(size=(12, rank)), np.eye(rank)])
    targets = rng.normal(size=(12 + rank, 5))
    solution = solve_nnls(design.T @ design, design.T @ targets)
    expected = np.stack([nnls(design, target)[0] for target in targets.T], axis=1)
    np.testing.assert_allclose(solution, expected, rtol=0, atol=1e-11)


@settings(max_examples=200, deadline=None)
@given(designs())
def test_solve_nnls__residual_is_scipys(case):
    design, targets = case
    solution = solve_nnls(design.T @ design, design.T @ targets)
    for k, target in enumerate(targets.T):
        # A Gram matrix knows its columns' directions to the square root of the precision.
        slack = 1e-6 * np.linalg.norm(target)
        residual = np.linalg.norm(design @ solution[:, k] - target)
        # As every nonnegative vector bounds the least residual, so does what SciPy finds.
        expected = nnls(design, target, maxiter=100 * design.shape[1])[1]
        assert residual <= expected + slack


def test_solve_nnls__hilbert():
    design = 1.0 / (np.arange(40)[:, None] + np.arange(30) + 1.0)
    targets = np.random.default_rng(0).normal(size=(40, 50))
    gram, cross = design.T @ design, design.T @ targets
    assert np.linalg.cond(gram) > 1e16
    assert kkt_violation(gram, cross, solve_nnls(gram, cross)) <= KKT


def test_solve_nnls__repeated_column_enters_once():
    solution = solve_nnls(np.ones((3, 3)), np.full((3, 1), 2.0))
    np.testing.assert_array_equal(solution, [[2.0], [0.0], [0.0]])


def test_solve_nnls__unbounded_ends():
    # Not W'B of any W: both variables could grow without end along a flat line.
    solution = solve_nnls(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([[1.0], [1.0]]))
    np.testing.assert_array_equal(solution, [[1.0], [0.0]])


def test_solve_nnls__no_right_hand_side():
    assert solve_nnls(np.eye(3), np.empty((3, 0))).shape == (3, 0)


def test_solve_nnls__scale_of_a_variable_does_not_matter():
    rng = np.random.default_rng(1)
    design, targets = rng.random((20, 5)), rng.random((20, 8))
    scale = 2.0 ** np.array([-400, -20, 0, 30, 400])
    plain = solve_nnls(design.T @ design, design.T @ targets)
    scaled = solve_nnls((design * scale).T @ (design * scale), (design * scale).T @ targets)
    np.testing.assert_allclose(scaled * scale[:, None], plain, rtol=1e-12, atol=1e-14)


def test_solve_nnls__same_bits():
    rng = np.random.default_rng(2)
    design, targets = rng.random((30, 10)), rng.random((30, 40))
    gram, cross = design.T @ design, design.T @ targets
    np.testing.assert_array_equal(solve_nnls(gram, cross), solve_nnls(gram.copy(), cross.copy()))


def test_solve_columns__counts_rows_out_of_steps():
    solution = np.empty((2, 3))
    cross = np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 5.0]])
    assert solve_columns(np.eye(3), cross, 2, solution) == 1
    np.testing.assert_array_equal(solution, [[0.0, 2.0, 3.0], [0.0, 0.0, 5.0]])
