"""Small fits: starts run until the best of them agree, and the best or a mean of them taken.

Of few samples fits from different starts end at different optima around the truth, and the mean of their parameters,
states matched, is nearer to it than most of them. Of many samples optima are far from each other, the best of them is
nearer than any other, and a mean of them is none. Held-out samples distinguish the two: a fit belongs to the mean if
these become more likely by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray, Parameters
from pmflib.core.comparison import Comparison, compare_candidates
from pmflib.core.defaults import DEFAULT_PSEUDO_COUNT
from pmflib.em.joint_pmf_em import EMState
from pmflib.em.members import Runs, split_members
from pmflib.em.samples import Samples
from pmflib.fitting.candidates import MAX_KEPT, MAX_STARTS, N_STARTS, FitSpecification, Options
from pmflib.fitting.starts import merge_alike_states
from pmflib.model.metrics import match_factors
from pmflib.solvers import PseudoCounts


def average_parameters(models: Sequence[Parameters]) -> Parameters:
    """Average the parameters of models, each state with the one it matches in the first model.

    Fits of few samples from different starts end at different optima around the truth; their mean is
    nearer to it than most of them. Fits that disagree on what the states are have no meaningful mean:
    compare it with them on held-out samples.

    Parameters
    ----------
    models
        Priors (rank,) and factors (n_levels, rank), at least one, all of one shape.

    Returns
    -------
    Prior and factors of the same shapes.
    """
    first = models[0]
    prior, factors = np.zeros_like(first[0]), np.zeros_like(first[1])
    for model in models:
        order = match_factors(*first, *model)
        prior += model[0][order] / len(models)
        factors += model[1][:, order] / len(models)
    return prior, factors


N_AGREEING = 3
"""Best fits that have to be one optimum, and half of all of them as good, before no more starts are made: a few may
meet at a poor one by chance."""

ONE_OPTIMUM = 1.0
"""Nats by which fits of one optimum may differ, and the mean of two be worse: a likelihood ratio of e says nothing."""

LOOSE = 3.0
"""Times the tolerance of convergence until which all starts run: the best of them go on to the tolerance itself."""

MakeStarts = Callable[[str, int], list[Parameters]]
"""Gives models to start from, by the start method and their number."""


@dataclass(frozen=True, eq=False)
class Converged:
    """Fits that have converged, under one pseudo-count.

    Parameters
    ----------
    models
        Priors and factors, by falling objective.
    objectives
        float64, log-likelihood of the training samples and log-density of the pseudo-counts, nats.
    state
        State of EM at the end of the last runs.
    """

    models: list[Parameters]
    objectives: FloatArray
    state: EMState


@dataclass(frozen=True, eq=False)
class Combined:
    """What the fits under one pseudo-count combine to.

    Parameters
    ----------
    model
        Prior and factors.
    members
        Fits that the model is made of; where it is the best of them, those that may be so on other samples.
    compared
        The best fit alone, and the mean.
    state
        State of EM at the end of the runs.
    """

    model: Parameters
    members: list[Parameters]
    compared: Comparison
    state: EMState


def find_small_specification(
    runs: Runs, make_starts: MakeStarts, options: Options
) -> tuple[FitSpecification, Parameters, EMState]:
    """Run starts until the best fits agree, and go on from them under the other pseudo-counts.

    Of few samples the best score is chance. A pseudo-count that is too large costs little, one that is too small makes
    up dependence that is not there: of those that held-out samples cannot distinguish from the best it is the largest.

    Parameters
    ----------
    runs
        With held-out samples.
    make_starts
        Starts by their method.
    options
        Those of a small fit.

    Returns
    -------
    The specification, which holds the fits to go on from; and the model and the state that it led to.
    """
    runs = replace(runs, accelerate=True)
    held_out = runs.held_out
    assert held_out is not None
    values = options.pseudo_counts
    first = DEFAULT_PSEUDO_COUNT if DEFAULT_PSEUDO_COUNT in values else values[0]
    loose = replace(runs, tol=LOOSE * runs.tol)
    starts, fits, agree = _run_starts(loose, make_starts, options.starts_of_small, first)
    n_starts = sum(number for _, number in starts)
    kept = _keep(fits, runs.offsets)
    found = {}
    for value in values:
        found[value] = _combine(_converge(runs, f"kept-{value:g}", kept, value), held_out)
    pseudo_counts = compare_candidates(
        "sample",
        [{"pseudo_count": value} for value in values],
        [found[value].compared.chosen.score for value in values],
        subtract=lambda best, other: held_out.compare(
            found[values[best]].model, found[values[other]].model
        ),
        rule="largest",
    )
    pseudo_count = float(pseudo_counts.chosen.settings["pseudo_count"])
    chosen = found[pseudo_count]
    comparisons = [each for each in (pseudo_counts, chosen.compared) if len(each.points) > 1]
    tried = f"the best {N_AGREEING} of {n_starts} starts "
    tried += "led to one fit" if agree else "led to different fits"
    specification = FitSpecification(
        starts,
        pseudo_count,
        combination=str(chosen.compared.chosen.settings["combination"]),
        notes=(*(each.reason for each in comparisons), tried),
        score=chosen.compared.chosen.score,
        comparisons=tuple(comparisons),
        models=tuple(chosen.members),
    )
    return specification, chosen.model, chosen.state


def follow_small_specification(
    specification: FitSpecification, runs: Runs
) -> tuple[FitSpecification, Parameters, EMState]:
    """Go on from the fits of a specification with other samples, mostly those and the ones that were held out.

    A mean is taken again if it is no worse by the objective than the mean of the fits that held-out samples have
    evaluated: else the fits have moved apart, and the best of them is taken.

    Parameters
    ----------
    specification
        From `find_small_specification`.
    runs
        Runs on these samples; what they hold out is not used.

    Returns
    -------
    The specification as it was followed, the model, and the state of the loop at its end.
    """
    runs = replace(runs, accelerate=True)
    fits = _converge(runs, "all", specification.models, specification.pseudo_count)
    if specification.combination == "mean":
        # in the order of the specification: states are matched with those of the first
        members = split_members(fits.state.parameters, len(specification.models))
        mean, scored = average_parameters(members), average_parameters(specification.models)
        now, before = find_objectives(runs, [mean, scored], specification.pseudo_count)
        if now >= before - ONE_OPTIMUM:
            return specification, mean, fits.state
        note = "the best fit: those that were averaged have moved apart with the samples that were held out"
        specification = replace(
            specification, combination="best", notes=(*specification.notes, note)
        )
    return specification, fits.models[0], fits.state


def _run_starts(
    runs: Runs,
    make_starts: MakeStarts,
    starts: tuple[tuple[str, int], ...],
    pseudo_count: float,
) -> tuple[tuple[tuple[str, int], ...], Converged, bool]:
    """Run `N_STARTS` starts at a time until the best fits agree, or there are enough; and whether they do."""
    *first, (method, n_merged) = starts
    new = [model for each, number in first for model in make_starts(each, number)]
    new += _merge(runs, make_starts("wide", n_merged), pseudo_count)
    name = f"starts-{pseudo_count:g}"
    fits = _converge(runs, name, new, pseudo_count)
    while not (agree := _agree(runs, fits, pseudo_count)) and len(fits.models) < MAX_STARTS:
        wide = make_starts("wide", n_merged + N_STARTS)[n_merged:]
        n_merged += N_STARTS
        new = _merge(runs, wide, pseudo_count)
        more = _converge(runs, f"{name}-{len(fits.models)}", new, pseudo_count)
        objectives = np.concatenate([fits.objectives, more.objectives])
        fits = _sort([*fits.models, *more.models], objectives, more.state)
    return (*first, (method, n_merged)), fits, agree


def _merge(runs: Runs, wide: Sequence[Parameters], pseudo_count: float) -> list[Parameters]:
    """Make starts of models with too many states."""
    shape = PseudoCounts.shaped_by(runs.singles, runs.offsets, pseudo_count)
    return merge_alike_states(runs.training, wide, runs.offsets, shape)


def _converge(
    runs: Runs, name: str, starts: Sequence[Parameters], pseudo_count: float
) -> Converged:
    """Run EM from starts until it has converged."""
    state = runs.run(name, starts, pseudo_count, stop_early=False)
    models = split_members(state.parameters, len(starts))
    return _sort(models, find_objectives(runs, models, pseudo_count), state)


def _sort(models: Sequence[Parameters], objectives: FloatArray, state: EMState) -> Converged:
    """Fits by falling objective, the first of equal ones first."""
    order = np.argsort(-objectives, kind="stable")
    return Converged([models[index] for index in order], objectives[order], state)


def _agree(runs: Runs, fits: Converged, pseudo_count: float) -> bool:
    """Whether half of the fits are as good as the best, and no valley lies between the first of them.

    There is none where the mean of the parameters of two fits, states matched, is no worse than the worse of the two.
    """
    n_best = int(np.count_nonzero(fits.objectives >= fits.objectives[0] - ONE_OPTIMUM))
    if n_best < max(N_AGREEING, len(fits.models) / 2):
        return False
    best, *others = fits.models[:N_AGREEING]
    middles = [average_parameters([best, other]) for other in others]
    objectives = find_objectives(runs, middles, pseudo_count)
    return bool(np.all(objectives >= fits.objectives[1:N_AGREEING] - ONE_OPTIMUM))


def _keep(fits: Converged, offsets: IntArray) -> list[Parameters]:
    """Different fits that sampling may have put below the best, which is one of them.

    The log-likelihood of the true parameters is expected below the maximum by half their number.
    """
    n_levels, rank = fits.models[0][1].shape
    n_free = rank * (n_levels - (offsets.size - 1)) + rank - 1
    kept, last = fits.models[:1], fits.objectives[0]
    for model, objective in zip(fits.models[1:], fits.objectives[1:], strict=True):
        if (
            len(kept) < MAX_KEPT
            and fits.objectives[0] - n_free / 2 <= objective < last - ONE_OPTIMUM
        ):
            kept.append(model)
            last = objective
    return kept


def _combine(fits: Converged, held_out: Samples) -> Combined:
    """The best fit, or the mean of it and those others by which held-out samples become more likely."""
    best = fits.models[0]
    members, mean, score = [best], best, held_out.score([best])
    scores = {"best": score}
    for other in fits.models[1:]:
        tried = average_parameters([*members, other])
        if (gained := held_out.score([tried])) > score:
            members, mean, score = [*members, other], tried, gained
    if len(members) == 1:
        compared = compare_candidates("sample", [{"combination": "best"}], [scores["best"]])
        return Combined(best, fits.models[:N_AGREEING], compared, fits.state)
    models = [best, mean]
    compared = compare_candidates(
        "sample",
        [{"combination": "best"}, {"combination": "mean"}],
        [scores["best"], score],
        subtract=lambda first, second: held_out.compare(models[first], models[second]),
        rule="least",
    )
    if compared.chosen.settings["combination"] == "best":
        return Combined(best, fits.models[:N_AGREEING], compared, fits.state)
    return Combined(mean, members, compared, fits.state)


def find_objectives(runs: Runs, models: Sequence[Parameters], pseudo_count: float) -> FloatArray:
    """Log-likelihood of the training samples and log-density of the pseudo-counts, nats."""
    shape = PseudoCounts.shaped_by(runs.singles, runs.offsets, pseudo_count)
    return np.array(
        [
            statistics.log_likelihood + shape.log_penalty(*model)
            for statistics, model in zip(runs.training.evaluate(models), models, strict=True)
        ]
    )
