"""Co-occurrence counts of workers' labels, only for pairs of workers with common tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pmflib.apps.crowd.pairs.worker_marginals import WorkerPairs
from pmflib.base.arrays import IntArray
from pmflib.base.blocks import SparseBlock
from pmflib.store.array_groups import read_arrays
from pmflib.store.zarr_arrays import write_arrays

KIND = "worker pair counts"
SORTED_PAIRS = 1 << 22
"""Minimum number of label pairs sorted at a time."""
SORTED_PER_COUNTED = 4
"""Minimum ratio of label pairs sorted to pairs of workers already counted, since merging takes time proportional to the
latter.
"""


@dataclass(frozen=True, eq=False)
class WorkerPairCounts:
    """Co-occurrence counts of the labels of each pair of workers: integers, whose sums are exact.

    Parameters
    ----------
    first, second
        int64 of shape (n_pairs,): workers of each pair with common tasks, first < second, sorted.
    counts
        int64 of shape (n_pairs, n_classes, n_classes): number of common tasks by the labels of both workers.
    n_labels
        int64 of shape (n_workers,): number of labels by each worker.
    """

    first: IntArray
    second: IntArray
    counts: IntArray
    n_labels: IntArray

    @classmethod
    def zero(cls, n_workers: int, n_classes: int) -> WorkerPairCounts:
        """Return counts of no tasks: the identity of `merge`."""
        none, counts = np.zeros(0, np.int64), np.zeros((0, n_classes, n_classes), np.int64)
        return cls(none, none, counts, np.zeros(n_workers, np.int64))

    @property
    def n_pairs(self) -> int:
        """Return the number of pairs with common tasks."""
        return self.first.size

    @property
    def nbytes(self) -> int:
        """Return the size in bytes."""
        arrays = (self.first, self.second, self.counts, self.n_labels)
        return sum(array.nbytes for array in arrays)

    @property
    def support(self) -> IntArray:
        """Return the number of tasks labelled by both workers of each pair, int64 of shape (n_pairs,)."""
        total: IntArray = self.counts.sum(axis=(1, 2))
        return total

    @staticmethod
    def merge(parts: Sequence[WorkerPairCounts]) -> WorkerPairCounts:
        """Sum counts for the same workers and classes, at least one, in any order, without modifying them."""
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
        """Return the joint PMFs of the labels of each pair."""
        support = self.support
        blocks = self.counts / support[:, None, None]
        return WorkerPairs(self.first, self.second, blocks, support, self.n_labels.size)

    def save(self, path: Path) -> None:
        """Save the counts as a Zarr group; the folder must not exist."""
        arrays = {
            "first": (self.first, ("pair",)),
            "second": (self.second, ("pair",)),
            "counts": (self.counts, ("pair", "label", "co_label")),
            "n_labels": (self.n_labels, ("worker",)),
        }
        write_arrays(path, arrays, {"kind": KIND, "units": "tasks"})

    @classmethod
    def load(cls, path: Path) -> WorkerPairCounts:
        """Load counts written by `save`.

        Raises
        ------
        StoreError
            If the group is missing, damaged, or of another kind.
        """
        arrays, _ = read_arrays(path, kind=KIND)
        return cls(arrays["first"], arrays["second"], arrays["counts"], arrays["n_labels"])


def count_worker_pairs(block: SparseBlock, n_workers: int, n_classes: int) -> WorkerPairCounts:
    """Count the pairs of labels given to common tasks.

    Parameters
    ----------
    block
        Tasks as rows, labels as levels ``worker * n_classes + class``; at most one label per worker and task.
    n_workers, n_classes
        Number of workers and of classes.

    Notes
    -----
    Time grows with the square of the number of labels per task, memory with the number of pairs with common tasks.
    """
    lengths = np.diff(block.indptr)
    ends = np.append(0, np.cumsum(lengths * (lengths - 1) // 2))
    total = WorkerPairCounts.zero(n_workers, n_classes)
    start = 0
    while ends[start] < ends[-1]:
        # the more pairs are already counted, the more labels must be added to be worth a merge
        limit = ends[start] + max(SORTED_PAIRS, SORTED_PER_COUNTED * total.n_pairs)
        stop = max(start + 1, int(np.searchsorted(ends, limit, side="right")) - 1)
        cells = _list_cells(block.take(np.arange(start, stop)), n_workers, n_classes)
        total = WorkerPairCounts.merge([total, _count_cells(cells, n_workers, n_classes)])
        start = stop
    n_labels = np.bincount(block.indices // n_classes, minlength=n_workers)
    return WorkerPairCounts(total.first, total.second, total.counts, n_labels)


def count_label_pairs(block: SparseBlock) -> int:
    """Return the number of label pairs of common tasks: an upper bound for the number of pairs of workers."""
    lengths = np.diff(block.indptr)
    return int((lengths * (lengths - 1) // 2).sum())


def _list_cells(block: SparseBlock, n_workers: int, n_classes: int) -> IntArray:
    """Return each pair of labels of a task as a cell index, sorted."""
    lengths = np.diff(block.indptr)
    # number of labels of the same row that follow each label
    after = np.repeat(block.indptr[1:], lengths) - 1 - np.arange(block.n_observed)
    workers, labels = np.divmod(block.indices.astype(np.int64), n_classes)
    cells = np.empty(int(after.sum()), np.int64)
    filled, step, left = 0, 1, np.flatnonzero(after > 0)
    # labels of a row are sorted by worker: pair each with the next one, then with the one after that
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
    """Count sorted cells, without the number of labels per worker."""
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
    """Return the index of the first element of every run of equal values."""
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: ordered.size])


def _split(pairs: IntArray, n_workers: int) -> tuple[IntArray, IntArray]:
    first, second = np.divmod(pairs, n_workers)
    return first, second
