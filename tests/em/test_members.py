from dataclasses import replace

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock, estimate_gain
from pmflib.em import BlocksInMemory, Runs, evaluate_models, join_members, split_members
from pmflib.em.blocks import score_average, score_difference, score_under_classes
from pmflib.model import em_statistics, take_logs
from tests.reference import make_codes, make_model, offsets_of

CARDINALITIES = [3, 2, 4]
OFFSETS = offsets_of(CARDINALITIES)
SINGLES = np.repeat(1.0 / np.array(CARDINALITIES), CARDINALITIES)
CODES = make_codes(np.random.default_rng(0), 200, CARDINALITIES)


def make_models(n, rank=2):
    return [make_model(np.random.default_rng(seed), CARDINALITIES, rank) for seed in range(n)]


def make_runs(codes=CODES, held_out=None, singles=SINGLES, **options):
    validation = None if held_out is None else BlocksInMemory.cut(held_out, OFFSETS, 2)
    return Runs(BlocksInMemory.cut(codes, OFFSETS, 2), validation, OFFSETS, singles, **options)


def test_split_members__undoes_join_members():
    models = make_models(3)
    joined = join_members(models)
    assert joined[0].sum() == pytest.approx(1.0, rel=1e-14)
    for one, other in zip(models, split_members(joined, 3), strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-14)
        assert np.array_equal(one[1], other[1])


def test_run__members_go_the_way_that_each_goes_alone():
    models = make_models(3)
    runs = make_runs(max_passes=7, tol=0.0)
    together = runs.run("all", models, 0.5)
    members = split_members(together.parameters, 3)
    losses = []
    for k, model in enumerate(models):
        alone = runs.run(f"{k}", [model], 0.5)
        np.testing.assert_allclose(members[k][0], alone.parameters[0], rtol=1e-10)
        np.testing.assert_allclose(members[k][1], alone.parameters[1], rtol=1e-10)
        losses.append(alone.log_likelihoods)
    np.testing.assert_allclose(together.log_likelihoods, np.mean(losses, axis=0), rtol=1e-12)
    assert np.all(np.diff(together.loss_history) <= 1e-13)


def test_run__acceleration_of_members_never_raises_the_objective():
    state = make_runs(max_passes=60, tol=0.0, accelerate=True).run("all", make_models(4), 0.2)
    assert np.all(np.diff(state.loss_history) <= 1e-13)


def test_run__held_out_samples_score_the_average():
    held_out = make_codes(np.random.default_rng(1), 100, CARDINALITIES)
    runs = make_runs(CODES[:40], held_out, max_passes=100, patience=3)
    state = runs.run("all", make_models(3), 0.01)
    best = state.best
    assert runs.held_out.score(split_members(best, 3)) == max(state.held_out)
    # the same as of one model of summed rank
    whole = take_logs(*best)
    alone = em_statistics(DenseBlock(held_out), OFFSETS, *whole)
    assert max(state.held_out) == pytest.approx(alone.log_likelihood / 100, rel=1e-12)
    late = runs.run("late", make_models(3), 0.01, stop_early=False)
    assert late.held_out == ()
    assert late.n_passes > state.best_pass


def test_samples__blocks_do_not_change_the_statistics(monkeypatch):
    models = make_models(2)
    whole = evaluate_models(BlocksInMemory.cut(CODES, OFFSETS, 2), models)
    monkeypatch.setattr("pmflib.em.block_source.BLOCK_WORK", 100)
    blocks = BlocksInMemory.cut(CODES, OFFSETS, 2)
    assert len(blocks.blocks) > 5
    for found, expected in zip(evaluate_models(blocks, models), whole, strict=True):
        np.testing.assert_allclose(found.level_mass, expected.level_mass, rtol=1e-12)
    again = evaluate_models(BlocksInMemory.cut(CODES, OFFSETS, 2), models)
    assert again[0].log_likelihood == evaluate_models(blocks, models)[0].log_likelihood


