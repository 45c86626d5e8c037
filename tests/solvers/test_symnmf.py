import numpy as np
import pytest
from hypothesis import given
from pair_tables import assert_is_model, every_pair, exact_marginals, owners_of, problems
from reference import make_model, offsets_of
from scipy.sparse import csr_array

from pmflib.errors import PmfError, RankError, SchemaError
from pmflib.metrics import factor_mse
from pmflib.solvers import symnmf
from pmflib.solvers.symnmf import fit_procrustes, fit_symnmf, impute_pairs, root_of


def make_separable(rng, n_variables, rank):
    """Each variable has a level for each state, mostly its own, and one for all."""
    prior = rng.dirichlet(np.full(rank, 8.0))
    blocks = []
    for _ in range(n_variables):
        own = np.diag(rng.uniform(0.4, 0.8, rank))
        blocks.append(np.vstack([own, 1 - own.sum(axis=0)]))
    return prior, np.vstack(blocks)


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
    monkeypatch.setattr(symnmf, "_DENSE", 0)
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


def test_fit_symnmf__refuses_ranks_above_the_levels():
    arguments = np.zeros((4, 4)), offsets_of([2, 2]), every_pair(2)
    with pytest.raises(RankError, match="rank is 5, above 4, the levels of all variables"):
        fit_symnmf(*arguments, rank=5, rng=np.random.default_rng(0))
    with pytest.raises(RankError, match="rank is 0, below 1"):
        fit_symnmf(*arguments, rank=0, rng=np.random.default_rng(0))
