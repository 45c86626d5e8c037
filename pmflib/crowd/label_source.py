"""Tasks with their labels, in memory or in a store: the source of blocks that passes over a label log map over."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.blocks import SparseBlock
from pmflib.crowd.e_step import (
    LogWeights,
    VotedBlock,
    evaluate_blocks,
    score_tasks,
    split_labels,
)
from pmflib.crowd.label_log import LabelLog
from pmflib.em.block_source import BlocksInMemory, BlockSource
from pmflib.em.checkpoint import digest_fit
from pmflib.model.statistics import EMStatistics, sum_fields
from pmflib.solvers.crowd.annotator_model import CrowdModel


class LabelSource(BlockSource):
    """Tasks with their labels; functions are mapped over lists of `VotedBlock`, which may be empty.

    Attributes
    ----------
    n_workers, n_classes, n_tasks
        Number of workers, of classes and of tasks.
    with_known
        Whether the labels of some tasks are known.
    """

    n_workers: int
    n_classes: int
    n_tasks: int
    with_known: bool

    @property
    def n_samples(self) -> int:
        """Number of tasks, those without a label among them."""
        return self.n_tasks

    @abstractmethod
    def sample(self, every: int) -> SparseBlock:
        """Labels of one task in ``every``."""

    def evaluate(self, weights: LogWeights) -> EMStatistics:
        """Sufficient statistics of all tasks, scored under the given weights."""
        return self.map_blocks(evaluate_blocks, sum_fields, weights, name="pass")

    def measure_log_likelihood(self, model: CrowdModel) -> float:
        """Log-likelihood of all tasks under a crowd model with its weight of the votes, nats."""
        return self.evaluate(LogWeights.from_model(model, with_votes=True)).log_likelihood


class LabelsInMemory(LabelSource, BlocksInMemory):
    """Tasks in memory.

    Parameters
    ----------
    labels
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    n_workers, n_classes
        Number of workers and of classes.
    known
        int64 of shape (n_tasks,): class of each task, -1 where it is not known; None where it is of no task.
    """

    def __init__(
        self, labels: SparseBlock, n_workers: int, n_classes: int, known: IntArray | None = None
    ) -> None:
        blocks: Any = split_labels(labels, n_classes, known)
        offsets = np.arange(n_workers + 1, dtype=np.int64) * n_classes
        super().__init__(blocks, offsets, rows=labels, n_observed=labels.n_observed)
        self.labels, self.n_workers, self.n_classes = labels, n_workers, n_classes
        self.n_tasks = labels.n_rows
        self.with_known = known is not None and bool((known >= 0).any())

    @classmethod
    def from_log(cls, log: LabelLog) -> Self:
        """Tasks of a label log, with what is known of them."""
        known = None if log.known is None else log.known.codes
        return cls(log.block, log.n_workers, log.n_classes, known)

    def digest(self) -> str:
        """Digest the labels."""
        return digest_fit(self.labels.indptr, self.labels.indices, self.n_classes)

    def sample(self, every: int) -> SparseBlock:
        """Labels of one task in ``every``, from the first on."""
        return self.labels.take(np.arange(0, self.n_tasks, every))

    def find_posteriors(self, weights: LogWeights) -> FloatArray:
        """Posterior of the class of every task, float64 of shape (n_tasks, n_classes)."""
        blocks: Any = self.blocks
        return np.concatenate([score_tasks(block, weights) for block in blocks])


def take_labels(blocks: Iterable[VotedBlock], every: int) -> list[SparseBlock]:
    """Labels of one task in ``every`` of each block."""
    return [one.labels.take(np.arange(0, one.labels.n_rows, every)) for one in blocks]
