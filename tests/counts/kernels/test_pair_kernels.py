"""Every way to count pairs, against the same slow loop."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pmflib.base import DenseBlock, IntArray
from pmflib.counts import add_planes, find_observed
from pmflib.counts.kernels import planes, scatter
from pmflib.counts.kernels.scatter import add_dense, add_sparse, add_tiles
from tests.counts.kernels.slow_pairs import count_slowly, draw_codes

Count = Callable[[IntArray, IntArray, IntArray], None]


def scatter_sparse(codes: IntArray, offsets: IntArray, table: IntArray) -> None:
    block = DenseBlock(codes).to_sparse(offsets)
    add_sparse(block.indptr, block.indices, table)


def tile_sparse(codes: IntArray, offsets: IntArray, table: IntArray) -> None:
    block = DenseBlock(codes).to_sparse(offsets)
    add_tiles(block.indptr, block.indices, offsets, table)


def tile_dense(codes: IntArray, offsets: IntArray, table: IntArray) -> None:
    add_tiles(*find_observed(np.ascontiguousarray(codes), offsets), offsets, table)


COUNTS: dict[str, Count] = {
    "dense scatter": add_dense,
    "sparse scatter": scatter_sparse,
    "planes": add_planes,
    "tiles": tile_sparse,
    "tiles of dense": tile_dense,
}


def check_all(codes: IntArray, offsets: IntArray) -> None:
    expected = count_slowly(codes, offsets)
    for name, count in COUNTS.items():
        # what is there already stays
        table = np.triu(np.full_like(expected, 7))
        count(codes, offsets, table)
        np.testing.assert_array_equal(table, expected + np.triu(np.full_like(expected, 7)), name)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks so small that few rows and levels fill several of them."""
    monkeypatch.setattr(planes, "choose_chunk_rows", lambda n_levels: 512)
    monkeypatch.setattr(planes, "MAX_ROWS", 1100)
    monkeypatch.setattr(scatter, "TILE_ROWS", 130)
    monkeypatch.setattr(scatter, "TILE_LEVELS", 9)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    cardinalities=st.lists(st.integers(1, 12), min_size=1, max_size=40),
    wide=st.lists(st.integers(13, 200), max_size=2),
    n_rows=st.sampled_from([0, 1, 15, 63, 64, 65, 130, 511, 512, 513, 700]),
    share=st.sampled_from([0.0, 0.05, 0.5, 0.98, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_all_kernels__any_shape(
    cardinalities: list[int], wide: list[int], n_rows: int, share: float, seed: int
) -> None:
    check_all(*draw_codes(n_rows, cardinalities + wide, share, seed))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("n_rows", [130, 512, 1023, 1024, 1025, 1536, 2300])
@pytest.mark.parametrize("share", [0.1, 0.9, 1.0])
def test_all_kernels__several_chunks_with_ragged_ends(n_rows: int, share: float) -> None:
    check_all(*draw_codes(n_rows, [2, 3, 1, 5, 4, 2, 7, 3, 2], share, n_rows))


@pytest.mark.parametrize("n_levels", [1, 2, 3, 4, 5, 16, 64, 126, 127, 128, 129, 200])
@pytest.mark.parametrize("share", [0.7, 1.0])
def test_all_kernels__any_cardinality(n_levels: int, share: float) -> None:
    check_all(*draw_codes(600, [n_levels, 3, n_levels], share, n_levels))


def test_all_kernels__variable_complete_in_one_chunk_only(small_chunks: None) -> None:
    codes, offsets = draw_codes(1300, [3, 4, 2, 5], 1.0, 1)
    codes[600, 1] = -1
    codes[1200:, 2] = -1
    check_all(codes, offsets)


def test_all_kernels__level_that_everybody_or_nobody_holds(small_chunks: None) -> None:
    codes, offsets = draw_codes(700, [3, 3, 3, 3], 0.9, 2)
    codes[:, 0] = 1
    codes[:, 1] = 2
    codes[:, 2] = -1
    check_all(codes, offsets)


def test_all_kernels__codes_that_are_not_contiguous() -> None:
    codes, offsets = draw_codes(700, [3, 2, 4, 5, 2, 2], 0.9, 3)
    check_all(np.asfortranarray(codes), offsets)
    reordered = codes[::2]
    check_all(reordered, offsets)


def test_add_planes__full_chunks() -> None:
    codes, offsets = draw_codes(3 * planes.CHUNK_ROWS + 17, [3] * 86, 0.99, 6)
    expected = np.zeros((258, 258), np.int64)
    add_dense(codes, offsets, expected)
    table = np.zeros_like(expected)
    add_planes(codes, offsets, table)
    np.testing.assert_array_equal(table, expected)


def test_add_tiles__count_that_16_bits_cannot_hold() -> None:
    n_rows = 2 * scatter.TILE_ROWS + 3
    codes = np.zeros((n_rows, 2), np.int8)
    table = np.zeros((2, 2), np.int64)
    tile_sparse(codes, np.arange(3), table)
    assert table.tolist() == [[n_rows, n_rows], [0, n_rows]]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n_variables", [1, 30, 64, 100])
def test_find_observed__equals_conversion(share: float, n_variables: int) -> None:
    codes, offsets = draw_codes(40, [3] * n_variables, share, 7)
    indptr, indices = find_observed(codes, offsets)
    expected = DenseBlock(codes).to_sparse(offsets)
    np.testing.assert_array_equal(indptr, expected.indptr)
    np.testing.assert_array_equal(indices, expected.indices)
    assert indptr.dtype == np.int64
    assert indices.dtype == np.int32
