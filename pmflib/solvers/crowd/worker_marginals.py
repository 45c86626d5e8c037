"""Pairwise marginals of workers' labels: a block for each pair of workers that shares tasks, and no more."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.errors import MemoryPlanError

MAX_LEVELS = 6000
"""Levels, workers times classes, up to which all pairs are put into one dense matrix: 288 MB."""


@dataclass(frozen=True, eq=False)
class WorkerPairs:
    """Pairwise marginals of workers, block-sparse.

    Parameters
    ----------
    first, second
        int64 of shape (n_pairs,): the workers of each pair, first < second, in order.
    blocks
        float64 of shape (n_pairs, n_classes, n_classes): joint PMF of their labels.
    support
        int64 of shape (n_pairs,): number of tasks that both have labelled.
    n_workers
        Number of workers.
    """

    first: IntArray
    second: IntArray
    blocks: FloatArray
    support: IntArray
    n_workers: int

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.blocks.shape[1])

    @property
    def offsets(self) -> IntArray:
        """First level of each worker, int64 of shape (n_workers + 1,)."""
        return np.arange(self.n_workers + 1, dtype=np.int64) * self.n_classes

    def list_neighbours(self) -> list[tuple[IntArray, FloatArray]]:
        """For each worker, those with common tasks, and the blocks with its own labels as rows."""
        mine = np.concatenate([self.first, self.second])
        others = np.concatenate([self.second, self.first])
        order = np.lexsort((others, mine))
        edges = np.searchsorted(mine[order], np.arange(self.n_workers + 1))
        n_pairs = self.first.size
        listed = []
        for start, stop in pairwise(edges):
            here = order[start:stop]
            transposed = (here >= n_pairs)[:, None, None]
            blocks = self.blocks[here % max(n_pairs, 1)]
            listed.append((others[here], np.where(transposed, blocks.transpose(0, 2, 1), blocks)))
        return listed

    def to_sparse(self) -> csr_array:
        """Matrix of all pairs, (n_levels, n_levels), symmetric; zero where nothing was observed."""
        n_classes = self.n_classes
        _, labels, co_labels = np.indices(self.blocks.shape)
        rows = labels + self.first[:, None, None] * n_classes
        columns = co_labels + self.second[:, None, None] * n_classes
        size = self.n_workers * n_classes
        places = (rows.ravel(), columns.ravel())
        upper = csr_array((self.blocks.ravel(), places), shape=(size, size))
        return csr_array(upper + upper.T)

    def to_dense(self) -> tuple[FloatArray, IntArray, BoolArray]:
        """Matrix of all pairs, their support and whether they were observed, as the other solvers take them.

        Raises
        ------
        MemoryPlanError
            If the workers have more than ``MAX_LEVELS`` levels.
        """
        check_levels(self.n_workers, self.n_classes)
        support = np.zeros((self.n_workers,) * 2, np.int64)
        support[self.first, self.second] = support[self.second, self.first] = self.support
        return self.to_sparse().toarray(), support, support > 0


def check_levels(n_workers: int, n_classes: int) -> None:
    """Check that all pairs fit in one dense matrix.

    Raises
    ------
    MemoryPlanError
        If the workers have more than ``MAX_LEVELS`` levels.
    """
    n_levels = n_workers * n_classes
    if n_levels > MAX_LEVELS:
        raise MemoryPlanError(
            f"{n_workers} workers have {n_levels} levels, above {MAX_LEVELS}, and their pairs do not "
            "fit in a dense matrix; choose a method that needs none: 'auto' or 'robust'"
        )
