from dataclasses import replace

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DEFAULT_PSEUDO_COUNT
from pmflib.counts import estimate_singles
from pmflib.em import BlocksInMemory, Runs
from pmflib.fits import FitSpecification, Options, Starts
from pmflib.fits.fit_specifications import find_specification, follow_specification
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


def test_find_specification__an_optimum_of_a_search_is_not_stopped_early(drawn):
    runs, starts = prepare(drawn[:300], drawn[300:], max_passes=2000)
    specification, model, state = find_specification(runs, starts, Options(("search",), (1.0,)))
    assert [method for method, _ in specification.starts] == ["auto", "merged", "random"]
    assert (specification.starts[0][1], specification.passes) == (1, None)
    assert state.converged
    assert runs.held_out.score([model]) == specification.score
    _, again, _ = follow_specification(specification, runs, starts)
    # it goes on from what had converged
    np.testing.assert_allclose(again[1], model[1], atol=1e-2)


def test_find_specification__without_held_out_samples_all_is_settled(drawn):
    runs, starts = prepare(drawn, max_passes=2000)
    options = Options.make("auto", "auto", 1, 3)
    specification, model, state = find_specification(runs, starts, options)
    assert (specification.method, specification.pseudo_count) == ("search", DEFAULT_PSEUDO_COUNT)
    assert specification.comparisons == ()
    assert state.converged
    assert np.array_equal(model[1], state.parameters[1])
    one, other = (
        runs.run("x", starts(method, 1), DEFAULT_PSEUDO_COUNT).loss_history[-1]
        for method in ("auto", "random")
    )
    assert state.loss_history[-1] <= min(one, other) + 1e-6


def test_follow_specification__starts_where_the_fit_that_was_compared_has(drawn):
    runs, starts = prepare(drawn, max_passes=500)
    ((prior, factors),) = starts("random", 1)
    given = FitSpecification("auto", 0.1, (("spa+opt", 1),), 3, models=((prior, factors),))
    followed, model, state = follow_specification(given, runs, starts)
    assert (followed.starts, state.n_passes) == ((("spa+opt", 1),), 3)
    alone = replace(runs, max_passes=3, tol=0.0).run("x", [(prior, factors)], 0.1)
    assert np.array_equal(model[1], alone.parameters[1])
