import json

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import PmfError
from pmflib.cluster import open_client, start_workers
from pmflib.fits import summarise_fit
from pmflib.fits.from_samples import plan_fit_em
from pmflib.fits.stack.ladder import EFFORTS, LadderSizes, offer_classes
from pmflib.fits.stack.splits import limit_rows
from pmflib_tasks.config import ClusterConfig
from tests.stored_samples import write_partition

CARDINALITIES = [3, 2, 4, 2, 3, 2]
SCHEMA = pmf.Schema.from_cardinalities(CARDINALITIES)


def plant(rank, seed, schema=SCHEMA):
    """Classes that differ clearly."""
    rng = np.random.default_rng(seed)
    blocks = [rng.dirichlet(np.full(n, 0.4), rank).T for n in schema.cardinalities]
    return pmf.JointPMF(np.full(rank, 1 / rank), np.concatenate(blocks), schema)


TRUTH = plant(3, 0)
CODES = TRUTH.sample(900, 1)


@pytest.fixture(scope="module")
def stack():
    return pmf.fit_em(CODES, schema=SCHEMA)


def test_fit_em__a_stack_is_as_good_as_the_planted_model(stack):
    unseen = TRUTH.sample(4000, 2)
    gap = TRUTH.log_prob(unseen).mean() - stack.model.log_prob(unseen).mean()
    assert gap < 0.05
    alone = pmf.fit_em(CODES, schema=SCHEMA, rank=1).model.log_prob(unseen).mean()
    gain = stack.model.log_prob(unseen).mean() - alone
    # of 900 held-out rows and 4,000 unseen ones
    assert abs(stack.held_out_score.gain - gain) < 4 * stack.held_out_score.error
    assert stack.model.origin.is_stack
    assert sum(each.weight for each in stack.ladder) == pytest.approx(1)
    assert stack.model.prior.sum() == pytest.approx(1)


def test_fit_em__a_stack_is_told_of_in_summary_record_and_model(stack, tmp_path):
    text = " ".join(str(stack.summary()).split())
    assert "Models of the mixture" in text
    assert "Latent states by size" not in text
    assert "AIC" not in text
    assert "for classes to read" in text
    assert "yes, by" in text
    assert stack.criteria(CODES).bic is None
    recorded = json.loads(json.dumps(summarise_fit(stack)))["ladder"]
    assert [each["weight"] for each in recorded] == [each.weight for each in stack.ladder]
    stack.model.save(tmp_path / "model")
    loaded = pmf.JointPMF.load(tmp_path / "model")
    assert loaded.origin["stack"] == recorded
    assert all(each["name"] in str(loaded.summary()) for each in recorded)
    np.testing.assert_array_equal(loaded.log_prob(CODES), stack.model.log_prob(CODES))


def test_fit_em__the_same_stack_on_any_number_of_threads(stack, monkeypatch):
    for module in ("block_source", "side_by_side"):
        monkeypatch.setattr(f"pmflib.em.{module}.count_processors", lambda: 1)
    alone = pmf.fit_em(CODES, schema=SCHEMA)
    np.testing.assert_array_equal(alone.model.factors, stack.model.factors)
    np.testing.assert_array_equal(alone.model.prior, stack.model.prior)


def test_fit_em__independent_variables_have_one_state():
    codes = plant(1, 3).sample(1500, 4)
    found = pmf.fit_em(codes, schema=SCHEMA)
    assert found.model.rank == 1
    assert [each.name for each in found.ladder] == ["one state"]
    assert not found.model.origin.final


def test_fit_em__differences_by_rounding_are_no_gains():
    """Three binary columns have eight patterns, which few states describe as well as many."""
    schema = pmf.Schema.from_cardinalities([2, 2, 2])
    truth = plant(2, 5, schema)
    found = pmf.fit_em(truth.sample(3000, 6), schema=schema)
    assert found.ladder[-1].states <= 20
    unseen = truth.sample(20_000, 7)
    gap = truth.log_prob(unseen).mean() - found.model.log_prob(unseen).mean()
    # half a nat per free cell of the saturated table, and per free weight of four from 600 held-out samples; twice that
    assert gap < 2 * (7 / (2 * 3000) + 3 / (2 * 600))


