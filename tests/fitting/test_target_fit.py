from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.fitting import target_fit
from tests.stored_samples import write_partition

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
    assert result.notes[0] == "held out: log-likelihood of 'v0' given the other variables"
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
        parts = [
            pmf.StoredSamples(
                [each for each in blocks if (each.fold == 0) == held_out], SCHEMA, client
            )
            for held_out in (False, True)
        ]
        found.append(pmf.fit_em(parts[0], rank=4, validation=parts[1], target="v0").model)
    assert found[0].factors.tobytes() == found[1].factors.tobytes()
    assert measure(found[0], draw(1000, 2)) > 0.9


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
