import numpy as np
import pytest

import pmflib.em.blocks as duplicates
from pmflib.base import DenseBlock, SparseBlock
from pmflib.em import merge_duplicates
from pmflib.model import em_statistics, take_logs
from tests.reference import make_codes, make_model, offsets_of

CARDINALITIES = [3, 2, 4]
OFFSETS = offsets_of(CARDINALITIES)


@pytest.fixture
def codes():
    return make_codes(np.random.default_rng(0), 5000, CARDINALITIES)


def count_rows(codes):
    """Distinct rows in the order in which they first occur, and how often."""
    counts = {}
    for row in map(tuple, codes.tolist()):
        counts[row] = counts.get(row, 0) + 1
    return counts


@pytest.mark.parametrize("sparse", [False, True])
def test_merge_duplicates__distinct_rows_and_their_numbers(codes, sparse):
    block = DenseBlock(codes)
    merged = merge_duplicates(block.to_sparse(OFFSETS) if sparse else block)
    assert isinstance(merged, SparseBlock if sparse else DenseBlock)
    expected = count_rows(codes)
    assert [tuple(row) for row in merged.to_codes(OFFSETS).tolist()] == list(expected)
    assert merged.weights.tolist() == list(expected.values())
    assert merged.n_samples == 5000


def test_merge_duplicates__weights_add_up(codes):
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 5000)
    merged = merge_duplicates(DenseBlock(codes, weights))
    first = codes[0]
    assert merged.weights is not None
    assert merged.weights[0] == pytest.approx(weights[(codes == first).all(axis=1)].sum())
    assert merged.n_samples == pytest.approx(weights.sum())


def test_merge_duplicates__changes_em_statistics_by_rounding_alone(codes):
    logs = take_logs(*make_model(np.random.default_rng(2), CARDINALITIES, 3))
    merged = merge_duplicates(DenseBlock(codes))
    one, other = (em_statistics(b, OFFSETS, *logs) for b in (DenseBlock(codes), merged))
    np.testing.assert_allclose(one.level_mass, other.level_mass, rtol=1e-12)
    assert one.log_likelihood == pytest.approx(other.log_likelihood, rel=1e-13)
    assert one.n_rows == other.n_rows
    again = em_statistics(merge_duplicates(DenseBlock(codes.copy())), OFFSETS, *logs)
    assert again.level_mass.tobytes() == other.level_mass.tobytes()


def test_merge_duplicates__leaves_what_does_not_pay(codes):
    small = DenseBlock(codes[:200])
    assert merge_duplicates(small) is small
    rng = np.random.default_rng(3)
    distinct = DenseBlock(rng.integers(0, 5, (5000, 30)).astype(np.int8))
    assert merge_duplicates(distinct) is distinct
    # the sample alone is full of equal rows, at every 2nd position
    half = rng.integers(0, 5, (10_000, 30)).astype(np.int8)
    half[::2] = 0
    half[1::20] = 0
    block = DenseBlock(half)
    assert merge_duplicates(block).n_rows < 5000
    assert block.weights is None


@pytest.mark.parametrize("sparse", [False, True])
def test_merge_duplicates__a_collision_of_hashes_merges_nothing(codes, monkeypatch, sparse):
    # nobody has two rows of one hash of 64 bits at hand
    monkeypatch.setattr(duplicates, "_hash_rows", lambda block: np.zeros(block.n_rows, np.uint64))
    block = DenseBlock(codes).to_sparse(OFFSETS) if sparse else DenseBlock(codes)
    assert merge_duplicates(block) is block


@pytest.mark.parametrize("sparse", [False, True])
def test_take__weights_go_along(codes, sparse):
    dense = DenseBlock(codes, np.arange(5000.0))
    block = dense.to_sparse(OFFSETS) if sparse else dense
    assert block.take(np.array([7, 3])).weights.tolist() == [7.0, 3.0]
    assert block.nbytes > block.weights.nbytes