@pytest.mark.parametrize(("n_rows", "n_columns"), [(1, 6), (5, 6), (30, 6), (60, 1), (60, 2)])
def test_fit_em__few_rows_or_columns(n_rows, n_columns):
    codes = CODES[:n_rows, :n_columns]
    schema = pmf.Schema.from_cardinalities(CARDINALITIES[:n_columns])
    found = pmf.fit_em(codes, schema=schema)
    assert np.isfinite(found.model.log_prob(codes)).all()
    if n_rows < 10 or n_columns == 1:
        assert found.model.rank == 1


def test_fit_em__one_level_and_missing_cells():
    codes = np.concatenate([np.zeros((200, 1), np.int8), CODES[:200, 1:]], axis=1)
    codes[np.random.default_rng(0).random(codes.shape) < 0.2] = -1
    codes[0] = -1
    found = pmf.fit_em(codes, schema=pmf.Schema.from_cardinalities([1, *CARDINALITIES[1:]]))
    assert np.isfinite(found.model.log_prob(codes)).all()


def test_fit_em__weights_of_a_stack_follow_given_samples():
    unseen = TRUTH.sample(500, 8)
    found = pmf.fit_em(CODES, schema=SCHEMA, validation=unseen, effort="quick")
    assert found.held_out_score.n_rows == 500
    assert found.held_out_score.n_trials == 0
    expected = found.model.log_prob(unseen).mean()
    assert found.held_out_score.per_row == pytest.approx(expected)


def test_fit_em__a_stack_for_a_target():
    """The target is a noisy copy of one variable; others depend on each other strongly, which says nothing of it."""
    rng = np.random.default_rng(9)
    codes = TRUTH.sample(3000, 10)
    codes[:, 1] = np.where(rng.random(3000) < 0.9, codes[:, 3], 1 - codes[:, 3])
    found = pmf.fit_em(codes[:1500], schema=SCHEMA, target=1)
    chances = found.model.predict_proba(codes[1500:], 1)
    score = np.log(chances[np.arange(1500), codes[1500:, 1]]).mean()
    best = 0.9 * np.log(0.9) + 0.1 * np.log(0.1)
    assert score > best - 0.03
    assert found.held_out_score.per_row == pytest.approx(score, abs=0.05)


def test_fit_em__a_checkpoint_gives_the_same_stack(stack, tmp_path):
    for _ in range(2):
        found = pmf.fit_em(CODES, schema=SCHEMA, checkpoint=tmp_path)
        np.testing.assert_array_equal(found.model.factors, stack.model.factors)
    with pytest.raises(PmfError, match="another fit"):
        pmf.fit_em(CODES, schema=SCHEMA, checkpoint=tmp_path, rng=1)


def test_fit_em__stored_samples_have_the_stack_of_the_same_rows(tmp_path):
    training, held_out = (
        pmf.em.StoredSamples(write_partition(tmp_path / name, codes, SCHEMA), SCHEMA)
        for name, codes in (("a", CODES), ("b", TRUTH.sample(300, 11)))
    )
    found = pmf.fit_em(training, validation=held_out, effort="quick")
    codes, unseen = training.read_codes(), held_out.read_codes()
    loaded = pmf.fit_em(codes, schema=SCHEMA, validation=unseen, effort="quick")
    np.testing.assert_array_equal(found.model.prior, loaded.model.prior)
    np.testing.assert_array_equal(found.model.factors, loaded.model.factors)


