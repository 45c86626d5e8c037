"""Small fits: the best optimum is searched for, under the pseudo-count that held-out samples choose.

Of one pseudo-count, held-out samples are not asked: fits of one rank have as many parameters, so that the objective on
the training samples, which are more, knows better which is best. Without pseudo-counts held-out samples may be
impossible under all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pmflib.core.arrays import FloatArray, Parameters
from pmflib.core.comparison import compare_candidates
from pmflib.core.defaults import DEFAULT_PSEUDO_COUNT
from pmflib.em.latent_classes import ClassState, Runs, evaluate_models
from pmflib.fitting.candidates import DRAWN, TRIAL_SHARE, FitSpecification, Options
from pmflib.fitting.optimum_search import Found, OptimumSearch
from pmflib.fitting.starts import Starts
from pmflib.solvers import PseudoCounts


def find_small_specification(
    runs: Runs, starts: Starts, options: Options
) -> tuple[FitSpecification, Parameters, ClassState]:
    """Search for the best optimum under the default pseudo-count, and go on under the others.

    Of few samples the best score is chance. A pseudo-count that is too large costs little, one that is too small makes
    up dependence that is not there: of those that held-out samples cannot distinguish from the best it is the largest.

    Parameters
    ----------
    runs
        With held-out samples.
    starts
        Starts by their method.
    options
        Those of a small fit.

    Returns
    -------
    The specification, which holds the optima to go on from; and the model and the state that it led to.
    """
    held_out = runs.held_out
    assert held_out is not None
    values, methods = options.pseudo_counts, options.methods_of_small
    share = TRIAL_SHARE if options.trial else 1.0
    first = DEFAULT_PSEUDO_COUNT if DEFAULT_PSEUDO_COUNT in values else values[0]
    found = OptimumSearch(runs, starts, methods, first, share).run()
    if len(values) == 1:
        model, state = _finish(runs, found, first)
        return _specify(found, first, options, held_out.score([model])), model, state
    optima, models = found.models, {}
    for value in values:
        others = found if value == first else OptimumSearch(runs, starts, (), value).run(optima)
        models[value] = others.models[0]
    compared = compare_candidates(
        "sample",
        [{"pseudo_count": value} for value in values],
        [held_out.score([models[value]]) for value in values],
        subtract=lambda best, other: held_out.compare(
            [models[values[best]]], [models[values[other]]]
        ),
        rule="largest",
    )
    chosen = float(compared.chosen.settings["pseudo_count"])
    if chosen != first:
        again = OptimumSearch(runs, starts, DRAWN, chosen, share).run(optima)
        found = again.after(found)
    model, state = _finish(runs, found, chosen)
    specification = _specify(found, chosen, options, held_out.score([model]))
    notes = (compared.reason, *specification.notes)
    return replace(specification, notes=notes, comparisons=(compared,)), model, state


def follow_small_specification(
    specification: FitSpecification, runs: Runs, starts: Starts
) -> tuple[FitSpecification, Parameters, ClassState]:
    """Search for the best optimum of other samples, mostly those and the ones that were held out.

    Parameters
    ----------
    specification
        From `find_small_specification`, whose optima the search goes on from, or from `Options.settle`.
    runs
        Runs on these samples; what they hold out is not used.
    starts
        Starts from the counts of these samples.

    Returns
    -------
    The specification as it was followed, the model, and the state of the loop at its end.
    """
    pseudo_count, known = specification.pseudo_count, specification.models
    # starts that draw nothing would lead to where the optima are
    methods = DRAWN if known else tuple(method for method, _ in specification.starts)
    found = OptimumSearch(runs, starts, methods, pseudo_count).run(known)
    once = tuple(each for each in specification.starts if known and each[0] not in DRAWN)
    model, state = _finish(runs, found, pseudo_count)
    return (
        replace(
            specification,
            starts=(*once, *found.starts),
            notes=(*specification.notes, found.describe()),
            models=found.models,
        ),
        model,
        state,
    )


def _specify(found: Found, pseudo_count: float, options: Options, score: float) -> FitSpecification:
    """Say how the best optimum was found, and keep the others."""
    return FitSpecification(
        found.starts,
        pseudo_count,
        combination="best",
        # of a trial the search is another than that of the fit that follows
        notes=() if options.trial else (found.describe(),),
        score=score,
        models=found.models,
    )


def _finish(runs: Runs, found: Found, pseudo_count: float) -> tuple[Parameters, ClassState]:
    """Go on from the best optimum to the tolerance that is requested."""
    runs = replace(runs, accelerate=True)
    state = runs.run("all", found.models[:1], pseudo_count, stop_early=False)
    return state.parameters, state


def find_objectives(runs: Runs, models: Sequence[Parameters], pseudo_count: float) -> FloatArray:
    """Log-likelihood of the training samples and log-density of the pseudo-counts, nats."""
    shape = PseudoCounts.shaped_by(runs.singles, runs.offsets, pseudo_count)
    return np.array(
        [
            statistics.log_likelihood + shape.log_penalty(*model)
            for statistics, model in zip(
                evaluate_models(runs.training, models), models, strict=True
            )
        ]
    )
