import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmflib.base import DenseBlock, SparseBlock, concatenate_blocks, split_block, weigh_rows
from tests.reference import offsets_of, tables_of_codes


@given(tables_of_codes())
def test_to_sparse__and_back(case):
    cardinalities, codes = case
    offsets = offsets_of(cardinalities)
    sparse = DenseBlock(codes).to_sparse(offsets)
    assert sparse.n_rows == len(codes)
    assert sparse.indices.dtype == np.int32
    for row, values in enumerate(codes.tolist()):
        expected = [offsets[j] + code for j, code in enumerate(values) if code >= 0]
        assert sparse.indices[sparse.indptr[row] : sparse.indptr[row + 1]].tolist() == expected
    again = sparse.to_codes(offsets)
    assert again.dtype == codes.dtype
    assert np.array_equal(again, codes)


@given(tables_of_codes(), st.data())
def test_take__rows_in_the_order_asked_for(case, data):
    cardinalities, codes = case
    offsets = offsets_of(cardinalities)
    indices = st.integers(0, max(len(codes) - 1, 0))
    rows = np.array(data.draw(st.lists(indices, max_size=8 if len(codes) else 0)), np.int64)
    for block in (DenseBlock(codes), DenseBlock(codes).to_sparse(offsets)):
        assert np.array_equal(block.take(rows).to_codes(offsets), codes[rows])


@given(tables_of_codes(), st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=4))
def test_concatenate_blocks__any_split_in_either_layout(case, splits):
    cardinalities, codes = case
    offsets = offsets_of(cardinalities)
    edges = sorted({0, len(codes), *(min(stop, len(codes)) for stop, _ in splits)})
    layouts = [sparse for _, sparse in splits] + [False] * 4
    blocks = []
    for start, stop, sparse in zip(edges, [*edges[1:], len(codes)], layouts, strict=False):
        block = DenseBlock(codes[start:stop])
        blocks.append(block.to_sparse(offsets) if sparse else block)
    whole = concatenate_blocks(blocks, offsets)
    assert isinstance(whole, SparseBlock) == layouts[0]
    assert np.array_equal(whole.to_codes(offsets), codes)


@pytest.mark.parametrize(("n_parts", "expected"), [(1, [7]), (3, [3, 2, 2]), (7, [1] * 7)])
def test_split_block__the_first_parts_have_what_is_left_over(n_parts, expected):
    codes = np.arange(14, dtype=np.int8).reshape(7, 2)
    whole = DenseBlock(codes, np.arange(1.0, 8.0))
    parts = split_block(whole, n_parts)
    assert [part.n_rows for part in parts] == expected
    assert np.array_equal(
        np.concatenate([part.to_codes(np.array([0, 14, 28])) for part in parts]), codes
    )
    assert np.array_equal(np.concatenate([weigh_rows(part) for part in parts]), whole.weights)
    assert [part.n_rows for part in split_block(DenseBlock(codes[:0]), 1)] == [0]
