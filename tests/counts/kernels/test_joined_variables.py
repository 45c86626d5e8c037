"""Weights counted by groups of variables, against repeated rows and the plain scatter."""

import numpy as np
import pytest

from pmflib.counts.kernels import joined_variables
from pmflib.counts.kernels.joined_variables import add_joined, find_bases, group_variables
from pmflib.counts.kernels.scatter import add_weighted
from tests.counts.kernels.slow_pairs import count_slowly


def draw(sizes, n_rows, seed, *, missing=0.2):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(size, size=n_rows) for size in sizes], axis=1).astype(np.int16)
    # some variables are complete
    codes[:, ::2][rng.random(codes[:, ::2].shape) < missing] = -1
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return codes, rng.integers(1, 1 << 40, n_rows), offsets


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_add_joined__whole_weights_are_repeated_rows(dtype):
    codes, _, offsets = draw([2, 3, 1, 4, 2, 5, 3], 60, 0)
    weights = np.random.default_rng(1).integers(1, 5, 60)
    table = np.zeros((offsets[-1],) * 2, np.int64)
    add_joined(codes.astype(dtype), np.arange(60), weights, offsets, table)
    np.testing.assert_array_equal(table, count_slowly(np.repeat(codes, weights, axis=0), offsets))


@pytest.mark.parametrize(
    ("sizes", "n_rows"), [([4] * 23, 700), ([2] * 40, 5000), ([90, 3, 200, 2, 2, 7], 900), ([5], 9)]
)
def test_add_joined__sums_are_those_of_the_scatter_over_several_parts(sizes, n_rows, monkeypatch):
    monkeypatch.setattr(joined_variables, "JOINED_ROWS", 600)
    # so few rows do not show that something is missing
    monkeypatch.setattr(joined_variables, "SAMPLED_ROWS", 1)
    codes, weights, offsets = draw(sizes, n_rows, n_rows)
    # what is there already stays
    found = np.triu(np.full((offsets[-1],) * 2, 7))
    expected = found.copy()
    rows = np.random.default_rng(0).permutation(n_rows)
    add_joined(codes, rows, weights[rows], offsets, found)
    add_weighted(codes, weights, offsets, expected)
    np.testing.assert_array_equal(found, expected)


def test_add_joined__without_rows_adds_nothing():
    table = np.zeros((5, 5), np.int64)
    none = np.empty(0, np.int64)
    add_joined(np.empty((0, 2), np.int8), none, none, np.array([0, 2, 5]), table)
    assert not table.any()


def test_group_variables__neighbours_as_long_as_their_numbers_are_few_beside_the_rows():
    firsts, sizes = group_variables(np.array([4] * 5 + [200, 2]), 100_000)
    assert (firsts.tolist(), sizes.tolist()) == ([0, 3, 5, 6, 7], [64, 16, 200, 2])
    assert group_variables(np.array([4] * 5), 30)[1].tolist() == [4] * 5
    codes = np.array([[0, -1], [1, 2]], np.int8)
    assert find_bases(codes, np.array([0, 2, 5])).tolist() == [2, 4]