def test_score_average__weights_gaps_and_no_rows():
    scores = [score_under_classes(model, OFFSETS) for model in make_models(2)]
    codes = np.array([[0, 1, -1], [-1, -1, -1], [2, 0, 3]], np.int8)
    weights = np.array([2.0, 1.0, 3.0])
    repeated = DenseBlock(codes[[0, 0, 1, 2, 2, 2]])
    found = score_average(DenseBlock(codes, weights), OFFSETS, scores)
    assert found == pytest.approx(score_average(repeated, OFFSETS, scores), rel=1e-13)
    assert score_average(DenseBlock(codes[:0]), OFFSETS, scores).tolist() == [0, 0]


@pytest.mark.parametrize("target", [None, 1])
def test_score_difference__mean_and_standard_error_of_paired_samples(target):
    models = make_models(2)
    weights = np.random.default_rng(2).integers(1, 5, len(CODES)).astype(float)
    first, second = ([score_under_classes(model, OFFSETS)] for model in models)
    sums = score_difference(DenseBlock(CODES, weights), OFFSETS, first, second, target)
    repeated = np.repeat(CODES, weights.astype(int), axis=0)
    gains = np.subtract(*(log_probs(model, repeated, target) for model in models))
    expected = gains.mean(), gains.std(ddof=1) / np.sqrt(gains.size)
    assert estimate_gain(sums) == pytest.approx(expected, rel=1e-9)
    assert BlocksInMemory.cut(repeated, OFFSETS, 2, target).compare(
        models[:1], models[1:2]
    ) == pytest.approx(expected, rel=1e-9)


def log_probs(model, codes, target):
    """Log-likelihood of each row, or of its target given the rest."""
    joint = pmf.JointPMF(model[0], model[1], pmf.Schema.from_cardinalities(CARDINALITIES))
    found = joint.log_prob(codes)
    if target is not None:
        rest = codes.copy()
        rest[:, target] = -1
        found = found - joint.log_prob(rest)
    return found


@pytest.mark.parametrize("variable", [0, 1, 2])
def test_hide__dense_and_sparse_alike(variable):
    hidden = CODES.copy()
    hidden[:, variable] = -1
    for block in (DenseBlock(CODES), DenseBlock(CODES).to_sparse(OFFSETS)):
        assert np.array_equal(block.hide(variable, OFFSETS).to_codes(OFFSETS), hidden)


@pytest.mark.parametrize("seed", [5, 11])
def test_run__accelerated_passes_go_on_where_states_are_still_alike(seed):
    cardinalities = [3, 2, 4, 3] * 2
    schema = pmf.Schema.from_cardinalities(cardinalities)
    rng = np.random.default_rng(seed)
    truth = pmf.JointPMF(*make_model(rng, cardinalities, 3), schema)
    codes = truth.sample(3000, rng=1)
    singles = np.concatenate(
        [
            np.bincount(column, minlength=size) / 3000
            for column, size in zip(codes.T, cardinalities, strict=True)
        ]
    )
    # nearly the same states: the first passes gain next to nothing, and later ones hundreds of nats
    noisy = singles[:, None] * (1 + 1e-3 * rng.standard_normal((singles.size, 3)))
    totals = np.add.reduceat(noisy, schema.offsets[:-1], axis=0)
    start = np.full(3, 1 / 3), noisy / np.repeat(totals, cardinalities, axis=0)
    samples = BlocksInMemory.cut(codes, schema.offsets, 3)
    runs = Runs(samples, None, schema.offsets, singles, max_passes=2000, accelerate=True)
    stopped = runs.run("stopped", [start], 1.0)
    on = replace(runs, tol=1e-10).run("on", [start], 1.0)
    assert stopped.n_passes < on.n_passes
    assert (stopped.loss_history[-1] - on.loss_history[-1]) * len(codes) < 1.0
