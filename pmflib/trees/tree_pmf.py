"""The joint PMF of latent classes whose variables hang together by forests."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pmflib.argument_checks import check_whole
from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import DenseBlock
from pmflib.errors import PmfError
from pmflib.level_blocks import FLOOR
from pmflib.model.joint_pmf import JointPMF
from pmflib.model.marginal_tables import place_marginal
from pmflib.model.row_predictions import BATCH_ROWS
from pmflib.model.stored_model import Arrays
from pmflib.schema import Schema
from pmflib.trees.forest import Forest
from pmflib.trees.tree_sampling import draw_rows
from pmflib.trees.tree_statistics import TreeParameters, TreePasses

if TYPE_CHECKING:
    from pmflib.plots.drawing import Axes
    from pmflib.questions.conditions import Given

MAX_CELLS = 1 << 22
"""Cells of the largest marginal that is computed: each is the probability of a row."""


@dataclass(frozen=True, eq=False, repr=False)
class TreePMF(JointPMF):
    """The joint distribution of all variables: a mixture over latent states, each a forest of the variables.

    ``Pr(x) = sum_f prior[f] prod_n P(x_n | x_parent(n, f), f)``, where a root has no parent. What is missing is summed
    out by messages along the forests, exactly. Without edges it is the `JointPMF` of the same prior and factors.

    It answers what a `JointPMF` answers. Not supported yet, and refused: the search for the most likely combinations of
    more variables than can be listed, standard errors by folds, and diagnostics of pair counts.

    Parameters
    ----------
    prior, factors, schema, origin
        As for `JointPMF`; factors are what the tables give for each variable given the state alone.
    forest
        The forest of every state.
    tables
        float64 of shape (n_entries,), as `Forest` lays them out: PMFs of each variable given the state and the level of
        its parent.

    Raises
    ------
    PmfError
        If shapes do not agree, or something is no probability.
    """

    forest: Forest = field(kw_only=True)
    tables: FloatArray = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        forest, tables = self.forest, self.tables
        if forest.rank != self.rank or not np.array_equal(forest.offsets, self.schema.offsets):
            raise PmfError(
                f"the forest is of {forest.rank} states and {forest.offsets.size - 1} variables; the prior has "
                f"{self.rank} states and the schema {self.schema.n_variables} variables: take all from one model"
            )
        if tables.shape != (forest.n_entries,) or not np.isfinite(tables).all() or tables.min() < 0:
            raise PmfError(
                f"tables has shape {tables.shape}, or a value that is no probability; the forest needs "
                f"({forest.n_entries},), at least 0"
            )
        if np.abs(np.add.reduceat(tables, forest.rows) - 1).max() > 1e-6:
            raise PmfError("a row of tables does not sum to 1; normalise it")

    @classmethod
    def make(
        cls, parameters: TreeParameters, schema: Schema, origin: Mapping[str, Any] | None = None
    ) -> TreePMF:
        """Model of some parameters: its factors are found along the forests."""
        prior, forest, tables = parameters
        if tables.shape != (forest.n_entries,):
            raise PmfError(
                f"tables has shape {tables.shape}; the forest needs ({forest.n_entries},): take both from one model"
            )
        factors = forest.find_marginals(tables)
        return cls(prior, factors, schema, dict(origin or {}), forest=forest, tables=tables)

    @classmethod
    def read(
        cls, arrays: Mapping[str, FloatArray], schema: Schema, origin: Mapping[str, Any]
    ) -> TreePMF:
        """Model of the arrays that `save` wrote."""
        forest = Forest(arrays["parents"].astype(np.int32), schema.offsets)
        return cls.make(TreeParameters(arrays["prior"], forest, arrays["tables"]), schema, origin)

    def __repr__(self) -> str:
        """Sizes, and the number of edges."""
        return f"Tree{super().__repr__()[5:-1]}, {self.forest.n_edges} edges)"

    @property
    def parameters(self) -> TreeParameters:
        """Prior, forests and tables."""
        return TreeParameters(self.prior, self.forest, self.tables)

    @property
    def n_parameters(self) -> int:
        """Free parameters: rank - 1 of the prior, and of each row of the tables its entries less one."""
        return self.rank - 1 + self.forest.n_entries - len(self.forest.rows)

    def edges(self) -> list[tuple[str, str, float]]:
        """Pairs of variables that hang together within states, and the share of all samples in such states.

        Returns
        -------
        Names of both variables, in the order of the schema, and the prior of the states with that edge, in (0, 1]; the
        largest share first.
        """
        shares: dict[tuple[int, int], float] = defaultdict(float)
        for state, place in zip(*np.nonzero(self.forest.parents >= 0), strict=True):
            parent = int(self.forest.parents[state, place])
            shares[min(parent, int(place)), max(parent, int(place))] += float(self.prior[state])
        names = self.schema.names
        ordered = sorted(shares.items(), key=lambda each: (-each[1], each[0]))
        return [
            (names[first], names[second], min(share, 1.0)) for (first, second), share in ordered
        ]

    @cached_property
    def _passes(self) -> TreePasses:
        return TreePasses(self.parameters)

    def _score(self, block: DenseBlock, log_probs: FloatArray, posteriors: FloatArray) -> None:
        codes = np.ascontiguousarray(block.codes)
        if posteriors.shape[1]:
            self._passes.find_posteriors(codes, posteriors, log_probs)
        else:
            log_probs[:] = self._passes.score(DenseBlock(codes))

    def find_beliefs(self, codes: IntArray, posteriors: FloatArray | None = None) -> FloatArray:
        """PMFs of the variables that valid rows do not hold: float64 (n_rows, n_levels), 0 where observed.

        Parameters
        ----------
        codes
            Valid codes of shape (n_rows, n_variables), -1 missing.
        posteriors
            float64 of shape (n_rows, rank), where they are known.
        """
        codes = np.ascontiguousarray(codes)
        if posteriors is None:
            posteriors = np.empty((len(codes), self.rank))
            self._passes.find_posteriors(codes, posteriors, np.empty(len(codes)))
        return self._passes.find_beliefs(codes, np.ascontiguousarray(posteriors))

    def predict_hidden(self, codes: IntArray, posteriors: FloatArray, place: int) -> FloatArray:
        """PMF of a variable that rows do not hold: see `JointPMF.predict_hidden`."""
        found = np.empty((len(codes), int(self.schema.cardinalities[place])))
        for part in _cut(len(codes)):
            beliefs = self.find_beliefs(codes[part], posteriors[part])
            found[part] = beliefs[:, self.schema.rows_of(place)]
        return found

    def predict_proba(self, table: object, variable: str | int) -> FloatArray:
        """PMF of a variable in each row, given the other variables observed there: see `JointPMF.predict_proba`."""
        place = self.schema.position(variable)
        codes = self._encode(table, place)
        mine = self.schema.rows_of(place)
        probabilities = np.empty((len(codes), int(self.schema.cardinalities[place])))
        for rows, block in self._iterate_blocks(codes, place):
            for part in _cut(block.n_rows):
                beliefs = self.find_beliefs(block.codes[part])
                probabilities[rows][part] = beliefs[:, mine]
        return probabilities

    def predict_gaps(self, codes: IntArray) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """PMFs of all missing cells, each given what its row holds: see `JointPMF.predict_gaps`."""
        for rows, block in self._iterate_blocks(codes):
            for part in _cut(block.n_rows):
                batch = block.codes[part]
                beliefs = self.find_beliefs(batch)
                gaps = batch < 0
                for place in np.flatnonzero(gaps.any(axis=0)).tolist():
                    mine = np.flatnonzero(gaps[:, place])
                    found = beliefs[mine, self.schema.rows_of(place)]
                    yield place, rows.start + part.start + mine, found

    def predict_in_states(self, codes: IntArray, states: IntArray, place: int) -> FloatArray:
        """PMF of a variable given what rows hold and their states: see `JointPMF.predict_in_states`."""
        certain = np.zeros((len(codes), self.rank))
        certain[np.arange(len(codes)), states] = 1.0
        return self.predict_hidden(codes, certain, place)

    def marginal(self, variables: Sequence[str | int], given: Given | None = None) -> FloatArray:
        """Joint PMF of some variables, possibly given levels of others: see `JointPMF.marginal`.

        Raises
        ------
        MemoryPlanError
            If the table would have more than ``MAX_CELLS`` cells.
        """
        places = place_marginal(self.schema, variables, given, MAX_CELLS)
        sizes = [int(self.schema.cardinalities[place]) for place in places]
        model = self.condition(given) if given else self
        if len(places) == 1:
            return np.asarray(model.factor(places[0]) @ model.prior)
        chances = np.empty(math.prod(sizes))
        for start in range(0, chances.size, BATCH_ROWS):
            cells = np.arange(start, min(start + BATCH_ROWS, chances.size))
            codes = np.full((cells.size, self.schema.n_variables), -1, np.int32)
            codes[:, places] = np.stack(np.unravel_index(cells, sizes), axis=1)
            chances[cells] = np.exp(model.log_prob(codes))
        return np.asarray((chances / chances.sum()).reshape(sizes))

    def find_pairs(self) -> FloatArray:
        """Joint PMFs of all pairs of variables: float64 (n_levels, n_levels), symmetric.

        The block of a variable with itself has its PMF on the diagonal.
        """
        offsets = self.schema.offsets
        total = np.zeros((self.schema.n_levels, self.schema.n_levels))
        for state in range(self.rank):
            factors = self.factors[:, state]
            joint = np.outer(factors, factors)
            before = np.zeros(0, np.int64)
            for place in self.forest.order[state].tolist():
                mine = self.schema.rows_of(place)
                parent = int(self.forest.parents[state, place])
                if parent >= 0:
                    table = self.forest.cut(self.tables, state, place)
                    found = joint[before][:, self.schema.rows_of(parent)] @ table
                    joint[before, mine] = found
                    joint[mine, before] = found.T
                joint[mine, mine] = np.diag(factors[mine])
                before = np.append(before, np.arange(offsets[place], offsets[place + 1]))
            total += self.prior[state] * joint
        return np.asarray(total)

    def expect_logs(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance, given the state, of the log-probability of each variable given its parent.

        Returns
        -------
        float64 of shape (n_variables, rank) each, nats and their squares.
        """
        forest, offsets = self.forest, self.schema.offsets
        means, squares = np.empty((2, self.schema.n_variables, self.rank))
        for state in range(self.rank):
            for place, parent in enumerate(forest.parents[state].tolist()):
                table = forest.cut(self.tables, state, place)
                above = np.ones(1)
                if parent >= 0:
                    above = self.factors[offsets[parent] : offsets[parent + 1], state]
                joint, logs = above[:, None] * table, np.log(np.maximum(table, FLOOR))
                means[place, state] = (joint * logs).sum()
                squares[place, state] = (joint * logs**2).sum()
        return means, squares - means**2

    def sample(
        self, n_rows: int, rng: np.random.Generator | int, *, given: Given | None = None
    ) -> IntArray:
        """Draw samples: see `JointPMF.sample`."""
        check_whole("n_rows", n_rows)
        if n_rows < 0:
            raise PmfError(f"n_rows is {n_rows}, below 0: pass a count of rows")
        model = self.condition(given) if given else self
        assert isinstance(model, TreePMF)
        return draw_rows(model.parameters, n_rows, np.random.default_rng(rng))

    def plot_forest(self, **options: Any) -> Axes:
        """Draw which variables hang together: see `pmflib.plots.tree_plots.plot_forest`."""
        from pmflib.plots.tree_plots import plot_forest

        return plot_forest(self, **options)

    def _list_parts(self) -> tuple[Arrays, dict[str, Any]]:
        arrays: Arrays = {
            "parents": (self.forest.parents, ("state", "variable")),
            "tables": (self.tables, ("entry",)),
        }
        return arrays, {"dependence": "tree"}


def _cut(n_rows: int) -> list[slice]:
    """Rows in batches whose beliefs are held at a time."""
    return [slice(start, min(start + 4096, n_rows)) for start in range(0, n_rows, 4096)]
