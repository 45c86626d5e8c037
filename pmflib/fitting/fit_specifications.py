"""Ways to fit by EM: compared on held-out samples, and followed on other samples.

A single model starts from the pairs, at random, or at the best optimum that a search of bounded work has found
(`pmflib.fitting.optimum_search`). Held-out samples stop each run, and choose the start, then the pseudo-count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pmflib.core.arrays import Parameters
from pmflib.core.comparison import ChoiceRule, Comparison, compare_candidates
from pmflib.core.defaults import DEFAULT_PSEUDO_COUNT, FIT_SAMPLES
from pmflib.core.errors import PmfError
from pmflib.core.methods import MEMBER_START_METHODS
from pmflib.em.block_source import BlockSource
from pmflib.em.latent_classes import ClassState, Runs
from pmflib.fitting.optimum_search import DRAWN, OptimumSearch, count_kept
from pmflib.fitting.starts import Starts

START_METHODS = ("auto", "random", "search")
"""Starts that "auto" compares for a single model; for members it compares `MEMBER_START_METHODS`."""

PLENTY = 1000
"""Observed cells per free parameter from which there is nothing to choose: pseudo-counts and passes do not matter."""

TRIAL_SHARE = 0.25
"""Share of the passes of a search that are made where a fit only serves to choose the pseudo-count."""

LARGEST_PAIRS = 10
"""Entries of the table of pairs per observed cell up to which "auto" may start from it: a larger one takes most of the
time, and more memory than all else, and has next to nothing in most entries."""

FALLEN = 1e-4
"""Share of the best held-out log-likelihood by which the last pass must be below it to be worse."""


@dataclass(frozen=True)
class FitSpecification:
    """How to fit; enough to do it again on other samples.

    Parameters
    ----------
    method
        Start method: one of `pmflib.fit`, or "search".
    starts
        Start methods that the model comes from, and number of starts of each; "merged" are those of
        `merge_alike_states`.
    pseudo_count
        Mean pseudo-count per level and state.
    passes
        Number of passes from the start; None is until the objective has converged.
    members
        Number of models that are averaged to one of summed rank.
    notes
        What was compared, one sentence each.
    score
        Held-out log-likelihood of the model that it led to, nats per sample; None where nothing was held out.
    comparisons
        What was compared, with all scores.
    share
        Share of the other variables' log-likelihood that a fit for a target takes off; None is a fit by EM.
    models
        Starts of a fit of other samples, the best first: the start that was compared, or the optima that a search has
        found. Without any, starts are made.
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
    """Candidates that a fit chooses from.

    Parameters
    ----------
    start_methods
        Start methods that held-out samples choose from, at least one.
    pseudo_counts
        Mean pseudo-counts per level and state to compare, rising, at least one.
    members
        Number of models to average; 1 is a single model.
    trial
        Whether the fit only serves to choose, so that a search ends after `TRIAL_SHARE` of its passes.
    """

    start_methods: tuple[str, ...]
    pseudo_counts: tuple[float, ...] = FIT_SAMPLES
    members: int = 1
    trial: bool = False

    @classmethod
    def make(
        cls, start: str, pseudo_count: float | Literal["auto"], members: int, rank: int
    ) -> Options:
        """List what a start method and a pseudo-count leave open, where they may be "auto"."""
        if isinstance(pseudo_count, str) and pseudo_count != "auto":
            raise PmfError(
                f"pseudo_count is {pseudo_count!r}; give a number of at least 0, or 'auto'"
            )
        methods: tuple[str, ...] = (start,)
        if start == "auto" and rank > 1:
            methods = MEMBER_START_METHODS if members > 1 else START_METHODS
        return cls(methods, FIT_SAMPLES if pseudo_count == "auto" else (pseudo_count,), members)

    def fit_to(self, n_observed: int, n_levels: int, rank: int) -> Options:
        """The same for so many observed cells: without what nobody asked for, and these have no use or time for.

        Those are starts from a table of pairs that is large beside the samples, and a search that would make one start.
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
        """Whether the start of a single model is left open."""
        return "search" in self.start_methods

    def count_models(self, n_observed: int, rank: int) -> int:
        """Number of models that are held at a time, at most."""
        return count_kept(n_observed * rank) if self.searches else self.members

    @property
    def is_open(self) -> bool:
        """Whether held-out samples decide anything: the pseudo-count, or how members are made."""
        return len(self.pseudo_counts) > 1 or self.members > 1

    def settle(self) -> FitSpecification:
        """Give the specification to follow without held-out samples."""
        values = self.pseudo_counts
        pseudo_count = values[0] if len(values) == 1 else DEFAULT_PSEUDO_COUNT
        method = "search" if self.searches else self.start_methods[0]
        return FitSpecification(method, pseudo_count, members=self.members)


def is_plenty(n_observed: int, n_levels: int, rank: int) -> bool:
    """Whether there are so many samples that nothing is left to choose."""
    return n_observed >= PLENTY * n_levels * rank


@dataclass(frozen=True)
class FoundStart:
    """Where the passes of a single model begin.

    Parameters
    ----------
    models
        The start; or the optima that a search has found, which are different, the best first.
    starts
        Start methods, and number of starts of each.
    has_converged
        Whether it is an optimum.
    note
        How it was found; "" where it was made.
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
    """Make a start of a method, or search for the best optimum.

    Parameters
    ----------
    runs, starts
        As for `find_specification`.
    method
        Start method.
    pseudo_count
        Mean pseudo-count per level and state.
    known
        The start of a fit of other samples, or its optima: a search goes on from these.
    share
        Share of the passes after which a search ends, in (0, 1].
    """
    if method == "search" and not runs.max_passes:
        # nothing leads to an optimum
        method = "auto" if starts.has_pairs else "random"
    if method != "search":
        return FoundStart(tuple(known) or tuple(starts(method, 1)), ((method, 1),))
    # what draws nothing would lead to where the optima are
    methods = DRAWN if known or not starts.has_pairs else ("auto", *DRAWN)
    found = OptimumSearch(runs, starts, methods, pseudo_count, share).run(known)
    converged = found.optima[0].state.converged
    return FoundStart(found.models, found.starts, converged, found.describe())


