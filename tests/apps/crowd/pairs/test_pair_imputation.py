import numpy as np
import pytest

import pmflib as pmf
from benchmarks.crowd.planted_crowds import draw_published_crowd
from pmflib.apps.crowd import WorkerPairs
from pmflib.apps.crowd.pairs.class_matching import fit_multispa, read_confusion
from pmflib.apps.crowd.pairs.worker_marginals import (
    factor_pairs,
    impute_by_one_pair,
    impute_designated,
)
from pmflib.base import MemoryPlanError

K = 3


def plant_crowd(rng, n_workers):
    """Confusion matrices better than chance, and a prior."""
    noise = rng.dirichlet(np.ones(K), (n_workers, K)).transpose(0, 2, 1)
    return 0.5 * np.eye(K) + 0.5 * noise, rng.dirichlet(np.full(K, 8.0))


def observe(confusion, prior, missing):
    """All pairs exactly, but for those missing and each worker's with itself."""
    n = len(confusion)
    stacked = confusion.reshape(-1, K)
    full = (stacked * prior) @ stacked.T
    observed = np.ones((n, n), bool)
    np.fill_diagonal(observed, False)
    for m, k in missing:
        observed[m, k] = observed[k, m] = False
    marginals = full * np.kron(observed, np.ones((K, K)))
    return full, marginals, observed


def as_pairs(marginals, observed):
    first, second = np.nonzero(np.triu(observed))
    blocks = marginals.reshape(len(observed), K, len(observed), K)[first, :, second, :]
    return WorkerPairs(first, second, blocks, np.full(first.size, 100), len(observed))


MISSING = [(0, 1), (0, 2), (1, 2), (3, 4), (0, 5)]


def test_to_dense__refuses_many_workers():
    none = np.zeros(0, np.int64)
    pairs = WorkerPairs(none, none, np.zeros((0, K, K)), none, 3000)
    with pytest.raises(
        MemoryPlanError, match="there are 9,000 levels of 3000 workers, above 6,000"
    ):
        pairs.to_dense()


def test_impute_designated__exact_pairs_are_completed_exactly():
    confusion, prior = plant_crowd(np.random.default_rng(1), 8)
    full, marginals, observed = observe(confusion, prior, MISSING)
    filled, present = impute_designated(marginals, 100 * observed, observed, n_classes=K)
    assert present.all()
    np.testing.assert_allclose(filled, full, atol=1e-9)


def test_impute_designated__rounds_reach_what_one_pair_cannot():
    # a chain of workers: only those next to each other, or with one between them, met
    confusion, prior = plant_crowd(np.random.default_rng(2), 10)
    apart = [(m, k) for m in range(10) for k in range(m + 3, 10)]
    full, marginals, observed = observe(confusion, prior, apart)
    filled, present = impute_designated(marginals, 100 * observed, observed, n_classes=K)
    once, reached = impute_by_one_pair(
        marginals, observed, n_classes=K, rng=np.random.default_rng(0)
    )
    assert present.all()
    assert not reached.all()
    np.testing.assert_allclose(filled, full, atol=1e-6)
    there = np.kron(reached, np.ones((K, K), bool))
    np.testing.assert_allclose(once[there], full[there], atol=1e-9)
    assert (once[~there] == 0).all()


def test_impute_designated__strangers_stay_missing():
    confusion, prior = plant_crowd(np.random.default_rng(3), 6)
    groups = [(m, k) for m in range(3) for k in range(3, 6)]
    full, marginals, observed = observe(confusion, prior, groups)
    filled, present = impute_designated(marginals, 100 * observed, observed, n_classes=K)
    assert present[:3, :3].all()
    assert not present[:3, 3:].any()
    assert (filled[: 3 * K, 3 * K :] == 0).all()
    np.testing.assert_allclose(filled[: 3 * K, : 3 * K], full[: 3 * K, : 3 * K], atol=1e-9)


@pytest.mark.parametrize("reweighted", [True, False])
def test_factor_pairs__residual_of_exact_pairs_vanishes(reweighted):
    confusion, prior = plant_crowd(np.random.default_rng(4), 8)
    full, marginals, observed = observe(confusion, prior, MISSING)
    factors, history = factor_pairs(
        as_pairs(marginals, observed),
        rng=np.random.default_rng(0),
        reweighted=reweighted,
        max_iter=400,
        tol=0,
    )
    assert history[-1] < 1e-5
    np.testing.assert_allclose(factors @ factors.T, full, atol=1e-3)


@pytest.mark.parametrize("seed", [2, 29])
def test_factor_pairs__seven_pairs_in_ten_hidden(seed):
    # reweighted from the first sweep on, factors creep for hundreds of sweeps, or end where some pairs are not fitted
    rng = np.random.default_rng([seed, 6])
    crowd = draw_published_crowd(1, rng)
    seen = np.triu(rng.random((25, 25)) >= 0.7, 1)
    stacked = crowd.confusion.reshape(-1, K)
    full = (stacked * crowd.prior) @ stacked.T
    observed = seen | seen.T
    pairs = as_pairs(full * np.kron(observed, np.ones((K, K))), observed)
    for start in range(4):
        factors, _ = factor_pairs(pairs, rng=np.random.default_rng(start))
        np.testing.assert_allclose(factors @ factors.T, full, atol=1e-6)


