import numpy as np

import pmflib as pmf
from pmflib.base import FIT_TARGET
from tests.stored_samples import split_folds, write_partition

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


def test_fit_em__for_a_target__a_rule_is_all_but_certain():
    train, test = draw(300, 0), draw(500, 1)
    result = fit(train)
    assert result.model.rank > 2
    assert result.model.origin["pseudo_count"] == min(FIT_TARGET)
    assert lose(result.model, test) < 0.05
    assert fit(train).model.factors.tobytes() == result.model.factors.tobytes()


def test_fit_em__for_a_target__validation_samples_are_all_that_choose():
    result = pmf.fit_em(
        draw(300, 0), rank="auto", schema=SCHEMA, target=0, validation=draw(100, 1), rng=0
    )
    assert [set(each.points[0].settings) for each in result.comparisons] == [
        {"rank", "pseudo_count"},
        {"share", "pseudo_count"},
    ]
    assert result.comparisons[0].chosen.settings["rank"] == result.model.rank


def test_fit_em__for_a_target__target_observed_in_few_rows_or_none():
    train = draw(200, 0, share_missing=0.95)
    assert np.isfinite(fit(train).model.factors).all()
    train[:, 0] = -1
    np.testing.assert_allclose(fit(train).model.marginal([0]), 0.5, atol=0.1)


def test_fit_em__for_a_target__stored_samples_are_fitted_as_in_memory(tmp_path):
    blocks = write_partition(tmp_path, draw(400, 0), SCHEMA, block_rows=90, n_folds=4)
    training, held_out = split_folds(blocks, SCHEMA)
    stored = pmf.fit_em(training, rank="auto", validation=held_out, target=0)
    codes, validation = training.read_codes(), held_out.read_codes()
    # of stored samples a seed is that of the starts itself: the same choice, and not the same bits
    loaded = pmf.fit_em(codes, rank="auto", schema=SCHEMA, validation=validation, target=0)
    assert stored.model.rank > 2
    assert stored.method == loaded.method == "classes+conditional"
    assert lose(stored.model, draw(500, 1)) < 0.1
    # nothing is held out: pairs choose, and know nothing of the rule
    assert pmf.fit_em(training, rank="auto", target=0).model.rank < stored.model.rank