def find_specification(
    runs: Runs, starts: Starts, options: Options
) -> tuple[FitSpecification, Parameters, ClassState]:
    """Compare ways to fit on held-out samples, or settle them without any.

    Of the pseudo-counts that held-out samples cannot distinguish from the best the largest is taken: one that is too
    large costs little, and one that is too small makes up dependence that is not there.

    Parameters
    ----------
    runs
        Runs of EM on the training samples.
    starts
        Starts by their method.
    options
        What to compare.

    Returns
    -------
    The specification, and the model and the state that it led to.
    """
    held_out = runs.held_out
    if held_out is None:
        return follow_specification(options.settle(), runs, starts)
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
    # of large models there is no room for many
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
    # of a trial the search is another than that of the fit that follows
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
    """Fit other samples in the same way.

    Parameters
    ----------
    specification
        What to do.
    runs
        Runs on these samples; what they hold out is not used.
    starts
        Starts from the counts of these samples.

    Returns
    -------
    The specification as it was followed, the model, and the state of the loop at its end.
    """
    pseudo_count, method = specification.pseudo_count, specification.method
    last = runs
    if specification.passes is not None:
        last = replace(runs, max_passes=specification.passes, tol=0.0)
    elif specification.score is not None:
        # held-out samples do not stop it, and acceleration pays where EM is to converge
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
        # starts that draw nothing are not made again
        once = {name: n for name, n in specification.starts if name not in DRAWN}
        made = once | {name: n for name, n in made.items() if name in DRAWN or not once}
    notes = specification.notes + ((found.note,) if found.note else ())
    followed = replace(specification, starts=tuple(made.items()), notes=notes, models=found.models)
    return followed, state.parameters, state


def _run_on(
    runs: Runs, found: FoundStart, pseudo_count: float, name: str, *, stop_early: bool
) -> ClassState:
    """Run EM from a start; an optimum is only refined, with acceleration, and not stopped early."""
    if found.has_converged:
        runs, stop_early = replace(runs, accelerate=True), False
    # a start that was made is no model, other than one that somebody gave
    ((method, _), *_) = found.starts
    keeps = method == "given"
    models = found.models[:1]
    return runs.run(name, models, pseudo_count, stop_early=stop_early, keeps_start=keeps)


def _find_members(
    runs: Runs, starts: Starts, options: Options
) -> tuple[FitSpecification, Parameters, ClassState]:
    """Compare ways to fit the models of an average: by one of each start method, stopped by held-out samples."""
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
    # by their scores alone: their models are not kept
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


def _take_best(state: ClassState) -> Parameters:
    """Give the model of the pass that was best on held-out samples, or the last without any."""
    return state.parameters if state.best is None else state.best


def _choose_passes(state: ClassState) -> tuple[int | None, Comparison]:
    """Stop at the pass that is best, unless the runs have converged and are as good at their end, or it is the last."""
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
