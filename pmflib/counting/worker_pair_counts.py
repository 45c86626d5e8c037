"""Co-occurrence counts of annotators who answer alike many levels, for those pairs alone that share items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pmflib.arrays import IntArray
from pmflib.blocks import SparseBlock
from pmflib.solvers.crowd.worker_marginals import WorkerPairs
from pmflib.store.zarr_arrays import check_kind, read_arrays, write_arrays

KIND = "worker pair counts"
MEETINGS = 1 << 22
"""Pairs of answers to one item that are sorted at a time, at least."""
GROWTH = 4
"""How many for each pair of annotators that was counted already."""


@dataclass(frozen=True, eq=False)
class WorkerPairCounts:
    """How often each pair of annotators gave each pair of answers to an item: integers, which add up to the same bits.

    Parameters
    ----------
    first, second
        int64 of shape (n_pairs,): the annotators of each pair that shares an item, first < second, in order.
    counts
        int64 of shape (n_pairs, n_classes, n_classes): items by the answers of the two.
    n_answers
        int64 of shape (n_annotators,): answers that each annotator gave.
    """

    first: IntArray
    second: IntArray
    counts: IntArray
    n_answers: IntArray

    @classmethod
    def zero(cls, n_annotators: int, n_classes: int) -> WorkerPairCounts:
        """Counts of no items: the identity of `merge`."""
        none, counts = np.zeros(0, np.int64), np.zeros((0, n_classes, n_classes), np.int64)
        return cls(none, none, counts, np.zeros(n_annotators, np.int64))

    @property
    def n_pairs(self) -> int:
        """Number of pairs that share items."""
        return self.first.size

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        arrays = (self.first, self.second, self.counts, self.n_answers)
        return sum(array.nbytes for array in arrays)

    @property
    def support(self) -> IntArray:
        """Items that both of each pair have answered, int64 of shape (n_pairs,)."""
        total: IntArray = self.counts.sum(axis=(1, 2))
        return total

    @staticmethod
    def merge(parts: Sequence[WorkerPairCounts]) -> WorkerPairCounts:
        """Sum of counts of the same annotators and classes, at least one, in any order; the parts stay as they are."""
        if len(parts) == 1:
            return parts[0]
        n_annotators = parts[0].n_answers.size
        keys = [part.first * n_annotators + part.second for part in parts]
        union = np.sort(np.concatenate(keys))
        union = union[_find_edges(union)]
        total = np.zeros((union.size, *parts[0].counts.shape[1:]), np.int64)
        for mine, part in zip(keys, parts, strict=True):
            total[np.searchsorted(union, mine)] += part.counts
        answers = np.sum([part.n_answers for part in parts], axis=0)
        return WorkerPairCounts(*_split(union, n_annotators), total, answers)

    def normalise(self) -> WorkerPairs:
        """Joint PMFs of the pairs' answers."""
        support = self.support
        blocks = self.counts / support[:, None, None]
        return WorkerPairs(self.first, self.second, blocks, support, self.n_answers.size)

    def save(self, path: Path) -> None:
        """Write the counts as a Zarr group; the folder must not exist."""
        arrays = {
            "first": (self.first, ("pair",)),
            "second": (self.second, ("pair",)),
            "counts": (self.counts, ("pair", "answer", "co_answer")),
            "answers": (self.n_answers, ("worker",)),
        }
        write_arrays(path, arrays, {"kind": KIND, "units": "items"})

    @classmethod
    def load(cls, path: Path) -> WorkerPairCounts:
        """Read counts that `save` wrote.

        Raises
        ------
        StoreError
            If the group is absent, damaged, or holds something else.
        """
        check_kind(path, KIND)
        arrays, _ = read_arrays(path)
        return cls(arrays["first"], arrays["second"], arrays["counts"], arrays["answers"])


def count_worker_pairs(block: SparseBlock, n_annotators: int, n_classes: int) -> WorkerPairCounts:
    """Count the answers of annotators to common items.

    Parameters
    ----------
    block
        Items as rows, answers as levels ``annotator * n_classes + class``, at most one of an annotator to an item.
    n_annotators, n_classes
        Sizes.

    Notes
    -----
    Time grows with the square of the answers an item has, memory with the pairs that share items.
    """
    lengths = np.diff(block.indptr)
    ends = np.append(0, np.cumsum(lengths * (lengths - 1) // 2))
    total = WorkerPairCounts.zero(n_annotators, n_classes)
    start = 0
    while ends[start] < ends[-1]:
        # the more is counted already, the more must come to be worth a merge
        wanted = ends[start] + max(MEETINGS, GROWTH * total.n_pairs)
        stop = max(start + 1, int(np.searchsorted(ends, wanted, side="right")) - 1)
        cells = _list_cells(block.take(np.arange(start, stop)), n_annotators, n_classes)
        total = WorkerPairCounts.merge([total, _count_cells(cells, n_annotators, n_classes)])
        start = stop
    n_answers = np.bincount(block.indices // n_classes, minlength=n_annotators)
    return WorkerPairCounts(total.first, total.second, total.counts, n_answers)


def count_meetings(block: SparseBlock) -> int:
    """Pairs of answers to the same item: the pairs of annotators that share items are no more."""
    lengths = np.diff(block.indptr)
    return int((lengths * (lengths - 1) // 2).sum())


def _list_cells(block: SparseBlock, n_annotators: int, n_classes: int) -> IntArray:
    """Each two answers to an item as the number of a cell of a pair of annotators, in order."""
    lengths = np.diff(block.indptr)
    # answers of the same row that follow each one
    after = np.repeat(block.indptr[1:], lengths) - 1 - np.arange(block.n_observed)
    workers, labels = np.divmod(block.indices.astype(np.int64), n_classes)
    cells = np.empty(int(after.sum()), np.int64)
    filled, step, left = 0, 1, np.flatnonzero(after > 0)
    # a row's answers are in the order of annotators: each goes with the next one, then with the one after that
    while left.size:
        pairs = workers[left] * n_annotators + workers[left + step]
        found = (pairs * n_classes + labels[left]) * n_classes + labels[left + step]
        cells[filled : filled + left.size] = found
        filled += left.size
        step += 1
        left = left[after[left] >= step]
    cells.sort()
    return cells


def _count_cells(cells: IntArray, n_annotators: int, n_classes: int) -> WorkerPairCounts:
    """Counts of cells in order; nobody's answers are counted."""
    edges = _find_edges(cells)
    times, cells = np.diff(np.append(edges, cells.size)), cells[edges]
    pairs = cells // n_classes**2
    starts = _find_edges(pairs)
    places = np.repeat(np.arange(starts.size), np.diff(np.append(starts, pairs.size)))
    counts = np.zeros((starts.size, n_classes, n_classes), np.int64)
    counts.reshape(-1)[places * n_classes**2 + cells % n_classes**2] = times
    none = np.zeros(n_annotators, np.int64)
    return WorkerPairCounts(*_split(pairs[starts], n_annotators), counts, none)


def _find_edges(ordered: IntArray) -> IntArray:
    """Place of the first of every run of equals."""
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: ordered.size])


def _split(pairs: IntArray, n_annotators: int) -> tuple[IntArray, IntArray]:
    first, second = np.divmod(pairs, n_annotators)
    return first, second
