import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from pmflib.papers import (
    PLAIN,
    draw_rotations,
    find_nearest_rotation,
    improve_root,
    root_of,
    rotate_nonnegative,
    rotate_shifted,
)


def test_root_of__squares_to_the_matrix_and_keeps_the_top():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    matrix = (basis * [5.0, 3, 1, 0, -1, -4]) @ basis.T
    root = root_of(matrix, 4)
    np.testing.assert_allclose(
        root @ root.T, (basis[:, :3] * [5.0, 3, 1]) @ basis[:, :3].T, atol=1e-12
    )
    np.testing.assert_allclose(np.linalg.norm(root, axis=0) ** 2, [5, 3, 1, 0], atol=1e-12)
    assert (root[np.abs(root).argmax(axis=0), range(4)] >= 0).all()


def test_root_of__sparse_and_iterative_equal_dense():
    factor = np.random.default_rng(1).random((40, 3))
    matrix = factor @ factor.T
    dense = root_of(matrix, 3)
    np.testing.assert_allclose(root_of(csr_array(matrix), 3), dense, atol=1e-10)
    iterated = root_of(csr_array(matrix), 3, dense_rows=0)
    np.testing.assert_allclose(iterated, dense, atol=1e-8)
    np.testing.assert_array_equal(root_of(csr_array(matrix), 3, dense_rows=0), iterated)


def test_improve_root__comes_nearer_and_reaches_the_best():
    rng = np.random.default_rng(4)
    factor = rng.random((40, 3))
    noise = rng.normal(scale=0.1, size=(40, 40))
    matrix = factor @ factor.T + noise + noise.T
    best = root_of(matrix, 3)
    distances = []
    root = rng.random((40, 3))
    for _ in range(100):
        distances.append(np.linalg.norm(matrix - root @ root.T))
        root = improve_root(matrix, root)
    assert np.all(np.diff(distances) <= 1e-12)
    assert distances[0] > distances[1]
    np.testing.assert_allclose(root, best, atol=1e-9)


def test_improve_root__columns_of_zeros():
    matrix = np.diag([2.0, 1.0, 0.0])
    root = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(improve_root(matrix, root), root_of(matrix, 2), atol=1e-12)


def test_rotate_nonnegative__rotates_a_factor_back():
    rng = np.random.default_rng(2)
    wanted = np.vstack([np.eye(3), np.where(rng.random((30, 3)) < 0.5, 0, rng.random((30, 3)))])
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    rotations = draw_rotations(3, 10, rng)
    found, residuals = rotate_nonnegative(wanted @ rotation, rotations=rotations, tol=1e-9)
    assert (found >= 0).all()
    assert min(residuals) < 1e-6
    gaps = np.linalg.norm(found[:, :, None] - wanted[:, None], axis=0)
    np.testing.assert_allclose(gaps.min(axis=0), 0, atol=1e-4)


def test_rotate_nonnegative__alone_from_the_identity():
    rng = np.random.default_rng(0)
    root = rng.dirichlet(np.ones(6), 60)
    rotated = root @ np.linalg.qr(rng.standard_normal((6, 6)))[0]
    found, residuals = rotate_nonnegative(rotated, max_iter=500, tol=1e-7)
    assert (found >= 0).all()
    assert residuals[-1] < 1e-4 * np.linalg.norm(root)
    np.testing.assert_allclose(found @ found.T, root @ root.T, atol=1e-4)
    again, _ = rotate_nonnegative(rotated, rotations=[np.eye(6)], max_iter=500, tol=1e-7)
    assert np.array_equal(found, again)


def test_rotate_nonnegative__more_starts_are_no_worse():
    root = np.random.default_rng(3).normal(size=(40, 4))
    alone = rotate_nonnegative(root)[1]
    several = rotate_nonnegative(root, rotations=draw_rotations(4, 8, np.random.default_rng(0)))[1]
    assert min(several) <= min(alone)


def test_rotate_nonnegative__distance_falls_in_the_published_alternation():
    root = np.random.default_rng(3).normal(size=(40, 4))
    found, residuals = rotate_nonnegative(root, settings=PLAIN)
    assert len(residuals) > 2
    assert np.all(np.diff(residuals) <= 1e-12)
    assert (found >= 0).all()


def test_find_nearest_rotation__no_other_orthogonal_matrix_is_nearer():
    rng = np.random.default_rng(5)
    matrix = rng.normal(size=(3, 3))
    found = find_nearest_rotation(matrix)
    np.testing.assert_allclose(found @ found.T, np.eye(3), atol=1e-12)
    others = [np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(50)]
    distances = [np.linalg.norm(matrix - other) for other in others]
    assert np.linalg.norm(matrix - found) < min(distances)


def plant_sparse_root(rng, n_rows=400, rank=3, share=0.3):
    """Sparse nonnegative H, and the square root of H H'."""
    nonnegative = rng.random((n_rows, rank)) * (rng.random((n_rows, rank)) < share)
    return nonnegative, root_of(nonnegative @ nonnegative.T, rank)


def measure_distance(found, nonnegative):
    """Squared distance for the best order of the columns."""
    costs = ((found[:, :, None] - nonnegative[:, None, :]) ** 2).sum(axis=0)
    rows, columns = linear_sum_assignment(costs)
    return costs[rows, columns].sum()


def test_rotate_shifted__finds_a_sparse_factor_that_the_plain_alternation_is_still_far_from():
    # Theorem 3 of the paper: distances fall geometrically, for a sparse factor within a few steps
    for seed in range(5):
        nonnegative, root = plant_sparse_root(np.random.default_rng(seed))
        shifted, _ = rotate_shifted(root, shift=0.75, shift_decay=0.75, tol=0, max_iter=60)
        plain, _ = rotate_shifted(root, shift=0.0, tol=0, max_iter=60)
        assert measure_distance(shifted, nonnegative) < 1e-12
        assert measure_distance(shifted, nonnegative) <= measure_distance(plain, nonnegative)


def test_rotate_shifted__small_entries_become_zero_and_steps_are_those_of_the_equations():
    _, root = plant_sparse_root(np.random.default_rng(7))
    rotation = np.eye(3)
    for step in range(4):
        expected = np.where(root @ rotation >= 0.5 * 0.8**step, root @ rotation, 0.0)
        left, _, right = np.linalg.svd(expected.T @ root)
        rotation = right.T @ left.T
    found, _ = rotate_shifted(root, shift=0.5, shift_decay=0.8, tol=0, max_iter=4)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert found[found > 0].min() >= 0.5 * 0.8**3


def test_rotate_shifted__threshold_above_all_entries_does_not_stop():
    nonnegative, root = plant_sparse_root(np.random.default_rng(8))
    found, costs = rotate_shifted(root, shift=50.0, shift_decay=0.5)
    assert len(costs) > 5
    assert measure_distance(found, nonnegative) < 1e-4
