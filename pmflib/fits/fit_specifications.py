"""Specifications of EM fits: chosen on held-out samples, and applied to other samples.

A single model starts from pairs, at random, or from the best optimum found by a search with bounded work
(`pmflib.fits.optimum_search`). Held-out samples stop each run, and choose the start, then the pseudo-count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pmflib.base.arrays import Parameters
from pmflib.base.comparison import ChoiceRule, Comparison, compare_candidates
from pmflib.base.constraints import Interval, check
from pmflib.base.defaults import DEFAULT_PSEUDO_COUNT, FIT_SAMPLES
from pmflib.base.methods import MEMBER_START_METHODS
from pmflib.em.block_source import BlockSource
from pmflib.em.latent_classes import ClassState, Runs
from pmflib.fits.optimum_search import DRAWN, OptimumSearch, count_kept
from pmflib.fits.starts import Starts

START_METHODS = ("auto", "random", "search")
"""Starts compared by "auto" for a single model; for members it compares `MEMBER_START_METHODS`."""

PLENTY = 1000
"""Observed cells per free parameter above which there is nothing to choose: pseudo-counts and early stopping do not
matter.
"""

TRIAL_SHARE = 0.25
"""Share of a search's passes that is made if a fit only serves to choose the pseudo-count."""

LARGEST_PAIRS = 10
"""Entries of the table of pairs per observed cell up to which "auto" may start from it; a larger table would dominate
time and memory, with almost all entries empty.
"""

FALLEN = 1e-4
"""Fraction of the best held-out log-likelihood by which the last pass must be lower to count as worse."""

TOLERATED = 0.5
"""Number of standard errors within which a candidate of a fit for a target is as good as the best; among these, the one
with the largest pseudo-count is chosen. With few held-out samples, the best of many is due to chance; a whole standard
error lost more, on the tables used for tuning (`python -m benchmarks.models.targets`).
"""


