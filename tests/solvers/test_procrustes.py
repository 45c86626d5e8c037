import numpy as np
import pytest
from scipy.sparse import csr_array

from pmflib.errors import PmfError, RankError, SchemaError
from pmflib.solvers import procrustes
from pmflib.solvers.procrustes import fit_procrustes, root_of


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


def test_root_of__sparse_and_iterative_equal_dense(monkeypatch):
    factor = np.random.default_rng(1).random((40, 3))
    matrix = factor @ factor.T
    dense = root_of(matrix, 3)
    np.testing.assert_allclose(root_of(csr_array(matrix), 3), dense, atol=1e-10)
    monkeypatch.setattr(procrustes, "_DENSE", 0)
    np.testing.assert_allclose(root_of(csr_array(matrix), 3), dense, atol=1e-8)
    np.testing.assert_array_equal(root_of(matrix, 3), root_of(matrix, 3))


@pytest.mark.parametrize(
    ("matrix", "rank", "error", "match"),
    [
        (np.ones((2, 3)), 1, SchemaError, r"matrix has shape \(2, 3\); pass a square one"),
        (np.ones((2, 2)), 3, RankError, r"rank is 3, outside \[1, 2\]"),
        (np.ones((2, 2)), 0, RankError, r"rank is 0, outside \[1, 2\]"),
    ],
)
def test_root_of__refuses(matrix, rank, error, match):
    with pytest.raises(error, match=match):
        root_of(matrix, rank)


@pytest.mark.parametrize("decay", [None, 0.5])
def test_fit_procrustes__turns_a_rotated_factor_back(decay):
    rng = np.random.default_rng(2)
    wanted = np.vstack([np.eye(3), np.where(rng.random((30, 3)) < 0.5, 0, rng.random((30, 3)))])
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    found = fit_procrustes(wanted @ turn, rng=rng, decay=decay, tol=1e-12)
    assert found.converged
    gaps = np.linalg.norm(found.nonnegative[:, :, None] - wanted[:, None], axis=0)
    np.testing.assert_allclose(gaps.min(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(found.rotation @ found.rotation.T, np.eye(3), atol=1e-12)


def test_fit_procrustes__distance_falls_and_more_starts_are_no_worse():
    root = np.random.default_rng(3).normal(size=(40, 4))
    one = fit_procrustes(root, rng=np.random.default_rng(0), n_starts=1, threshold=0)
    many = fit_procrustes(root, rng=np.random.default_rng(0), n_starts=8, threshold=0)
    assert np.all(np.diff(one.residuals) <= 1e-12)
    assert many.residuals[-1] <= one.residuals[-1]
    assert (many.nonnegative >= 0).all()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"n_starts": 0}, "n_starts is 0"),
        ({"threshold": -1.0}, "threshold -1.0"),
        ({"decay": 1.0}, "decay 1.0"),
        ({"max_iter": -1}, "max_iter is -1"),
        ({"root": np.full((2, 1), np.inf)}, r"root of shape \(2, 1\) must be"),
    ],
)
def test_fit_procrustes__refuses(change, match):
    arguments = {"root": np.ones((2, 1)), "rng": np.random.default_rng(0)} | change
    with pytest.raises(PmfError, match=match):
        fit_procrustes(arguments.pop("root"), **arguments)
