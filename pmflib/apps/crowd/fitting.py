"""Fits of label logs, in memory or in a store: where passes start, and the passes.

The annotator model is chosen first, by held-out labels (`pmflib.apps.crowd.model_choice`).

Passes start from the votes, from an earlier model, or from co-occurrences. In the last case short runs from several
starts are compared (`find_likeliest_start`), and the likeliest continues.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, count
from pathlib import Path

import numpy as np
from scipy.special import xlogy

from pmflib.apps.crowd.dawid_skene import (
    CrowdPassPlan,
    CrowdState,
    DawidSkene,
    OnPass,
    OpenCheckpoint,
    fit_crowd,
    plan_shrunk,
)
from pmflib.apps.crowd.e_step import (
    LabelSource,
    LogWeights,
    VotedBlock,
    score_states,
    weigh_votes,
)
from pmflib.apps.crowd.m_step import SHRINKAGE, measure_agreement
from pmflib.apps.crowd.methods import LABEL_LIMITS
from pmflib.apps.crowd.model_choice import choose_model, has_enough_labels
from pmflib.apps.crowd.pairs.annotator_model import (
    AnnotatorModel,
    CrowdModel,
    put_workers_last,
)
from pmflib.apps.crowd.pairs.class_matching import match_columns
from pmflib.base.arrays import BoolArray, FloatArray, IntArray
from pmflib.base.defaults import Limits
from pmflib.base.errors import IdentificationWarning
from pmflib.em.checkpoint import Checkpoint, digest_fit
from pmflib.em.family import State, run_em


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
        Whether passes follow a start; without them the start is the result, unless it comes from co-occurrences that
        contradict the votes on most tasks and make labels less likely than these.
    work
        Folder of checkpoints: passes that were killed continue from there, to the same bits. None saves none.
    on_pass
        Called after each pass.
    on_first_pass
        Called after each pass of the short runs that find the likeliest start.

    Returns
    -------
    The final state, and why its annotator model was chosen; empty where there was nothing to choose. Where labels are
    known and passes were made, the model has intercepts: see `pmflib.apps.crowd.known_intercepts`.

    Raises
    ------
    PmfError
        If a checkpoint is of another fit.

    Warns
    -----
    IdentificationWarning
        If co-occurrences were refused for this reason.
    """
    if start is not None and not em:
        kept = start if rng is None else _refuse_collapsed(source, start)
        return State(kept, converged=True), "" if kept is start else COLLAPSED
    kind, reason = plan.annotator_model, ""
    if start is not None and rng is not None and not has_enough_labels(source, plan.limits):
        warnings.warn(TOO_FEW_LABELS, IdentificationWarning, stacklevel=4)
        plan, start = plan_shrunk(plan.max_passes, plan.tol), None
        kind, reason = plan.annotator_model, f"{TOO_FEW_LABELS}: "
    if start is not None and rng is None:
        kind = start.annotator_model
    elif plan.compares_models:
        choice = choose_model(source, kind, plan.limits)
        kind, reason = choice.annotator_model, reason + choice.reason
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
    if plan.compares_models and start is None and state.parameters.intercepts is None:
        named = _name_states(state)
        reason += "" if named is state else EXCHANGED
        state = named
    return state, reason


EXCHANGED = "; states that passes had exchanged are the classes that workers name"
"""Reason for classes whose states were exchanged."""
TOO_FEW_LABELS = (
    "workers gave too few labels for free confusion matrices, and passes are those of method 'auto', without "
    "co-occurrences"
)
"""Reason for passes that do not start from co-occurrences."""
COLLAPSED = (
    "co-occurrences contradict the votes on most tasks, and the labels are less likely under them than under the "
    "votes: confusion matrices are those of the votes"
)
"""Reason for confusion matrices that a method of co-occurrences did not estimate."""


LEAST_LEAD = 1e-9
"""Difference of shares beyond rounding."""