@dataclass(frozen=True)
class FitSpecification:
    """Specification of a fit, sufficient to repeat it on other samples.

    Parameters
    ----------
    method
        Start method: one of `pmflib.fit`, or "search".
    starts
        Start methods of the model, with the number of starts of each; "merged" are those of `merge_alike_states`.
    pseudo_count
        Mean pseudo-count per level and state.
    passes
        Number of passes from the start; None until the objective has converged.
    members
        Number of models averaged into one of summed rank.
    notes
        One sentence for each comparison.
    score
        Held-out log-likelihood of the resulting model, nats per sample; None without held-out data.
    comparisons
        Comparisons, with all scores.
    share
        Weight of the subtracted log-likelihood of the other variables in a target fit; None for an EM fit.
    models
        Starting models from a fit to other samples, the best first: the selected start, or the optima found by a
        search. If empty, starts are made.
    """

    method: str
    pseudo_count: float
    starts: tuple[tuple[str, int], ...] = ()
    passes: int | None = None
    members: int = 1
    notes: tuple[str, ...] = ()
    score: float | None = None
    comparisons: tuple[Comparison, ...] = ()
    share: float | None = None
    models: tuple[Parameters, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Options:
    """Candidates from which a fit chooses.

    Parameters
    ----------
    start_methods
        Start methods to compare on held-out samples, at least one.
    pseudo_counts
        Mean pseudo-counts per level and state to compare, increasing, at least one.
    members
        Number of models to average; 1 is a single model.
    trial
        Whether the fit only serves to make a choice, so that a search ends after `TRIAL_SHARE` of its passes.
    """

    start_methods: tuple[str, ...]
    pseudo_counts: tuple[float, ...] = FIT_SAMPLES
    members: int = 1
    trial: bool = False

    @classmethod
    def make(
        cls, start: str, pseudo_count: float | Literal["auto"], members: int, rank: int
    ) -> Options:
        """List the candidates for a start method and a pseudo-count, either of which may be "auto"."""
        check(Interval(0, closed="left", also=("auto",)), pseudo_count=pseudo_count)
        methods: tuple[str, ...] = (start,)
        if start == "auto" and rank > 1:
            methods = MEMBER_START_METHODS if members > 1 else START_METHODS
        return cls(methods, FIT_SAMPLES if pseudo_count == "auto" else (pseudo_count,), members)

    def fit_to(self, n_observed: int, n_levels: int, rank: int) -> Options:
        """Drop optional candidates that are useless or too slow for the number of observed cells.

        These are starts from a table of pairs that is large compared with the samples, and a search that would make a
        single start.
        """
        if not self.searches and self.start_methods not in (("auto",), MEMBER_START_METHODS):
            return self
        methods = self.start_methods
        if n_levels**2 > LARGEST_PAIRS * n_observed:
            methods = tuple(each for each in methods if each not in ("auto", "pairs"))
        if count_kept(n_observed * rank) == 1:
            methods = tuple(each for each in methods if each != "search")
        return replace(self, start_methods=methods or ("random",))

    @property
    def searches(self) -> bool:
        """Return whether the start of a single model is still to be chosen."""
        return "search" in self.start_methods

    def count_models(self, n_observed: int, rank: int) -> int:
        """Return the maximum number of models in memory at a time."""
        return count_kept(n_observed * rank) if self.searches else self.members

    @property
    def is_open(self) -> bool:
        """Return whether held-out samples decide the pseudo-count or the start of members."""
        return len(self.pseudo_counts) > 1 or self.members > 1

    def resolve(self) -> FitSpecification:
        """Return the specification to use without held-out samples."""
        values = self.pseudo_counts
        pseudo_count = values[0] if len(values) == 1 else DEFAULT_PSEUDO_COUNT
        method = "search" if self.searches else self.start_methods[0]
        return FitSpecification(method, pseudo_count, members=self.members)


def is_plenty(n_observed: int, n_levels: int, rank: int) -> bool:
    """Return whether there are so many samples that nothing is left to choose."""
    return n_observed >= PLENTY * n_levels * rank


WARM_PATIENCE = 2
"""Maximum patience of a warm refit on many samples, in passes without a rise of the held-out log-likelihood. It starts
from a finished fit, and gains of further passes are below the resolution of held-out samples."""


def limit_patience(patience: int, n_observed: int, n_levels: int, rank: int) -> int:
    """Limit the patience, in passes without a rise, of a warm refit of latent classes.

    Parameters
    ----------
    patience
        Patience of a fit from scratch, which is kept for few samples: their passes are fast and gain more.
    n_observed, n_levels
        Number of observed training cells, and of levels.
    rank
        Number of latent states.
    """
    if is_plenty(n_observed, n_levels, rank):
        return min(patience, WARM_PATIENCE)
    return patience


@dataclass(frozen=True)
class FoundStart:
    """Starting point of a single model.

    Parameters
    ----------
    models
        The start; or the distinct optima found by a search, the best first.
    starts
        Start methods, with the number of starts of each.
    has_converged
        Whether it is an optimum.
    note
        How it was found; "" for a start that was made.
    """

    models: tuple[Parameters, ...]
    starts: tuple[tuple[str, int], ...]
    has_converged: bool = False
    note: str = ""


def find_start(
    runs: Runs,
    starts: Starts,
    method: str,
    pseudo_count: float,
    *,
    known: Sequence[Parameters] = (),
    share: float = 1.0,
) -> FoundStart:
    """Make a start by a method, or search for the best optimum.

    Parameters
    ----------
    runs, starts
        As for `find_specification`.
    method
        Start method.
    pseudo_count
        Mean pseudo-count per level and state.
    known
        Start or optima from a fit to other samples; a search continues from these.
    share
        Share of the passes after which a search ends, in (0, 1].
    """
    if method == "search" and not runs.max_passes:
        # no start leads to an optimum
        method = "auto" if starts.has_pairs else "random"
    if method != "search":
        return FoundStart(tuple(known) or tuple(starts(method, 1)), ((method, 1),))
    # deterministic starts would lead to the same optima again
    methods = DRAWN if known or not starts.has_pairs else ("auto", *DRAWN)
    found = OptimumSearch(runs, starts, methods, pseudo_count, share).run(known)
    converged = found.optima[0].state.converged
    return FoundStart(found.models, found.starts, converged, found.describe())


def find_specification(
    runs: Runs, starts: Starts, options: Options
) -> tuple[FitSpecification, Parameters, ClassState]:
    """Choose a specification by held-out samples, or use the default without any.

    Among pseudo-counts within one standard error of the best on held-out samples, the largest is chosen: one that is
    too large costs little, while one that is too small suggests dependence that does not exist.

    Parameters
    ----------
    runs
        EM runs on the training samples.
    starts
        Starts by method.
    options
        Candidates.

    Returns
    -------
    The specification, with the resulting model and state.
    """
    held_out = runs.held_out
    if held_out is None:
        return follow_specification(options.resolve(), runs, starts)
    if options.members > 1:
        return _find_members(runs, starts, options)
    values, methods = options.pseudo_counts, options.start_methods
    share = TRIAL_SHARE if options.trial else 1.0
    first = values[_find_first(values)]
    found = {each: find_start(runs, starts, each, first, share=share) for each in methods}
    ends = {
        each: _run_on(runs, found[each], first, f"{each}-{first:g}", stop_early=True)
        for each in methods
    }
    by_start = _compare(held_out, "start", ends, "best")
    method = str(by_start.chosen.settings["start"])
    # there is no memory for many large models
    states, found = {first: ends.pop(method)}, {method: found[method]}
    ends.clear()

    def score(value: float) -> float:
        if value not in states:
            name = f"{method}-{value:g}"
            states[value] = _run_on(runs, found[method], value, name, stop_early=True)
        return held_out.score([_take_best(states[value])])

    climb(values, score)
    by_value = _compare(held_out, "pseudo_count", dict(sorted(states.items())), "largest")
    chosen = float(by_value.chosen.settings["pseudo_count"])
    start, state = found[method], states[chosen]
    comparisons, passes = [by_start, by_value], None
    if start.has_converged:
        if chosen != first:
            start = find_start(runs, starts, method, chosen, known=start.models, share=share)
        state = _run_on(runs, start, chosen, "all", stop_early=False)
    else:
        passes, by_passes = _choose_passes(state)
        comparisons.append(by_passes)
    comparisons = [each for each in comparisons if len(each.points) > 1]
    model = _take_best(state)
    # the search of a trial differs from that of the final fit
    notes = [each.reason for each in comparisons]
    notes += [start.note] if start.note and not options.trial else []
    specification = FitSpecification(
        method,
        chosen,
        start.starts,
        passes,
        notes=tuple(notes),
        score=held_out.score([model]),
        comparisons=tuple(comparisons),
        models=start.models,
    )
    return specification, model, state


def _compare(
    held_out: BlockSource, name: str, states: Mapping[Any, ClassState], rule: ChoiceRule
) -> Comparison:
    """Compare runs on held-out samples."""
    models = [_take_best(state) for state in states.values()]
    return compare_candidates(
        "sample",
        [{name: each} for each in states],
        [held_out.score([model]) for model in models],
        subtract=lambda best, other: held_out.compare([models[best]], [models[other]]),
        rule=rule,
    )


def follow_specification(
    specification: FitSpecification, runs: Runs, starts: Starts
) -> tuple[FitSpecification, Parameters, ClassState]:
    """Fit other samples by a specification.

    Parameters
    ----------
    specification
        Specification to follow.
    runs
        Runs on these samples; held-out samples are ignored.
    starts
        Starts from the counts of these samples.

    Returns
    -------
    The specification as followed, the model, and the final state of the loop.
    """
    pseudo_count, method = specification.pseudo_count, specification.method
    last = runs
    if specification.passes is not None:
        last = replace(runs, max_passes=specification.passes, tol=0.0)
    elif specification.score is not None:
        # held-out samples do not stop it, and acceleration helps when EM runs to convergence
        last = replace(runs, accelerate=True)
    if specification.members > 1:
        models = starts(method, specification.members)
        state = last.run("all", models, pseudo_count, stop_early=False)
        averaged = replace(specification, starts=((method, specification.members),))
        return averaged, state.parameters, state
    found = find_start(runs, starts, method, pseudo_count, known=specification.models)
    state = _run_on(last, found, pseudo_count, "all", stop_early=False)
    made = dict(found.starts)
    if specification.models:
        # deterministic starts are not made again
        once = {name: n for name, n in specification.starts if name not in DRAWN}
        made = once | {name: n for name, n in made.items() if name in DRAWN or not once}
    notes = specification.notes + ((found.note,) if found.note else ())
    followed = replace(specification, starts=tuple(made.items()), notes=notes, models=found.models)
    return followed, state.parameters, state


def _run_on(
    runs: Runs, found: FoundStart, pseudo_count: float, name: str, *, stop_early: bool
) -> ClassState:
    """Run EM from a start; an optimum is only refined, with acceleration and without early stopping."""
    if found.has_converged:
        runs, stop_early = replace(runs, accelerate=True), False
    # a start that was made is not eligible as a model, unless the user gave it
    ((method, _), *_) = found.starts
    keeps = method == "given"
    models = found.models[:1]
    return runs.run(name, models, pseudo_count, stop_early=stop_early, keeps_start=keeps)


def _find_members(
    runs: Runs, starts: Starts, options: Options
) -> tuple[FitSpecification, Parameters, ClassState]:
    """Choose the start method of members of an average by one fit of each, stopped by held-out samples."""
    assert runs.held_out is not None
    ends: dict[str, ClassState] = {}

    def run(method: str, pseudo_count: float) -> float:
        state = runs.run(f"{method}-{pseudo_count:g}", starts(method, 1), pseudo_count)
        score = max(state.held_out)
        if method not in ends or score > max(ends[method].held_out):
            ends[method] = state
        return score

    methods = options.start_methods
    by_pseudo_count = climb(options.pseudo_counts, lambda each: run(methods[0], each))
    # compared by scores only: the models are not kept
    pseudo_counts = compare_candidates(
        "sample",
        [{"pseudo_count": each} for each in by_pseudo_count],
        list(by_pseudo_count.values()),
    )
    pseudo_count = float(pseudo_counts.chosen.settings["pseudo_count"])
    for each in methods[1:]:
        run(each, pseudo_count)
    by_start = _compare(runs.held_out, "start", ends, "best")
    method = str(by_start.chosen.settings["start"])
    state = runs.run("members", starts(method, options.members), pseudo_count)
    passes, by_passes = _choose_passes(state)
    comparisons = tuple(
        each for each in (pseudo_counts, by_start, by_passes) if len(each.points) > 1
    )
    note = (
        f"average of {options.members} fits: held-out log-likelihood per sample {max(state.held_out):.5f}, "
        f"of a single fit {max(ends[method].held_out):.5f}"
    )
    specification = FitSpecification(
        method,
        pseudo_count,
        ((method, options.members),),
        passes,
        options.members,
        (*(each.reason for each in comparisons), note),
        max(state.held_out),
        comparisons,
    )
    return specification, _take_best(state), state


def climb(values: Sequence[float], score: Callable[[float], float]) -> dict[float, float]:
    """Score values from the default to its neighbours as long as the score improves, smaller values first.

    Parameters
    ----------
    values
        In ascending order, at least one.
    score
        Returns the score of a value; higher is better.

    Returns
    -------
    Scores by value, in order of evaluation.
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
            # improving in this direction, so the other need not be tried
            break
    return scores


def _find_first(values: Sequence[float]) -> int:
    """Return the index of the value that is scored first."""
    return values.index(DEFAULT_PSEUDO_COUNT) if DEFAULT_PSEUDO_COUNT in values else 0


def _take_best(state: ClassState) -> Parameters:
    """Return the model of the best pass on held-out samples, or of the last pass without any."""
    return state.parameters if state.best is None else state.best


def _choose_passes(state: ClassState) -> tuple[int | None, Comparison]:
    """Return the best pass to stop at, or None if the runs converged and end as well, or the best pass is the last."""
    best, last = state.best_pass, state.n_passes
    fallen = max(state.held_out) - state.held_out[-1] > FALLEN * abs(max(state.held_out))
    stop = best < last and (fallen or not state.converged)
    passes = [best] if best == last else [best, last]
    comparison = compare_candidates(
        "sample",
        [{"passes": each} for each in passes],
        [state.held_out[each] for each in passes],
        chosen=0 if stop else len(passes) - 1,
    )
    return best if stop else None, comparison
