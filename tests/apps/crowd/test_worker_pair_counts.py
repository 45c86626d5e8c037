from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmflib.apps.crowd import WorkerPairCounts, worker_pair_counts
from pmflib.apps.crowd.worker_pair_counts import count_label_pairs, count_worker_pairs
from pmflib.base import SparseBlock, StoreError

M, K = 6, 3


def draw_codes(seed, n_rows, missing=0.5):
    """Labels of workers to tasks; the last two share no task."""
    rng = np.random.default_rng(seed)
    codes = np.where(rng.random((n_rows, M)) < missing, -1, rng.integers(K, size=(n_rows, M)))
    codes[:, M - 1] = np.where(codes[:, M - 2] >= 0, -1, codes[:, M - 1])
    return codes


def as_block(codes):
    rows, workers = np.nonzero(codes >= 0)
    indptr = np.concatenate([[0], np.cumsum((codes >= 0).sum(axis=1))])
    return SparseBlock(indptr, (workers * K + codes[rows, workers]).astype(np.int32))


def count(codes):
    return count_worker_pairs(as_block(codes), M, K)


def assert_same(one, other):
    for name in ("first", "second", "counts", "n_labels"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)


def test_count_worker_pairs__is_the_loop():
    codes = draw_codes(0, 40)
    counts = count(codes)
    table = np.zeros((M, M, K, K), int)
    for row in codes:
        for m in range(M):
            for k in range(m + 1, M):
                if row[m] >= 0 and row[k] >= 0:
                    table[m, k, row[m], row[k]] += 1
    first, second = np.nonzero(table.sum(axis=(2, 3)))
    assert (M - 2, M - 1) not in set(zip(first.tolist(), second.tolist(), strict=True))
    np.testing.assert_array_equal(counts.first, first)
    np.testing.assert_array_equal(counts.second, second)
    np.testing.assert_array_equal(counts.counts, table[first, second])
    np.testing.assert_array_equal(counts.n_labels, (codes >= 0).sum(axis=0))
    assert count_label_pairs(as_block(codes)) == table.sum()


def test_normalise__is_the_joint_pmf_of_pairs_that_share_tasks():
    codes = draw_codes(1, 30, missing=0.9)
    pairs = count(codes).normalise()
    assert 0 < pairs.first.size < M * (M - 1) / 2
    np.testing.assert_allclose(pairs.blocks.sum(axis=(1, 2)), 1)
    dense, support, observed = pairs.to_dense()
    for m in range(M):
        for k in range(M):
            both = (codes[:, m] >= 0) & (codes[:, k] >= 0) & (m != k)
            assert observed[m, k] == both.any()
            assert support[m, k] == both.sum()
            expected = np.zeros((K, K))
            np.add.at(expected, (codes[both, m], codes[both, k]), 1 / max(both.sum(), 1))
            found = dense[m * K : m * K + K, k * K : k * K + K]
            np.testing.assert_allclose(found, expected)


@given(
    seed=st.integers(0, 99),
    splits=st.lists(st.integers(0, 30), max_size=5),
    n_sorted=st.sampled_from([1, 7, 1 << 22]),
)
def test_merge__same_bits_however_the_tasks_are_split(seed, splits, n_sorted):
    codes = draw_codes(seed, 30)
    edges = sorted([0, 30, *splits])
    kept = worker_pair_counts.SORTED_PAIRS, worker_pair_counts.SORTED_PER_COUNTED
    try:
        worker_pair_counts.SORTED_PAIRS, worker_pair_counts.SORTED_PER_COUNTED = n_sorted, 0
        parts = [count(codes[a:b]) for a, b in pairwise(edges)]
    finally:
        worker_pair_counts.SORTED_PAIRS, worker_pair_counts.SORTED_PER_COUNTED = kept
    whole = count(codes)
    before = [part.counts.copy() for part in parts]
    assert_same(WorkerPairCounts.merge(parts), whole)
    assert_same(WorkerPairCounts.merge(parts[::-1]), whole)
    half = len(parts) // 2
    tree = [WorkerPairCounts.merge([WorkerPairCounts.zero(M, K), *parts[:half]])]
    assert_same(WorkerPairCounts.merge([*tree, *parts[half:]]), whole)
    for part, counts in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part.counts, counts)


def test_count_worker_pairs__of_nothing_is_zero():
    assert_same(count(np.full((4, M), -1)), WorkerPairCounts.zero(M, K))
    assert_same(count(np.full((0, M), -1)), WorkerPairCounts.zero(M, K))
    # one label a task: no pair shares a task, and the labels are counted all the same
    alone = count(np.where(np.eye(M, dtype=bool), 1, -1))
    assert alone.n_pairs == 0
    np.testing.assert_array_equal(alone.n_labels, np.ones(M))
    assert alone.normalise().to_sparse().nnz == 0


def test_save__counts_come_back(tmp_path):
    for name, codes in (("some", draw_codes(3, 20)), ("none", np.full((3, M), -1))):
        count(codes).save(tmp_path / name)
        assert_same(WorkerPairCounts.load(tmp_path / name), count(codes))
    with pytest.raises(StoreError):
        WorkerPairCounts.load(tmp_path / "absent")