def _refuse_collapsed(source: LabelSource, start: CrowdModel) -> CrowdModel:
    """Return a crowd model, or that of the votes if it contradicts them and makes labels less likely; warn of this.

    With few common tasks, a factorisation of co-occurrences may give most workers the same wrong class.
    """
    everybody = np.ones(source.n_workers, bool)
    n_contradicted, n_labelled = count_contradicted(source, start, everybody)
    if 2 * n_contradicted <= n_labelled:
        return start
    by_votes = DawidSkene(start.annotator_model).begin(source).parameters
    if source.measure_log_likelihood(start) >= source.measure_log_likelihood(by_votes):
        return start
    warnings.warn(
        f"{COLLAPSED}; let passes follow (em), or use method 'dawid_skene'",
        IdentificationWarning,
        stacklevel=4,
    )
    return by_votes


def count_contradicted(
    source: LabelSource, model: CrowdModel, informed: BoolArray
) -> tuple[int, int]:
    """Count the tasks whose most probable class has fewer votes than another, and the tasks with labels.

    Parameters
    ----------
    source
        Tasks with their labels.
    model
        Crowd model.
    informed
        Whether the votes of each worker count, (n_workers,).
    """
    votes = informed[:, None, None] * np.eye(source.n_classes)
    nothing = np.zeros(source.n_classes)
    tally = LogWeights(
        nothing, votes.reshape(-1, source.n_classes), weigh_votes(0.0), with_known=False
    )
    return source.map_blocks(_count_contradicted, _add_counts, model, tally)


def _count_contradicted(
    blocks: Iterable[VotedBlock], model: CrowdModel, tally: LogWeights
) -> tuple[int, int]:
    weights, counts = LogWeights.from_model(model, with_votes=False), np.zeros(2, np.int64)
    for block in blocks:
        shares = score_states(block, tally)
        codes = score_states(block, weights).argmax(axis=1)
        fewer = shares[np.arange(codes.size), codes] < shares.max(axis=1, initial=0) - LEAST_LEAD
        counts += fewer.sum(), (np.diff(block.labels.indptr) > 0).sum()
    return int(counts[0]), int(counts[1])


