"""Specifications of a fit by EM: found by comparing candidates on held-out samples, and followed on other samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pmflib.core.arrays import Parameters
from pmflib.core.comparison import Comparison, compare_candidates
from pmflib.core.defaults import DEFAULT_PSEUDO_COUNT
from pmflib.em.latent_classes import ClassState, Runs
from pmflib.fitting.candidates import FitSpecification, Options
from pmflib.fitting.small_fits import (
    find_objectives,
    find_small_specification,
    follow_small_specification,
)
from pmflib.fitting.starts import Starts

ONE_OPTIMUM = 1.0
"""Nats by which fits of one optimum may differ: a likelihood ratio of e says nothing."""

FALLEN = 1e-4
"""Share of the best held-out log-likelihood by which the last pass must be below it to be worse."""

RANDOM_PASSES = 0.25
"""Passes of a random start, as a share of those that a single run has made, after which it has to be better."""


def fit_options(
    runs: Runs, make_starts: Starts, options: Options
) -> tuple[FitSpecification, Parameters, ClassState]:
    """Fit in the way that is best on held-out samples, or, without any, as the options settle it."""
    if runs.held_out is not None:
        return find_specification(runs, make_starts, options)
    return follow_specification(options.settle(), runs, make_starts)


def find_specification(
    runs: Runs, make_starts: Starts, options: Options
) -> tuple[FitSpecification, Parameters, ClassState]:
    """Compare ways to fit on held-out samples.

    Parameters
    ----------
    runs
        With held-out samples.
    make_starts
        Starts by their method.
    options
        What to compare.

    Returns
    -------
    The specification, and the model and the state that it led to.
    """
    methods, n_members = options.methods, options.members
    if options.small:
        return find_small_specification(runs, make_starts, options)
    scores: dict[tuple[str, float], float] = {}
    ends: dict[str, ClassState] = {}

    def run(method: str, pseudo_count: float) -> float:
        state = runs.run(f"{method}-{pseudo_count:g}", make_starts(method, 1), pseudo_count)
        score = max(state.held_out)
        if all(score > each for (other, _), each in scores.items() if other == method):
            # one is kept of each method: of large models there is no room for many
            ends[method] = state
        scores[method, pseudo_count] = score
        return score

    by_pseudo_count = climb(options.pseudo_counts, lambda each: run(methods[0], each))
    # by their scores alone: their models are not kept
    pseudo_counts = compare_candidates(
        "sample",
        [{"pseudo_count": each} for each in by_pseudo_count],
        list(by_pseudo_count.values()),
    )
    pseudo_count = float(pseudo_counts.chosen.settings["pseudo_count"])
    for each in methods[1:]:
        run(each, pseudo_count)
    starts = _compare_starts(runs, ends, pseudo_count, by_objective=n_members == 1)
    method = str(starts.chosen.settings["start"])
    state = ends[method]
    notes: tuple[str, ...] = ()
    if n_members > 1:
        state = runs.run("members", make_starts(method, n_members), pseudo_count)
        notes = (
            f"average of {n_members} fits: held-out log-likelihood per sample {max(state.held_out):.5f}, "
            f"of a single fit {scores[method, pseudo_count]:.5f}",
        )
    passes, by_passes = _choose_passes(state)
    compared = (pseudo_counts, starts, by_passes)
    comparisons = tuple(each for each in compared if len(each.points) > 1)
    model = _take_best(state)
    specification = FitSpecification(
        ((method, n_members),),
        pseudo_count,
        passes,
        notes=(*(each.reason for each in comparisons), *notes),
        score=max(state.held_out),
        comparisons=comparisons,
        # of fits that are stopped early the objective says nothing
        n_random=options.n_random if passes is None else 0,
        models=(model,) if n_members == 1 else (),
    )
    return specification, model, state


def follow_specification(
    specification: FitSpecification, runs: Runs, make_starts: Starts
) -> tuple[FitSpecification, Parameters, ClassState]:
    """Fit other samples in the same way.

    Parameters
    ----------
    specification
        What to do.
    runs
        Runs on these samples; what they hold out is not used.
    make_starts
        Starts from the counts of these samples.

    Returns
    -------
    The specification as it was followed, the model, and the state of the loop at its end.
    """
    if specification.combination != "average":
        return follow_small_specification(specification, runs, make_starts)
    if specification.passes is not None:
        runs = replace(runs, max_passes=specification.passes, tol=0.0)
    starts = [
        model for method, number in specification.starts for model in make_starts(method, number)
    ]
    state = runs.run("all", starts, specification.pseudo_count, stop_early=False)
    if specification.models:
        model, (scored,) = state.parameters, specification.models
        now, before = find_objectives(runs, [model, scored], specification.pseudo_count)
        if now < before - ONE_OPTIMUM:
            state = runs.run("again", [scored], specification.pseudo_count, stop_early=False)
            note = "all samples went on from the fit that was judged: from their own start they came to a worse one"
            specification = replace(specification, notes=(*specification.notes, note))
    if specification.n_random and state.n_passes:
        specification, state = _try_random(specification, runs, make_starts, state)
    return specification, state.parameters, state


def _try_random(
    specification: FitSpecification, runs: Runs, make_starts: Starts, state: ClassState
) -> tuple[FitSpecification, ClassState]:
    """Make a few accelerated passes from random starts, and go on from the best of them if it is ahead of a fit.

    A fit of one start may have ended at a poor optimum; most random starts that lead to a better one are ahead of it
    long before they have converged.
    """
    runs = replace(runs, accelerate=True)
    n_passes = min(math.ceil(RANDOM_PASSES * state.n_passes), runs.max_passes)
    short = replace(runs, max_passes=n_passes)
    starts = make_starts("random", specification.n_random)
    tries = [
        short.run(f"random-{k}", [start], specification.pseudo_count, stop_early=False)
        for k, start in enumerate(starts)
    ]
    losses = [each.loss_history[-1] for each in tries]
    best, loss = int(np.argmin(losses)), state.loss_history[-1]
    tried = f"{len(tries)} random starts after {n_passes} passes"
    if losses[best] >= loss - runs.tol * abs(loss):
        note = (
            f"start {specification.starts[0][0]}: its fit of the samples is no worse than {tried}"
        )
        return replace(specification, notes=(*specification.notes, note)), state
    name, model = f"random-{best}-on", tries[best].parameters
    state = runs.run(name, [model], specification.pseudo_count, stop_early=False)
    note = f"start random: a better fit of the samples than that of {specification.starts[0][0]}, of {tried}"
    return replace(
        specification, starts=(("random", 1),), notes=(*specification.notes, note)
    ), state


def climb(values: Sequence[float], score: Callable[[float], float]) -> dict[float, float]:
    """Score values from the default on as long as neighbours are better, first those below it.

    Parameters
    ----------
    values
        In ascending order, at least one.
    score
        Gives the score of a value: a higher one is better.

    Returns
    -------
    Scores by value, in the order in which they were taken.
    """
    at = _find_first(values)
    scores = {values[at]: score(values[at])}
    for step in (-1, 1):
        index = at + step
        while 0 <= index < len(values):
            scores[values[index]] = score(values[index])
            if scores[values[index]] <= scores[values[index - step]]:
                break
            index += step
        if index != at + step:
            # it went up this way: it goes down the other way
            break
    return scores


def _find_first(values: Sequence[float]) -> int:
    """Place of the value that is scored first."""
    return values.index(DEFAULT_PSEUDO_COUNT) if DEFAULT_PSEUDO_COUNT in values else 0


def count_compared(values: Sequence[float]) -> int:
    """Number of pseudo-counts that are compared where the first is the best: it, and its neighbours."""
    first = values[_find_first(values)]
    return len(climb(values, lambda value: float(value == first)))


def _compare_starts(
    runs: Runs, ends: Mapping[str, ClassState], pseudo_count: float, *, by_objective: bool
) -> Comparison:
    """Compare start methods by held-out samples; of those that these cannot distinguish the objective takes the best.

    Optima that are close to each other differ by less than the held-out samples do. All the training samples, which are
    more, then know better, for fits of one rank and one pseudo-count have as many parameters. Of members, which are
    averaged, the objective of one says nothing.
    """
    methods = list(ends)
    scores = [max(state.held_out) for state in ends.values()]
    settings = [{"start": method} for method in methods]
    if len(methods) == 1:
        return compare_candidates("sample", settings, scores)
    assert runs.held_out is not None
    models = [_take_best(state) for state in ends.values()]
    top = max(range(len(scores)), key=lambda index: scores[index])
    gaps = [runs.held_out.compare([models[top]], [model]) for model in models]
    near = [index for index, (gap, error) in enumerate(gaps) if index == top or gap <= error]
    chosen = top
    if by_objective and len(near) > 1:
        objectives = find_objectives(runs, [models[index] for index in near], pseudo_count)
        chosen = near[int(objectives.argmax())]
    compared = compare_candidates(
        "sample", settings, scores, subtract=lambda _, other: gaps[other], chosen=chosen
    )
    if chosen == top:
        return compared
    gap, error = gaps[chosen]
    reason = (
        f"start {methods[chosen]}: the best fit of the training samples, {gap:.2g} +- {error:.2g} below the best "
        f"held-out log-likelihood per sample, of {methods[top]}"
    )
    return replace(compared, reason=reason)


def _take_best(state: ClassState) -> Parameters:
    """Give the model of the pass that was best on held-out samples."""
    assert state.best is not None
    return state.best


def _choose_passes(state: ClassState) -> tuple[int | None, Comparison]:
    """Stop at the pass that is best, unless the runs have converged and are as good at their end."""
    best, last = state.best_pass, state.n_passes
    fallen = max(state.held_out) - state.held_out[-1] > FALLEN * abs(max(state.held_out))
    stop = fallen or not state.converged
    passes = [best] if best == last else [best, last]
    comparison = compare_candidates(
        "sample",
        [{"passes": each} for each in passes],
        [state.held_out[each] for each in passes],
        chosen=0 if stop else len(passes) - 1,
    )
    return best if stop else None, comparison
