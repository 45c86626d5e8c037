import numpy as np

import pmflib as pmf
from pmflib.counts import load_groups, narrow_counts, pick_variables
from pmflib.fits import group_folds
from tests.reference import make_codes


def test_load_groups__training_folds_are_assigned_and_held_out_ones_left_out(tmp_path):
    codes = make_codes(np.random.default_rng(0), 200, [3, 2, 4])
    counts = pmf.count_pairs(codes, [3, 2, 4], n_folds=8)
    counts.save(tmp_path / "pairs")
    groups = load_groups(tmp_path / "pairs", group_folds((0, 1, 2, 3, 4, 5), 9, rank=2))
    assert groups.n_folds == 4
    assert groups.schema.digest == counts.schema.digest
    np.testing.assert_array_equal(groups.tables[1], counts.tables[[1, 5]].sum(axis=0))
    np.testing.assert_array_equal(groups.tables.sum(axis=0), counts.tables[:6].sum(axis=0))
    assert groups.n_rows.sum() == counts.n_rows[:6].sum()


def test_load_groups__some_variables_are_those_counted_alone(tmp_path):
    codes = make_codes(np.random.default_rng(0), 200, [3, 2, 4])
    counts = pmf.count_pairs(codes, [3, 2, 4], n_folds=3)
    counts.save(tmp_path / "pairs")
    kept = np.array([0, 2])
    narrow = load_groups(tmp_path / "pairs", [(0,), (1,), (2,)], kept)
    assert narrow.schema.names == ("v0", "v2")
    np.testing.assert_array_equal(narrow.tables, narrow_counts(counts, kept).tables)
    alone = pmf.count_pairs(codes[:, kept], narrow.schema, n_folds=3)
    np.testing.assert_array_equal(narrow.tables.sum(axis=0), alone.tables.sum(axis=0))


def test_pick_variables__those_observed_most_and_two_at_least():
    schema = pmf.Schema.from_cardinalities([2, 3, 2, 4])
    seen = np.array([5, 5, 1, 1, 1, 9, 9, 3, 3, 3, 3])
    assert pick_variables(schema, seen, 7).tolist() == [2, 3]
    assert pick_variables(schema, seen, 8).tolist() == [0, 2, 3]
    assert pick_variables(schema, seen, 100).tolist() == [0, 1, 2, 3]
    assert pick_variables(schema, seen, 1).tolist() == [2, 3]
