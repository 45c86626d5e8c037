"""Scores of the levels of each variable, along which traits change its PMF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, list_owners
from pmflib.schema import Schema, Variable

VALUE, EXTREMENESS, NOMINAL = range(3)
"""Kinds of directions: values of ordered levels, their distance from the middle, and contrasts of nominal levels."""

PSEUDO_COUNT = 5.0
"""Number of pseudo-samples of a variable, distributed like the mean PMF of similar variables."""


@dataclass(frozen=True, eq=False)
class LevelScores:
    """Directions of all variables, and the scores of their levels along these.

    Parameters
    ----------
    scores
        float64 of shape (n_scores,): one table per variable, (cardinality, number of its directions), flattened and
        concatenated.
    n_directions
        int64 of shape (n_variables,).
    kinds
        int64 of shape (n_all_directions,): ``VALUE``, ``EXTREMENESS`` or ``NOMINAL``.
    log_marginals
        float64 of shape (n_levels,): log-PMF of each variable, with pseudo-counts.
    offsets
        int64 of shape (n_variables + 1,): first level of each variable.
    """

    scores: FloatArray
    n_directions: IntArray
    kinds: IntArray
    log_marginals: FloatArray
    offsets: IntArray

    @classmethod
    def make(cls, schema: Schema, level_counts: FloatArray) -> LevelScores:
        """Make the directions of the variables of a schema.

        Variables with the same values share a scale: values are standardised by the pooled PMF of these variables, and
        extremeness is the standardised residual of their square after linear regression on the values. Variables with
        two levels have no extremeness. Levels without values have orthonormal contrasts, which treat them alike.

        Parameters
        ----------
        schema
            Variables; those with values or bins are ordered.
        level_counts
            float64 of shape (n_levels,): number of samples with each level; all may be 0.
        """
        scales: dict[tuple[float, ...], list[int]] = {}
        alike: dict[object, list[int]] = {}
        for position, variable in enumerate(schema):
            values = read_values(variable)
            if values is not None:
                scales.setdefault(values, []).append(position)
            alike.setdefault(values or ("nominal", position), []).append(position)
        marginals = np.empty(schema.n_levels)
        pooled: dict[object, FloatArray] = {}
        for key, positions in alike.items():
            pooled[key] = _pool(schema, positions, level_counts, marginals)
        tables: list[FloatArray] = []
        kinds: list[int] = []
        for variable in schema:
            values = read_values(variable)
            if values is None:
                table = make_contrasts(variable.cardinality)
                kinds += [NOMINAL] * table.shape[1]
            else:
                table = _score_values(np.array(values), pooled[values])
                kinds += [VALUE, EXTREMENESS][: table.shape[1]]
            tables.append(table)
        return cls(
            np.concatenate([np.empty(0), *(table.ravel() for table in tables)]),
            np.array([table.shape[1] for table in tables], np.int64),
            np.array(kinds, np.int64),
            np.log(marginals),
            schema.offsets,
        )

    @cached_property
    def starts(self) -> IntArray:
        """First position of each variable in scores, and in the concatenated directions: int64 (n_variables + 1, 2)."""
        sizes = np.stack([np.diff(self.offsets) * self.n_directions, self.n_directions])
        return np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(sizes, axis=1).T])

    @cached_property
    def owners(self) -> IntArray:
        """Variable of each level, int64 of shape (n_levels,)."""
        return list_owners(self.offsets)

    def table(self, position: int) -> FloatArray:
        """Return the scores of a variable, (cardinality, number of its directions)."""
        begin, end = self.starts[position, 0], self.starts[position + 1, 0]
        n_levels = int(self.offsets[position + 1] - self.offsets[position])
        return self.scores[begin:end].reshape(n_levels, self.n_directions[position])

    def group(self) -> list[IntArray]:
        """Group the positions of variables by numbers of levels and directions; omit variables without directions."""
        keys = np.stack([np.diff(self.offsets), self.n_directions])
        groups = np.unique(keys[:, keys[1] > 0], axis=1).T
        return [np.flatnonzero((keys.T == key).all(axis=1)) for key in groups]

    def spread(self, coefficients: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute the logits of the levels from coefficients of the directions.

        Parameters
        ----------
        coefficients
            float64 of shape (n_all_directions, 1 + n_traits): intercepts, and slopes.

        Returns
        -------
        base (n_levels,) and slopes (n_levels, n_traits); with all coefficients 0, the logits are the log-marginals.
        """
        logits = np.zeros((self.log_marginals.size, coefficients.shape[1]))
        for positions in self.group():
            n_levels, n_directions = self.table(positions[0]).shape
            tables = np.stack([self.table(position) for position in positions])
            own = self.starts[positions, 1][:, None] + np.arange(n_directions)
            levels = self.offsets[positions][:, None] + np.arange(n_levels)
            # a loop over the few directions instead of BLAS, whose last bits depend on the number of threads
            for j in range(n_directions):
                logits[levels] += tables[:, :, j, None] * coefficients[own[:, j]][:, None, :]
        return self.log_marginals + logits[:, 0], np.ascontiguousarray(logits[:, 1:])


def read_values(variable: Variable) -> tuple[float, ...] | None:
    """Return the values of a variable with ordered levels, the positions of its bins, or None without an order.

    Two levels without values are treated as nominal, because they would share no scale with variables of the opposite
    polarity. Levels that all have the same value are nominal as well.
    """
    if variable.values is not None and len(set(variable.values)) > 1:
        return variable.values
    if variable.edges is not None and variable.cardinality > 1:
        return tuple(map(float, range(variable.cardinality)))
    return None


def are_ratings(schema: Schema) -> bool:
    """Return whether the levels of every variable with two or more are ordered: numbers, or bins of numbers."""
    ordered = [read_values(variable) is not None for variable in schema if variable.cardinality > 1]
    return bool(ordered) and all(ordered)


def make_contrasts(n_levels: int) -> FloatArray:
    """Make orthonormal (Helmert) contrasts of levels, (n_levels, n_levels - 1); columns sum to 0."""
    table = np.zeros((n_levels, n_levels - 1))
    for j in range(1, n_levels):
        table[:j, j - 1] = 1.0
        table[j, j - 1] = -j
        table[:, j - 1] /= np.sqrt(j * (j + 1.0))
    return table


def _pool(
    schema: Schema, positions: Sequence[int], level_counts: FloatArray, marginals: FloatArray
) -> FloatArray:
    """Fill in the marginals of similar variables, with pseudo-counts of their mean PMF; return that mean."""
    counts = np.stack([level_counts[schema.rows_of(position)] for position in positions])
    mean = counts.sum(axis=0) + 1.0
    mean /= mean.sum()
    for position, own in zip(positions, counts, strict=True):
        mass = own + PSEUDO_COUNT * mean
        marginals[schema.rows_of(position)] = mass / mass.sum()
    return np.asarray(mean)


def _score_values(values: FloatArray, pmf: FloatArray) -> FloatArray:
    """Return standardised values, and the standardised residuals of their squares, under the given PMF."""
    first = values - pmf @ values
    first /= np.sqrt(pmf @ first**2)
    second = first**2 - 1.0 - (pmf @ first**3) * first
    size = np.sqrt(pmf @ second**2)
    if values.size == 2 or size < 1e-6:
        return first[:, None]
    return np.stack([first, second / size], axis=1)
