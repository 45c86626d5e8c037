"""One or two subclasses of tasks for a label log: chosen by how well labels that were held out are predicted.

A second subclass of every class is what a log needs whose tasks are hard to many degrees, or look like tasks of another
class. Where labels depend on each other in no such way it has nothing to do, and is used for what it is not meant for.
So labels are held out, each fold of them in turn; both models are estimated from the others, and predict those that
were held out from the other labels of their task. The gain of the second subclass is compared with its standard error
over the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pmflib.core.arrays import FLOOR, BoolArray, FloatArray, IntArray
from pmflib.core.blocks import SparseBlock
from pmflib.core.comparison import PairedDifference, compare_samples
from pmflib.core.defaults import LABEL_LIMITS
from pmflib.crowd.e_step import (
    BLOCK_ROWS,
    LogWeights,
    evaluate_blocks,
    score_states,
    split_sparse_block,
)
from pmflib.crowd.passes import run_passes, start_from_votes
from pmflib.crowd.votes import VotedBlock, add_votes
from pmflib.solvers.crowd.annotator_model import AnnotatorModel, CrowdModel

N_FOLDS = 5
"""Folds of the labels: each is predicted by models of the other four fifths."""
MOST_COMPARED = 60_000
"""Labels of a log by which models are compared, about: of more, tasks are taken evenly. Ten fits to so many take less
than one to a million."""
STANDARD_ERRORS = 2.0
"""Standard errors by which labels must be likelier under a second subclass. Tasks are taken for independent there, and
are not quite, for they have workers in common; with one standard error, logs of a hundred tasks get what they cannot
support [the tuned half of benchmarks/crowd/regimes.py, and the public logs]."""
MIX = 0x9E3779B97F4A7C15
"""Odd multiplier of 64 bits whose products have well mixed upper bits: 2^64 over the golden ratio."""


@dataclass(frozen=True)
class SubclassChoice:
    """How many subclasses a label log has, and why.

    Parameters
    ----------
    n_subclasses
        1 or 2.
    gain
        By how much a task's held-out labels are likelier with a second subclass, nats, and the standard error of that;
        None where no task has two labels.
    n_tasks
        Number of tasks that were compared.
    """

    n_subclasses: int
    gain: PairedDifference | None
    n_tasks: int

    @property
    def reason(self) -> str:
        """A sentence that says why."""
        if self.gain is None:
            return "one subclass: no task has several labels"
        amount = abs(self.gain.mean)
        more = "more" if self.gain.mean >= 0 else "less"
        number = "one subclass" if self.n_subclasses == 1 else "two subclasses"
        return (
            f"{number}: held-out labels of a task are {amount:.2g} +- {self.gain.error:.2g} nats {more} probable with "
            f"two, on {self.n_tasks} tasks"
        )


def choose_subclasses(
    labels: SparseBlock,
    n_workers: int,
    n_classes: int,
    annotator_model: AnnotatorModel,
    *,
    max_passes: int = LABEL_LIMITS.max_passes,
    tol: float = LABEL_LIMITS.tol,
) -> SubclassChoice:
    """Choose one or two subclasses of every class.

    Parameters
    ----------
    labels
        Tasks as rows, labels as levels ``worker * n_classes + class``; of a large log one task of so many as
        `space_tasks` says. In which order they are is of no account but for rounding.
    n_workers, n_classes
        Number of workers and of classes.
    annotator_model
        What else is estimated, with two subclasses.
    max_passes, tol
        As for `run_passes`.

    Returns
    -------
    The choice: two subclasses if they are better by ``STANDARD_ERRORS``, else one.

    References
    ----------
    Breiman, Friedman, Olshen and Stone (1984), Classification and Regression Trees, section 3.4.3, for the simplest
    within standard errors of the best.
    """
    several = np.flatnonzero(np.diff(labels.indptr) > 1)
    if several.size < 2 or n_classes < 2:
        return SubclassChoice(1, None, int(several.size))
    candidates = [replace(annotator_model, n_subclasses=number) for number in (1, 2)]
    log_probs = [np.zeros(labels.n_rows) for _ in candidates]
    folds = _assign_folds(labels)
    for fold in range(N_FOLDS):
        kept = _select(labels, folds != fold)
        held_out = _select(labels, folds == fold)
        blocks = _vote(kept, n_classes)
        for total, candidate in zip(log_probs, candidates, strict=True):
            evaluate = partial(evaluate_blocks, blocks)
            start = start_from_votes(evaluate, n_workers, n_classes, candidate)
            model = run_passes(evaluate, start, max_passes=max_passes, tol=tol).model
            total += _predict(blocks, held_out, model)
    one, two = log_probs
    gain = compare_samples(two[several], one[several])
    wins = gain.mean > STANDARD_ERRORS * gain.error
    return SubclassChoice(2 if wins else 1, gain, int(several.size))


def space_tasks(n_labels: int) -> int:
    """One task of how many is compared, in a log of so many labels."""
    return max(1, n_labels // MOST_COMPARED)


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


def _select(labels: SparseBlock, chosen: BoolArray) -> SparseBlock:
    """The same tasks with some of their labels."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(chosen, dtype=np.int64)])
    return SparseBlock(before[labels.indptr], labels.indices[chosen], labels.weights)


def _vote(labels: SparseBlock, n_classes: int) -> list[VotedBlock]:
    return [add_votes(block, n_classes) for block in split_sparse_block(labels, BLOCK_ROWS)]


def _predict(blocks: Sequence[VotedBlock], held_out: SparseBlock, model: CrowdModel) -> FloatArray:
    """Log-probability of the held-out labels of each task by its others, (n_tasks,), nats."""
    weights = LogWeights.from_model(model, with_votes=False)
    posterior = np.concatenate([score_states(block, weights) for block in blocks])
    columns = model.mass / np.maximum(model.mass.sum(axis=1, keepdims=True), FLOOR)
    rows = np.repeat(np.arange(held_out.n_rows), np.diff(held_out.indptr))
    given = columns.reshape(-1, posterior.shape[1])[held_out.indices]
    log_probs = np.log(np.maximum((posterior[rows] * given).sum(axis=1), FLOOR))
    return np.bincount(rows, log_probs, minlength=held_out.n_rows).astype(np.float64)
