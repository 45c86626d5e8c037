import numpy as np

import pmflib as pmf
from pmflib.core.defaults import FIT_TARGET
from pmflib.fitting.em_fit import N_FOLDS
from pmflib.fitting.ranks import by_target
from tests.stored_samples import write_partition

SCHEMA = pmf.Schema.from_cardinalities([2, 3, 3, 2])


def draw(n_rows, seed, share_missing=0.0):
    """The target is whether two others are equal, a rule without exceptions."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, n, n_rows) for n in (2, 3, 3, 2)], axis=1).astype(np.int8)
    codes[:, 0] = codes[:, 1] == codes[:, 2]
    codes[rng.random(n_rows) < share_missing, 0] = -1
    return codes


def lose(model, codes):
    chances = model.predict_proba(codes, 0)
    return float(-np.log(chances[np.arange(len(codes)), codes[:, 0]]).mean())


def fit(codes):
    return pmf.fit_em(codes, rank="auto", schema=SCHEMA, target=0, rng=0)


def test_fit_target_ranks__a_rule_is_all_but_certain():
    train, test = draw(300, 0), draw(500, 1)
    result = fit(train)
    assert result.model.rank > 2
    assert result.model.origin["pseudo_count"] == min(FIT_TARGET)
    assert lose(result.model, test) < 0.05
    assert fit(train).model.factors.tobytes() == result.model.factors.tobytes()


def test_fit_target_ranks__folds_compare_the_best_candidates():
    train = draw(300, 0)
    noise = np.random.default_rng(2).random(300) < 0.3
    train[noise, 0] = 1 - train[noise, 0]
    result = fit(train)
    ranks, finalists = result.comparisons
    assert set(ranks.points[0].settings) == {"rank"}
    assert set(finalists.points[0].settings) == {"rank", "share", "pseudo_count"}
    assert 1 <= len(finalists.points) <= by_target.N_FINALISTS
    assert finalists.chosen.settings["rank"] == result.model.rank
    assert finalists.chosen.settings["share"] == result.model.origin["conditional_share"]
    assert finalists.chosen is finalists.best
    assert 1 <= len(result.held_out) <= N_FOLDS
    assert np.isclose(np.mean(result.held_out), finalists.chosen.score)
    assert result.notes[0] == ranks.reason
    assert finalists.reason in result.notes


def test_fit_target_ranks__validation_samples_are_all_that_choose():
    result = pmf.fit_em(
        draw(300, 0), rank="auto", schema=SCHEMA, target=0, validation=draw(100, 1), rng=0
    )
    assert [set(each.points[0].settings) for each in result.comparisons] == [
        {"rank"},
        {"share", "pseudo_count"},
    ]


def test_fit_target_ranks__target_observed_in_few_rows_or_none():
    train = draw(200, 0, share_missing=0.95)
    assert np.isfinite(fit(train).model.factors).all()
    train[:, 0] = -1
    np.testing.assert_allclose(fit(train).model.marginal([0]), 0.5, atol=0.1)


def test_fit_target_ranks__stored_samples_are_fitted_as_in_memory(tmp_path):
    blocks = write_partition(tmp_path, draw(400, 0), SCHEMA, block_rows=90, n_folds=4)
    parts = [block for block in blocks if block.fold], [b for b in blocks if not b.fold]
    training, held_out = (pmf.StoredSamples(part, SCHEMA) for part in parts)
    stored = pmf.fit_em(training, rank="auto", validation=held_out, target=0)
    codes, validation = training.read_codes(), held_out.read_codes()
    # of stored samples a seed is that of the starts itself: the same choice, and not the same bits
    loaded = pmf.fit_em(codes, rank="auto", schema=SCHEMA, validation=validation, target=0)
    assert stored.model.rank > 2
    assert stored.method == loaded.method == "classes+conditional"
    assert lose(stored.model, draw(500, 1)) < 0.1
    # nothing is held out: pairs choose, and know nothing of the rule
    assert pmf.fit_em(training, rank="auto", target=0).model.rank < stored.model.rank


def test_fit_em__stored_samples_that_are_many_have_their_rank_chosen_by_the_target(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("pmflib.fitting.em_fit.TARGET_WORK", 100)
    blocks = write_partition(tmp_path, draw(500, 0), SCHEMA, block_rows=90)
    parts = [block for block in blocks if block.fold], [b for b in blocks if not b.fold]
    training, held_out = (pmf.StoredSamples(part, SCHEMA) for part in parts)
    result = pmf.fit_em(training, rank="auto", validation=held_out, target=0)
    ranks = result.comparisons[0]
    assert ranks.unit == "sample"
    # nats of a target of two levels, and not of four variables
    assert all(-1.5 < point.score < 0 for point in ranks.points)
    assert result.model.rank > 2
    assert result.model.rank == ranks.chosen.settings["rank"]


def test_fit_em__the_first_rank_alone_is_tried_where_twice_the_rank_is_much_work(monkeypatch):
    monkeypatch.setattr("pmflib.fitting.ranks.by_target.DOUBLED_WORK", 100)
    codes = draw(500, 0)
    result = pmf.fit_em(codes, rank="auto", schema=SCHEMA, validation=draw(200, 1), target=0)
    assert result.method == "classes+conditional"
    assert [point.settings["rank"] for point in result.comparisons[0].points] == [2]
