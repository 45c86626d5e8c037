import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmflib.base import (
    FLOOR,
    list_owners,
    normalise_blocks,
    repeat_blocks,
    spread_evenly,
    spread_pairs,
    sum_blocks,
    sum_pairs,
)
from tests.reference import offsets_of


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 2**32 - 1))
def test_blocks__equal_a_loop_over_variables(cardinalities, seed):
    rng = np.random.default_rng(seed)
    offsets, n_variables = offsets_of(cardinalities), len(cardinalities)
    owners = [j for j, size in enumerate(cardinalities) for _ in range(size)]
    table = rng.integers(9, size=(offsets[-1], offsets[-1]))
    by_pair = rng.integers(9, size=(n_variables, n_variables))
    rows = [slice(offsets[j], offsets[j + 1]) for j in range(n_variables)]
    assert list_owners(offsets).tolist() == owners
    for axis in (0, 1):
        lines = table if axis == 0 else table.T
        sums = sum_blocks(table, offsets, axis)
        expected = np.array([lines[mine].sum(axis=0) for mine in rows])
        assert np.array_equal(sums if axis == 0 else sums.T, expected)
        repeated = repeat_blocks(by_pair, offsets, axis)
        assert np.array_equal(repeated, by_pair[owners] if axis == 0 else by_pair[:, owners])
    assert sum_pairs(table, offsets).tolist() == [
        [table[mine, theirs].sum() for theirs in rows] for mine in rows
    ]
    assert np.array_equal(spread_pairs(by_pair, offsets), by_pair[np.ix_(owners, owners)])
    assert np.array_equal(spread_evenly(offsets), [1 / cardinalities[j] for j in owners])


def test_normalise_blocks__columns_without_mass_take_the_fallback():
    offsets = offsets_of([2, 3])
    stacked = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [0.0, 1.0], [0.0, 1.0]])
    found = normalise_blocks(stacked, offsets, spread_evenly(offsets)[:, None])
    third = 1 / 3
    expected = [[0.25, 0.5], [0.75, 0.5], [third, 0.5], [third, 0.25], [third, 0.25]]
    np.testing.assert_array_equal(found, expected)
    counts = normalise_blocks(np.array([1, 3, 0, 0, 0]), offsets, spread_evenly(offsets))
    assert counts.tolist() == [0.25, 0.75, third, third, third]


@pytest.mark.parametrize(("size", "kept"), [(FLOOR, False), (4 * FLOOR, True), (5e-324, False)])
def test_normalise_blocks__sums_up_to_the_floor_are_no_mass(size, kept):
    found = normalise_blocks(np.array([0.25, 0.75]) * size, offsets_of([2]), np.full(2, 0.5))
    np.testing.assert_allclose(found, [0.25, 0.75] if kept else [0.5, 0.5], rtol=1e-12)
