"""What a fitted model says of a label log: calibrated probabilities, copies, and how good the workers are.

All of it is found by maps over blocks of tasks whose posterior is known. A log in memory is one block
(`pmflib.apps.crowd.true_labels.TasksInMemory`); a stored log has many
(`pmflib.apps.crowd.stored.stored_labels.StoredTasks`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from pmflib.apps.crowd.classifiers import MOST_LEARNT, ClassifierReliability
from pmflib.apps.crowd.confidence import Calibration, VoteCalibration, find_calibration
from pmflib.apps.crowd.copied_labels import MOST_LABEL_PAIRS, Copies, drop_repeated, find_copies
from pmflib.apps.crowd.label_counts import LabelCounts
from pmflib.apps.crowd.left_out_labels import (
    CalibrationRound,
    LeftOutSums,
    add_block_sums,
    start_sums,
)
from pmflib.apps.crowd.pairs.annotator_model import AnnotatorModel
from pmflib.apps.crowd.workers import SuspiciousWorker, find_suspicious, make_worker_table
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import SparseBlock, concatenate_blocks

R = TypeVar("R")

MOST_CELLS = 1 << 21
"""Limit of the number of tasks times classes in memory at a time."""


@dataclass(frozen=True, eq=False)
class ScoredBlock:
    """Tasks with their labels and their posterior.

    Parameters
    ----------
    labels
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    posterior
        float64 of shape (n_rows, n_classes): probability of each class under the method's own model.
    codes
        int64 of shape (n_rows,): known class of each task, -1 where it is unknown; None if no class is known.
    predictions
        float64 of shape (n_rows, n_classes): class probabilities of a classifier, NaN for tasks without any; None
        without a classifier.
    """

    labels: SparseBlock
    posterior: FloatArray
    codes: IntArray | None = None
    predictions: FloatArray | None = None


class ScoredTasks(ABC):
    """Tasks of a label log with their posterior, in memory or in a store.

    Attributes
    ----------
    workers, classes
        Names.
    n_tasks, n_label_pairs
        Number of tasks, and of pairs of labels of the same task, approximately.
    with_predictions
        Whether a classifier has predicted classes.
    """

    workers: pa.Array
    classes: pa.Array
    n_tasks: int
    n_label_pairs: float
    with_predictions: bool

    @abstractmethod
    def map(self, function: Callable[..., R], merge: Callable[[Sequence[R]], R], *shared: Any) -> R:
        """Call ``function(blocks, *shared)`` for parts of the log, and merge the results in order.

        The blocks are an iterable of `ScoredBlock`, without predictions.
        """

    @abstractmethod
    def map_folds(self, function: Callable[..., R], *shared: Any) -> list[R]:
        """Call ``function(blocks, *shared)`` for each fold; the blocks have predictions. Memory is one fold."""

    @abstractmethod
    def call(self, function: Callable[..., R], *shared: Any) -> R:
        """Call ``function(blocks, *shared)`` once, with all blocks of the log."""


@dataclass(frozen=True, eq=False)
class LabelRule:
    """How the probabilities of tasks are computed.

    Parameters
    ----------
    calibration
        Calibration of the labels.
    copied_groups
        Groups of workers who repeat each other's labels: these count once.
    worth
        What the classifier is worth; None without one, or for probabilities by the labels alone.
    """

    calibration: Calibration | VoteCalibration
    copied_groups: Sequence[Sequence[int]]
    worth: ClassifierReliability | None = None

    def apply(self, block: ScoredBlock) -> FloatArray:
        """Probability of each class of the tasks of a block, float64 of shape (n_rows, n_classes)."""
        counted = drop_repeated(block.labels, self.copied_groups, block.posterior.shape[1])
        probabilities = self.calibration.apply(counted, block.posterior, block.codes)
        if self.worth is None or block.predictions is None:
            return probabilities
        return self.worth.add(block.predictions, probabilities)


@dataclass(frozen=True, eq=False)
class Labelling:
    """Tasks of a label log, and the model of the workers under which they were scored.

    Parameters
    ----------
    tasks
        Tasks with their posterior.
    prior
        float64 of shape (n_classes,).
    confusion
        float64 of shape (n_workers, n_classes, n_classes): PMF of a worker's labels (second axis) by true class
        (third).
    copied_groups
        Indices of the workers of each group that repeats its labels: see `pmflib.apps.crowd.copied_labels`. Their
        labels count once. Empty for methods that do not look for such groups.
    evenness
        Share of the uniform distribution in the class prior of the calibration: see
        `pmflib.apps.crowd.pairs.annotator_model.AnnotatorModel`.
    """

    tasks: ScoredTasks
    prior: FloatArray
    confusion: FloatArray
    copied_groups: tuple[tuple[int, ...], ...] = ()
    evenness: float = 0.0

    @cached_property
    def calibration(self) -> Calibration:
        """Power of the labels, and share of shared errors, that make probabilities as often right as they say.

        Found in four passes over the tasks.
        """
        sizes = self.confusion.shape[:2]

        def measure(rounds: Sequence[CalibrationRound], every: int) -> LeftOutSums:
            shared = *sizes, rounds, every, self.copied_groups
            return self.tasks.map(sum_left_out, LeftOutSums.merge, *shared)

        return find_calibration(measure, self.tasks.n_tasks, AnnotatorModel(evenness=self.evenness))

    @cached_property
    def classifier(self) -> ClassifierReliability | None:
        """What a classifier is worth beside the labels; None without one.

        It is learnt from at most about ``MOST_LEARNT`` tasks, taken evenly, and from probabilities without the prior
        over logs, whose caution would make the classifier look more reliable than it is.
        """
        if not self.tasks.with_predictions:
            return None
        every = max(1, self.tasks.n_tasks // MOST_LEARNT)
        sharp = replace(self.by_labels, calibration=self.by_labels.calibration.without_prior())
        found = self.tasks.map_folds(_take_predicted, sharp, every)
        none = np.zeros((0, self.prior.size))
        predictions, probabilities = (
            np.concatenate([none, *(each[index] for each in found)]) for index in range(2)
        )
        return ClassifierReliability.learn(predictions, probabilities)

    @cached_property
    def by_labels(self) -> LabelRule:
        """How probabilities are computed from the labels alone."""
        return LabelRule(self.calibration, self.copied_groups)

    @property
    def rule(self) -> LabelRule:
        """How probabilities are computed from the labels and the classifier."""
        return replace(self.by_labels, worth=self.classifier)

    @cached_property
    def copies(self) -> list[Copies]:
        """Pairs of workers with the same mistakes: see `pmflib.apps.crowd.copied_labels.find_copies`.

        Of a large log, tasks are taken evenly.
        """
        n_cells = self.tasks.n_tasks * self.prior.size
        most = max(n_cells / MOST_CELLS, self.tasks.n_label_pairs / MOST_LABEL_PAIRS, 1.0)
        confusion = self.calibration.rounds[-1].model.confusion
        return self.tasks.call(find_copies_in_blocks, confusion, math.ceil(most))

    def make_worker_table(self, n_labels: IntArray, *, with_confusion: bool) -> pa.Table:
        """Make a row per worker: see `pmflib.apps.crowd.workers.make_worker_table`.

        Parameters
        ----------
        n_labels
            int64 of shape (n_workers,).
        with_confusion
            Whether the table has the confusion matrices.
        """
        classes = self.tasks.classes.to_pylist() if with_confusion else ()
        return make_worker_table(
            self.tasks.workers, self.prior, self.confusion, n_labels, self.calibration, classes
        )

    def find_suspicious(self, counts: LabelCounts) -> list[SuspiciousWorker]:
        """Find workers whose labels are chance or worse, always the same, or copied.

        See `pmflib.apps.crowd.workers.find_suspicious`.
        """
        names = self.tasks.workers.to_pylist(), self.tasks.classes.to_pylist()
        return find_suspicious(counts, *names, self.prior, self.copies, self.copied_groups)


def sum_left_out(
    blocks: Iterable[ScoredBlock],
    n_workers: int,
    n_classes: int,
    rounds: Sequence[CalibrationRound],
    every: int,
    copied_groups: Sequence[Sequence[int]],
) -> LeftOutSums:
    """Sums of blocks for the calibration: see `pmflib.apps.crowd.left_out_labels.add_block_sums`.

    Labels that repeat others are left out: see `pmflib.apps.crowd.copied_labels`.
    """
    sums = start_sums(rounds, n_workers, n_classes)
    for block in blocks:
        labels = drop_repeated(block.labels, copied_groups, n_classes)
        add_block_sums(labels, block.posterior, rounds, sums, known=block.codes, every=every)
    return sums


def _take_predicted(
    blocks: Iterable[ScoredBlock], rule: LabelRule, every: int
) -> tuple[FloatArray, FloatArray]:
    """Predictions of a classifier, and probabilities by the labels alone, of one task in ``every`` of a fold."""
    scored = [(block.predictions, rule.apply(block)) for block in blocks]
    predictions = np.concatenate([each for each, _ in scored if each is not None])
    return predictions[::every], np.concatenate([each for _, each in scored])[::every]


def find_copies_in_blocks(
    blocks: Iterable[ScoredBlock], confusion: FloatArray, every: int
) -> list[Copies]:
    """Pairs of workers with the same mistakes, by one task in ``every`` of each block.

    Parameters
    ----------
    blocks
        Tasks with their posterior.
    confusion
        As for `pmflib.apps.crowd.copied_labels.find_copies`.
    every
        At least 1.
    """
    n_workers, n_classes, _ = confusion.shape
    offsets = np.arange(n_workers + 1, dtype=np.int64) * n_classes
    parts, posteriors = [SparseBlock(np.zeros(1, np.int64), np.zeros(0, np.int32))], []
    for block in blocks:
        rows = np.arange(0, block.labels.n_rows, every)
        parts.append(block.labels.take(rows))
        posteriors.append(block.posterior[rows])
    joined = concatenate_blocks(parts, offsets).to_sparse(offsets)
    return find_copies(joined, np.concatenate([np.zeros((0, n_classes)), *posteriors]), confusion)
