"""Recipes of a fit by EM: found by comparing candidates on held-out samples, and followed on other samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pmflib.arrays import Parameters
from pmflib.em.joint_pmf_em import EMState
from pmflib.em.members import Runs, split_members
from pmflib.fitting.averaging import average_parameters
from pmflib.fitting.candidates import Options, Recipe
from pmflib.fitting.side_by_side import SideBySide
from pmflib.selection.comparison import Comparison, compare
from pmflib.selection.pseudo_count_grids import DEFAULT_PSEUDO_COUNT
from pmflib.solvers.pairs.pseudo_counts import PseudoCounts

FALLEN = 1e-4
"""Share of the best held-out log-likelihood by which the last pass must be below it to be worse."""

MakeStarts = Callable[[str, int], list[Parameters]]
"""Gives models to start from, by the start method and their number."""


def fit_options(
    runs: Runs, make_starts: MakeStarts, options: Options
) -> tuple[Recipe, Parameters, EMState]:
    """Fit in the way that is best on held-out samples, or, without any, as the options settle it."""
    if runs.held_out is not None:
        return find_recipe(runs, make_starts, options)
    recipe = options.settle()
    return recipe, *follow_recipe(recipe, runs, make_starts)


def find_recipe(
    runs: Runs, make_starts: MakeStarts, options: Options
) -> tuple[Recipe, Parameters, EMState]:
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
    The recipe, and the model and the state that it led to.
    """
    methods, n_members = options.start_methods, options.members
    if options.small:
        return _compare_converged(runs, make_starts, options)
    scores: dict[tuple[str, float], float] = {}
    ends: list[EMState] = []

    def run(method: str, pseudo_count: float) -> float:
        state = side_by_side.find((method, pseudo_count))
        score = max(state.held_out)
        if not scores or score > max(scores.values()):
            # the others are not kept: of large models there is no room for many
            ends[:] = [state]
        scores[method, pseudo_count] = score
        return score

    def try_pseudo_count(each: float) -> float:
        if len(scores) == len(certain):
            # nearly always the last: the best so far stays the best, or that run is stopped
            best = max(scores, key=scores.__getitem__)[1]
            others = [(method, best) for method in methods[1:]]
            side_by_side.start((methods[0], each), *others)
        return run(methods[0], each)

    certain = _list_certain(options.pseudo_counts)
    with SideBySide(runs, make_starts) as side_by_side:
        side_by_side.start(*((methods[0], each) for each in certain))
        if len(certain) == 1:
            side_by_side.start(*((method, certain[0]) for method in methods[1:]))
        by_pseudo_count = _climb(options.pseudo_counts, try_pseudo_count)
        pseudo_counts = _compare_scores("pseudo_count", by_pseudo_count)
        pseudo_count = float(pseudo_counts.chosen.settings["pseudo_count"])
        needed = [(method, pseudo_count) for method in methods[1:]]
        side_by_side.stop_others(needed)
        side_by_side.start(*needed)
        by_method = {methods[0]: by_pseudo_count[pseudo_count]}
        by_method |= {method: run(method, pseudo_count) for method in methods[1:]}
    starts = _compare_scores("start", by_method)
    method = str(starts.chosen.settings["start"])
    (state,) = ends
    notes: tuple[str, ...] = ()
    if n_members > 1:
        state = runs.run("members", make_starts(method, n_members), pseudo_count)
        notes = (
            f"average of {n_members} fits: held-out log-likelihood per sample {max(state.held_out):.5f}, "
            f"of a single fit {by_method[method]:.5f}",
        )
    passes, by_passes = _choose_passes(state)
    comparisons = _leave_single_out(pseudo_counts, starts, by_passes)
    recipe = Recipe(
        ((method, n_members),),
        pseudo_count,
        passes,
        notes=(*(each.reason for each in comparisons), *notes),
        score=max(state.held_out),
        comparisons=comparisons,
    )
    assert state.best_prior is not None
    assert state.best_factors is not None
    return recipe, (state.best_prior, state.best_factors), state


def follow_recipe(
    recipe: Recipe, runs: Runs, make_starts: MakeStarts
) -> tuple[Parameters, EMState]:
    """Fit other samples in the same way.

    Parameters
    ----------
    recipe
        What to do.
    runs
        Runs on these samples; what they hold out is not used.
    make_starts
        Starts from the counts of these samples.

    Returns
    -------
    The model, and the state of the loop at its end.
    """
    if recipe.passes is not None:
        runs = replace(runs, max_passes=recipe.passes, tol=0.0)
    elif recipe.combination != "average":
        runs = replace(runs, accelerate=True)
    starts = [model for method, number in recipe.starts for model in make_starts(method, number)]
    state = runs.run("all", starts, recipe.pseudo_count, stop_early=False)
    return _combine(runs, state, recipe)[recipe.combination], state


