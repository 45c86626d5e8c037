from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

import pmflib as pmf
from pmflib.base import FIT_PAIRS, FloatArray
from pmflib.fits import auto_method, group_folds
from pmflib.fits.auto_method import SETTINGS
from pmflib.model import published_factors, sample_codes
from pmflib.papers import factor_mse
from tests.reference import tables_of_codes


def draw_counts(
    n_rows, observed, n_folds=8, seed=0
) -> tuple[pmf.PairCounts, tuple[FloatArray, FloatArray]]:
    rng = np.random.default_rng(seed)
    prior, factors = published_factors(5, 10, 5, rng, 0.1)
    offsets = np.arange(6) * 10
    codes = sample_codes(prior, factors, offsets, n_rows, rng, observed=observed)
    return pmf.count_pairs(codes, [10] * 5, n_folds=n_folds), (prior, factors)


def test_run_auto__is_no_worse_than_spa_and_opt():
    counts, truth = draw_counts(1000, 0.5)
    chosen = pmf.fit(counts, 5)
    errors = {
        method: factor_mse(model.prior, model.factors, *truth, 5)
        for method in ("spa", "opt")
        for model in [pmf.fit(counts, 5, method=method).model]
    }
    assert factor_mse(chosen.model.prior, chosen.model.factors, *truth, 5) < min(errors.values())


def test_run_auto__compares_pseudo_counts_and_repeats_itself():
    counts, _ = draw_counts(1000, 0.5)
    result = pmf.fit(counts, 5, rng=3)
    (compared,) = result.comparisons
    assert [each.settings["pseudo_count"] for each in compared.points] == list(FIT_PAIRS)
    assert compared.best is compared.chosen
    assert np.all(np.diff(result.loss_history) <= 0)
    assert np.array_equal(result.model.factors, pmf.fit(counts, 5, rng=3).model.factors)


def test_run_auto__few_samples_want_pseudo_counts():
    counts, _ = draw_counts(300, 0.5)
    (compared,) = pmf.fit(counts, 5, rng=0).comparisons
    assert float(compared.chosen.settings["pseudo_count"]) > 0


def test_run_auto__one_fold_leaves_nothing_to_score_on():
    counts, _ = draw_counts(1000, 0.5, n_folds=1)
    assert pmf.fit(counts, 5).comparisons == ()


def test_run_auto__large_tables_are_not_scored(monkeypatch):
    counts, _ = draw_counts(1000, 0.5)
    one_round = replace(SETTINGS, work_of_all_rounds=1)
    monkeypatch.setattr(auto_method, "SETTINGS", one_round)
    assert pmf.fit(counts, 5).comparisons
    monkeypatch.setattr(auto_method, "SETTINGS", replace(one_round, work_of_one_round=1))
    assert pmf.fit(counts, 5).comparisons == ()


def test_run_auto__no_pair_to_hold_out():
    codes = np.array([[0, -1], [-1, 1], [1, -1]])
    assert pmf.fit(pmf.count_pairs(codes, [2, 2], n_folds=2), 2).comparisons == ()


def test_run_auto__rank_above_what_spa_can_carry():
    codes = np.random.default_rng(0).integers(0, 3, (200, 3))
    result = pmf.fit(pmf.count_pairs(codes, [3] * 3), 5)
    assert result.model.rank == 5
    assert "spa" not in result.method


def test_run_auto__rank_above_what_pairs_can_distinguish_is_brought_near_them_only():
    counts, _ = draw_counts(1000, 0.5)
    assert counts.schema.max_pairs_rank == 46
    result = pmf.fit(counts, 47, rng=2)
    assert result.method == "pairs"
    alike = pmf.fit(counts, 47, method="pairs", rng=np.random.default_rng(2))
    assert (alike.method, alike.best_pass) == ("pairs", 50)
    assert np.array_equal(alike.model.factors, result.model.factors)
    random = pmf.fit(counts, 47, method="random", rng=2).model

    def explain(model):
        joint = (model.factors * model.prior) @ model.factors.T
        table = counts.to_dense()
        return np.vdot(table, np.log(np.maximum(joint, 1e-300)))

    assert explain(alike.model) > explain(random)


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.RankWarning")
@given(tables_of_codes(min_variables=2))
def test_run_auto__always_gives_a_model(table):
    cardinalities, codes = table
    result = pmf.fit(pmf.count_pairs(codes, cardinalities, n_folds=3), 2)
    assert np.isfinite(result.model.factors).all()
    assert result.model.rank == 2


def test_run_auto__finds_no_states_where_there_are_none_left_apart():
    # every state of an equal start would stay equal: the noise in the start separates them
    counts, _ = draw_counts(20_000, 1.0)
    factors = pmf.fit(counts, 5).model.factors
    gaps = np.abs(factors[:, :, None] - factors[:, None]).max(axis=0)
    assert gaps[~np.eye(5, dtype=bool)].min() > 0.05


@pytest.mark.parametrize(
    ("folds", "n_levels", "expected"),
    [
        ((0, 1, 2, 3, 4), 10, [(0, 4), (1,), (2,), (3,)]),
        ((0, 1), 10, [(0,), (1,)]),
        ((0, 1, 2), 100_000, [(0, 1, 2)]),
    ],
)
def test_group_folds__takes_every_fold_once(folds, n_levels, expected):
    assert group_folds(folds, n_levels, 10) == expected


def test_run_pairs__wide_tables_start_from_the_variables_observed_most(monkeypatch):
    rng = np.random.default_rng(0)
    prior, factors = published_factors(12, 5, 3, rng)
    codes = sample_codes(prior, factors, np.arange(13) * 5, 4000, rng, observed=1.0)
    # the last six are observed less, and one of them never
    codes[:, 6:][rng.random((4000, 6)) < 0.5] = -1
    codes[:, 11] = -1
    counts = pmf.count_pairs(codes, [5] * 12, n_folds=2)
    alone = pmf.fit(pmf.count_pairs(codes[:, :6], [5] * 6), 3, method="pairs", rng=1).model
    monkeypatch.setattr(auto_method, "SETTINGS", replace(SETTINGS, start_levels=30))
    wide = pmf.fit(counts, 3, method="pairs", rng=1).model
    assert np.array_equal(wide.factors[:30], alone.factors)
    assert np.array_equal(wide.prior, alone.prior)
    sums = wide.factors.reshape(12, 5, 3).sum(axis=1)
    np.testing.assert_allclose(sums, 1)
    assert wide.factors.min() >= 0
    np.testing.assert_allclose(wide.factors[55:], 0.2)
    # the others say something of the state already
    assert np.ptp(wide.factors[30:55], axis=1).max() > 0.1
