"""Co-occurrence counts of workers' labels, for those pairs of workers alone that share tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pmflib.core.arrays import IntArray
from pmflib.core.blocks import SparseBlock
from pmflib.solvers.crowd.worker_marginals import WorkerPairs
from pmflib.store.zarr_arrays import read_arrays, write_arrays

KIND = "worker pair counts"
SORTED_PAIRS = 1 << 22
"""Least number of pairs of labels of one task that are sorted at a time."""
SORTED_PER_COUNTED = 4
"""Least number of them for each pair of workers that was counted already: merging takes time in the latter."""


@dataclass(frozen=True, eq=False)
class WorkerPairCounts:
    """How often each pair of workers gave each pair of labels to a task: integers, which add up to the same bits.

    Parameters
    ----------
    first, second
        int64 of shape (n_pairs,): the workers of each pair that shares a task, first < second, in order.
    counts
        int64 of shape (n_pairs, n_classes, n_classes): tasks by the labels of the two.
    n_labels
        int64 of shape (n_workers,): labels that each worker gave.
    """

    first: IntArray
    second: IntArray
    counts: IntArray
    n_labels: IntArray

    @classmethod
    def zero(cls, n_workers: int, n_classes: int) -> WorkerPairCounts:
        """Counts of no tasks: the identity of `merge`."""
        none, counts = np.zeros(0, np.int64), np.zeros((0, n_classes, n_classes), np.int64)
        return cls(none, none, counts, np.zeros(n_workers, np.int64))

    @property
    def n_pairs(self) -> int:
        """Number of pairs that share tasks."""
        return self.first.size

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        arrays = (self.first, self.second, self.counts, self.n_labels)
        return sum(array.nbytes for array in arrays)

    @property
    def support(self) -> IntArray:
        """Number of tasks that both workers of each pair have labelled, int64 of shape (n_pairs,)."""
        total: IntArray = self.counts.sum(axis=(1, 2))
        return total

    @staticmethod
    def merge(parts: Sequence[WorkerPairCounts]) -> WorkerPairCounts:
        """Sum of counts of the same workers and classes, at least one, in any order; the parts stay as they are."""
        if len(parts) == 1:
            return parts[0]
        n_workers = parts[0].n_labels.size
        keys = [part.first * n_workers + part.second for part in parts]
        union = np.sort(np.concatenate(keys))
        union = union[_find_edges(union)]
        total = np.zeros((union.size, *parts[0].counts.shape[1:]), np.int64)
        for mine, part in zip(keys, parts, strict=True):
            total[np.searchsorted(union, mine)] += part.counts
        n_labels = np.sum([part.n_labels for part in parts], axis=0)
        return WorkerPairCounts(*_split(union, n_workers), total, n_labels)

    def normalise(self) -> WorkerPairs:
        """Joint PMFs of the pairs' labels."""
        support = self.support
        blocks = self.counts / support[:, None, None]
        return WorkerPairs(self.first, self.second, blocks, support, self.n_labels.size)

    def save(self, path: Path) -> None:
        """Write the counts as a Zarr group; the folder must not exist."""
        arrays = {
            "first": (self.first, ("pair",)),
            "second": (self.second, ("pair",)),
            "counts": (self.counts, ("pair", "label", "co_label")),
            "n_labels": (self.n_labels, ("worker",)),
        }
        write_arrays(path, arrays, {"kind": KIND, "units": "tasks"})

    @classmethod
    def load(cls, path: Path) -> WorkerPairCounts:
        """Read counts that `save` wrote.

        Raises
        ------
        StoreError
            If the group is absent, damaged, or holds something else.
        """
        arrays, _ = read_arrays(path, kind=KIND)
        return cls(arrays["first"], arrays["second"], arrays["counts"], arrays["n_labels"])


def count_worker_pairs(block: SparseBlock, n_workers: int, n_classes: int) -> WorkerPairCounts:
    """Count the pairs of labels that workers gave to common tasks.

    Parameters
    ----------
    block
        Tasks as rows, labels as levels ``worker * n_classes + class``, at most one label of a worker for a task.
    n_workers, n_classes
        Number of workers and of classes.

    Notes
    -----
    Time grows with the square of the labels a task has, memory with the pairs that share tasks.
    """
    lengths = np.diff(block.indptr)
    ends = np.append(0, np.cumsum(lengths * (lengths - 1) // 2))
    total = WorkerPairCounts.zero(n_workers, n_classes)
    start = 0
    while ends[start] < ends[-1]:
        # the more is counted already, the more must be added to be worth a merge
        limit = ends[start] + max(SORTED_PAIRS, SORTED_PER_COUNTED * total.n_pairs)
        stop = max(start + 1, int(np.searchsorted(ends, limit, side="right")) - 1)
        cells = _list_cells(block.take(np.arange(start, stop)), n_workers, n_classes)
        total = WorkerPairCounts.merge([total, _count_cells(cells, n_workers, n_classes)])
        start = stop
    n_labels = np.bincount(block.indices // n_classes, minlength=n_workers)
    return WorkerPairCounts(total.first, total.second, total.counts, n_labels)


def count_label_pairs(block: SparseBlock) -> int:
    """Number of pairs of labels of the same task: the pairs of workers that share tasks are no more."""
    lengths = np.diff(block.indptr)
    return int((lengths * (lengths - 1) // 2).sum())


def _list_cells(block: SparseBlock, n_workers: int, n_classes: int) -> IntArray:
    """Each two labels of a task as the number of a cell of a pair of workers, in order."""
    lengths = np.diff(block.indptr)
    # labels of the same row that follow each one
    after = np.repeat(block.indptr[1:], lengths) - 1 - np.arange(block.n_observed)
    workers, labels = np.divmod(block.indices.astype(np.int64), n_classes)
    cells = np.empty(int(after.sum()), np.int64)
    filled, step, left = 0, 1, np.flatnonzero(after > 0)
    # a row's labels are in the order of workers: each goes with the next one, then with the one after that
    while left.size:
        pairs = workers[left] * n_workers + workers[left + step]
        found = (pairs * n_classes + labels[left]) * n_classes + labels[left + step]
        cells[filled : filled + left.size] = found
        filled += left.size
        step += 1
        left = left[after[left] >= step]
    cells.sort()
    return cells


def _count_cells(cells: IntArray, n_workers: int, n_classes: int) -> WorkerPairCounts:
    """Counts of cells in order, without the numbers of labels of each worker."""
    edges = _find_edges(cells)
    times, cells = np.diff(np.append(edges, cells.size)), cells[edges]
    pairs = cells // n_classes**2
    starts = _find_edges(pairs)
    indices = np.repeat(np.arange(starts.size), np.diff(np.append(starts, pairs.size)))
    counts = np.zeros((starts.size, n_classes, n_classes), np.int64)
    counts.reshape(-1)[indices * n_classes**2 + cells % n_classes**2] = times
    none = np.zeros(n_workers, np.int64)
    return WorkerPairCounts(*_split(pairs[starts], n_workers), counts, none)


def _find_edges(ordered: IntArray) -> IntArray:
    """Index of the first of every run of equals."""
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: ordered.size])


def _split(pairs: IntArray, n_workers: int) -> tuple[IntArray, IntArray]:
    first, second = np.divmod(pairs, n_workers)
    return first, second