def test_factor_pairs__bad_pairs_do_less_harm_when_reweighted():
    confusion, prior = plant_crowd(np.random.default_rng(5), 12)
    full, marginals, observed = observe(confusion, prior, MISSING)
    pairs = as_pairs(marginals, observed)
    pairs.blocks[::9] = (
        np.random.default_rng(6).dirichlet(np.ones(9), len(pairs.blocks[::9])).reshape(-1, K, K)
    )
    errors = {}
    for reweighted in (True, False):
        factors, _ = factor_pairs(
            pairs, rng=np.random.default_rng(0), reweighted=reweighted, max_iter=200
        )
        errors[reweighted] = np.linalg.norm(factors @ factors.T - full)
    assert errors[True] < 0.5 * errors[False]


def test_factor_pairs__worker_without_a_pair_is_zero():
    confusion, prior = plant_crowd(np.random.default_rng(7), 5)
    _, marginals, observed = observe(confusion, prior, [(4, k) for k in range(4)])
    factors, _ = factor_pairs(as_pairs(marginals, observed), rng=np.random.default_rng(0))
    assert (factors[4 * K :] == 0).all()
    assert np.isfinite(factors).all()


@pytest.mark.parametrize("order", ["joint", "each"])
def test_read_confusion__columns_find_their_classes(order):
    confusion, prior = plant_crowd(np.random.default_rng(8), 6)
    stacked = confusion.reshape(-1, K) * np.sqrt(prior)
    found, shares = read_confusion(stacked[:, [2, 0, 1]], np.full(6, 10), order=order)
    np.testing.assert_allclose(found, confusion, atol=3e-3)
    np.testing.assert_allclose(shares, prior)


def test_read_confusion__bad_worker_is_bad_for_joint_and_swapped_for_each():
    confusion = np.tile(0.8 * np.eye(2) + 0.1, (4, 1, 1))
    confusion[3] = confusion[3][:, ::-1]
    stacked = confusion.reshape(-1, 2) * np.sqrt(0.5)
    joint, _ = read_confusion(stacked, np.full(4, 10))
    each, _ = read_confusion(stacked, np.full(4, 10), order="each")
    np.testing.assert_allclose(joint[3], confusion[3])
    np.testing.assert_allclose(each[3], confusion[0])


def test_read_confusion__worker_without_mass_guesses():
    stacked = np.concatenate([np.eye(2), np.zeros((2, 2)), np.eye(2)])
    found, prior = read_confusion(stacked, np.array([5, 1000, 5]))
    np.testing.assert_allclose(found[1], 0.5)
    np.testing.assert_allclose(prior, 0.5)
    with pytest.raises(pmf.PmfError, match="order is 'all'"):
        read_confusion(stacked, np.ones(3), order="all")  # type: ignore[arg-type]


def test_fit_multispa__exact_pairs_with_pure_workers():
    confusion, prior = plant_crowd(np.random.default_rng(9), 5)
    confusion[:2] = np.eye(K)
    _, marginals, observed = observe(confusion, prior, [])
    found = fit_multispa(as_pairs(marginals, observed))
    np.testing.assert_allclose(found, confusion, atol=1e-9)


def test_impute_by_one_pair__two_named_workers_complete_all_pairs():
    # only the last two share tasks with everybody: the published design
    confusion, prior = plant_crowd(np.random.default_rng(6), 8)
    apart = [(m, k) for m in range(6) for k in range(m + 1, 6)]
    full, marginals, observed = observe(confusion, prior, apart)
    filled, present = impute_by_one_pair(
        marginals, observed, n_classes=K, rng=np.random.default_rng(0), annotators=(6, 7)
    )
    assert present.all()
    np.testing.assert_allclose(filled, full, atol=1e-9)
    again, _ = impute_by_one_pair(
        marginals, observed, n_classes=K, rng=np.random.default_rng(1), annotators=(6, 7)
    )
    np.testing.assert_array_equal(filled, again)


def test_impute_by_one_pair__named_workers_without_common_tasks_impute_nothing_but_themselves():
    confusion, prior = plant_crowd(np.random.default_rng(7), 6)
    _, marginals, observed = observe(confusion, prior, [(4, 5), (0, 1)])
    filled, present = impute_by_one_pair(
        marginals, observed, n_classes=K, rng=np.random.default_rng(0), annotators=(4, 5)
    )
    assert not present[0, 1]
    assert not present[4, 5]
    assert present[4, 4]
    assert (filled[:K, K : 2 * K] == 0).all()
