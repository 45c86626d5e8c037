"""Counts of the pairs of some variables equal those of all, narrowed; single counts are of all."""

from dataclasses import asdict

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock, MemoryPlanError, SchemaError
from pmflib.counts import (
    PAIRS,
    CountsWriter,
    StoredTables,
    count_stored_changes,
    count_stored_pairs,
    load_groups,
    load_singles,
    plan_increment,
)
from pmflib.counts.selection import (
    PAIR_LEVELS,
    bound_levels,
    choose_counted,
    count_stored_levels,
    find_requested,
    narrow_block,
)
from pmflib.counts.zarr_tables import Selection
from pmflib.store import (
    SAMPLES,
    SampleWriter,
    Store,
    list_dataset_blocks,
    read_arrays,
    write_dataset,
)
from tests.pipelines import draw_codes, make_schema
from tests.reference import pair_table

SIZES = (3, 2, 4, 2, 5)
N_FOLDS = 3
OPTIONS = {"pairs": 3}


def write_samples(store, schema, *parts, sparse, gone=()):
    """Publish samples, fold by row number, as a dataset of a partition for each part; rows of the first may be gone."""
    made = []
    for codes in parts:

        def write(folder, work, codes=codes):
            writer = SampleWriter(folder / SAMPLES, schema, sparse=sparse, block_rows=8)
            folds = np.arange(len(codes)) % N_FOLDS
            writer.append(DenseBlock(codes), folds, np.arange(len(codes)))
            return asdict(writer.close())

        options = {"codes": codes.tolist(), "sparse": sparse}
        built = store.build("samples", inputs={}, options=options, version=1, write=write)
        made.append(built.reference)

    def combine(folder, work):
        superseded = {0: np.array(gone, np.int64)} if gone else {}
        write_dataset(folder, store, made, {}, superseded)
        return {}

    inputs, options = {str(n): each for n, each in enumerate(made)}, {"gone": list(gone)}
    return store.build(
        "dataset", inputs=inputs, options=options, version=1, write=combine
    ).reference


def count(store, schema, dataset, counted, base=None):
    increment = plan_increment(store, dataset, base, OPTIONS, 1) if base else None

    def write(folder, work):
        if increment:
            return count_stored_changes(None, increment, folder / PAIRS, work)
        every = list_dataset_blocks(store, dataset, None)
        singles = count_stored_levels(None, every, schema, N_FOLDS)
        writer = CountsWriter(
            folder / PAIRS, schema, N_FOLDS, selection=Selection(counted, singles)
        )
        blocks = {fold: list_dataset_blocks(store, dataset, [fold]) for fold in range(N_FOLDS)}
        count_stored_pairs(None, blocks, writer, work)
        writer.close()
        return {}

    inputs = {"dataset": dataset} | ({"base": increment.counts} if increment else {})
    made = store.build("counts", inputs=inputs, options=OPTIONS, version=1, write=write)
    return made.reference, store.locate(made.reference) / PAIRS


@pytest.mark.parametrize("sparse", [False, True])
def test_counts_of_a_selection__are_those_of_all_pairs_narrowed(tmp_path, sparse):
    store, schema = Store(tmp_path), make_schema(*SIZES)
    codes = draw_codes(50, SIZES, missing=0.5).astype(np.int8)
    counted = np.array([0, 2, 4])
    _, path = count(store, schema, write_samples(store, schema, codes, sparse=sparse), counted)
    stored = StoredTables(path)
    assert stored.schema == schema
    assert stored.table_schema.names == ("v0", "v2", "v4")
    loaded = pmf.PairCounts.load(path)
    assert loaded.schema == stored.table_schema
    for fold in range(N_FOLDS):
        mine = codes[np.arange(50) % N_FOLDS == fold]
        expected = pair_table(mine[:, counted], [SIZES[each] for each in counted])
        assert np.array_equal(loaded.tables[fold], expected)
        whole = pair_table(mine, SIZES)
        assert np.array_equal(load_singles(path, folds=[fold]), np.diagonal(whole))
    arrays = read_arrays(path, ["support"])[0]
    seen = (codes[:, counted] >= 0).astype(int)
    assert np.array_equal(arrays["support"], seen.T @ seen)
    grouped = load_groups(path, [(0, 2)], np.array([1, 2]))
    assert grouped.schema.names == ("v2", "v4")
    assert np.array_equal(
        grouped.tables[0], loaded.tables[[0, 2]].sum(axis=0)[stored.table_schema.offsets[1] :, 3:]
    )