def _compare_converged(
    runs: Runs, make_starts: MakeStarts, options: Options
) -> tuple[Recipe, Parameters, EMState]:
    """Run several starts until they have converged: the mean of them, or the best.

    Of few samples the best score is chance. A pseudo-count that is too large costs little, one that is too small makes
    up dependence that is not there: of those that held-out samples cannot distinguish from the best it is the largest.
    """
    starts = options.starts_of_small
    runs = replace(runs, accelerate=True)
    models = [model for method, number in starts for model in make_starts(method, number)]
    held_out = runs.held_out
    assert held_out is not None
    found: list[tuple[Parameters, EMState, Comparison]] = []
    for pseudo_count in options.pseudo_counts:
        state = runs.run(f"starts-{pseudo_count:g}", models, pseudo_count, stop_early=False)
        combined = _combine(runs, state, Recipe(starts, pseudo_count, combination="best"))
        scores = {name: held_out.score([model]) for name, model in combined.items()}
        compared = _compare_scores("combination", scores)
        found.append((combined[str(compared.chosen.settings["combination"])], state, compared))
    pseudo_counts = compare(
        "sample",
        [{"pseudo_count": each} for each in options.pseudo_counts],
        [compared.chosen.score for *_, compared in found],
        subtract=lambda best, other: held_out.compare(found[best][0], found[other][0]),
        rule="largest",
    )
    model, state, combinations = found[pseudo_counts.points.index(pseudo_counts.chosen)]
    comparisons = _leave_single_out(pseudo_counts, combinations)
    recipe = Recipe(
        starts,
        float(pseudo_counts.chosen.settings["pseudo_count"]),
        combination=str(combinations.chosen.settings["combination"]),
        notes=tuple(each.reason for each in comparisons),
        score=combinations.chosen.score,
        comparisons=comparisons,
    )
    return recipe, model, state


def _combine(runs: Runs, state: EMState, recipe: Recipe) -> dict[str, Parameters]:
    """Models that several runs combine to, by the name of the combination."""
    joined = state.prior, state.factors
    if recipe.combination == "average":
        return {"average": joined}
    models = split_members(joined, recipe.n_models)
    shape = PseudoCounts.shaped_by(runs.singles, runs.offsets, recipe.pseudo_count)
    objectives = [
        statistics.log_likelihood + shape.log_penalty(*model)
        for statistics, model in zip(runs.training.evaluate(models), models, strict=True)
    ]
    best = models[int(np.argmax(objectives))]
    return {"best": best, "mean": average_parameters(models)}


def _climb(values: Sequence[float], score: Callable[[float], float]) -> dict[float, float]:
    """Scores from the default on as long as neighbours are better, in the order in which they were taken."""
    at = _find_first(values)
    scores = {values[at]: score(values[at])}
    for step in (-1, 1):
        place = at + step
        while 0 <= place < len(values):
            scores[values[place]] = score(values[place])
            if scores[values[place]] <= scores[values[place - step]]:
                break
            place += step
        if place != at + step:
            # it went up this way: it goes down the other way
            break
    return scores


def _find_first(values: Sequence[float]) -> int:
    """Place of the value that is scored first."""
    return values.index(DEFAULT_PSEUDO_COUNT) if DEFAULT_PSEUDO_COUNT in values else 0


def _list_certain(values: Sequence[float]) -> list[float]:
    """Values that `_climb` scores whatever the scores are, in order: the first one, and its first neighbour."""
    at = _find_first(values)
    neighbour = at - 1 if at else 1
    return [values[at], *values[neighbour : neighbour + 1]]


def _compare_scores(name: str, scores: Mapping[str, float] | Mapping[float, float]) -> Comparison:
    """Compare values of one setting by their scores alone: their models are not kept."""
    return compare("sample", [{name: value} for value in scores], list(scores.values()))


def _choose_passes(state: EMState) -> tuple[int | None, Comparison]:
    """Stop at the pass that is best, unless the runs have converged and are as good at their end."""
    best, last = state.best_pass, state.n_passes
    fallen = max(state.held_out) - state.held_out[-1] > FALLEN * abs(max(state.held_out))
    stop = fallen or not state.converged
    passes = [best] if best == last else [best, last]
    comparison = compare(
        "sample",
        [{"passes": each} for each in passes],
        [state.held_out[each] for each in passes],
        chosen=0 if stop else len(passes) - 1,
    )
    return best if stop else None, comparison


def _leave_single_out(*comparisons: Comparison) -> tuple[Comparison, ...]:
    """Comparisons of more than one candidate."""
    return tuple(each for each in comparisons if len(each.points) > 1)
