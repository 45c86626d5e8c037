import numpy as np
import pytest

import pmflib as pmf
from pmflib.em.members import Runs
from pmflib.em.samples import SamplesInMemory
from pmflib.fitting.candidates import MAX_STARTS, Options
from pmflib.fitting.small_fits import (
    average_parameters,
    find_objectives,
    find_small_specification,
    follow_small_specification,
)
from pmflib.fitting.starts import FIRST_PASSES, WIDENED, Starts, find_losses, merge_alike_states
from pmflib.model.metrics import factor_mse
from pmflib.model.sampling import sample_codes
from pmflib.solvers import PseudoCounts
from pmflib.synthetic.planted_models import published_factors

SIZES = 12, 5, 6
OPTIONS = Options(("auto", "random"), (1.0,), small=True)


def draw(n_samples, concentration=None, seed=0):
    """Prior, factors and samples; a small concentration makes states of very different sizes."""
    rng = np.random.default_rng(seed)
    prior, factors = published_factors(*SIZES, rng)
    if concentration is not None:
        prior = rng.dirichlet(np.full(SIZES[2], concentration))
    schema = pmf.Schema.from_cardinalities([SIZES[1]] * SIZES[0])
    return (prior, factors), sample_codes(prior, factors, schema.offsets, n_samples, rng), schema


def prepare(codes, schema, held_out=None):
    counts = pmf.count_pairs(codes, schema)
    validation = None if held_out is None else SamplesInMemory(held_out, schema.offsets, SIZES[2])
    training = SamplesInMemory(codes, schema.offsets, SIZES[2])
    singles = pmf.fit(counts, 1).model.factors[:, 0]
    runs = Runs(training, validation, schema.offsets, singles, max_passes=500)
    return runs, Starts(counts, singles, schema.offsets, SIZES[2], 0)


def test_merge_alike_states__every_planted_group_has_a_state():
    truth, codes, schema = draw(3000)
    runs, starts = prepare(codes, schema)
    shape = PseudoCounts.shaped_by(runs.singles, schema.offsets, 1.0)
    wide = starts("wide", 2)
    assert {model[0].size for model in wide} == {WIDENED * SIZES[2]}
    for prior, factors in merge_alike_states(runs.training, wide, schema.offsets, shape):
        assert factors.shape == truth[1].shape
        assert prior.sum() == pytest.approx(1)
        np.testing.assert_allclose(np.add.reduceat(factors, schema.offsets[:-1]), 1)
        # a random start is at .03 after as many passes
        assert factor_mse(prior, factors, truth[0], truth[1], SIZES[0]) < 0.01


def test_merge_alike_states__one_state_of_two_without_a_pass_to_spare(monkeypatch):
    monkeypatch.setattr("pmflib.fitting.starts.MERGE_PASSES", 0)
    _, codes, schema = draw(50)
    runs, starts = prepare(codes, schema)
    shape = PseudoCounts.shaped_by(runs.singles, schema.offsets, 1.0)
    (model,) = merge_alike_states(runs.training, starts("wide", 1), schema.offsets, shape)
    assert model[0].size == SIZES[2]
    assert FIRST_PASSES > 0


def test_find_losses__equal_states_lose_nothing_and_large_ones_most():
    factors = np.array([[0.9, 0.9, 0.1], [0.1, 0.1, 0.9]])
    losses = find_losses(np.array([0.5, 0.1, 0.4]), factors)
    assert losses[0, 1] == pytest.approx(0)
    assert losses[0, 2] > losses[1, 2] > 0
    assert np.isinf(np.diagonal(losses)).all()
    np.testing.assert_array_equal(losses, losses.T)
    assert np.isfinite(find_losses(np.array([1.0, 0.0, 0.0]), factors)[1, 2])


def test_find_small_specification__starts_that_agree_are_few_and_one_fit():
    truth, codes, schema = draw(4000)
    runs, starts = prepare(codes[:3200], schema, codes[3200:])
    specification, model, _ = find_small_specification(runs, starts, OPTIONS)
    assert specification.n_models < MAX_STARTS
    assert (specification.combination, len(specification.models)) == ("best", 1)
    assert "led to one fit" in specification.notes[-1]
    assert specification.score == runs.held_out.score([model])
    followed, again, _ = follow_small_specification(specification, prepare(codes, schema)[0])
    assert followed.combination == "best"
    oracle = runs.run("truth", [truth], 1.0, stop_early=False).parameters
    assert factor_mse(again[0], again[1], truth[0], truth[1], SIZES[0]) < 1.1 * factor_mse(
        oracle[0], oracle[1], truth[0], truth[1], SIZES[0]
    )


def test_find_small_specification__few_samples_are_averaged_where_held_out_ones_gain():
    _, codes, schema = draw(600)
    runs, starts = prepare(codes[:200], schema, codes[200:])
    specification, model, _ = find_small_specification(runs, starts, OPTIONS)
    assert specification.combination == "mean"
    assert specification.n_models == len(specification.models) > 1
    best, mean = specification.comparisons[-1].points
    assert mean.score > best.score + best.error
    assert runs.held_out.score([model]) == specification.score == mean.score


def test_follow_small_specification__a_mean_that_has_got_worse_is_not_taken(monkeypatch):
    _, codes, schema = draw(600)
    runs, starts = prepare(codes[:200], schema, codes[200:])
    specification, _, _ = find_small_specification(runs, starts, OPTIONS)
    whole, _ = prepare(codes, schema)
    followed, mean, _ = follow_small_specification(specification, whole)
    assert followed == specification
    assert followed.combination == "mean"
    (spoilt,) = starts("random", 1)

    def move_apart(models):
        return average_parameters(models) if models is specification.models else spoilt

    monkeypatch.setattr("pmflib.fitting.small_fits.average_parameters", move_apart)
    changed, model, _ = follow_small_specification(specification, whole)
    assert changed.combination == "best"
    assert "moved apart" in changed.notes[-1]
    best, scored, worse = find_objectives(
        whole, [model, average_parameters(specification.models), spoilt], specification.pseudo_count
    )
    assert best > scored > worse
    assert not np.array_equal(model[1], mean[1])
