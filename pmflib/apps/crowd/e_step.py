"""The E-step of a label log: tasks with their votes, their posteriors, and the sums for the M-step.

Passes map over a `LabelSource`: tasks in memory or in a store, as blocks with their votes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from pmflib.apps.crowd.label_log import LabelLog
from pmflib.apps.crowd.pairs.annotator_model import CrowdModel
from pmflib.base.arrays import BoolArray, FloatArray, IntArray, StrataArray
from pmflib.base.blocks import SparseBlock
from pmflib.em.block_source import BlocksInMemory, BlockSource
from pmflib.em.checkpoint import digest_fit
from pmflib.model.row_tables import find_maxima, score_block
from pmflib.model.sufficient_statistics import EMStatistics, em_statistics, sum_fields

MOST_VOTES = 127
"""Limit of the votes of one task for one class that are distinguished; more count as this many."""
PSEUDO_VOTES = 0.5
"""Votes added to every class, as by Jeffreys' prior."""
VOTE_GAIN = 40.0
"""Log-weight in nats of a class with a vote relative to one without, in the shares of votes: beyond rounding."""
RULED_OUT = -5.0
"""Log-weight of the wrong classes of a known task in the passes, nats. It is finite so that a task that all its workers
mistake does not distort their confusion matrices. Chosen on known tasks of the public logs jn-product, labelme and
dog."""
PACKED_CLASSES = 4
"""Number of classes whose votes are packed into one integer at a time: each takes 7 bits of 64."""


@dataclass(frozen=True, eq=False)
class VotedBlock:
    """Tasks with their votes: tasks with the same number of votes for each class form a stratum, with one prior.

    Tasks with a known class are in separate strata.

    Parameters
    ----------
    labels
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    strata
        int32 of shape (n_rows,): stratum of each task.
    vote_counts
        int64 of shape (n_strata, n_classes): votes of the tasks of each stratum, at most ``MOST_VOTES``.
    known
        int64 of shape (n_strata,): known class of the tasks of each stratum, -1 where it is unknown.
    """

    labels: SparseBlock
    strata: StrataArray
    vote_counts: IntArray
    known: IntArray

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.vote_counts.shape[1])

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.labels.nbytes + self.strata.nbytes + self.vote_counts.nbytes + self.known.nbytes

    @property
    def codes(self) -> IntArray:
        """Known class of each task, int64 of shape (n_rows,), -1 where it is unknown."""
        return np.asarray(self.known[self.strata])

    @property
    def is_known(self) -> BoolArray:
        """Whether the class of each task is known, (n_rows,)."""
        return self.codes >= 0

    def weigh_strata(
        self, gains: FloatArray, *, with_known: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """Log-weights of the classes in every stratum, (n_strata, n_classes), minus their maxima; and these maxima.

        Parameters
        ----------
        gains
            Log-weight of a class by its number of votes, as from `weigh_votes`.
        with_known
            Whether the wrong classes of known strata are almost ruled out; otherwise these are weighed like others.
        """
        weights = gains[self.vote_counts]
        known = np.flatnonzero((self.known >= 0) & with_known)
        if known.size:
            kept = weights[known, self.known[known]]
            weights[known] = RULED_OUT
            weights[known, self.known[known]] = kept
        peaks = find_maxima(weights)
        return weights - peaks[:, None], peaks

    @cached_property
    def sizes(self) -> FloatArray:
        """Number of tasks in every stratum, float64 of shape (n_strata,)."""
        counts = np.bincount(self.strata, self.labels.weights, minlength=len(self.vote_counts))
        return counts.astype(np.float64)


def count_votes(block: SparseBlock, n_classes: int) -> IntArray:
    """Count the votes of each task for each class, int64 of shape (n_rows, n_classes)."""
    rows = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))
    indices = rows * n_classes + block.indices % n_classes
    votes: IntArray = np.bincount(indices, minlength=block.n_rows * n_classes)
    return votes.reshape(block.n_rows, n_classes)


