import numpy as np

import pmflib as pmf
from tasks.fit import _load_groups
from tests.reference import make_codes


def test_load_groups__training_folds_are_dealt_and_held_out_ones_left_out(tmp_path):
    codes = make_codes(np.random.default_rng(0), 200, [3, 2, 4])
    counts = pmf.count_pairs(codes, [3, 2, 4], n_folds=8)
    counts.save(tmp_path / "pairs")
    groups = _load_groups(tmp_path / "pairs", 8, (0, 1, 2, 3, 4, 5), rank=2)
    assert groups.n_folds == 4
    np.testing.assert_array_equal(groups.tables[1], counts.tables[[1, 5]].sum(axis=0))
    np.testing.assert_array_equal(groups.tables.sum(axis=0), counts.tables[:6].sum(axis=0))
    assert groups.n_rows.sum() == counts.n_rows[:6].sum()


def test_load_groups__large_tables_are_one_group(tmp_path, monkeypatch):
    monkeypatch.setattr("pmflib.fitting.auto_method._WORK_FOR_ONE_ROUND", 1)
    counts = pmf.count_pairs(np.zeros((5, 2), int), [2, 2], n_folds=3)
    counts.save(tmp_path / "pairs")
    groups = _load_groups(tmp_path / "pairs", 3, (0, 1), rank=2)
    assert groups.n_folds == 1
    np.testing.assert_array_equal(groups.tables[0], counts.tables[:2].sum(axis=0))