def test_fit_em__stored_samples_that_are_not_loaded_have_a_stack_as_good(tmp_path, monkeypatch):
    monkeypatch.setattr("pmflib.fits.stack.fit.MOST_LOADED", 0)
    monkeypatch.setattr("pmflib.store.sample_blocks.MIN_GROUP", 1 << 30)
    blocks = write_partition(tmp_path / "a", CODES, SCHEMA)
    training = pmf.em.StoredSamples(blocks, SCHEMA, spare_bytes=1 << 30)
    unseen = TRUTH.sample(1000, 11)
    found = pmf.fit_em(training, validation=unseen, effort="quick", max_passes=15)
    loaded = pmf.fit_em(CODES, schema=SCHEMA, validation=unseen, effort="quick", max_passes=15)
    gap = found.model.log_prob(unseen).mean() - loaded.model.log_prob(unseen).mean()
    assert abs(gap) < 0.02


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
def test_fit_em__the_same_stack_on_any_number_of_workers(tmp_path, monkeypatch):
    """Blocks are groups of their own, which workers share, those of held-out samples as well."""
    monkeypatch.setattr("pmflib.fits.stack.fit.MOST_LOADED", 0)
    monkeypatch.setattr("pmflib.store.sample_blocks.MIN_GROUP", 1)
    blocks, held_out = (
        write_partition(tmp_path / name, codes, SCHEMA, block_rows=60)
        for name, codes in (("a", CODES), ("b", TRUTH.sample(200, 11)))
    )

    def fit(client):
        training, unseen = (
            pmf.em.StoredSamples(each, SCHEMA, client, spare_bytes=1 << 30)
            for each in (blocks, held_out)
        )
        return pmf.fit_em(training, validation=unseen, effort="quick", max_passes=4).model

    alone = fit(None)
    for workers in (1, 3):
        with start_workers(ClusterConfig(workers=workers)) as address, open_client(address) as each:
            found = fit(each)
        np.testing.assert_array_equal(found.prior, alone.prior)
        np.testing.assert_array_equal(found.factors, alone.factors)


def test_fit_em__stored_samples_without_held_out_ones_hold_a_fold_out(tmp_path):
    training = pmf.em.StoredSamples(write_partition(tmp_path / "a", CODES, SCHEMA), SCHEMA)
    found = pmf.fit_em(training, validation=training.with_blocks([]), effort="quick")
    alone = pmf.fit_em(training, effort="quick")
    assert found.model.rank > 1
    np.testing.assert_array_equal(found.model.prior, alone.model.prior)


@pytest.mark.parametrize("most_loaded", [0, 1 << 30])
def test_plan_fit_em__a_longer_ladder_needs_more(tmp_path, monkeypatch, most_loaded):
    monkeypatch.setattr("pmflib.fits.stack.fit.MOST_LOADED", most_loaded)
    samples = pmf.em.StoredSamples(write_partition(tmp_path / "a", CODES, SCHEMA), SCHEMA)
    quick, normal, two = (
        plan.join_client().needed
        for plan in (
            plan_fit_em(samples, None, dependence=None, effort="quick"),
            plan_fit_em(samples, None, dependence=None),
            plan_fit_em(samples, None, dependence=None, n_threads=2),
        )
    )
    assert 0 < quick < normal < two


def test_limit_rows__blocks_spread_over_all(tmp_path, monkeypatch):
    monkeypatch.setattr("pmflib.fits.stack.splits.MOST_HELD_OUT", 100)
    blocks = write_partition(tmp_path / "a", CODES, SCHEMA, block_rows=10)
    limited = limit_rows(pmf.em.StoredSamples(blocks, SCHEMA))
    assert 80 <= limited.n_rows <= 100
    assert (limited.blocks[0], limited.blocks[-1]) == (blocks[0], blocks[-1])


