import numpy as np
import pytest

import pmflib as pmf
from pmflib.counting.marginals import estimate_singles
from pmflib.em.in_memory import SamplesInMemory
from pmflib.em.members import Runs
from pmflib.fitting.candidates import Options, Recipe
from pmflib.fitting.recipes import _climb, find_recipe, fit_options, follow_recipe
from pmflib.fitting.starts import Starts
from pmflib.selection.pseudo_count_grids import DEFAULT_PSEUDO_COUNT, FIT_SAMPLES
from tests.reference import make_model

CARDINALITIES = [3, 2, 4, 3]
SCHEMA = pmf.Schema.from_cardinalities(CARDINALITIES)


@pytest.fixture(scope="module")
def drawn():
    truth = pmf.JointPMF(*make_model(np.random.default_rng(0), CARDINALITIES, 3), SCHEMA)
    return truth.sample(900, rng=1)


def prepare(train, held_out=None, rank=3, **options):
    counts = pmf.count_pairs(train, SCHEMA)
    judge = None
    if held_out is not None:
        judge = SamplesInMemory(held_out, SCHEMA.offsets, rank)
    training = SamplesInMemory(train, SCHEMA.offsets, rank)
    runs = Runs(training, judge, SCHEMA.offsets, estimate_singles(counts), **options)
    return runs, Starts(lambda: counts, estimate_singles(counts), counts.schema.offsets, rank, 0)


@pytest.mark.parametrize("best", FIT_SAMPLES)
def test_climb__finds_the_top_of_one_hill(best):
    top = FIT_SAMPLES.index(best)
    scores = _climb(FIT_SAMPLES, lambda each: -abs(FIT_SAMPLES.index(each) - top))
    assert max(scores, key=scores.__getitem__) == best
    assert len(scores) <= len(FIT_SAMPLES)


def test_climb__one_value_is_scored_once():
    assert _climb((0.7,), lambda each: -each) == {0.7: -0.7}


def test_find_recipe__takes_the_start_and_pseudo_count_of_the_best_score(drawn):
    runs, starts = prepare(drawn[:100], drawn[100:], max_passes=60)
    recipe, model, state = find_recipe(runs, starts, Options(("auto", "random"), (0.1, 1.0)))
    assert runs.held_out.score([model]) == recipe.score == max(state.held_out)
    scores = {
        (method, pseudo_count): max(runs.run("x", starts(method, 1), pseudo_count).held_out)
        for method in ("auto", "random")
        for pseudo_count in (0.1, 1.0)
    }
    assert scores[recipe.starts[0][0], recipe.pseudo_count] == recipe.score
    assert recipe.score >= max(scores["auto", 0.1], scores["auto", 1.0])
    assert [note.split(":")[0] for note in recipe.notes][:2] == [
        f"pseudo-count {recipe.pseudo_count:g}",
        f"start {recipe.starts[0][0]}",
    ]
    assert [each.reason for each in recipe.comparisons] == list(recipe.notes)


def test_find_recipe__passes_are_counted_where_more_would_harm(drawn):
    runs, starts = prepare(drawn[:60], drawn[100:], rank=8, max_passes=300, patience=5)
    recipe, model, state = find_recipe(runs, starts, Options(("random",), (0.01,)))
    assert state.held_out[-1] < max(state.held_out) - 1e-3
    assert recipe.passes == state.best_pass
    (passes,) = recipe.comparisons
    assert [each.settings["passes"] for each in passes.points] == [recipe.passes, state.n_passes]
    assert passes.chosen.settings["passes"] == recipe.passes
    again, last = follow_recipe(recipe, runs, starts)
    assert last.n_passes == recipe.passes
    assert np.array_equal(again[1], model[1])


def test_find_recipe__mean_and_best_of_converged_starts(drawn):
    runs, starts = prepare(drawn[:300], drawn[300:], max_passes=2000)
    options = Options(("auto", "random"), (1.0,)).fit_to(300 * 4, 3, 12)
    assert options.small
    recipe, model, _ = find_recipe(runs, starts, options)
    assert recipe.combination in ("mean", "best")
    assert (recipe.starts, recipe.passes) == ((("auto", 1), ("random", 7)), None)
    assert runs.held_out.score([model]) == recipe.score
    again, _ = follow_recipe(recipe, runs, starts)
    np.testing.assert_allclose(again[1], model[1], rtol=1e-12)


def test_fit_options__without_held_out_samples_the_first_method_until_it_has_converged(drawn):
    runs, starts = prepare(drawn, max_passes=2000)
    options = Options.make("auto", "auto", 1, 3)
    recipe, model, state = fit_options(runs, starts, options)
    assert recipe == Recipe((("auto", 1),), DEFAULT_PSEUDO_COUNT)
    assert state.converged
    assert np.array_equal(model[1], state.factors)


def test_options__table_of_pairs_far_larger_than_the_samples_is_no_start():
    options = Options.make("auto", "auto", 1, 3)
    assert options.fit_to(1000, 3, 100).starts_of_small == (("auto", 1), ("random", 7))
    assert options.fit_to(1000, 3, 101).starts_of_small == (("random", 8),)
    members = Options.make("auto", "auto", 4, 3)
    assert members.fit_to(1000, 3, 100).start_methods == ("pairs", "random")
    assert members.fit_to(1000, 3, 101).start_methods == ("random",)
    # a large fit compares both, one after the other
    assert options.fit_to(10**7, 3, 10**5).from_pairs


def test_options__large_fits_members_and_fixed_starts_are_not_small():
    assert Options.make("auto", "auto", 1, 3).fit_to(1000, 3, 12).small
    assert not Options.make("auto", "auto", 1, 3).fit_to(10**7, 3, 12).small
    assert not Options.make("auto", "auto", 2, 3).fit_to(1000, 3, 12).small
    assert not Options.make("spa", "auto", 1, 3).fit_to(1000, 3, 12).small
    assert Options.make("auto", 0.5, 1, 1) == Options(("auto",), (0.5,))
