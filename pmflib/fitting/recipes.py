"""How to fit by EM: start, pseudo-count and number of passes, chosen on held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pmflib.arrays import Parameters
from pmflib.em.joint_pmf_em import EMState
from pmflib.em.members import Runs, split_members
from pmflib.fitting.averaging import average_parameters
from pmflib.methods import MEMBER_START_METHODS
from pmflib.selection.comparison import Comparison, compare
from pmflib.selection.pseudo_count_grids import DEFAULT_PSEUDO_COUNT, FIT_SAMPLES
from pmflib.solvers.pairs.pseudo_counts import PseudoCounts

N_STARTS = 8
"""Starts of a small fit, which are run until they have converged, and whose mean is a candidate."""

SMALL_WORK = 4_000_000
"""Observed cells times rank up to which a fit is small."""

PLENTY = 1000
"""Observed cells per free parameter from which there is nothing to choose: pseudo-counts and passes do not matter."""

START_METHODS = ("auto", "random")
"""Methods of `fit` whose starts "auto" compares for a single model; for members it compares `MEMBER_START_METHODS`."""

FALLEN = 1e-4
"""Share of the best held-out log-likelihood by which the last pass must be below it to be worse."""

MakeStarts = Callable[[str, int], list[Parameters]]
"""Gives models to start from, by the start method and their number."""


@dataclass(frozen=True)
class Recipe:
    """How to fit; enough to do it again on other samples.

    Parameters
    ----------
    starts
        Start method, and number of starts, of each model that runs.
    pseudo_count
        Mean pseudo-count per level and state.
    passes
        Number of passes; None is until the objective has converged.
    combination
        What is made of several runs: their "average" as one model of summed rank, the "mean" of their parameters, or
        the "best" of them by the objective.
    notes
        What was compared, one sentence each.
    score
        Held-out log-likelihood of the model that it led to, nats per sample; None where nothing was held out.
    comparisons
        What was compared, with all scores.
    """

    starts: tuple[tuple[str, int], ...]
    pseudo_count: float
    passes: int | None = None
    combination: str = "average"
    notes: tuple[str, ...] = ()
    score: float | None = None
    comparisons: tuple[Comparison, ...] = ()

    @property
    def n_models(self) -> int:
        """Number of models that run side by side."""
        return sum(number for _, number in self.starts)

    @property
    def is_final(self) -> bool:
        """Whether EM would take the model apart."""
        return self.combination == "average" and self.n_models > 1


@dataclass(frozen=True)
class Options:
    """Candidates that a fit chooses from.

    Parameters
    ----------
    start_methods
        Start methods to compare, at least one; the first is the one that pseudo-counts are compared from.
    pseudo_counts
        Mean pseudo-counts per level and state to compare, rising, at least one.
    members
        Number of models to average; 1 is a single model.
    small
        Whether to run `N_STARTS` starts until they have converged, and to compare the mean of their parameters with the
        best of them; else runs stop early, at the pass that is best on the held-out samples.
    """

    start_methods: tuple[str, ...]
    pseudo_counts: tuple[float, ...] = FIT_SAMPLES
    members: int = 1
    small: bool = False

    @classmethod
    def make(
        cls, start: str, pseudo_count: float | Literal["auto"], members: int, rank: int
    ) -> Options:
        """List what a start method and a pseudo-count leave open, where they may be "auto"."""
        methods: tuple[str, ...] = (start,)
        if start == "auto" and rank > 1:
            methods = MEMBER_START_METHODS if members > 1 else START_METHODS
        return cls(methods, FIT_SAMPLES if pseudo_count == "auto" else (pseudo_count,), members)

    def fit_to(self, n_observed: int, rank: int) -> Options:
        """Run several starts where the samples, of so many observed cells, are few enough."""
        small = (
            len(self.start_methods) > 1 and self.members == 1 and n_observed * rank <= SMALL_WORK
        )
        return replace(self, small=small)

    @property
    def n_models(self) -> int:
        """Models that run side by side at most."""
        return N_STARTS if self.small else self.members

    @property
    def is_open(self) -> bool:
        """Whether held-out samples could decide anything."""
        return len(self.start_methods) > 1 or len(self.pseudo_counts) > 1 or self.members > 1

    def settle(self) -> Recipe:
        """Give the recipe to follow without held-out samples."""
        pseudo_count = (
            self.pseudo_counts[0] if len(self.pseudo_counts) == 1 else DEFAULT_PSEUDO_COUNT
        )
        return Recipe(((self.start_methods[0], self.members),), pseudo_count)


def is_plenty(n_observed: int, n_levels: int, rank: int) -> bool:
    """Whether there are so many samples that nothing is left to choose."""
    return n_observed >= PLENTY * n_levels * rank


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
        state = runs.run(f"{method}-{pseudo_count:g}", make_starts(method, 1), pseudo_count)
        score = max(state.held_out)
        if not scores or score > max(scores.values()):
            # the others are not kept: of large models there is no room for many
            ends[:] = [state]
        scores[method, pseudo_count] = score
        return score

    by_pseudo_count = _climb(options.pseudo_counts, lambda each: run(methods[0], each))
    pseudo_counts = _compare_scores("pseudo_count", by_pseudo_count)
    pseudo_count = float(pseudo_counts.chosen.settings["pseudo_count"])
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
    first, second = options.start_methods
    starts = ((first, 1), (second, N_STARTS - 1))
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
    at = values.index(DEFAULT_PSEUDO_COUNT) if DEFAULT_PSEUDO_COUNT in values else 0
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
