"""Forests of variables, one per latent state: parents, and the layout of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pmflib.base.arrays import FLOOR, BoolArray, FloatArray, IntArray
from pmflib.base.constraints import Interval, at_least, check, check_entries, check_shapes
from pmflib.base.errors import PmfError


@dataclass(frozen=True, eq=False)
class Forest:
    """A forest of the variables for each latent state.

    Parameters
    ----------
    parents
        int32 of shape (rank, n_variables): position of the parent of each variable in each state; -1 for none.
    offsets
        int64 of shape (n_variables + 1,).

    Raises
    ------
    PmfError
        If shapes do not agree, a parent is not the position of a variable, or the parents form a cycle.
    """

    parents: IntArray
    offsets: IntArray

    def __post_init__(self) -> None:
        n_variables = self.offsets.size - 1
        check_shapes("", PmfError, parents=(self.parents, ("rank", n_variables)))
        check(at_least(1), rank=len(self.parents))
        check_entries(Interval(-1, n_variables - 1, hint="-1 for none"), parents=self.parents)
        object.__setattr__(self, "parents", np.ascontiguousarray(self.parents, np.int32))
        # computing the order detects cycles
        assert self.order.size

    @classmethod
    def without_edges(cls, rank: int, offsets: IntArray) -> Forest:
        """Make a forest without edges: variables are independent given the state."""
        return cls(np.full((rank, offsets.size - 1), -1, np.int32), offsets)

    @staticmethod
    def join(forests: Sequence[Forest]) -> Forest:
        """Concatenate the forests of the states of several models of one schema."""
        return Forest(np.concatenate([each.parents for each in forests]), forests[0].offsets)

    @property
    def rank(self) -> int:
        """Number of latent states."""
        return len(self.parents)

    @property
    def n_edges(self) -> int:
        """Total number of edges over all states."""
        return int((self.parents >= 0).sum())

    @cached_property
    def is_shared(self) -> bool:
        """Whether all states have the same parents."""
        return bool((self.parents == self.parents[0]).all())

    @cached_property
    def order(self) -> IntArray:
        """Variables in topological order, parents first: int32 of shape (rank, n_variables)."""
        positions = np.arange(self.parents.shape[1])
        depths = np.zeros(self.parents.shape, np.int64)
        above = self.parents
        for _ in positions:
            is_below = above >= 0
            if not is_below.any():
                break
            depths += is_below
            above = np.where(
                is_below, np.take_along_axis(self.parents, np.maximum(above, 0), 1), -1
            )
        if (above >= 0).any():
            state = int(np.flatnonzero((above >= 0).any(axis=1))[0])
            raise PmfError(
                f"parents has a circle of variables in state {state}: {self.parents[state].tolist()}; leave an edge out"
            )
        return np.argsort(depths, axis=1, kind="stable").astype(np.int32)

    @cached_property
    def starts(self) -> IntArray:
        """First entry of the table of each variable in each state: int64 of shape (rank, n_variables)."""
        ends = np.cumsum(self._n_entries.ravel())
        return (ends - self._n_entries.ravel()).reshape(self.parents.shape)

    @property
    def n_entries(self) -> int:
        """Total number of entries of the tables of all states."""
        return int(self._n_entries.sum())

    @property
    def arrays(self) -> tuple[IntArray, IntArray, IntArray]:
        """Parents, order and starts, as arguments of the kernels."""
        return self.parents, self.order, self.starts

    @cached_property
    def _n_entries(self) -> IntArray:
        sizes = np.diff(self.offsets)
        above = np.where(self.parents >= 0, sizes[np.maximum(self.parents, 0)], 1)
        return np.asarray(above * sizes, np.int64)

    def view_table(self, entries: FloatArray, state: int, variable: int) -> FloatArray:
        """Return a view of the table of a variable in a state, of shape (parent's cardinality or 1, cardinality)."""
        start = int(self.starts[state, variable])
        size = int(self.offsets[variable + 1] - self.offsets[variable])
        return entries[start : start + int(self._n_entries[state, variable])].reshape(-1, size)

    @cached_property
    def rows(self) -> IntArray:
        """First entry of each row (PMF) of the tables: int64 of shape (n_rows,)."""
        sizes = np.broadcast_to(np.diff(self.offsets), self.parents.shape).ravel()
        n_each = self._n_entries.ravel() // sizes
        first = np.repeat(self.starts.ravel(), n_each)
        within = np.arange(n_each.sum()) - np.repeat(np.cumsum(n_each) - n_each, n_each)
        return np.asarray(first + within * np.repeat(sizes, n_each), np.int64)

    @cached_property
    def row_sizes(self) -> IntArray:
        """Number of entries of each row of the tables: int64 of shape (n_rows,)."""
        return np.diff(np.append(self.rows, self.n_entries))

    @cached_property
    def levels(self) -> IntArray:
        """Level of the variable for each entry, in [0, n_levels): int64 of shape (n_entries,)."""
        owners = np.repeat(np.tile(self.offsets[:-1], self.rank), self._n_entries.ravel())
        return owners + np.arange(self.n_entries) - np.repeat(self.rows, self.row_sizes)

    @cached_property
    def levels_above(self) -> IntArray:
        """Level of the parent for each entry, in [0, n_levels), or -1 at a root: int64 of shape (n_entries,)."""
        above = np.where(self.parents >= 0, self.offsets[np.maximum(self.parents, 0)], -1)
        within = np.arange(self.n_entries) - np.repeat(self.starts.ravel(), self._n_entries.ravel())
        size = np.repeat(np.tile(np.diff(self.offsets), self.rank), self._n_entries.ravel())
        return np.asarray(np.repeat(above.ravel(), self._n_entries.ravel()) + within // size)

    @cached_property
    def states(self) -> IntArray:
        """State of each entry: int64 of shape (n_entries,)."""
        return np.repeat(np.arange(self.rank), self._n_entries.sum(axis=1))

    @cached_property
    def has_parent(self) -> IntArray:
        """Whether the variable of each entry has a parent: bool of shape (n_entries,)."""
        return np.repeat((self.parents >= 0).ravel(), self._n_entries.ravel())

    def normalise(self, entries: FloatArray, fallback: FloatArray) -> FloatArray:
        """Normalise the rows of tables to sum 1; rows without mass are taken from the fallback, (n_entries,)."""
        sums = np.repeat(np.add.reduceat(entries, self.rows), self.row_sizes)
        full = sums > FLOOR
        return np.where(full, entries / np.where(full, sums, 1.0), fallback)

    @cached_property
    def _pairs(self) -> IntArray:
        """Index of each entry's pair of levels, of the parent and of the variable, the same in all states."""
        flat = (self.levels_above + 1) * int(self.offsets[-1]) + self.levels
        return np.asarray(np.unique(flat, return_inverse=True)[1])

    def pool_states(self, entries: FloatArray) -> FloatArray:
        """Sum entries over the states in which the variable has the same parent: (n_entries,)."""
        return np.asarray(np.bincount(self._pairs, entries)[self._pairs])

    def sum_levels(self, entries: FloatArray) -> FloatArray:
        """Sum entries over the levels of the parents: float64 of shape (n_levels, rank)."""
        n_levels = int(self.offsets[-1])
        flat = self.levels * self.rank + self.states
        summed = np.bincount(flat, entries, minlength=n_levels * self.rank)
        return np.asarray(summed, np.float64).reshape(n_levels, self.rank)

    def spread_levels(self, factors: FloatArray) -> FloatArray:
        """Expand values of levels, (n_levels, rank), to entries, repeated over the parent's levels: (n_entries,)."""
        return np.asarray(factors[self.levels, self.states])

    @cached_property
    def has_edges(self) -> BoolArray:
        """Whether a state has an edge: bool of shape (rank,)."""
        return np.asarray((self.parents >= 0).any(axis=1))

    @property
    def is_plain(self) -> BoolArray:
        """Whether an entry is of a state without edges: bool of shape (n_entries,)."""
        return np.asarray(~self.has_edges[self.states])

    def find_plain_factors(self, tables: FloatArray) -> FloatArray:
        """Return the PMFs of the variables in the states without edges: (n_levels, n_plain)."""
        return np.ascontiguousarray(tables[self.is_plain].reshape(-1, int(self.offsets[-1])).T)

    def find_marginals(self, tables: FloatArray) -> FloatArray:
        """Compute the PMF of each variable given the state from the tables: (n_levels, rank)."""
        factors = np.empty((int(self.offsets[-1]), self.rank))
        factors[:, ~self.has_edges] = self.find_plain_factors(tables)
        for state in np.flatnonzero(self.has_edges).tolist():
            for position in self.order[state].tolist():
                parent = int(self.parents[state, position])
                table = self.view_table(tables, state, position)
                mine = slice(int(self.offsets[position]), int(self.offsets[position + 1]))
                if parent < 0:
                    factors[mine, state] = table[0]
                else:
                    above = slice(int(self.offsets[parent]), int(self.offsets[parent + 1]))
                    factors[mine, state] = factors[above, state] @ table
        return factors