def add_votes(block: SparseBlock, n_classes: int, known: IntArray | None = None) -> VotedBlock:
    """Assign tasks to strata by their votes and their known class; strata are sorted by these.

    Parameters
    ----------
    block
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    n_classes
        Number of classes.
    known
        int64 of shape (n_rows,): class of each task, -1 where it is unknown; None if no class is known.
    """
    votes = np.minimum(count_votes(block, n_classes), MOST_VOTES)
    base = int(votes.max(initial=0)) + 1
    strata, first = np.zeros(block.n_rows, np.int64), np.zeros(0, np.int64)
    for start in range(0, n_classes, PACKED_CLASSES):
        for column in votes[:, start : start + PACKED_CLASSES].T:
            strata = strata * base + column
        # as few bits as they take: short integers are sorted faster
        keys = strata.astype(np.min_scalar_type(int(strata.max(initial=0))))
        _, first, strata = np.unique(keys, return_index=True, return_inverse=True)
    if known is None or not (known >= 0).any():
        return VotedBlock(block, strata.astype(np.int32), votes[first], np.full(first.size, -1))
    keys = strata * (n_classes + 1) + known + 1
    _, first, strata = np.unique(keys, return_index=True, return_inverse=True)
    return VotedBlock(block, strata.astype(np.int32), votes[first], known[first])


def weigh_votes(weight: float) -> FloatArray:
    """Log-weight of a class by its number of votes, nats: its weight is its share of the votes to a power.

    Parameters
    ----------
    weight
        The power, at least 0.

    Returns
    -------
    float64 of shape (MOST_VOTES + 1,), the first 0.
    """
    return np.asarray(weight * np.log((np.arange(MOST_VOTES + 1) + PSEUDO_VOTES) / PSEUDO_VOTES))


def share_votes() -> FloatArray:
    """Log-weight of a class by its number of votes under which a task's posterior is its shares of the votes."""
    return np.concatenate([[0.0], VOTE_GAIN + np.log(np.arange(1, MOST_VOTES + 1))])


BLOCK_ROWS = 1 << 16
"""Limit of the number of tasks of a block in memory."""
MOST_AGREEMENT = 0.95
"""Cap of the agreement of a worker: one who always agrees would otherwise outvote all others."""


@dataclass(frozen=True, eq=False)
class LogWeights:
    """Log-weights under which tasks are scored, nats.

    Parameters
    ----------
    states
        float64 of shape (n_states,): log-weights of the states.
    labels
        float64 of shape (n_workers * n_classes, n_states): log-weights of the labels that workers give.
    votes
        float64 of shape (MOST_VOTES + 1,): log-weight of a class by its number of votes.
    with_known
        Whether the wrong classes of known tasks are almost ruled out; otherwise these are scored like others.
    """

    states: FloatArray
    labels: FloatArray
    votes: FloatArray
    with_known: bool = True

    @classmethod
    def from_model(cls, model: CrowdModel, *, with_votes: bool) -> LogWeights:
        """Weights under a crowd model.

        Parameters
        ----------
        model
            Prior and confusion matrices.
        with_votes
            Whether votes are additional evidence: they guide the passes, but true labels are found without them.
        """
        return cls(*model.take_logs(), weigh_votes(model.vote_weight if with_votes else 0.0))

    @classmethod
    def from_votes(cls, n_workers: int, n_classes: int) -> LogWeights:
        """Weights under which a task's posterior is its shares of the votes; uniform for a task without labels."""
        silent = np.zeros((n_workers * n_classes, n_classes))
        return cls(np.zeros(n_classes), silent, share_votes())

    @classmethod
    def from_agreement(
        cls, agreement: FloatArray, n_classes: int, shares: FloatArray
    ) -> LogWeights:
        """Weights of votes by the agreement of their workers, which determines their accuracy.

        Parameters
        ----------
        agreement
            float64 of shape (n_workers,), as from `pmflib.apps.crowd.m_step.measure_agreement`; votes of
            workers with agreement 0 or below have no weight.
        n_classes
            Number of classes, at least 2.
        shares
            float64 of shape (n_workers,): relative weight of each worker's labels.
        """
        right = np.clip(agreement, 0.0, MOST_AGREEMENT)
        right += (1 - right) / n_classes
        weights = shares * np.log(right * (n_classes - 1) / (1 - right))
        labels = weights[:, None, None] * np.eye(n_classes)
        return cls(np.zeros(n_classes), labels.reshape(-1, n_classes), weigh_votes(0.0))

    @property
    def n_states(self) -> int:
        """Number of states."""
        return self.states.size

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.states.nbytes + self.labels.nbytes + self.votes.nbytes


def evaluate_blocks(blocks: Iterable[VotedBlock], weights: LogWeights) -> EMStatistics:
    """Sufficient statistics of blocks, added up in order."""
    parts = [_evaluate_block(block, weights) for block in blocks]
    return sum_fields(parts or [EMStatistics.zero(len(weights.labels), weights.n_states)])