def _add_counts(parts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


def _open_checkpoint(work: Path, fit: str, family: DawidSkene, name: str) -> Checkpoint[CrowdState]:
    return Checkpoint(work / name, fit, family.pack_state, family.unpack_state)


@dataclass(frozen=True)
class Screening:
    """Parameters of the comparison of starts; tests/apps/crowd/test_likeliest_start.py has crowds that need them.

    Parameters
    ----------
    n_passes
        Number of passes from each start before the comparison: ten would be too few for the better start to lead.
    max_rounds
        Limit of the rounds of splitting and merging.
    n_splits
        Number of random splits of each class.
    margin
        Gain in log-likelihood, nats, by which another start is preferred.
    vote_cost
        Nats for each task whose class contradicts its votes [benchmarks/crowd/behind.py].
    split_spread
        Standard deviation of the log-ratios between the halves of a split class.
    """

    n_passes: int = 50
    max_rounds: int = 5
    n_splits: int = 2
    margin: float = 1.0
    vote_cost: float = 0.5
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
    """Make the first passes from several starts, and return the likeliest run that respects the votes.

    50 passes are made from the shares of the votes, and 50 from the model. In the better of the two, each class is
    split at random, twice, while the two others whose merging costs least are merged; 50 passes are made from each
    result. This is repeated from the best run until no change is better than continuing without it. Runs are compared
    by their log-likelihood, less half a nat for each task whose class contradicts the votes of informed workers: those
    whose labels agree with the run from the votes beyond chance.

    Parameters
    ----------
    source
        Tasks with their labels.
    model
        Crowd model, such as from `fit_worker_pairs`.
    rng
        Generator of the random splits.
    limits
        Limits of the passes.
    open_checkpoint
        As for `pmflib.apps.crowd.dawid_skene.fit_crowd`; runs are numbered in order.
    on_pass
        Called after each pass of each run.

    Returns
    -------
    State of the likeliest run, to continue from.

    Notes
    -----
    Passes converge to a local maximum. Co-occurrences of few labels are noisy, and passes from the votes are better
    there. With rare classes both may end where a frequent class is split and rare ones are merged; splitting and
    merging leads out of such maxima. It needs three classes. But where tasks of a class differ, labels are likeliest
    if the class is split and another one is lost, against the votes of many tasks.

    The cost is 50 passes for each start, and in each of up to five rounds, most often one, 100 for each class and 50
    for continuing; less where passes converge earlier.

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
    by_votes = run(None, first)
    labels = by_votes.parameters.find_label_mass().reshape(model.mass.shape)
    informed = measure_agreement(put_workers_last(labels)) >= SHRINKAGE.least_agreement
    take_best = partial(_take_likeliest, source, informed)
    best = take_best([by_votes, run(State(model), first)])
    for _ in range(SCREENING.max_rounds):
        longer = run(best, best.n_passes + first)
        changed = [
            _match_classes(run(State(start), first))
            for start in _split_and_merge(longer.parameters, rng)
        ]
        best = take_best([longer, *changed])
        if best is longer:
            break
    return best


def _take_likeliest(
    source: LabelSource, informed: BoolArray, fits: Sequence[CrowdState]
) -> CrowdState:
    """Return the fit with the best score; the first one unless another is better by the margin.

    The score is the log-likelihood of all tasks before the last pass, less the cost of contradicted votes.
    """
    scores = [
        fit.log_likelihoods[-1] * float(fit.parameters.states.sum())
        - SCREENING.vote_cost * count_contradicted(source, fit.parameters, informed)[0]
        for fit in fits
    ]
    best = int(np.argmax(scores))
    return fits[best] if scores[best] > scores[0] + SCREENING.margin else fits[0]


def _split_and_merge(model: CrowdModel, rng: np.random.Generator) -> Iterator[CrowdModel]:
    """Yield models in which one class is split and two others are merged, for each class in turn."""
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
    """Loss in log-likelihood of labels and classes, nats, if two classes are merged."""

    def measure(labels: FloatArray, size: float) -> float:
        totals = labels.sum(axis=1)
        return float(xlogy(labels, labels).sum() - xlogy(totals, totals).sum() + xlogy(size, size))

    first, second = mass[:, :, one], mass[:, :, other]
    separate = measure(first, states[one]) + measure(second, states[other])
    return separate - measure(first + second, states[one] + states[other])


def _tilt(labels: FloatArray, logs: FloatArray) -> FloatArray:
    """Multiply labels, (n_workers, n_classes), by exponentials of ``logs``, and keep the total of each worker."""
    tilted = labels * np.exp(logs)
    totals = tilted.sum(axis=1, keepdims=True)
    ratio = labels.sum(axis=1, keepdims=True) / np.where(totals > 0, totals, 1.0)
    return np.asarray(tilted * ratio)


def _match_classes(fit: CrowdState) -> CrowdState:
    """Assign states to classes such that workers are most accurate: the halves of a split class have no name yet."""
    model = fit.parameters
    gains = np.einsum("mac,m->ac", model.confusion, model.mass.sum(axis=(1, 2)))
    return _exchange_states(fit, match_columns(gains))


MOST_ALIKE = 0.9
"""Share of a worker's labels in one class from which they do not name the states."""


def _name_states(fit: CrowdState) -> CrowdState:
    """Return a fit whose states are the classes that workers name, for passes that ended with two of them exchanged.

    Without votes as evidence, labels are as likely if states are exchanged (label switching). Workers who give most
    tasks one label would name the frequent state, whatever it is, and are left out.
    """
    model = fit.parameters
    sizes = (*model.mass.shape[:2], model.annotator_model.n_subclasses, model.n_classes)
    labels = model.find_label_mass().reshape(sizes).sum(axis=2)
    given = labels.sum(axis=2)
    is_varied = given.max(axis=1) < MOST_ALIKE * given.sum(axis=1)
    gains = labels[is_varied].sum(axis=0)
    right = np.diagonal(gains)
    # without an exchange of two, SciPy's optimisation need not be loaded
    if (gains + gains.T <= (1 + LEAST_LEAD) * (right[:, None] + right)).all():
        return fit
    return _exchange_states(fit, match_columns(gains))


def _exchange_states(fit: CrowdState, columns: IntArray) -> CrowdState:
    """Return a fit with other states as its classes, (n_classes,), alike in all subclasses."""
    model = fit.parameters
    firsts = np.arange(0, model.states.size, model.n_classes)
    states = (firsts[:, None] + columns).ravel()
    ordered = replace(
        model,
        mass=model.mass[:, :, states],
        states=model.states[states],
        label_mass=model.find_label_mass()[:, states],
    )
    return replace(fit, parameters=ordered)