@pytest.mark.parametrize(("cells", "members"), [(10**6, 10), (10**7, 10), (10**9, 10)])
def test_offer_classes__ladders_of_many_cells_have_a_common_length(cells, members):
    sizes = LadderSizes(np.arange(0, 101, 5), cells // 20, cells, EFFORTS["normal"])
    rungs = {each.rank: each.members for each in offer_classes(sizes, 0.3)}
    assert rungs[20] == members
    assert sum(rungs.values()) >= 12


def test_fit_em__a_stack_continues_with_its_models_and_new_weights(stack, tmp_path):
    """Of new samples, some are held out; the rungs are those of before, as few passes as there are."""
    new, held_out, unseen = (
        TRUTH.sample(n, seed) for n, seed in ((2000, 20), (600, 21), (4000, 22))
    )
    stack.model.save(tmp_path / "model")
    live = pmf.JointPMF.load(tmp_path / "model")
    found = pmf.fit_em(new, live, validation=held_out)
    assert {each.name for each in found.ladder} <= {each.name for each in stack.ladder}
    assert max(each.passes for each in found.ladder) <= 3
    assert found.model.origin["stack"] == [each.to_json() for each in found.ladder]
    before, after = (each.log_prob(unseen).mean() for each in (live, found.model))
    assert after > before - 0.005
    assert found.held_out_score.per_row == pytest.approx(found.model.log_prob(held_out).mean())
    again = pmf.fit_em(new, live, validation=held_out, checkpoint=tmp_path)
    np.testing.assert_array_equal(again.model.prior, found.model.prior)
    kept = pmf.fit_em(new, live)
    assert [each.weight for each in kept.ladder] == [each.weight for each in stack.ladder]
    assert not kept.model.ask("P(v0)", new).is_assumed
    worth, start = (each.origin["equivalent_samples"] for each in (kept.model, live))
    assert worth == {**start, "n_fitted": 2000}


def test_fit_em__a_stack_with_naive_bayes_does_not_continue():
    rng = np.random.default_rng(9)
    codes = TRUTH.sample(200, 10)
    codes[:, 1] = np.where(rng.random(200) < 0.9, codes[:, 3], 1 - codes[:, 3])
    found = pmf.fit_em(codes, schema=SCHEMA, target=1, effort="quick", dependence="none")
    assert "naive Bayes" in [each.name for each in found.ladder]
    with pytest.raises(PmfError, match="naive Bayes"):
        pmf.fit_em(codes, found.model)


def test_fit_em__a_target_has_an_average_of_predictions_beside_the_stack():
    unseen = TRUTH.sample(2000, 31)
    found = pmf.fit_em(CODES, schema=SCHEMA, target=1, effort="quick")
    pool = found.pool
    assert pool is not None
    assert not any(each.kind == "target" for each in found.ladder)
    chances = pool.predict_proba(unseen, 1)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    expected = sum(
        each.weight * model.predict_proba(unseen, 1)
        for each, model in zip(pool.rungs, pool.models, strict=True)
    )
    np.testing.assert_allclose(chances, expected)
    own = np.arange(2000), unseen[:, 1]
    loss, alone = -np.log(chances[own]).mean(), -np.log(found.model.marginal([1])[own[1]]).mean()
    best = -np.log(TRUTH.predict_proba(unseen, 1)[own]).mean()
    assert best < loss < best + 0.1 * (alone - best)
    # the trial has not seen the first fold, and is as good
    assert pool.trial is not None
    trial = -np.log(pool.trial.predict_proba(unseen, 1)[own]).mean()
    assert abs(trial - loss) < 0.1 * (alone - best)
    with pytest.raises(PmfError, match="chosen for 1"):
        pool.predict_proba(unseen, 2)
    assert pmf.fit_em(CODES, schema=SCHEMA, effort="quick").pool is None


def test_fit_em__few_samples_of_a_target_are_naive_bayes():
    found = pmf.fit_em(pmf.Codes(CODES[:8]), schema=SCHEMA, target=1)
    assert [each.name for each in found.ladder] == ["naive Bayes"]
    assert found.pool is None
    assert any("independent given the target" in note for note in found.notes)


def test_fit_em__what_a_ladder_leaves_no_choice_of():
    with pytest.raises(PmfError, match="effort is 'much'"):
        pmf.fit_em(CODES, schema=SCHEMA, effort="much")  # type: ignore[arg-type]
    with pytest.raises(PmfError, match="without a rank"):
        pmf.fit_em(CODES, schema=SCHEMA, members=3)
    with pytest.raises(PmfError, match="pass one of the two"):
        pmf.fit_em(CODES, TRUTH, rank=3)
    without = pmf.fit_em(CODES, schema=SCHEMA, dependence="none", effort="quick")
    assert {each.kind for each in without.ladder} == {"classes"}
    forests = pmf.fit_em(CODES, schema=SCHEMA, dependence="tree", effort="quick")
    assert all(each.kind == "forests" or each.states == 1 for each in forests.ladder)
