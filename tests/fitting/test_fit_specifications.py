from dataclasses import replace

import numpy as np
import pytest

import pmflib as pmf
from pmflib.core.defaults import DEFAULT_PSEUDO_COUNT, FIT_SAMPLES
from pmflib.counting.marginals import estimate_singles
from pmflib.em.block_source import BlocksInMemory
from pmflib.em.latent_classes import Runs
from pmflib.fitting.candidates import FitSpecification, Options
from pmflib.fitting.fit_specifications import (
    _compare_starts,
    climb,
    find_specification,
    fit_options,
    follow_specification,
)
from pmflib.fitting.small_fits import find_objectives
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
    validation = None
    if held_out is not None:
        validation = BlocksInMemory.cut(held_out, SCHEMA.offsets, rank)
    training = BlocksInMemory.cut(train, SCHEMA.offsets, rank)
    runs = Runs(training, validation, SCHEMA.offsets, estimate_singles(counts), **options)
    return runs, Starts(counts, estimate_singles(counts), counts.schema.offsets, rank, 0)


@pytest.mark.parametrize("best", FIT_SAMPLES)
def test_climb__finds_the_top_of_one_hill(best):
    top = FIT_SAMPLES.index(best)
    scores = climb(FIT_SAMPLES, lambda each: -abs(FIT_SAMPLES.index(each) - top))
    assert max(scores, key=scores.__getitem__) == best
    assert len(scores) <= len(FIT_SAMPLES)


def test_climb__one_value_is_scored_once():
    assert climb((0.7,), lambda each: -each) == {0.7: -0.7}


def test_find_specification__takes_the_start_and_pseudo_count_of_the_best_score(drawn):
    runs, starts = prepare(drawn[:100], drawn[100:], max_passes=60)
    specification, model, state = find_specification(
        runs, starts, Options(("auto", "random"), (0.1, 1.0))
    )
    assert runs.held_out.score([model]) == specification.score == max(state.held_out)
    scores = {
        (method, pseudo_count): max(runs.run("x", starts(method, 1), pseudo_count).held_out)
        for method in ("auto", "random")
        for pseudo_count in (0.1, 1.0)
    }
    assert scores[specification.starts[0][0], specification.pseudo_count] == specification.score
    assert specification.score >= max(scores["auto", 0.1], scores["auto", 1.0])
    assert [note.split(":")[0] for note in specification.notes][:2] == [
        f"pseudo-count {specification.pseudo_count:g}",
        f"start {specification.starts[0][0]}",
    ]
    assert [each.reason for each in specification.comparisons] == list(specification.notes)


def test_compare_starts__within_the_error_the_training_samples_decide(drawn):
    runs, starts = prepare(drawn[:600], drawn[600:620], max_passes=60)
    ends = {name: runs.run(name, starts(name, 1), 1.0) for name in ("auto", "random")}
    models = {name: end.best for name, end in ends.items()}
    objectives = find_objectives(runs, list(models.values()), 1.0)
    best = list(ends)[int(objectives.argmax())]
    other = next(name for name in ends if name != best)

    class Scores:
        """Finds the other start better, by one with a standard error that is given."""

        error = 0.0

        def compare(self, first, second):
            return (0.0, 0.0) if first is second else (1.0, self.error)

    scored = replace(runs, held_out=Scores())
    scores = {best: -6.0, other: -5.0}
    ends = {name: replace(end, held_out=(scores[name],)) for name, end in ends.items()}

    def choose(error, *, by_objective):
        Scores.error = error
        return _compare_starts(scored, ends, 1.0, by_objective=by_objective)

    near = choose(1.5, by_objective=True)
    assert (near.chosen.settings["start"], near.best.settings["start"]) == (best, other)
    assert near.reason.startswith(f"start {best}: the best fit of the training samples, 1 +- 1.5 ")
    assert choose(0.5, by_objective=True).chosen.settings["start"] == other
    assert choose(1.5, by_objective=False).chosen.settings["start"] == other


def test_find_specification__passes_are_counted_where_more_would_harm(drawn):
    runs, starts = prepare(drawn[:60], drawn[100:], rank=8, max_passes=300, patience=5)
    specification, model, state = find_specification(runs, starts, Options(("random",), (0.01,)))
    assert state.held_out[-1] < max(state.held_out) - 1e-3
    assert specification.passes == state.best_pass
    (passes,) = specification.comparisons
    assert [each.settings["passes"] for each in passes.points] == [
        specification.passes,
        state.n_passes,
    ]
    assert passes.chosen.settings["passes"] == specification.passes
    _, again, last = follow_specification(specification, runs, starts)
    assert last.n_passes == specification.passes
    assert np.array_equal(again[1], model[1])


