"""Projection onto the probability simplex and least squares over it."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmflib.papers import SimplexSettings, project_simplex, solve_simplex_least_squares


def project_by_bisection(v):
    """Find the threshold whose positive excess sums to 1."""
    low, high = v.min() - 1.0, v.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(v - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(v - low, 0)


def least_loss(gram, cross):
    """Try every face of the simplex."""
    rank = cross.size
    best = np.inf
    for size in range(1, rank + 1):
        for face in map(list, combinations(range(rank), size)):
            bordered = np.ones((size + 1, size + 1))
            bordered[:size, :size] = gram[np.ix_(face, face)]
            bordered[size, size] = 0.0
            y = np.linalg.lstsq(bordered, np.append(cross[face], 1.0), rcond=None)[0][:size]
            if y.min() >= -1e-12 and abs(y.sum() - 1) < 1e-9:
                best = min(best, 0.5 * y @ gram[np.ix_(face, face)] @ y - cross[face] @ y)
    return best


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12))
def test_project_simplex__equals_bisection(values):
    v = np.array(values)
    np.testing.assert_allclose(project_simplex(v), project_by_bisection(v), rtol=0, atol=1e-13)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=12))
def test_project_simplex__always_a_distribution(values):
    projected = project_simplex(np.array(values))
    assert (projected >= 0).all()
    assert abs(projected.sum() - 1) <= 1e-14


def test_project_simplex__matrix_by_column():
    v = np.random.default_rng(0).normal(size=(6, 4))
    expected = np.stack([project_simplex(column) for column in v.T], axis=1)
    np.testing.assert_array_equal(project_simplex(v), expected)


@st.composite
def quadratics(draw):
    """A Gram matrix, singular or not, and a vector in its range or not."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, rank = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    design = rng.normal(size=(n_rows, rank))
    kind = draw(st.sampled_from(["plain", "near", "dependent", "integer", "free", "zero"]))
    if kind == "near":
        design[:, -1] = design[:, 0] + 1e-9 * rng.normal(size=n_rows)
    elif kind == "dependent":
        design[:, -1] = design @ rng.dirichlet(np.ones(rank))
    elif kind == "integer":
        design = rng.integers(-1, 2, (n_rows, rank)).astype(np.float64)
    elif kind == "zero":
        design = np.zeros((n_rows, rank))
    target = design @ rng.dirichlet(np.ones(rank)) + draw(st.sampled_from([0, 1e-9, 1]))
    cross = rng.normal(size=rank) if kind in ("free", "zero") else design.T @ target
    return design.T @ design, cross


@settings(max_examples=300, deadline=None)
@given(quadratics())
def test_solve_simplex_least_squares__is_optimal(case):
    gram, cross = case
    x = solve_simplex_least_squares(gram, cross)
    assert (x >= 0).all()
    assert abs(x.sum() - 1) <= 1e-14
    gradient = gram @ x - cross
    gradient -= gradient @ x
    scale = max(np.abs(gram).max(), np.abs(cross).max())
    assert gradient.min() >= -1e-12 * scale
    assert np.abs(gradient[x > 0]).max() <= 1e-12 * scale


@settings(max_examples=150, deadline=None)
@given(quadratics())
def test_solve_simplex_least_squares__equals_every_face(case):
    gram, cross = case
    x = solve_simplex_least_squares(gram, cross)
    loss = 0.5 * x @ gram @ x - cross @ x
    scale = max(np.abs(gram).max(), np.abs(cross).max())
    assert loss <= least_loss(gram, cross) + 1e-9 * scale


def test_solve_simplex_least_squares__identity_is_projection():
    v = np.random.default_rng(3).normal(size=9)
    expected = project_simplex(v)
    np.testing.assert_allclose(
        solve_simplex_least_squares(np.eye(9), v), expected, rtol=0, atol=1e-14
    )


def test_solve_simplex_least_squares__tie_takes_the_first():
    np.testing.assert_array_equal(
        solve_simplex_least_squares(np.ones((3, 3)), np.ones(3)), [1.0, 0.0, 0.0]
    )


def test_solve_simplex_least_squares__flat_line_ends_at_the_border():
    # Three points on a line: the third is worth as much as the second at two thirds of its length.
    design = np.array([[0.0, 3.0, 2.0]])
    x = solve_simplex_least_squares(design.T @ design, np.array([0.0, 2.0, 2.0]))
    np.testing.assert_allclose(x, [0.5, 0.0, 0.5], rtol=0, atol=1e-15)


@pytest.mark.parametrize("exponent", [-200, 200])
def test_solve_simplex_least_squares__scale_does_not_matter(exponent):
    rng = np.random.default_rng(4)
    design = rng.random((8, 5))
    gram, cross = design.T @ design, design.T @ rng.random(8)
    plain = solve_simplex_least_squares(gram, cross)
    scaled = solve_simplex_least_squares(gram * 2.0**exponent, cross * 2.0**exponent)
    np.testing.assert_array_equal(scaled, plain)


def test_solve_simplex_least_squares__one_solve_or_many_steps():
    rng = np.random.default_rng(8)
    cases = []
    for rank in (2, 5, 10):
        basis = rng.random((30, rank))
        cases.append((basis.T @ basis, basis.T @ basis @ rng.dirichlet(np.full(rank, 5.0))))
    at_once = [solve_simplex_least_squares(*case) for case in cases]
    never = SimplexSettings(least_pivot=2.0)
    for case, found in zip(cases, at_once, strict=True):
        assert found.min() > 0
        np.testing.assert_allclose(
            solve_simplex_least_squares(*case, settings=never), found, rtol=1e-9
        )
