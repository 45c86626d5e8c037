import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmflib as pmf
from pmflib.base import DenseBlock, SchemaError, StoreError, assign_folds
from pmflib.counts import add_block, load_singles
from tests.reference import make_codes, offsets_of, pair_table, tables_of_codes

CARDINALITIES = [3, 2, 4]


@pytest.fixture
def codes():
    return make_codes(np.random.default_rng(0), 200, CARDINALITIES)


@given(tables_of_codes())
def test_add_block__dense_and_sparse_equal_the_loop(case):
    cardinalities, codes = case
    offsets = offsets_of(cardinalities)
    expected = pair_table(codes, cardinalities)
    for block in (DenseBlock(codes), DenseBlock(codes).to_sparse(offsets)):
        table = np.zeros_like(expected)
        add_block(block, offsets, table)
        assert np.array_equal(table, expected)


@given(tables_of_codes(max_rows=30), st.integers(1, 20))
def test_count_pairs__folds_sum_to_the_whole(case, n_folds):
    cardinalities, codes = case
    counts = pmf.count_pairs(codes, cardinalities, n_folds=n_folds)
    assert np.array_equal(counts.tables.sum(axis=0), pair_table(codes, cardinalities))
    folds = assign_folds(np.arange(len(codes)), n_folds)
    assert counts.n_rows.tolist() == np.bincount(folds, minlength=n_folds).tolist()
    for fold in range(n_folds):
        alone = counts.select_folds([fold])
        assert np.array_equal(alone.tables[0], pair_table(codes[folds == fold], cardinalities))


@given(tables_of_codes(), st.lists(st.integers(0, 12), max_size=3))
def test_add__ragged_splits_equal_the_whole(case, splits):
    cardinalities, codes = case
    schema = pmf.Schema.from_cardinalities(cardinalities)
    total = pmf.PairCounts.zero(schema, 1)
    for part in np.split(codes, sorted(splits)):
        total += pmf.count_pairs(part, schema, n_folds=1)
    whole = pmf.count_pairs(codes, schema, n_folds=1)
    assert np.array_equal(total.tables, whole.tables)
    assert total.n_rows.tolist() == [len(codes)]


@given(tables_of_codes(), tables_of_codes())
def test_sub__takes_away_exactly_what_was_added(first, second):
    cardinalities, codes = first
    other = second[1].astype(np.int64)
    other = np.resize(other, (len(other), len(cardinalities))) % np.array(cardinalities)
    kept = pmf.count_pairs(codes, cardinalities)
    both = kept + pmf.count_pairs(other, cardinalities)
    back = both - pmf.count_pairs(other, cardinalities)
    assert np.array_equal(back.tables, kept.tables)
    assert np.array_equal(back.n_rows, kept.n_rows)


def test_sub__refuses_samples_that_were_never_counted(codes):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    more = pmf.count_pairs(np.zeros((1, 3), int), CARDINALITIES)
    with pytest.raises(SchemaError):
        pmf.PairCounts.zero(counts.schema) - more
    # a sample with nothing observed leaves no trace but its number
    empty = pmf.count_pairs(np.full((1, 3), -1), CARDINALITIES)
    with pytest.raises(SchemaError):
        pmf.PairCounts.zero(counts.schema) - empty


def test_add__refuses_other_schemas_and_folds(codes):
    counts = pmf.count_pairs(codes, CARDINALITIES)
    with pytest.raises(SchemaError, match="schema"):
        counts + pmf.PairCounts.zero(pmf.Schema.from_cardinalities([3, 2, 5]))
    with pytest.raises(SchemaError, match="folds"):
        counts - pmf.PairCounts.zero(counts.schema, 4)


def test_save__and_load(tmp_path, codes):
    counts = pmf.count_pairs(codes, CARDINALITIES, n_folds=5)
    counts.save(tmp_path / "pairs")
    loaded = pmf.PairCounts.load(tmp_path / "pairs")
    assert loaded.schema == counts.schema
    assert np.array_equal(loaded.tables, counts.tables)
    assert np.array_equal(loaded.n_rows, counts.n_rows)


def test_save__support_is_readable_beside_the_counts(tmp_path, codes):
    from pmflib.store import read_arrays

    pmf.count_pairs(codes, CARDINALITIES).save(tmp_path / "pairs")
    arrays, attributes = read_arrays(tmp_path / "pairs")
    seen = (codes >= 0).astype(int)
    assert np.array_equal(arrays["support"], seen.T @ seen)
    assert arrays["offsets"].tolist() == [0, 3, 5, 9]
    assert (attributes["triangle"], attributes["units"]) == ("upper", "samples")


@pytest.mark.parametrize("folds", [(), (2,), (0, 4), range(5), None])
def test_load_total_and_singles__are_those_of_the_folds(tmp_path, codes, folds):
    counts = pmf.count_pairs(codes, CARDINALITIES, n_folds=5)
    counts.save(tmp_path / "pairs")
    chosen = counts if folds is None else counts.select_folds(folds)
    # an iterator can be read once only
    total = pmf.PairCounts.load_total(tmp_path / "pairs", folds=folds and iter(folds))
    assert total.n_folds == 1
    assert np.array_equal(total.tables[0], chosen.tables.sum(axis=0))
    assert total.n_rows.tolist() == [chosen.n_rows.sum()]
    # of single variables the tables are not read
    shutil.rmtree(tmp_path / "pairs" / "counts")
    singles = load_singles(tmp_path / "pairs", folds=folds and iter(folds))
    assert np.array_equal(singles, np.diagonal(chosen.to_dense()))
    assert np.array_equal(singles, chosen.count_levels())


def test_select_folds__refuses_what_is_no_fold(tmp_path, codes):
    counts = pmf.count_pairs(codes, CARDINALITIES, n_folds=2)
    counts.save(tmp_path / "pairs")
    with pytest.raises(SchemaError, match="folds"):
        counts.select_folds([-1, 0, 2])
    with pytest.raises(SchemaError, match="folds"):
        counts.drop_folds([2])
    with pytest.raises(SchemaError, match="folds"):
        pmf.PairCounts.load_total(tmp_path / "pairs", folds=[9])
    with pytest.raises(SchemaError, match="folds"):
        load_singles(tmp_path / "pairs", folds=[9])
    with pytest.raises(SchemaError, match="folds"):
        load_singles(tmp_path / "pairs", folds=[1, 1])


def test_load__refuses_what_is_not_there_or_damaged(tmp_path, codes):
    with pytest.raises(StoreError):
        pmf.PairCounts.load(tmp_path / "nowhere")
    path = tmp_path / "pairs"
    pmf.count_pairs(codes, CARDINALITIES, n_folds=2).save(path)
    (chunk,) = (path / "counts" / "c" / "1").rglob("0/0")
    chunk.write_bytes(b"garbage")
    for load in (pmf.PairCounts.load, pmf.PairCounts.load_total):
        with pytest.raises(StoreError, match="pairs"):
            load(path)


def test_count_pairs__refuses_bad_input():
    with pytest.raises(SchemaError, match=r"codes\[0, 1\]"):
        pmf.count_pairs(np.array([[0, 2]]), [2, 2])
    with pytest.raises(SchemaError, match="n_folds"):
        pmf.count_pairs(np.array([[0, 1]]), [2, 2], n_folds=0)
    with pytest.raises(SchemaError, match="tables"):
        pmf.PairCounts(
            pmf.Schema.from_cardinalities([3]), np.zeros((1, 2, 2), int), np.zeros(1, int)
        )
