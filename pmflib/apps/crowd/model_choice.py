"""Choice of the annotator model of a label log by held-out labels.

Each fold of the labels is held out in turn, models are fitted to the other folds, and predict the held-out labels from
the other labels of their task. Better predictions are not yet better classes: a second subclass of every class predicts
labels better wherever tasks differ, and a learnt class prior may drift from the truth with the errors of the workers.
Therefore the simple choices, one state for a class and nearly equal classes, are left only if held-out labels clearly
say so. Workers who repeat each other are found first (`pmflib.apps.crowd.copied_labels`), and their labels count once:
copies are easy to predict, and a second subclass would be used for that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pmflib.apps.crowd.copied_labels import (
    CopiedGroup,
    drop_repeated,
    find_copied_groups,
    weigh_group,
)
from pmflib.apps.crowd.dawid_skene import fit_crowd
from pmflib.apps.crowd.e_step import (
    LabelsInMemory,
    LabelSource,
    LogWeights,
    count_votes,
    score_states,
)
from pmflib.apps.crowd.methods import LABEL_LIMITS
from pmflib.apps.crowd.pairs.annotator_model import MAXIMUM_LIKELIHOOD, AnnotatorModel
from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.blocks import SparseBlock
from pmflib.base.comparison import PairedDifference, compare_samples
from pmflib.base.defaults import Limits

N_FOLDS = 5
"""Number of folds of the labels, for cross-validation of the models."""
MOST_COMPARED = 60_000
"""Approximate limit of the labels by which models are compared; larger logs are thinned evenly, so that the time of the
comparison does not grow with the log."""
EVENNESS = 0.95
"""Share of the uniform distribution in the prior of nearly equal classes."""
MOST_MOVED = 0.1
"""Share of the tasks that nearly equal classes may label differently from a learnt prior. Chosen on the public logs by
benchmarks/crowd/left_out.py, like the next three."""
PRIOR_ERRORS = 1.5
"""Standard errors by which nearly equal classes may predict held-out labels worse than a learnt prior."""
LEAST_MOVED = 0.04
"""Share of the tasks that a second subclass must label differently, or another model that replaces the choice."""
SUBCLASS_ERRORS = 2.5
"""Standard errors by which a second subclass must predict held-out labels better."""
VOTELESS_ERRORS = 1.5
"""The same, compared with a fit that has one state for a class and no votes as evidence: where that fit predicts as
well, the votes misled the passes, and tasks of a class do not differ. Chosen on drawn logs of classifiers
(benchmarks/crowd/uci_workers.py) and the public logs."""
SIMPLER_ERRORS = 2.0
"""Standard errors by which one accuracy for each worker, or shrunk confusion matrices, must predict held-out labels
better than free matrices for these to have too few labels; and the other way round, for maximum likelihood. Chosen by
benchmarks/crowd/behind.py, like the next one."""
MOST_SHRUNK = 25
"""Mean number of labels for each parameter of free matrices from which these are not compared with shrunk ones."""
FREE = AnnotatorModel(pseudo_count=0.5, variational=False, votes=False)
"""Free confusion matrices, whose pseudo-labels only keep held-out labels possible."""
LEAST_LABELS = 3
"""Number of labels that half of the tasks must have for models to be compared. With two labels, one of which is held
out, the other alone cannot show that its worker is wrong, and all models predict equally well."""
MIX = 0x9E3779B97F4A7C15
"""Odd multiplier of 64 bits whose products have well mixed upper bits: 2^64 over the golden ratio."""


@dataclass(frozen=True)
class ModelChoice:
    """The annotator model chosen for a label log, and the reason.

    Parameters
    ----------
    annotator_model
        The chosen model, including the groups of workers who repeat each other.
    why
        Why it was chosen.
    groups
        Groups of workers who repeat each other.
    """

    annotator_model: AnnotatorModel
    why: str
    groups: tuple[CopiedGroup, ...] = ()

    @property
    def reason(self) -> str:
        """Reason for the choice, a sentence."""
        if not self.groups:
            return self.why
        sizes = ", ".join(str(len(group.workers)) for group in self.groups)
        return f"{self.why}; groups of {sizes} workers repeat each other, and count once"


def choose_model(
    source: LabelSource, annotator_model: AnnotatorModel, limits: Limits = LABEL_LIMITS
) -> ModelChoice:
    """Choose between nearly equal classes, a learnt class prior, and two subclasses of every class with a learnt prior.

    Parameters
    ----------
    source
        Tasks with their labels. At most about ``MOST_COMPARED`` labels are used, and no known labels. The order of the
        tasks does not matter except for rounding.
    annotator_model
        Largest model of the comparison.
    limits
        Limits of the passes of each fit.

    Returns
    -------
    Nearly equal classes if they predict held-out labels not clearly worse than a learnt prior and label few tasks
    differently; otherwise the learnt prior. Two subclasses replace either if they predict held-out labels clearly
    better, also than a fit without votes as evidence, label many tasks differently, and contradict the votes on fewer.
    Maximum likelihood replaces the choice if it predicts held-out labels clearly better and contradicts the votes on
    hardly more tasks, or if it predicts them better, labels many tasks differently and contradicts the votes on fewer:
    where many workers give one label to everything, shrinkage and votes mislead the passes. If most tasks have fewer
    than ``LEAST_LABELS`` labels, it is a learnt prior.
    """
    n_workers, n_classes = source.n_workers, source.n_classes
    labels = _thin(source)
    groups = find_copied_groups(labels, n_workers, n_classes)
    copiers = tuple(weigh_group(labels, group.workers, n_classes) for group in groups)
    labels = drop_repeated(labels, [group.workers for group in groups], n_classes)
    largest = replace(annotator_model, copiers=copiers)
    learnt = replace(largest, n_subclasses=1)
    if _is_sparse(labels) or n_classes < 2:
        return ModelChoice(learnt, f"few tasks have {LEAST_LABELS} labels", tuple(groups))
    several, folds = np.flatnonzero(np.diff(labels.indptr) > 1), assign_folds(labels)
    votes = count_votes(labels, n_classes)[several]

    def hold_out(kind: AnnotatorModel) -> HeldOut:
        kind = replace(kind, copiers=())
        return hold_out_labels(labels, folds, (n_workers, n_classes), kind, limits).take(several)

    base, even = hold_out(learnt), replace(learnt, evenness=EVENNESS)
    evenly = hold_out(even)
    gain, moved = base.compare(evenly)
    said = (
        f"held-out log-likelihood per task {gain.mean:+.2g} +- {gain.error:.2g} with equal classes"
    )
    chosen, why, best = learnt, "a learnt class prior", base
    if moved <= MOST_MOVED and gain.mean >= -PRIOR_ERRORS * gain.error:
        chosen, why, best = even, "nearly equal classes", evenly
    two = hold_out(largest)
    gain, moved = base.compare(two)
    clear = moved >= LEAST_MOVED and gain.mean > SUBCLASS_ERRORS * gain.error
    if clear and two.count_top(votes) > base.count_top(votes):
        of_two, _ = hold_out(replace(learnt, votes=False, variational=False)).compare(two)
        clear = of_two.mean > VOTELESS_ERRORS * of_two.error
    else:
        clear = False
    if clear:
        chosen, why, best = largest, "two subclasses of every class", two
    free = hold_out(FREE)
    of_free, moved = best.compare(free)
    nearer = (free.count_top(votes) - best.count_top(votes)) / several.size
    clear = of_free.mean > SIMPLER_ERRORS * of_free.error and nearer > -LEAST_MOVED
    if clear or (of_free.mean > 0 and nearer > 0 and moved >= LEAST_MOVED):
        chosen = replace(MAXIMUM_LIKELIHOOD, copiers=copiers)
        why = f"maximum likelihood, better by {of_free.mean:.2g} +- {of_free.error:.2g}"
    why += f": {said}, {gain.mean:+.2g} +- {gain.error:.2g} with two subclasses"
    return ModelChoice(chosen, why, tuple(groups))


def has_enough_labels(source: LabelSource, limits: Limits = LABEL_LIMITS) -> bool:
    """Whether workers gave enough labels for free confusion matrices, as held-out labels say.

    They do not if one accuracy for each worker predicts held-out labels clearly better and gives some tasks other
    labels; if shrunk confusion matrices do, and there are fewer than ``MOST_SHRUNK`` labels for each parameter of free
    ones; or if most tasks have fewer than ``LEAST_LABELS`` labels.

    Parameters
    ----------
    source, limits
        As for `choose_model`.
    """
    labels, sizes = _thin(source), (source.n_workers, source.n_classes)
    if not labels.n_observed or source.n_classes < 2:
        return True
    if _is_sparse(labels):
        return False
    folds = assign_folds(labels)
    free = hold_out_labels(labels, folds, sizes, FREE, limits)
    simpler_ones = [AnnotatorModel(one_coin=True)]
    n_parameters = source.n_workers * source.n_classes * (source.n_classes - 1)
    if source.n_observed < MOST_SHRUNK * n_parameters:
        simpler_ones.append(AnnotatorModel())
    for simpler in simpler_ones:
        gain, moved = free.compare(hold_out_labels(labels, folds, sizes, simpler, limits))
        if moved >= LEAST_MOVED and gain.mean > SIMPLER_ERRORS * gain.error:
            return False
    return True


def _thin(source: LabelSource) -> SparseBlock:
    """Labels by which models are compared, about ``MOST_COMPARED`` at most."""
    return source.sample(max(1, source.n_observed // MOST_COMPARED))


def _is_sparse(labels: SparseBlock) -> bool:
    """Whether models cannot be compared: most tasks have fewer than ``LEAST_LABELS`` labels."""
    sizes = np.diff(labels.indptr)
    too_few = (sizes >= LEAST_LABELS).sum() * 2 < (sizes > 0).sum()
    return bool(too_few or (sizes > 1).sum() < 2)


class HeldOut(NamedTuple):
    """What a model says of tasks.

    Parameters
    ----------
    log_probs
        float64 of shape (n_tasks,): log-probability of held-out labels given the other labels of their task, nats.
    codes
        int64 of shape (n_tasks,): most probable class.
    """

    log_probs: FloatArray
    codes: IntArray

    def take(self, tasks: IntArray) -> HeldOut:
        """Those of some tasks."""
        return HeldOut(self.log_probs[tasks], self.codes[tasks])

    def compare(self, other: HeldOut) -> tuple[PairedDifference, float]:
        """Gain of another model in the log-probability of held-out labels, and share of tasks labelled differently."""
        gain = compare_samples(other.log_probs, self.log_probs)
        return gain, float((other.codes != self.codes).mean())

    def count_top(self, votes: IntArray) -> int:
        """Count the tasks whose class has no fewer votes than another."""
        return int((votes[np.arange(self.codes.size), self.codes] == votes.max(axis=1)).sum())


def hold_out_labels(
    labels: SparseBlock,
    folds: IntArray,
    sizes: tuple[int, int],
    kind: AnnotatorModel,
    limits: Limits,
) -> HeldOut:
    """Fit a model without each fold of the labels, and predict these from the other labels of their task.

    Parameters
    ----------
    labels
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    folds
        int64 of shape (n_labels,), as from `assign_folds`.
    sizes
        Number of workers and of classes.
    kind
        Annotator model.
    limits
        Limits of the passes of each fit.
    """
    (n_workers, n_classes), n_tasks = sizes, labels.n_rows
    log_probs, shares = np.zeros(n_tasks), np.zeros((n_tasks, n_classes))
    rows = np.repeat(np.arange(n_tasks), np.diff(labels.indptr))
    for fold in range(N_FOLDS):
        others = LabelsInMemory(labels.keep(folds != fold), n_workers, n_classes)
        model = fit_crowd(others, kind, limits=limits).parameters
        weights = LogWeights.from_model(model, with_votes=False)
        blocks: Any = others.blocks
        posterior = np.concatenate([score_states(block, weights) for block in blocks])
        shares += posterior.reshape(n_tasks, -1, n_classes).sum(axis=1)
        columns = model.mass / np.maximum(model.mass.sum(axis=1, keepdims=True), FLOOR)
        mine = folds == fold
        given = columns.reshape(-1, posterior.shape[1])[labels.indices[mine]]
        found = np.log(np.maximum((posterior[rows[mine]] * given).sum(axis=1), FLOOR))
        log_probs += np.bincount(rows[mine], found, minlength=n_tasks)
    return HeldOut(log_probs, shares.argmax(axis=1))


def assign_folds(labels: SparseBlock) -> IntArray:
    """Assign labels to folds, int64 of shape (n_labels,), independent of the order of tasks.

    Folds are hashes of the labels of the task. Tasks with the same labels are numbered; otherwise the same label would
    be held out in all of them.
    """
    levels = _mix(labels.indices.astype(np.uint64) + np.uint64(1))
    ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(levels)])
    tasks = ends[labels.indptr[1:]] - ends[labels.indptr[:-1]]
    order = np.argsort(tasks, kind="stable")
    _, first, counts = np.unique(tasks[order], return_index=True, return_counts=True)
    numbers = np.empty(tasks.size, np.uint64)
    numbers[order] = (np.arange(tasks.size) - np.repeat(first, counts)).astype(np.uint64)
    drawn = np.repeat(_mix(tasks + _mix(numbers)), np.diff(labels.indptr))
    return (_mix(drawn + levels) % np.uint64(N_FOLDS)).astype(np.int64)


def _mix(numbers: np.ndarray) -> np.ndarray:
    """Hash uint64 to 32 bits: uint64 of the same shape."""
    mixed = numbers * np.uint64(MIX)
    mixed ^= mixed >> np.uint64(29)
    return np.asarray((mixed * np.uint64(MIX)) >> np.uint64(32))
