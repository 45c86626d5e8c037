from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock
from pmflib.inference.target import target_fit
from tests.stored_samples import split_folds, write_partition

SCHEMA = pmf.Schema.from_cardinalities([2, 2, 2, 3])
OPTIONS: dict[str, Any] = {"rank": 4, "schema": SCHEMA, "target": 0}


def draw(n_rows, seed):
    """The target is whether two others differ, which naive Bayes and logistic regression cannot say."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, n, n_rows) for n in (2, 2, 2, 3)], axis=1).astype(np.int8)
    different = (codes[:, 1] != codes[:, 2]).astype(np.int8)
    codes[:, 0] = np.where(rng.random(n_rows) < 0.95, different, 1 - different)
    codes[rng.random(n_rows) < 0.05, 0] = -1
    return codes


def measure(model, codes):
    known = codes[codes[:, 0] >= 0]
    return float(np.mean(model.predict(known, 0) == known[:, 0]))


def test_fit_em__target_is_found_by_states_of_its_levels():
    train, held_out, test = draw(600, 0), draw(200, 1), draw(1000, 2)
    result = pmf.fit_em(train, validation=held_out, **OPTIONS)
    assert measure(result.model, test) > 0.9
    assert result.method == "classes+conditional"
    assert result.model.rank == 4
    origin = result.model.origin
    assert origin["conditional_share"] in target_fit.SHARES
    chances = result.model.predict_proba(held_out, 0)
    known = held_out[:, 0] >= 0
    score = np.log(chances[known, held_out[known, 0]]).sum() / len(held_out)
    assert max(result.held_out) == pytest.approx(score)
    shares = {point.settings["share"] for point in result.comparisons[0].points}
    assert shares == set(target_fit.SHARES)
    again = pmf.fit_em(train, validation=held_out, **OPTIONS)
    assert again.model.factors.tobytes() == result.model.factors.tobytes()


def test_fit_em__all_samples_are_fitted_as_was_best_on_a_fold():
    result = pmf.fit_em(draw(800, 0), **OPTIONS)
    assert measure(result.model, draw(1000, 2)) > 0.9
    assert "conditional_share" in result.model.origin
    assert len(result.loss_history) == result.best_pass
    assert result.held_out


def test_fit_em__stored_samples_are_fitted_to_the_same_bits(tmp_path, thread_client):
    codes = draw(700, 0)
    blocks = write_partition(tmp_path, codes, SCHEMA, block_rows=90)
    found = []
    for client in (None, thread_client):
        training, held_out = (part.with_client(client) for part in split_folds(blocks, SCHEMA))
        found.append(pmf.fit_em(training, rank=4, validation=held_out, target="v0").model)
    assert found[0].factors.tobytes() == found[1].factors.tobytes()
    assert measure(found[0], draw(1000, 2)) > 0.9


@pytest.mark.filterwarnings("ignore::pmflib.base.errors.ConvergenceWarning")
@pytest.mark.parametrize("change", [{"rank": 1}, {"start": "random"}, {"members": 2}])
def test_fit_em__other_wishes_are_fitted_by_em(change):
    result = pmf.fit_em(draw(200, 0), validation=draw(80, 1), max_passes=5, **(OPTIONS | change))
    assert "conditional_share" not in result.model.origin


def test_fit_em__a_pseudo_count_that_is_given_is_kept():
    seen = []
    result = pmf.fit_em(
        draw(200, 0),
        validation=draw(80, 1),
        pseudo_count=3.0,
        max_passes=5,
        on_pass=lambda name, state: seen.append((name, state.n_passes)),
        **OPTIONS,
    )
    assert result.model.origin["pseudo_count"] == 3.0
    assert result.best_pass <= 5
    assert ("target-0.99-3", 5) in seen


def test_fit_em__target_never_observed_in_training():
    train = draw(200, 0)
    train[:, 0] = -1
    result = pmf.fit_em(train, validation=draw(80, 1), **OPTIONS)
    np.testing.assert_allclose(result.model.marginal([0]), 0.5, atol=0.1)


def test_draw_samples__takes_so_many_that_the_work_is_bounded():
    codes = draw(500, 3)
    block = DenseBlock(codes)
    n_observed = block.n_observed
    assert target_fit.draw_samples(block, 4, 4 * n_observed) is block
    few = target_fit.draw_samples(block, 4, n_observed)
    assert len(few) == 125
    # in their order, and some of those of more work
    places = [np.flatnonzero((codes == row).all(axis=1)) for row in few.codes]
    assert all(each.size for each in places)
    more = target_fit.draw_samples(block, 4, 2 * n_observed)
    assert len(more) == 250
    held = {tuple(row) for row in more.codes.tolist()}
    assert {tuple(row) for row in few.codes.tolist()} <= held
    assert len(target_fit.draw_samples(block, 4, 1)) == 1
    assert len(target_fit.draw_samples(block[:0], 4, 1)) == 0


@pytest.mark.parametrize("stored", [False, True])
def test_fit_em__some_of_many_samples_say_how_all_are_fitted_for_the_target(
    tmp_path, monkeypatch, stored
):
    monkeypatch.setattr(target_fit, "TARGET_WORK", 4 * 4 * 400)
    train, held_out, test = draw(900, 0), draw(200, 1), draw(1000, 2)
    given: Any = train
    if stored:
        given = pmf.em.StoredSamples(
            write_partition(tmp_path, train, SCHEMA, block_rows=90), SCHEMA
        )
    result = pmf.fit_em(given, validation=held_out, **OPTIONS)
    assert result.method == "classes+conditional"
    assert measure(result.model, test) > 0.9
    n_drawn = len(target_fit.draw_samples(DenseBlock(train), 4, 4 * 4 * 400))
    assert f"{n_drawn} of 900" in result.notes[-1]
    # the steps that are reported are those of the fit to all of them
    chosen = result.comparisons[0].chosen.settings
    candidate = target_fit.Candidate(float(chosen["share"]), float(chosen["pseudo_count"]))
    assert result.model.origin["conditional_share"] == candidate.share
    assert len(result.loss_history) >= result.best_pass == result.model.origin["passes"]
    # of even more, samples are drawn for the fit, too
    monkeypatch.setattr(target_fit, "CHOSEN_WORK", 4 * 4 * 600)
    drawn = pmf.fit_em(given, validation=held_out, **OPTIONS)
    n_fitted = len(target_fit.draw_samples(DenseBlock(train), 4, 4 * 4 * 600))
    assert drawn.notes[-1].endswith(str(n_fitted))
    assert measure(drawn.model, test) > 0.9


def test_fit_em__many_samples_of_which_a_fold_is_held_out_are_fitted_for_the_target(monkeypatch):
    monkeypatch.setattr(target_fit, "TARGET_WORK", 4 * 4 * 400)
    monkeypatch.setattr(target_fit, "CHOSEN_WORK", 4 * 4 * 500)
    result = pmf.fit_em(draw(900, 0), **OPTIONS)
    assert result.method == "classes+conditional"
    assert measure(result.model, draw(1000, 2)) > 0.9
