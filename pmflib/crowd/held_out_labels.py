"""Which model a label log has: chosen by how well labels that were held out are predicted, and by who repeats whom.

A second subclass of every class is what a log needs whose tasks are hard to many degrees, or look like tasks of another
class. Where labels depend on each other in no such way it has nothing to do, and is used for what it is not meant for.
Shrinkage, and votes that lead, are what a log needs whose workers gave few labels; where they gave many, maximum
likelihood knows as much. So labels are held out, each fold of them in turn; the models are estimated from the others,
and predict those that were held out from the other labels of their task. Of models that cannot be distinguished from
the best, the simplest is taken.

Workers who repeat each other are found before (`pmflib.crowd.copied_labels`). Their labels count once, here and in the
passes: copies are easy to predict, and a second subclass would be used for that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pmflib.core.arrays import FLOOR, FloatArray, IntArray
from pmflib.core.blocks import SparseBlock
from pmflib.core.comparison import Comparison, compare_candidates, compare_samples
from pmflib.core.defaults import LABEL_LIMITS, Limits
from pmflib.crowd.copied_labels import (
    CopiedGroup,
    drop_repeated,
    find_copied_groups,
    weigh_group,
)
from pmflib.crowd.dawid_skene import fit_crowd
from pmflib.crowd.e_step import LogWeights, score_states
from pmflib.crowd.label_source import LabelsInMemory, LabelSource
from pmflib.solvers.crowd.annotator_model import MAXIMUM_LIKELIHOOD, AnnotatorModel, CrowdModel

N_FOLDS = 5
"""Folds of the labels: each is predicted by models of the other four fifths."""
MOST_COMPARED = 60_000
"""Labels of a log by which models are compared, about: of more, tasks are taken evenly. Fifteen fits to so many take
less than one to a million."""
PREDICTED_COUNT = 2.0
"""Pseudo-labels of all workers together in each column of a matrix of maximum likelihood that labels are predicted by:
it rules out what a worker has not done yet."""
LEAST_LABELS = 3
"""Labels that half of the tasks must have for models to be compared. Of two, one is held out: the other alone cannot
say that its worker is wrong, and matrices that are not shrunk, or a second subclass, predict as well whatever they
are."""
MIX = 0x9E3779B97F4A7C15
"""Odd multiplier of 64 bits whose products have well mixed upper bits: 2^64 over the golden ratio."""


@dataclass(frozen=True)
class ModelChoice:
    """The model that a label log has, and why.

    Parameters
    ----------
    annotator_model
        What is estimated; it has the workers who repeat each other.
    comparison
        How well the models predict a task's held-out labels, from the simplest on; None where too few tasks have
        ``LEAST_LABELS``.
    groups
        Workers who repeat each other.
    """

    annotator_model: AnnotatorModel
    comparison: Comparison | None
    groups: tuple[CopiedGroup, ...] = ()

    @property
    def reason(self) -> str:
        """A sentence that says why."""
        why = (
            f"few tasks have {LEAST_LABELS} labels"
            if self.comparison is None
            else self.comparison.reason
        )
        if self.groups:
            sizes = ", ".join(str(len(group.workers)) for group in self.groups)
            why += f"; groups of {sizes} workers repeat each other, and count once"
        return why


def choose_model(
    source: LabelSource, annotator_model: AnnotatorModel, limits: Limits = LABEL_LIMITS
) -> ModelChoice:
    """Choose between maximum likelihood, and shrunk matrices with one or two subclasses of every class.

    Parameters
    ----------
    source
        Tasks with their labels; of a large log about ``MOST_COMPARED`` labels are used. Known labels are not used, and
        the order of tasks does not matter but for rounding.
    annotator_model
        The largest model that may be chosen. Where its classes are in order, maximum likelihood, which has no use for
        that, is none of the others.
    limits
        Limit of passes and tolerance of each fit.

    Returns
    -------
    The choice: the simplest model within a standard error of the best. Where most tasks have fewer than
    ``LEAST_LABELS`` labels it is shrunk, with one subclass.

    References
    ----------
    Breiman, Friedman, Olshen and Stone (1984), Classification and Regression Trees, section 3.4.3, for the simplest
    within a standard error of the best.
    """
    n_workers, n_classes = source.n_workers, source.n_classes
    labels = source.sample(max(1, source.n_observed // MOST_COMPARED))
    groups = find_copied_groups(labels, n_workers, n_classes)
    copiers = tuple(weigh_group(labels, group.workers, n_classes) for group in groups)
    labels = drop_repeated(labels, [group.workers for group in groups], n_classes)
    named = list_models(annotator_model)
    sizes = np.diff(labels.indptr)
    several = np.flatnonzero(sizes > 1)
    too_few = (sizes >= LEAST_LABELS).sum() * 2 < (sizes > 0).sum()
    if too_few or several.size < 2 or n_classes < 2:
        one = replace(annotator_model, n_subclasses=1, copiers=copiers)
        return ModelChoice(one, None, tuple(groups))
    log_probs = [np.zeros(labels.n_rows) for _ in named]
    folds = _assign_folds(labels)
    for fold in range(N_FOLDS):
        held_out = labels.keep(folds == fold)
        others = LabelsInMemory(labels.keep(folds != fold), n_workers, n_classes)
        for total, candidate in zip(log_probs, named.values(), strict=True):
            model = fit_crowd(others, candidate, limits=limits).parameters
            total += _predict(others, held_out, model)
    of_tasks = [total[several] for total in log_probs]
    comparison = compare_candidates(
        "task",
        [{"model": name} for name in named],
        [float(each.mean()) for each in of_tasks],
        subtract=lambda one, other: compare_samples(of_tasks[one], of_tasks[other]),
        rule="first",
    )
    chosen = named[str(comparison.chosen.settings["model"])]
    return ModelChoice(replace(chosen, copiers=copiers), comparison, tuple(groups))


def list_models(largest: AnnotatorModel) -> dict[str, AnnotatorModel]:
    """List the models that are compared by name, from the simplest to the largest that is given."""
    shrunk = {
        "one subclass": replace(largest, n_subclasses=1),
        "two subclasses": largest,
    }
    return shrunk if largest.ordinal else {"maximum likelihood": MAXIMUM_LIKELIHOOD, **shrunk}


def _assign_folds(labels: SparseBlock) -> IntArray:
    """Fold of each label, int64 of shape (n_labels,), which does not depend on the order of tasks.

    It is drawn by the labels of the task. Tasks with the same labels, of which there are many, are numbered: else the
    same label would be held out in all of them, and the other folds had none like it.
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
    """Spread uint64 over 32 bits, equal ones alike: uint64 of the same shape."""
    mixed = numbers * np.uint64(MIX)
    mixed ^= mixed >> np.uint64(29)
    return np.asarray((mixed * np.uint64(MIX)) >> np.uint64(32))


def _predict(source: LabelsInMemory, held_out: SparseBlock, model: CrowdModel) -> FloatArray:
    """Log-probability of the held-out labels of each task by its others, (n_tasks,), nats."""
    weights = LogWeights.from_model(model, with_votes=False)
    blocks: Any = source.blocks
    posterior = np.concatenate([score_states(block, weights) for block in blocks])
    mass = model.mass
    if not model.pseudo_count:
        pooled = mass.sum(axis=0) + 1.0
        mass = mass + PREDICTED_COUNT * pooled / pooled.sum(axis=0)
    columns = mass / np.maximum(mass.sum(axis=1, keepdims=True), FLOOR)
    rows = np.repeat(np.arange(held_out.n_rows), np.diff(held_out.indptr))
    given = columns.reshape(-1, posterior.shape[1])[held_out.indices]
    log_probs = np.log(np.maximum((posterior[rows] * given).sum(axis=1), FLOOR))
    return np.bincount(rows, log_probs, minlength=held_out.n_rows).astype(np.float64)
