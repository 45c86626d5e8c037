import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import RANKS_BY_PAIRS, RankError
from pmflib.fits.composite_likelihood import hold_out_rounds, score_pairs
from pmflib.fits.ranks import by_pairs
from pmflib.fits.ranks.folds import RankFold, RankJob, fit_rank
from pmflib.model import published_factors, sample_codes


def draw_counts(rank, *, n_rows=20_000, n_variables=8, n_levels=5, seed=0, n_folds=16):
    rng = np.random.default_rng([rank, seed])
    prior, factors = published_factors(n_variables, n_levels, rank, rng)
    schema = pmf.Schema.from_cardinalities([n_levels] * n_variables)
    codes = sample_codes(prior, factors, schema.offsets, n_rows, rng, observed=0.5)
    return pmf.count_pairs(codes, schema, n_folds=n_folds)


@pytest.mark.parametrize("rank", [1, 2, 4, 6])
def test_select_rank__finds_the_planted_rank(rank):
    choice = pmf.fits.select_rank(draw_counts(rank))
    assert choice.rank == rank
    points = {int(point.settings["rank"]): point for point in choice.curve}
    # both neighbours were fitted
    assert {rank + 1, max(1, rank - 1)} <= set(points)
    assert points[choice.best].below_best == 0
    assert points[choice.best].error == 0


@pytest.mark.slow
@pytest.mark.parametrize(("n_variables", "n_levels"), [(15, 10), (30, 5)])
def test_select_rank__planted_ranks_of_the_published_models(n_variables, n_levels):
    misses = []
    for rank in range(2, 21, 2):
        counts = draw_counts(
            rank, n_rows=100_000, n_variables=n_variables, n_levels=n_levels, seed=1
        )
        misses.append(abs(pmf.fits.select_rank(counts).rank - rank))
    assert max(misses) <= 1
    assert misses.count(0) >= 9


def test_select_rank__same_seed_same_choice_and_curve_in_the_order_of_ranks():
    counts = draw_counts(3, n_rows=3000)
    choice, again = pmf.fits.select_rank(counts, rng=5), pmf.fits.select_rank(counts, rng=5)
    assert choice == again
    ranks = [point.settings["rank"] for point in choice.curve]
    pseudo_counts = [each.settings["pseudo_count"] for each in choice.pseudo_counts.points]
    assert pseudo_counts == list(RANKS_BY_PAIRS)
    assert ranks == sorted(set(ranks))


def test_select_rank__a_given_grid_is_fitted_whole():
    choice = pmf.fits.select_rank(draw_counts(3), ranks=[5, 3, 1], pseudo_counts=[0.5])
    assert [point.settings["rank"] for point in choice.curve] == [1, 3, 5]
    assert {point.settings["pseudo_count"] for point in choice.curve} == {0.5}
    assert choice.rank == 3


def test_select_rank__the_search_stays_below_its_limit():
    choice = pmf.fits.select_rank(draw_counts(4), max_rank=2)
    assert choice.rank == 2
    assert max(point.settings["rank"] for point in choice.curve) == 2


def test_select_rank__of_what_cannot_be_distinguished_the_least():
    choice = pmf.fits.select_rank(draw_counts(6, n_rows=300), ranks=range(1, 7))
    points = {int(point.settings["rank"]): point for point in choice.curve}
    for rank, point in points.items():
        assert rank >= choice.rank or point.below_best > point.error + point.unconverged


def test_select_rank__folds_of_unequal_sizes_and_empty_ones():
    counts = draw_counts(3)
    tables, n_rows = counts.tables.copy(), counts.n_rows.copy()
    tables[[0, 5]], n_rows[[0, 5]] = 0, 0
    tables[1] += tables[2]
    tables[2] = 0
    assert pmf.fits.select_rank(pmf.PairCounts(counts.schema, tables, n_rows)).rank == 3


def test_select_rank__variables_never_observed_of_one_level_and_pairs_never_together():
    rng = np.random.default_rng(0)
    side = rng.integers(2, size=(4000, 1))
    codes = np.where(rng.random((4000, 6)) < 0.9, side, 1 - side)
    codes[:, 4], codes[:, 5] = -1, 0
    codes[:2000, 0], codes[2000:, 1] = -1, -1
    choice = pmf.fits.select_rank(pmf.count_pairs(codes, [2, 2, 2, 2, 3, 1]))
    assert choice.rank == 2


def test_select_rank__two_variables():
    rng = np.random.default_rng(0)
    alike = rng.integers(3, size=(3000, 1)) * np.ones(2, np.int64)
    assert pmf.fits.select_rank(pmf.count_pairs(alike, [3, 3])).rank == 3
    apart = rng.integers(3, size=(3000, 2))
    assert pmf.fits.select_rank(pmf.count_pairs(apart, [3, 3])).rank == 1


def test_select_rank__large_tables_are_scored_on_the_best_observed_variables(monkeypatch):
    monkeypatch.setattr(by_pairs, "MAX_LEVELS", 30)
    counts = draw_counts(2)
    choice = pmf.fits.select_rank(counts)
    assert choice.rank == 2


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"ranks": []}, RankError, "ranks"),
        ({"ranks": [2, 0]}, RankError, "ranks"),
        ({"max_rank": 0}, RankError, "max_rank"),
        ({"pseudo_counts": []}, pmf.PmfError, "pseudo_counts"),
        ({"pseudo_counts": [-1.0]}, pmf.PmfError, "pseudo_counts"),
        ({"pseudo_counts": [float("nan")]}, pmf.PmfError, "pseudo_counts"),
    ],
)
def test_select_rank__refuses(options, error, match):
    with pytest.raises(error, match=match):
        pmf.fits.select_rank(draw_counts(2, n_rows=100), **options)


def test_select_rank__refuses_counts_with_nothing_to_hold_out():
    with pytest.raises(pmf.PmfError, match="counts"):
        pmf.fits.select_rank(draw_counts(2, n_rows=100, n_folds=1))
    with pytest.raises(pmf.PmfError, match="n_folds"):
        pmf.fits.select_rank(pmf.PairCounts.zero(pmf.Schema.from_cardinalities([2, 2])))


def test_fit_rank__more_starts_never_raise_the_loss():
    fold = RankFold.of_round(next(hold_out_rounds(draw_counts(4, n_rows=5000), 4)))
    alone = fit_rank((fold, RankJob(4, 1.0, (), 0)))
    above = fit_rank((fold, RankJob(5, 1.0, (), 0)))
    again = fit_rank((fold, RankJob(4, 1.0, (alone.parameters, above.parameters), 0)))
    assert again.loss <= alone.loss
    np.testing.assert_allclose(again.scores, score_pairs(fold.held_out, again.parameters))


def test_score_pairs__one_pair_at_a_time():
    rng = np.random.default_rng(0)
    prior, factors = rng.dirichlet(np.ones(2)), rng.random((4, 2))
    tables = rng.integers(0, 3, (2, 4, 4))
    expected = [
        sum(
            table[a, b] * np.log((prior * factors[a] * factors[b]).sum())
            for a in range(4)
            for b in range(4)
        )
        for table in tables
    ]
    np.testing.assert_allclose(score_pairs(tables, (prior, factors)), expected)