def test_find_specification__small_fits_search_for_the_best_optimum(drawn):
    runs, starts = prepare(drawn[:300], drawn[300:], max_passes=2000)
    options = Options(("auto", "random"), (1.0,)).fit_to(300 * 4, 3, 12)
    assert options.small
    specification, model, _ = find_specification(runs, starts, options)
    assert specification.combination == "best"
    assert [method for method, _ in specification.starts] == ["auto", "merged", "random"]
    assert (specification.starts[0][1], specification.passes) == (1, None)
    assert runs.held_out.score([model]) == specification.score
    _, again, _ = follow_specification(specification, runs, starts)
    # it goes on from what had converged
    np.testing.assert_allclose(again[1], model[1], atol=1e-2)


def test_fit_options__without_held_out_samples_the_first_method_until_it_has_converged(drawn):
    runs, starts = prepare(drawn, max_passes=2000)
    options = Options.make("auto", "auto", 1, 3)
    specification, model, state = fit_options(runs, starts, options)
    assert specification == FitSpecification(
        (("auto", 1),), DEFAULT_PSEUDO_COUNT, notes=specification.notes, n_random=4
    )
    assert state.converged
    assert np.array_equal(model[1], state.parameters[1])
    # what was tried beside it changes nothing of it
    alone, _, state_alone = follow_specification(
        replace(specification, n_random=0, notes=()), runs, starts
    )
    assert alone.notes == ()
    assert state_alone.loss_history == state.loss_history
    (note,) = specification.notes
    assert note.startswith("start auto: its fit of the samples is no worse than 4 random starts")


def test_follow_specification__goes_on_from_a_random_start_that_is_ahead(drawn):
    runs, starts = prepare(drawn, max_passes=500, tol=1e-9)
    # two states are the same: EM does not leave that
    ((prior, factors),) = starts("random", 1)
    alike = prior, factors[:, [0, 1, 1]]
    counts = pmf.count_pairs(drawn, SCHEMA)
    starts = Starts(counts, starts.singles, SCHEMA.offsets, 3, 0, {"auto": alike})
    specification, model, state = follow_specification(
        FitSpecification((("auto", 1),), 0.1, n_random=2), runs, starts
    )
    assert specification.starts == (("random", 1),)
    assert specification.notes[-1].startswith(
        "start random: a better fit of the samples than that of auto"
    )
    assert state.converged
    assert np.array_equal(model[1], state.parameters[1])
    ends = [runs.run("x", [start], 0.1).loss_history[-1] for start in starts("random", 2)]
    n_rows = len(drawn)
    assert state.loss_history[-1] * n_rows < min(ends) * n_rows + 2
    # passes of the single run and of random starts are limited as others are
    specification, _, state = follow_specification(
        FitSpecification((("auto", 1),), 0.1, n_random=2), replace(runs, max_passes=0), starts
    )
    assert (specification.notes, state.n_passes) == ((), 0)


def test_options__table_of_pairs_far_larger_than_the_samples_is_no_start():
    options = Options.make("auto", "auto", 1, 3)
    assert options.fit_to(1000, 3, 100).methods_of_small == ("auto", "merged", "random")
    assert options.fit_to(1000, 3, 101).methods_of_small == ("merged", "random")
    members = Options.make("auto", "auto", 4, 3)
    assert members.fit_to(1000, 3, 100).methods == ("pairs", "random")
    assert members.fit_to(1000, 3, 101).methods == ("random",)
    # large fits, and independent variables, as well
    assert options.fit_to(10**7, 3, 10**4).methods == ("auto", "random")
    assert options.fit_to(10**7, 3, 10**4 + 1).methods == ("pairs", "random")
    assert Options.make("auto", "auto", 1, 1).fit_to(1000, 1, 101).methods == ("random",)
    # what is asked for is done
    assert Options.make("pairs", "auto", 1, 3).fit_to(1000, 3, 101).methods == ("pairs",)


def test_options__large_fits_members_and_fixed_starts_are_not_small():
    assert Options.make("auto", "auto", 1, 3).fit_to(1000, 3, 12).small
    assert not Options.make("auto", "auto", 1, 3).fit_to(10**7, 3, 12).small
    assert not Options.make("auto", "auto", 2, 3).fit_to(1000, 3, 12).small
    assert not Options.make("spa", "auto", 1, 3).fit_to(1000, 3, 12).small
    assert Options.make("auto", 0.5, 1, 1) == Options(("auto",), (0.5,))