@pytest.mark.parametrize("n_new", [6, 200])
def test_increment__keeps_the_selection_and_equals_a_full_count(tmp_path, n_new):
    store, schema = Store(tmp_path), make_schema(*SIZES)
    codes = draw_codes(60, SIZES, missing=0.5).astype(np.int8)
    more = draw_codes(n_new, SIZES, seed=1, missing=0.5).astype(np.int8)
    counted = np.array([1, 3, 4])
    first = write_samples(store, schema, codes, sparse=True)
    base, _ = count(store, schema, first, counted)
    second = write_samples(store, schema, codes, more, sparse=True, gone=(3, 4))
    night, grown = count(store, schema, second, counted, (first, base))
    assert "base" in store.find(night.identity).inputs
    # many changed cells make full tables
    assert bool(StoredTables(grown).base) == (n_new == 6)
    whole = count(store, schema, second, counted)[1]
    assert StoredTables(grown).counted.tolist() == counted.tolist()
    assert np.array_equal(pmf.PairCounts.load(grown).tables, pmf.PairCounts.load(whole).tables)
    names = ["samples", "singles", "support"]
    mine, theirs = (read_arrays(path, names)[0] for path in (grown, whole))
    assert all(np.array_equal(mine[name], theirs[name]) for name in names)


def test_narrow_block__dense_and_sparse_agree():
    schema, codes = make_schema(*SIZES), draw_codes(20, SIZES, missing=0.4).astype(np.int8)
    counted = np.array([0, 3])
    dense = narrow_block(DenseBlock(codes), schema.offsets, counted)
    sparse = narrow_block(DenseBlock(codes).to_sparse(schema.offsets), schema.offsets, counted)
    own = schema.select(counted).offsets
    assert np.array_equal(dense.to_codes(own), codes[:, counted])
    assert np.array_equal(sparse.to_codes(own), codes[:, counted])


def test_choose_counted__most_answered_named_and_the_target():
    schema = make_schema(2, 3, 2, 4)
    seen = np.array([5, 5, 1, 1, 1, 9, 9, 3, 3, 3, 3])
    assert choose_counted(schema, 2, seen).tolist() == [2, 3]
    assert choose_counted(schema, {"levels": 8}, seen).tolist() == [0, 2, 3]
    assert choose_counted(schema, ["v3", "v1"], seen).tolist() == [1, 3]
    assert choose_counted(schema, 2, seen, "v1").tolist() == [1, 2, 3]
    assert bound_levels(schema, 2) == 7
    assert bound_levels(schema, ["v0", "v2"]) == 4
    with pytest.raises(SchemaError, match=r"counts\.variables"):
        choose_counted(schema, ["v9"], seen)


def refuse_above(most):
    def check_size(n_levels):
        if n_levels > most:
            raise MemoryPlanError(f"{n_levels} levels")

    return check_size


def test_find_requested__all_pairs_where_they_fit():
    wide = pmf.Schema.from_cardinalities([4] * 1000)
    assert find_requested("auto", wide, refuse_above(4000)) is None
    assert find_requested("auto", wide, refuse_above(3999)) == {"levels": PAIR_LEVELS}
    assert find_requested(1000, wide, refuse_above(4000)) is None
    assert find_requested(10, wide, refuse_above(40)) == 10
    assert find_requested(("v1", "v2"), wide, refuse_above(8)) == ["v1", "v2"]
    for requested, most in (("auto", PAIR_LEVELS - 1), (10, 39), (2000, 3999)):
        with pytest.raises(MemoryPlanError):
            find_requested(requested, wide, refuse_above(most))
    # small tables are refused rather than narrowed
    with pytest.raises(MemoryPlanError):
        find_requested("auto", pmf.Schema.from_cardinalities([2, 2]), refuse_above(3))
