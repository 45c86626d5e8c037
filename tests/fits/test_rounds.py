import numpy as np

import pmflib as pmf
from pmflib.fits.composite_likelihood import hold_out_rounds
from tests.reference import make_codes


def test_hold_out_rounds__each_fold_is_held_out_once_and_never_fitted_then():
    codes = make_codes(np.random.default_rng(0), 500, [5] * 8)
    counts = pmf.count_pairs(codes, [5] * 8, n_folds=6)
    rounds = list(hold_out_rounds(counts, 4))
    assert len(rounds) == 4
    owners = np.repeat(np.arange(8), 5)
    pairs = np.where(owners[:, None] < owners, counts.tables, 0)
    held_out = np.concatenate([each.held_out for each in rounds])
    assert sorted(table.tobytes() for table in held_out) == sorted(
        table.tobytes() for table in pairs
    )
    for each in rounds:
        fitted = np.where(owners[:, None] < owners, each.training.tables, 0)
        assert fitted.sum() + each.held_out.sum() == pairs.sum()
        assert each.training.n_folds + len(each.held_out) == 6


def test_hold_out_rounds__folds_without_a_pair_are_fitted_and_never_held_out():
    codes = np.array([[0, 1], [0, -1], [1, 0], [-1, 1]])
    counts = pmf.count_pairs(codes, [2, 2], n_folds=4)
    filled = [fold for fold in range(4) if np.triu(counts.tables[fold], 1)[:2, 2:].any()]
    rounds = list(hold_out_rounds(counts, 4))
    assert len(rounds) == (len(filled) if len(filled) > 1 else 0)
    for each in rounds:
        assert each.held_out.any(axis=(1, 2)).all()


def test_hold_out_rounds__one_fold_leaves_nothing_to_fit():
    counts = pmf.count_pairs(np.zeros((9, 2), np.int8), [2, 2], n_folds=1)
    assert list(hold_out_rounds(counts, 4)) == []
