import numpy as np
import pytest

import pmflib as pmf
from pmflib.counting.marginals import estimate_singles
from pmflib.em.in_memory import Samples
from pmflib.em.members import Runs
from pmflib.fitting.recipes import (
    DEFAULT_PSEUDO_COUNT,
    PSEUDO_COUNTS,
    Options,
    Recipe,
    _choose_largest,
    _climb,
    find_recipe,
    fit_options,
    follow_recipe,
)
from pmflib.fitting.starts import Starts
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
        judge = Samples(held_out, SCHEMA.offsets, rank)
    evaluate = Samples(train, SCHEMA.offsets, rank).evaluate_each
    runs = Runs(evaluate, judge, SCHEMA.offsets, estimate_singles(counts), **options)
    return runs, Starts(lambda: counts, estimate_singles(counts), counts.schema.offsets, rank, 0)


@pytest.mark.parametrize("best", PSEUDO_COUNTS)
def test_climb__finds_the_top_of_one_hill(best):
    top = PSEUDO_COUNTS.index(best)
    found, scores = _climb(PSEUDO_COUNTS, lambda each: -abs(PSEUDO_COUNTS.index(each) - top))
    assert found == best
    assert len(scores) <= len(PSEUDO_COUNTS)


def test_climb__one_value_is_looked_at_once():
    assert _climb((0.7,), lambda each: -each) == (0.7, {0.7: -0.7})


class Scripted:
    """Held-out samples on which each model is worse than the best by so much, give or take."""

    def __init__(self, losses):
        self.losses = losses

    def score(self, models):
        raise AssertionError

    def compare(self, first, second):
        return self.losses[second]


@pytest.mark.parametrize(
    ("losses", "chosen"),
    [
        ({0.1: (0.0, 0.0), 1.0: (0.2, 0.3), 2.0: (0.4, 0.3)}, 1.0),
        ({0.1: (0.0, 0.0), 1.0: (0.4, 0.3), 2.0: (0.2, 0.3)}, 2.0),
        ({0.1: (0.0, 0.0), 1.0: (0.2, 0.1), 2.0: (0.2, 0.1)}, 0.1),
        ({0.1: (0.2, 0.3), 1.0: (0.1, 0.2), 2.0: (0.0, 0.0)}, 2.0),
    ],
)
def test_choose_largest__stays_within_one_standard_error(losses, chosen):
    names = {pseudo_count: pseudo_count for pseudo_count in losses}
    scores = {pseudo_count: -loss for pseudo_count, (loss, _) in losses.items()}
    best = max(scores, key=scores.__getitem__)
    found, (note,) = _choose_largest(Scripted(losses), names, scores)
    assert found == chosen
    assert note.startswith(f"pseudo-count {chosen:g}: ")
    assert (f"below that of {best:g}" in note) == (chosen != best)


def test_choose_largest__a_single_one_is_told_by_nobody():
    assert _choose_largest(Scripted({0.7: (0.0, 0.0)}), {0.7: 0.7}, {0.7: -1.0}) == (0.7, ())  # type: ignore[dict-item]


def test_find_recipe__takes_the_start_and_strength_of_the_best_score(drawn):
    runs, starts = prepare(drawn[:100], drawn[100:], max_passes=60)
    recipe, model, state = find_recipe(runs, starts, Options(("auto", "random"), (0.1, 1.0)))
    assert runs.held_out.score([model]) == recipe.score == max(state.held_out)
    scores = {
        (kind, pseudo_count): max(runs.run("x", starts(kind, 1), pseudo_count).held_out)
        for kind in ("auto", "random")
        for pseudo_count in (0.1, 1.0)
    }
    assert scores[recipe.starts[0][0], recipe.pseudo_count] == recipe.score
    assert recipe.score >= max(scores["auto", 0.1], scores["auto", 1.0])
    assert [note.split(":")[0] for note in recipe.notes] == [
        f"pseudo-count {recipe.pseudo_count:g}",
        f"start {recipe.starts[0][0]}",
    ]


def test_find_recipe__passes_are_counted_where_more_would_harm(drawn):
    runs, starts = prepare(drawn[:60], drawn[100:], rank=8, max_passes=300, patience=5)
    recipe, model, state = find_recipe(runs, starts, Options(("random",), (0.01,)))
    assert state.held_out[-1] < max(state.held_out) - 1e-3
    assert recipe.passes == state.best_pass
    again, last = follow_recipe(recipe, runs, starts)
    assert last.n_passes == recipe.passes
    assert np.array_equal(again[1], model[1])


def test_find_recipe__mean_and_best_of_converged_starts(drawn):
    runs, starts = prepare(drawn[:300], drawn[300:], max_passes=2000)
    options = Options(("auto", "random"), (1.0,)).fit_to(300 * 4, 3)
    assert options.small
    recipe, model, _ = find_recipe(runs, starts, options)
    assert recipe.kind in ("mean", "best")
    assert (recipe.starts, recipe.passes) == ((("auto", 1), ("random", 7)), None)
    assert runs.held_out.score([model]) == recipe.score
    again, _ = follow_recipe(recipe, runs, starts)
    np.testing.assert_allclose(again[1], model[1], rtol=1e-12)


def test_fit_options__without_held_out_samples_the_first_kind_until_it_has_converged(drawn):
    runs, starts = prepare(drawn, max_passes=2000)
    options = Options.make("auto", "auto", 1, 3)
    recipe, model, state = fit_options(runs, starts, options)
    assert recipe == Recipe((("auto", 1),), DEFAULT_PSEUDO_COUNT)
    assert state.converged
    assert np.array_equal(model[1], state.factors)


def test_options__large_fits_members_and_fixed_starts_are_not_small():
    assert Options.make("auto", "auto", 1, 3).fit_to(1000, 3).small
    assert not Options.make("auto", "auto", 1, 3).fit_to(10**7, 3).small
    assert not Options.make("auto", "auto", 2, 3).fit_to(1000, 3).small
    assert not Options.make("spa", "auto", 1, 3).fit_to(1000, 3).small
    assert Options.make("auto", 0.5, 1, 1) == Options(("auto",), (0.5,))
