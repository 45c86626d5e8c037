from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import PseudoCounts
from pmflib.em import BlocksInMemory, Runs, evaluate_models
from pmflib.fits import Starts
from pmflib.fits.optimum_search import DRAWN, SEARCH, OptimumSearch, count_kept
from pmflib.fits.starts import WIDENED, merge_alike_states
from pmflib.model import published_factors, sample_codes
from pmflib.papers import factor_mse

SIZES = 12, 5, 6
VOTES = Path(__file__).parents[3] / "shared" / "data" / "votes" / "UCI_VOTERS.data"


def find_objectives(runs, models, pseudo_count):
    """Log-likelihood of the training samples and log-density of the pseudo-counts, nats."""
    shape = PseudoCounts.shaped_by(runs.singles, runs.offsets, pseudo_count)
    found = zip(evaluate_models(runs.training, models), models, strict=True)
    return np.array([each.log_likelihood + shape.log_penalty(*model) for each, model in found])


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
    validation = (
        None if held_out is None else BlocksInMemory.cut(held_out, schema.offsets, SIZES[2])
    )
    training = BlocksInMemory.cut(codes, schema.offsets, SIZES[2])
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


def search(runs, starts, pseudo_count=0.0, share=1.0):
    return OptimumSearch(runs, starts, ("auto", *DRAWN), pseudo_count, share).run()


def test_search__ends_early_where_starts_agree():
    truth, codes, schema = draw(4000)
    runs, starts = prepare(codes, schema)
    found = search(runs, starts)
    assert sum(number for _, number in found.starts) <= 2 * SEARCH.n_first
    assert found.n_top >= SEARCH.n_common
    assert found.n_passes < 750
    (oracle,) = find_objectives(
        runs, [runs.run("truth", [truth], 0.0, stop_early=False).parameters], 0.0
    )
    (best,) = find_objectives(runs, found.models[:1], 0.0)
    assert best >= oracle - len(codes) * SEARCH.same


@pytest.mark.slow
def test_search__is_better_than_many_starts_where_these_disagree():
    gains = []
    for seed in range(4):
        _, codes, schema = draw(250, seed=seed)
        runs, starts = prepare(codes, schema)
        found = search(runs, starts)
        ends = np.array(
            [
                -runs.run("x", [start], 0.0, stop_early=False).loss_history[-1]
                for start in starts("random", 30)
            ]
        )
        # most of these end elsewhere, so that the search has something to find
        assert np.mean(ends > ends.max() - 1e-3) < 0.2
        gains.append(found.optima[0].objective - ends.max())
        objectives = [each.objective for each in found.optima]
        assert np.all(np.diff(objectives) < -SEARCH.same)
        assert len(objectives) <= SEARCH.n_kept
        assert found.n_made > 0
    # no search is certain of the best: in one of the four a random start is .005 better
    assert np.sum(np.array(gains) > 1e-3) >= 3


def test_search__same_seed_same_bits_and_work_is_bounded():
    _, codes, schema = draw(250, seed=3)

    def search_shortly():
        runs, starts = prepare(codes, schema)
        return search(runs, starts, share=0.1)

    found, again = search_shortly(), search_shortly()
    assert np.array_equal(found.models[0][1], again.models[0][1])
    assert found.n_passes < 0.1 * SEARCH.most_passes + 500


def test_search__two_states_of_one_variable_have_nothing_to_find():
    codes = np.array([[0], [1], [1], [-1]])
    result = pmf.fit_em(codes, rank=2, schema=pmf.Schema.from_cardinalities([2]), pseudo_count=0.0)
    np.testing.assert_allclose(result.model.marginal([0]), [1 / 3, 2 / 3], atol=1e-6)


@pytest.mark.parametrize("n_passes", [0.3, 5, 40, 200])
def test_search__of_few_passes_compares_starts_and_ends(n_passes, monkeypatch):
    _, codes, schema = draw(1000)
    runs, starts = prepare(codes, schema)
    work = runs.training.n_observed * SIZES[2]
    monkeypatch.setattr(
        "pmflib.fits.optimum_search.SEARCH", replace(SEARCH, most_work=n_passes * work)
    )
    found = search(runs, starts)
    assert 1 <= found.n_passes <= 1.5 * n_passes + 1
    assert sum(number for _, number in found.starts) <= 1 + n_passes / 4
    assert len(found.models) <= count_kept(work)
    assert np.isfinite(found.models[0][1]).all()


@pytest.mark.skipif(not VOTES.exists(), reason="the votes are not there")
@pytest.mark.parametrize(("rank", "known"), [(4, -9.78119), (8, -9.16)])
def test_fit_em__votes_reach_the_best_optimum_known(rank, known):
    """Missing votes are a level; what is known is the best of ten starts of StepMix 3."""
    codes = np.loadtxt(VOTES, delimiter=",", dtype=int)
    model = pmf.fit_em(codes, rank=rank, pseudo_count=0.0).model
    assert model.log_prob(codes).mean() > known - 1e-3