def _evaluate_block(block: VotedBlock, weights: LogWeights) -> EMStatistics:
    offsets = np.arange(0, len(weights.labels) + 1, block.n_classes)
    if not weights.votes.any() and not (weights.with_known and (block.known >= 0).any()):
        return em_statistics(block.labels, offsets, weights.states, weights.labels)
    log_priors, peaks = block.weigh_strata(weights.votes, with_known=weights.with_known)
    # all subclasses of a class have its votes
    log_priors = np.tile(log_priors, weights.n_states // block.n_classes) + weights.states
    found = em_statistics(block.labels, offsets, log_priors, weights.labels, block.strata)
    return replace(found, log_likelihood=found.log_likelihood + float(block.sizes @ peaks))


def score_tasks(block: VotedBlock, weights: LogWeights) -> FloatArray:
    """Posterior of the class of every task of a block, float64 of shape (n_rows, n_classes).

    A task without labels has the prior; a known task is certain.
    """
    posteriors, n_classes = score_states(block, weights), block.n_classes
    by_class = posteriors.reshape(-1, weights.n_states // n_classes, n_classes)
    return fix_known(by_class.sum(axis=1), block.codes if weights.with_known else None)


def score_states(block: VotedBlock, weights: LogWeights) -> FloatArray:
    """Posterior of the state of every task of a block, float64 of shape (n_rows, n_states): see `score_tasks`."""
    labels, n_classes, n_states = block.labels, block.n_classes, weights.n_states
    offsets = np.arange(0, len(weights.labels) + 1, n_classes)
    log_probs, posteriors = np.empty(labels.n_rows), np.empty((labels.n_rows, n_states))
    if labels.n_rows:
        by_votes, _ = block.weigh_strata(weights.votes, with_known=weights.with_known)
        log_priors = np.tile(by_votes, n_states // n_classes) + weights.states
        score_block(
            labels, offsets, log_priors, weights.labels, log_probs, posteriors, block.strata
        )
    return posteriors


def split_labels(
    labels: SparseBlock, n_classes: int, known: IntArray | None = None
) -> list[VotedBlock]:
    """Split tasks into blocks with their votes, at least one; arguments are as for `add_votes`."""
    starts = range(0, max(labels.n_rows, 1), BLOCK_ROWS)
    parts = split_sparse_block(labels, BLOCK_ROWS) or [labels]
    return [
        add_votes(part, n_classes, None if known is None else known[start : start + part.n_rows])
        for start, part in zip(starts, parts, strict=True)
    ]


def split_sparse_block(block: SparseBlock, n_rows: int) -> Sequence[SparseBlock]:
    """Split a block into blocks of at most ``n_rows`` rows."""
    return [
        block.take(np.arange(first, min(first + n_rows, block.n_rows)))
        for first in range(0, block.n_rows, n_rows)
    ]


def fix_known(shares: FloatArray, known: IntArray | None) -> FloatArray:
    """Make the class of known tasks certain, in place.

    Parameters
    ----------
    shares
        float64 of shape (n_rows, n_classes); changed.
    known
        int64 of shape (n_rows,): class of each task, -1 where it is unknown; None if no class is known.
    """
    if known is not None:
        rows = np.flatnonzero(known >= 0)
        shares[rows] = 0.0
        shares[rows, known[rows]] = 1.0
    return shares


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
        """Number of tasks, including those without labels."""
        return self.n_tasks

    @abstractmethod
    def sample(self, every: int) -> SparseBlock:
        """Return the labels of one task in ``every``."""

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
        int64 of shape (n_tasks,): class of each task, -1 where it is unknown; None if no class is known.
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
        """Tasks of a label log, with their known labels."""
        known = None if log.known is None else log.known.codes
        return cls(log.block, log.n_workers, log.n_classes, known)

    def digest(self) -> str:
        """Digest the labels."""
        return digest_fit(self.labels.indptr, self.labels.indices, self.n_classes)

    def sample(self, every: int) -> SparseBlock:
        """Return the labels of one task in ``every``, starting with the first."""
        return self.labels.take(np.arange(0, self.n_tasks, every))

    def find_posteriors(self, weights: LogWeights) -> FloatArray:
        """Posterior of the class of every task, float64 of shape (n_tasks, n_classes)."""
        blocks: Any = self.blocks
        return np.concatenate([score_tasks(block, weights) for block in blocks])


def take_labels(blocks: Iterable[VotedBlock], every: int) -> list[SparseBlock]:
    """Return the labels of one task in ``every`` of each block."""
    return [one.labels.take(np.arange(0, one.labels.n_rows, every)) for one in blocks]
