"""Fits of label logs, in memory or in a store: which model, where passes start, and the passes.

Passes start from the votes, from a model found earlier, or from co-occurrences. In the last case short runs from
several starts are compared (`find_likeliest_start`), and the likeliest continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, count
from pathlib import Path

import numpy as np
from scipy.special import xlogy

from pmflib.core.arrays import FloatArray
from pmflib.core.defaults import LABEL_LIMITS, Limits
from pmflib.crowd.dawid_skene import (
    CrowdPassPlan,
    CrowdState,
    DawidSkene,
    OnPass,
    OpenCheckpoint,
    fit_crowd,
)
from pmflib.crowd.held_out_labels import choose_model
from pmflib.crowd.label_source import LabelSource
from pmflib.em.checkpoint import Checkpoint, digest_fit
from pmflib.em.family import State, run_em
from pmflib.solvers.crowd.annotator_model import AnnotatorModel, CrowdModel
from pmflib.solvers.crowd.class_matching import match_columns


def fit_labels(
    source: LabelSource,
    plan: CrowdPassPlan,
    start: CrowdModel | None = None,
    *,
    rng: np.random.Generator | None = None,
    em: bool = True,
    work: Path | None = None,
    on_pass: OnPass | None = None,
    on_first_pass: OnPass | None = None,
) -> tuple[CrowdState, str]:
    """Choose a crowd model of a label log, and estimate it by passes.

    Parameters
    ----------
    source
        Tasks with their labels.
    plan
        What the passes estimate, and when they end.
    start
        Model to start from; None starts from the votes.
    rng
        For a start from co-occurrences: passes begin at the likeliest start near it, see `find_likeliest_start`. None
        continues from the start itself, with its annotator model.
    em
        Whether passes follow a start; without them the start is the result.
    work
        Folder of checkpoints: passes that were killed continue from there, to the same bits. None saves none.
    on_pass
        Called after each pass.
    on_first_pass
        Called after each pass of the short runs that find the likeliest start.

    Returns
    -------
    The final state, and why its annotator model was chosen; empty where there was nothing to choose. Where labels are
    known and passes were made, the model has intercepts: see `pmflib.crowd.known_intercepts`.

    Raises
    ------
    PmfError
        If a checkpoint is of another fit.
    """
    if start is not None and not em:
        return State(start, converged=True), ""
    kind, reason = plan.annotator_model, ""
    if start is not None and rng is None:
        kind = start.annotator_model
    elif plan.compares_models:
        choice = choose_model(source, kind, plan.limits)
        kind, reason = choice.annotator_model, choice.reason
    open_checkpoint: OpenCheckpoint | None = None
    if work is not None:
        of_start = () if start is None else (start.states, start.mass)
        open_checkpoint = partial(
            _open_checkpoint, work, digest_fit(source.digest(), kind, plan.tol, *of_start)
        )
    begin: AnnotatorModel | CrowdState | Callable[[], CrowdState] = kind
    if start is not None and rng is None:
        begin = State(replace(start, intercepts=None))
    elif start is not None and rng is not None:
        begin = partial(
            find_likeliest_start,
            source,
            start,
            rng,
            limits=plan.limits,
            open_checkpoint=open_checkpoint,
            on_pass=on_first_pass,
        )
    state = fit_crowd(
        source,
        begin,
        kind,
        limits=plan.limits,
        open_checkpoint=open_checkpoint,
        on_pass=on_pass,
    )
    return state, reason


def _open_checkpoint(work: Path, fit: str, family: DawidSkene, name: str) -> Checkpoint[CrowdState]:
    return Checkpoint(work / name, fit, family.pack_state, family.unpack_state)


@dataclass(frozen=True)
class Screening:
    """Parameters of the comparison of starts; tests/crowd/test_likeliest_start.py has crowds that need them.

    Parameters
    ----------
    n_passes
        Passes from each start before they are compared: after ten, one that ends higher may still be behind.
    max_rounds
        Limit of how often classes are split and merged.
    n_splits
        Random splits of each class that are tried.
    margin
        Nats by which all labels must be likelier from another start for it to be preferred.
    split_spread
        Standard deviation of the logarithms by which the halves of a class differ at first.
    """

    n_passes: int = 50
    max_rounds: int = 5
    n_splits: int = 2
    margin: float = 1.0
    split_spread: float = 0.5


SCREENING = Screening()


def find_likeliest_start(
    source: LabelSource,
    model: CrowdModel,
    rng: np.random.Generator,
    *,
    limits: Limits = LABEL_LIMITS,
    open_checkpoint: OpenCheckpoint | None = None,
    on_pass: OnPass | None = None,
) -> CrowdState:
    """Make the first passes, from where they make the labels likeliest.

    50 passes are made from the model, and 50 from the shares of the votes. From where the likelier of them end, each
    class is split in two at random, twice, and those two of the others are merged whose merging costs least; 50 passes
    are made from each of these. The likeliest goes on, and so forth, until no such change is likelier than going on
    without.

    Parameters
    ----------
    source
        Tasks with their labels.
    model
        Crowd model, such as from `fit_worker_pairs`.
    rng
        Draws how the halves of a class differ.
    limits
        Limits of the passes that these begin.
    open_checkpoint
        As for `pmflib.crowd.dawid_skene.fit_crowd`; runs are numbered in the order in which they are made.
    on_pass
        Called after each pass of each run: progress.

    Returns
    -------
    The passes from the likeliest start, to go on from.

    Notes
    -----
    Passes climb to the nearest maximum. Co-occurrences of few labels are noise, and passes from the votes do better.
    With rare classes both may lead to where a frequent class is split and rare ones are merged: no small step leads out
    of there, but splitting and merging does. It takes three classes.

    50 passes for each start; and up to five times, most often once, 100 for each class and 50 for going on. They are
    fewer where passes settle before.

    References
    ----------
    Biernacki, Celeux, Govaert (2003), Computational Statistics & Data Analysis 41, for short runs from several starts;
    Ueda, Nakano, Ghahramani, Hinton (2000), Neural Computation 12, for splitting and merging.
    """
    numbers, family = count(1), DawidSkene(model.annotator_model)

    def run(start: CrowdState | None, n_passes: int) -> CrowdState:
        """Make passes from a start, or from the votes."""
        name = f"start-{next(numbers)}.npz"
        return run_em(
            family,
            source,
            start or partial(family.begin, source),
            limits=limits._replace(max_passes=min(n_passes, limits.max_passes)),
            checkpoint=None if open_checkpoint is None else open_checkpoint(family, name),
            on_pass=on_pass,
        )

    first = SCREENING.n_passes
    best = _take_likeliest([run(State(model), first), run(None, first)])
    for _ in range(SCREENING.max_rounds):
        longer = run(best, best.n_passes + first)
        changed = [
            _match_classes(run(State(start), first))
            for start in _split_and_merge(longer.parameters, rng)
        ]
        best = _take_likeliest([longer, *changed])
        if best is longer:
            break
    return best


def _take_likeliest(fits: Sequence[CrowdState]) -> CrowdState:
    """The fit that makes the labels likeliest; the first if no other does by a margin."""
    best = max(fits, key=_total_log_likelihood)
    ahead = _total_log_likelihood(best) > _total_log_likelihood(fits[0]) + SCREENING.margin
    return best if ahead else fits[0]


def _total_log_likelihood(fit: CrowdState) -> float:
    """Log-likelihood of all tasks before the last pass, nats."""
    return fit.log_likelihoods[-1] * float(fit.parameters.states.sum())


def _split_and_merge(model: CrowdModel, rng: np.random.Generator) -> Iterator[CrowdModel]:
    """Models with one class after the other split, its second half in the place of one of two others, merged."""
    mass, states = model.mass, model.states
    costs = {
        pair: _cost_merging(mass, states, *pair) for pair in combinations(range(states.size), 2)
    }
    for split in np.repeat(range(states.size if states.size > 2 else 0), SCREENING.n_splits):
        kept, freed = min((pair for pair in costs if split not in pair), key=costs.__getitem__)
        new, sizes = mass.copy(), states.copy()
        new[:, :, kept] += mass[:, :, freed]
        sizes[kept] += states[freed]
        drawn = rng.normal(0.0, SCREENING.split_spread, mass.shape[:2])
        new[:, :, split] = _tilt(mass[:, :, split] / 2, drawn)
        new[:, :, freed] = _tilt(mass[:, :, split] / 2, -drawn)
        sizes[[split, freed]] = states[split] / 2
        yield replace(model, mass=new, states=sizes, label_mass=None)


def _cost_merging(mass: FloatArray, states: FloatArray, one: int, other: int) -> float:
    """How much likelier, in nats, labels and classes are with two classes than with one for both."""

    def measure(labels: FloatArray, size: float) -> float:
        totals = labels.sum(axis=1)
        return float(xlogy(labels, labels).sum() - xlogy(totals, totals).sum() + xlogy(size, size))

    first, second = mass[:, :, one], mass[:, :, other]
    separate = measure(first, states[one]) + measure(second, states[other])
    return separate - measure(first + second, states[one] + states[other])


def _tilt(labels: FloatArray, logs: FloatArray) -> FloatArray:
    """As many labels of each worker, (n_workers, n_classes), but more of some classes and fewer of others."""
    tilted = labels * np.exp(logs)
    totals = tilted.sum(axis=1, keepdims=True)
    ratio = labels.sum(axis=1, keepdims=True) / np.where(totals > 0, totals, 1.0)
    return np.asarray(tilted * ratio)


def _match_classes(fit: CrowdState) -> CrowdState:
    """Put the classes in the order in which workers are best on the whole: halves of a class have no name yet."""
    model = fit.parameters
    gains = np.einsum("mac,m->ac", model.confusion, model.mass.sum(axis=(1, 2)))
    columns = match_columns(gains)
    ordered = replace(
        model,
        mass=model.mass[:, :, columns],
        states=model.states[columns],
        label_mass=model.find_label_mass()[:, columns],
    )
    return replace(fit, parameters=ordered)
