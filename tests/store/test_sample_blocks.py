from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmflib as pmf
from pmflib.base import DenseBlock, SparseBlock, StoreError
from pmflib.store import (
    SampleWriter,
    WrittenSamples,
    digest_tree,
    list_blocks,
    read_block,
    read_origins,
)
from tests.reference import make_codes, offsets_of

CARDINALITIES = [3, 2, 4]
OFFSETS = offsets_of(CARDINALITIES)
SCHEMA = pmf.Schema.from_cardinalities(CARDINALITIES)


def make_names(n):
    return np.array([f"sämple {n}".encode() * (n % 3) for n in range(n)], object)


def write(path, codes, folds, *, sparse, splits=(), block_rows=4, schema=SCHEMA, feed_sparse=False):
    writer = SampleWriter(
        path, schema, sparse=sparse, attributes={"source": "x"}, block_rows=block_rows
    )
    names = make_names(len(codes))
    for part in np.split(np.arange(len(codes)), sorted(splits)):
        dense = DenseBlock(codes[part])
        block = dense.to_sparse(schema.offsets) if feed_sparse else dense
        writer.append(block, folds[part], part, names[part])
    return writer.close()


def read_codes(path, schema=SCHEMA):
    blocks = [read_block(reference).to_codes(schema.offsets) for reference in list_blocks(path)]
    empty = np.empty((0, schema.n_variables), schema.code_dtype)
    return np.concatenate([empty, *blocks])


@given(
    st.integers(0, 30),
    st.integers(1, 4),
    st.integers(1, 9),
    st.lists(st.integers(0, 30), max_size=3),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_sample_writer__every_sample_once_in_blocks_of_one_fold(
    tmp_path_factory, n_rows, n_folds, block_rows, splits, sparse, feed_sparse, seed
):
    path = tmp_path_factory.mktemp("samples") / "group"
    rng = np.random.default_rng(seed)
    codes = make_codes(rng, n_rows, CARDINALITIES)
    folds = rng.integers(0, n_folds, n_rows)
    summary = write(
        path,
        codes,
        folds,
        sparse=sparse,
        splits=splits,
        block_rows=block_rows,
        feed_sparse=feed_sparse,
    )
    references = list_blocks(path)
    assert asdict(summary) == {
        "samples": n_rows,
        "observed": int((codes >= 0).sum()),
        "blocks": len(references),
    }
    assert [each.start for each in references] == [0, *(each.stop for each in references)][:-1]
    rows, names = read_origins(path)
    assert sorted(rows.tolist()) == list(range(n_rows))
    assert [name.encode() for name in names] == make_names(n_rows)[rows].tolist()
    for reference in references:
        mine = rows[reference.start : reference.stop]
        block = read_block(reference)
        assert isinstance(block, SparseBlock) == sparse
        assert np.array_equal(block.to_codes(OFFSETS), codes[mine])
        assert set(folds[mine]) == {reference.fold}
        # the order of the source is kept within a fold
        assert np.all(np.diff(mine) > 0)
        assert reference.n_rows == len(mine) <= block_rows
        assert reference.n_observed == np.count_nonzero(codes[mine] >= 0)
        assert reference.nbytes == block.nbytes
    for fold in range(n_folds):
        sizes = [each.n_rows for each in references if each.fold == fold]
        # all blocks of a fold but the last are full
        assert set(sizes[:-1]) <= {block_rows}


@pytest.mark.parametrize("sparse", [False, True])
def test_sample_writer__empty_partition(tmp_path, sparse):
    writer = SampleWriter(tmp_path / "group", SCHEMA, sparse=sparse)
    assert writer.close() == WrittenSamples(0, 0, 0)
    assert list_blocks(tmp_path / "group") == []
    rows, names = read_origins(tmp_path / "group")
    assert rows.size == 0
    assert names == []


@pytest.mark.parametrize("sparse", [False, True])
def test_sample_writer__samples_with_nothing_observed_and_no_name(tmp_path, sparse):
    writer = SampleWriter(tmp_path / "group", SCHEMA, sparse=sparse)
    writer.append(DenseBlock(np.full((3, 3), -1, np.int8)), np.array([0, 1, 0]), np.full(3, -1))
    assert writer.close() == WrittenSamples(3, 0, 2)
    assert np.array_equal(read_codes(tmp_path / "group"), np.full((3, 3), -1))
    rows, names = read_origins(tmp_path / "group")
    assert (rows.tolist(), names) == ([-1, -1, -1], ["", "", ""])


@pytest.mark.parametrize("sparse", [False, True])
def test_sample_writer__equal_calls_give_equal_bytes(tmp_path, sparse):
    rng = np.random.default_rng(1)
    codes, folds = make_codes(rng, 50, CARDINALITIES), rng.integers(0, 3, 50)
    for name in ("one", "two"):
        write(tmp_path / name, codes, folds, sparse=sparse, splits=(20,))
    assert digest_tree(tmp_path / "one") == digest_tree(tmp_path / "two")


def test_sample_writer__dense_and_sparse_hold_the_same_samples(tmp_path):
    rng = np.random.default_rng(2)
    schema = pmf.Schema.from_cardinalities([200, 2])
    codes, folds = make_codes(rng, 60, [200, 2]), rng.integers(0, 3, 60)
    for sparse in (False, True):
        write(tmp_path / str(sparse), codes, folds, sparse=sparse, splits=(7, 31), schema=schema)
    dense, sparse = (read_codes(tmp_path / name, schema) for name in ("False", "True"))
    assert dense.dtype == np.int16
    assert np.array_equal(dense, sparse)
    for one, other in zip(*map(read_origins, (tmp_path / "False", tmp_path / "True")), strict=True):
        assert np.array_equal(one, other)


def test_read_block__refuses_what_is_gone_or_damaged(tmp_path):
    codes = make_codes(np.random.default_rng(3), 6, CARDINALITIES)
    write(tmp_path / "group", codes, np.zeros(6, int), sparse=False)
    (_, reference) = list_blocks(tmp_path / "group")
    (tmp_path / "group" / "codes" / "c" / "1" / "0").write_bytes(b"garbage")
    with pytest.raises(StoreError, match="'group'"):
        read_block(reference)
    (tmp_path / "group").rename(tmp_path / "moved")
    for read in (lambda: read_block(reference), lambda: list_blocks(tmp_path / "group")):
        with pytest.raises(StoreError, match="group"):
            read()
