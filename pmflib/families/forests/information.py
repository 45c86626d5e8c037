"""Scores, constraints and residuals of latent classes with forests, whose parameters are tables given the parents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import DenseBlock, weigh_rows
from pmflib.base.codes import Codes
from pmflib.base.hashing import HashArray, mix_hashes
from pmflib.families.forests.statistics import TreeParameters, TreePasses
from pmflib.families.forests.tree_pmf import TreePMF
from pmflib.inference.imputation.imputing import draw_gaps, seed_rows
from pmflib.information.covariance import PMFCovariance
from pmflib.information.latent_classes import LEAST_ENTRY, ClassInformation
from pmflib.information.parameter_errors import (
    ArrayErrors,
    ParameterErrors,
    find_intervals,
    reshape_errors,
)
from pmflib.information.scores import StateRows


class ForestErrors(ParameterErrors):
    """Errors of latent classes with forests: ``prior``, ``factors``, and ``tables`` (n_entries,)."""

    every_scale: ClassVar[Mapping[str, str]] = {
        **ParameterErrors.every_scale,
        "tables": "probabilities given the state and the parent",
    }


class ForestInformation(ClassInformation):
    """Information on prior and tables of latent classes with forests.

    Parameters
    ----------
    model
        Latent classes with forests; without edges, they are as latent classes.
    """

    has_free_factors = False
    errors_type = ForestErrors
    model: TreePMF

    @property
    def tables(self) -> FloatArray:
        """The tables of all states: float64, concatenated."""
        return self.model.tables

    @cached_property
    def starts(self) -> IntArray:
        """First entry of each PMF, that of the prior first: int64 of shape (n_pmfs,)."""
        return np.concatenate([[0], self.n_states + self.model.forest.rows])

    @cached_property
    def states(self) -> IntArray:
        """State of each entry: int64 of shape (n_entries,)."""
        return np.concatenate([np.arange(self.n_states), self.model.forest.states])

    @property
    def has_second_derivatives(self) -> bool:
        """Whether an entry affects the probability of a row only through its own state."""
        return not self.model.forest.n_edges

    def list_masses(self, codes: IntArray) -> FloatArray:
        """Compute each row's posteriors of the states, and of its levels and their parents': (n_rows, n_entries)."""
        if self.has_second_derivatives:
            return super().list_masses(codes)
        return self._passes.list_masses(codes)

    @cached_property
    def _passes(self) -> TreePasses:
        prior, tables = np.split(self.entries, [self.n_states])
        return TreePasses(TreeParameters(prior, self.model.forest, tables))

    def sum_levels(self, mass: FloatArray) -> FloatArray:
        """Sum masses of the entries by level and state: float64 of shape (n_levels, rank)."""
        return self.model.forest.sum_levels(mass[self.n_states :])

    def spread_levels(self, levels: FloatArray) -> FloatArray:
        """Pseudo-counts of the tables, from those of the levels and of the edges."""
        forest = self.model.forest
        # what edges add goes by the states' own PMFs, which the entries are close to
        of_edges = float(self.model.origin.get("edge_pseudo_count", 0.0)) * self.tables
        return np.where(forest.has_parent, of_edges, levels[forest.levels])

    def make_arrays(self, solved: PMFCovariance) -> dict[str, ArrayErrors]:
        """Errors of prior, factors and tables."""
        if self.has_second_derivatives:
            return super().make_arrays(solved)
        prior, tables = self._split_errors(solved)
        slopes, shape = find_factor_slopes(self.model.parameters), self.model.factors.shape
        is_edge = (slopes @ ~solved.is_edge) == 0
        factors = find_intervals(
            self.model.factors.ravel(), *solved.spread(slopes), is_edge, slopes @ solved.reach
        )
        by_level = reshape_errors(factors, slice(None), shape)
        return {"prior": prior, "factors": by_level, "tables": tables}

    def iterate_rows(
        self, blocks: Iterable[DenseBlock], free: list[IntArray]
    ) -> Iterator[StateRows]:
        """Return the rows of blocks in batches, with probabilities given the neighbours of each variable."""
        for rows in super().iterate_rows(map(_repeat_gaps, blocks), free):
            # missing neighbours are imputed: the mean of a residual does not change
            seeds = seed_rows(_hash_rows(rows.codes), 0)
            filled = draw_gaps(self.model, rows.codes, rows.codes < 0, seeds)
            yield replace(
                rows,
                posteriors=self.model.posterior(Codes(filled)),
                chances=self._find_conditionals(filled, free),
                apart=self._apart,
            )

    @cached_property
    def _apart(self) -> dict[tuple[int, int], IntArray]:
        """States in which two variables are not neighbours, for pairs that are neighbours in some state."""
        parents, found = self.model.forest.parents, {}
        for state, position in np.argwhere(parents >= 0).tolist():
            one, other = sorted((position, int(parents[state, position])))
            is_joined = (parents[:, one] == other) | (parents[:, other] == one)
            found[one, other] = np.flatnonzero(~is_joined)
        return found

    def _find_conditionals(self, codes: IntArray, free: list[IntArray]) -> list[FloatArray]:
        """PMFs of each variable in each state given all others, at its free levels: (n_rows, rank, n_free) each."""
        forest, schema, found = self.model.forest, self.model.schema, []
        logged, parents = np.log(np.maximum(self.tables, LEAST_ENTRY)), forest.parents
        for k in range(schema.n_variables):
            logs = np.zeros((len(codes), len(parents), schema[k].cardinality))
            for state, above in enumerate(parents[:, k].tolist()):
                table = forest.view_table(logged, state, k)
                logs[:, state] = table[codes[:, above]] if above >= 0 else table[0]
                for child in np.flatnonzero(parents[state] == k).tolist():
                    below = forest.view_table(logged, state, child)
                    logs[:, state] += below[:, codes[:, child]].T
            logs = np.exp(logs - logs.max(axis=2, keepdims=True))
            found.append((logs / logs.sum(axis=2, keepdims=True))[:, :, free[k]])
        return found


def find_factor_slopes(parameters: TreeParameters) -> FloatArray:
    """Compute the derivatives of the factors with respect to the entries of prior and tables.

    Returns
    -------
    float64 of shape (n_levels * rank, n_entries), with the factors in memory order; a table affects the factors of all
    variables below it in the tree.
    """
    rank, forest = parameters.prior.size, parameters.forest
    offsets, factors = forest.offsets, forest.find_marginals(parameters.tables)
    n_levels = int(offsets[-1])
    slopes = np.zeros((n_levels, rank, rank + forest.n_entries))
    for state in range(rank):
        for position in forest.order[state].tolist():
            parent, start = (
                int(forest.parents[state, position]),
                int(forest.starts[state, position]),
            )
            own = np.arange(offsets[position], offsets[position + 1])
            if parent < 0:
                slopes[own, state, rank + start + np.arange(own.size)] = 1.0
                continue
            above = slice(int(offsets[parent]), int(offsets[parent + 1]))
            table = forest.view_table(parameters.tables, state, position)
            slopes[own, state] = table.T @ slopes[above, state]
            for row, share in enumerate(factors[above, state].tolist()):
                entries = rank + start + row * own.size + np.arange(own.size)
                slopes[own, state, entries] += share
    return slopes.reshape(n_levels * rank, -1)


def _repeat_gaps(block: DenseBlock) -> DenseBlock:
    """Repeat rows with missing cells by their weights, so that each copy is imputed separately."""
    weights = weigh_rows(block)
    times = np.where((block.codes < 0).any(axis=1), np.ceil(weights), 1.0).astype(np.int64)
    return DenseBlock(np.repeat(block.codes, times, axis=0), np.repeat(weights / times, times))


def _hash_rows(codes: IntArray) -> HashArray:
    """Hash of each row's content and position: uint64 (n_rows,)."""
    keys = mix_hashes(np.arange(len(codes)))
    for column in codes.T:
        keys = mix_hashes(keys ^ column.astype(np.uint64))
    return keys
