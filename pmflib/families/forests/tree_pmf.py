"""The joint PMF of latent classes with forests of dependent variables."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.blocks import Block, DenseBlock
from pmflib.base.codes import Codes
from pmflib.base.constraints import NONNEGATIVE, check_entries, check_shapes
from pmflib.base.errors import PmfError
from pmflib.families.forests.forest import Forest
from pmflib.families.forests.split_states import SplitStates
from pmflib.families.forests.statistics import TreeParameters
from pmflib.families.forests.tree_questions import draw_tree_rows
from pmflib.model.conditions import Conditions, Given
from pmflib.model.joint_pmf import KIND, JointPMF
from pmflib.model.marginals import FindSurprises, RowScores, find_positions
from pmflib.model.mixture import BATCH_ROWS, Arrays, Mixture
from pmflib.model.origin import ModelOrigin
from pmflib.schema import Schema
from pmflib.store.array_groups import read_arrays

if TYPE_CHECKING:
    from pmflib.base.display.drawing import Axes

MAX_CELLS = 1 << 22
"""Maximum number of cells of a marginal; each cell needs the probability of a row."""


@dataclass(frozen=True, eq=False, repr=False)
class TreePMF(JointPMF, mark="dependence=tree"):
    """The joint distribution of all variables: a mixture over latent states, each with a forest of the variables.

    ``Pr(x) = sum_f prior[f] prod_n P(x_n | x_parent(n, f), f)``, where a root has no parent. Missing cells are summed
    out exactly by message passing along the forests. Without edges, the model equals the `JointPMF` of the same prior
    and factors.

    It has the methods of `JointPMF`. Not yet supported (see `unsupported`) are the search for the most likely
    combinations of too many variables to enumerate, and diagnostics of pair counts.

    Parameters
    ----------
    prior, factors, schema, origin
        As for `JointPMF`; factors are the PMFs of the variables given the state alone, implied by the tables.
    forest
        The forest of every state.
    tables
        float64 of shape (n_entries,), in the layout of `Forest`: PMFs of each variable given the state and the level of
        its parent.

    Raises
    ------
    PmfError
        If shapes do not agree, or a value is not a probability.
    """

    kind: ClassVar[str] = "forests"

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
        check_shapes("as the forest needs", PmfError, tables=(tables, (forest.n_entries,)))
        check_entries(NONNEGATIVE, tables=tables)
        if np.abs(np.add.reduceat(tables, forest.rows) - 1).max() > 1e-6:
            raise PmfError("a row of tables does not sum to 1; normalise it")

    @classmethod
    def make(
        cls, parameters: TreeParameters, schema: Schema, origin: ModelOrigin | None = None
    ) -> Self:
        """Make a model of given parameters; its factors are computed from the tables."""
        prior, forest, tables = parameters
        check_shapes("take both from one model", PmfError, tables=(tables, (forest.n_entries,)))
        factors = forest.find_marginals(tables)
        return cls(prior, factors, schema, origin or ModelOrigin(), forest=forest, tables=tables)

    @classmethod
    def read_parts(
        cls, folder: Path, schema: Schema, origin: ModelOrigin, attributes: Mapping[str, Any]
    ) -> TreePMF:
        """Read forests and tables: see `JointPMF.read_parts`."""
        arrays, _ = read_arrays(folder, ["prior", "parents", "tables"], kind=KIND)
        forest = Forest(arrays["parents"].astype(np.int32), schema.offsets)
        return cls.make(TreeParameters(arrays["prior"], forest, arrays["tables"]), schema, origin)

    def __repr__(self) -> str:
        """Return the sizes of the model and its number of edges."""
        return f"Tree{super().__repr__()[5:-1]}, {self.forest.n_edges} edges)"

    @property
    def parameters(self) -> TreeParameters:
        """Prior, forests and tables."""
        return TreeParameters(self.prior, self.forest, self.tables)

    @property
    def n_parameters(self) -> int:
        """Number of free parameters: rank - 1 for the prior, and for each row of the tables its entries minus one."""
        return self.rank - 1 + self.forest.n_entries - len(self.forest.rows)

    @property
    def is_mixture(self) -> bool:
        """Whether the posterior of the states alone predicts a row: it does not, as cells depend on each other."""
        return False

    def count_free(self, level_counts: IntArray | None = None) -> int:
        """Count the free parameters that are not 0, in which levels that were never observed are: see `JointPMF`."""
        kept, forest = self.prior > 0, self.forest
        states = np.searchsorted(forest.starts[:, 0], forest.rows, side="right") - 1
        sizes = np.add.reduceat(self.tables > 0, forest.rows, dtype=np.int64)
        return int(kept.sum()) - 1 + int((sizes - 1)[kept[states]].sum())

    def _take_states(self, order: IntArray) -> Self:
        tables = np.split(self.tables, self.forest.starts[1:, 0])
        return replace(
            super()._take_states(order),
            forest=Forest(self.forest.parents[order], self.forest.offsets),
            tables=np.concatenate([tables[state] for state in order]),
        )

    @property
    def unsupported(self) -> Mapping[str, str]:
        """Operations that models with forests do not support, and why: see `JointPMF.unsupported`."""
        found = {
            "search": "which a model with forests does not search; name fewer variables, or use complete",
        }
        if self.forest.n_edges:
            found["rake"] = (
                "has forests, which cannot be raked to margins; rake the samples with pmflib.surveys.rake, and fit "
                "with the "
                "raked weights"
            )
        return found

    def summarise_kind(self) -> dict[str, object]:
        """Return the kind of dependence and the number of edges: see `JointPMF.summarise_kind`."""
        return {"dependence": "tree", "edges": self.forest.n_edges}

    @cached_property
    def _states(self) -> SplitStates:
        return SplitStates(self.parameters)

    def score_block(self, block: Block, log_probs: FloatArray, posteriors: FloatArray) -> None:
        """Fill in log-probabilities and posteriors of valid rows: see `JointPMF.score_block`."""
        self._states.score_block(block, log_probs, posteriors)

    def _predict_all(self, codes: IntArray, posteriors: FloatArray) -> FloatArray:
        """Compute the PMFs of the missing variables of valid rows, (n_rows, n_levels); others are undefined."""
        plain = self._states.plain
        found = posteriors[:, plain] @ self._states.factors.T
        if plain.size < self.rank:
            found += self._states.find_beliefs(codes, posteriors)
        return np.asarray(found)

    def predict_hidden(self, codes: IntArray, posteriors: FloatArray, position: int) -> FloatArray:
        """Return the PMF of a variable missing from the rows: see `JointPMF.predict_hidden`."""
        factor, plain = self.factor(position), self._states.plain
        found = np.zeros((len(codes), len(factor)))
        for state in plain.tolist():
            found += posteriors[:, state, None] * factor[:, state]
        if plain.size < self.rank:
            for part in _split_rows(len(codes)):
                beliefs = self._states.find_beliefs(codes[part], posteriors[part])
                found[part] += beliefs[:, self.schema.rows_of(position)]
        return found

    def predict_proba(self, table: object, variable: str | int) -> FloatArray:
        """Return the PMF of a variable in each row, given the observed others: see `JointPMF.predict_proba`."""
        position = self.schema.position(variable)
        codes = self.encode(table, position)
        mine, plain = self.schema.rows_of(position), self._states.plain
        factor = self._states.factors[mine]
        probabilities = np.empty((len(codes), len(factor)))
        for rows, block in self._iterate_blocks(codes, position):
            for part in _split_rows(block.n_rows):
                batch = block.codes[part]
                posteriors = self._find_posteriors(batch)
                found = posteriors[:, plain] @ factor.T
                if plain.size < self.rank:
                    found += self._states.find_beliefs(batch, posteriors)[:, mine]
                probabilities[rows][part] = found
        return probabilities

    def predict_gaps(self, codes: IntArray) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """Yield the PMFs of all missing cells, given the observed cells of each row: see `JointPMF.predict_gaps`."""
        for rows, block in self._iterate_blocks(codes):
            for part in _split_rows(block.n_rows):
                batch = block.codes[part]
                beliefs = self._predict_all(batch, self._find_posteriors(batch))
                gaps = batch < 0
                for position in np.flatnonzero(gaps.any(axis=0)).tolist():
                    mine = np.flatnonzero(gaps[:, position])
                    found = beliefs[mine, self.schema.rows_of(position)]
                    yield position, rows.start + part.start + mine, found

    def invert_cells(self, codes: IntArray, posteriors: FloatArray) -> FloatArray:
        """Return the inverse of the probability of each observed cell given the others of its row.

        Parameters
        ----------
        codes
            Valid codes of shape (n_rows, n_variables), -1 missing.
        posteriors
            float64 of shape (n_rows, rank), given all observed cells.

        Returns
        -------
        float64 of shape (n_rows, n_variables), 0 for missing cells.
        """
        inverses, is_safe = self._states.invert_cells(codes, posteriors)
        # cells too improbable to divide by are hidden one after another
        rows = np.flatnonzero(~is_safe)
        for position in range(self.schema.n_variables if rows.size else 0):
            mine = rows[codes[rows, position] >= 0]
            pmf = self.predict_proba(Codes(codes[mine]), position)
            chances = pmf[np.arange(mine.size), codes[mine, position]]
            inverses[mine, position] = 1 / np.maximum(chances, FLOOR)
        return inverses

    def _find_posteriors(self, codes: IntArray) -> FloatArray:
        """Return the posteriors of valid rows."""
        posteriors = np.empty((len(codes), self.rank))
        self.score_block(DenseBlock(codes), np.empty(len(codes)), posteriors)
        return posteriors

    def predict_in_states(self, codes: IntArray, states: IntArray, position: int) -> FloatArray:
        """Return the PMF of a variable given observed cells and states: see `JointPMF.predict_in_states`."""
        certain = np.zeros((len(codes), self.rank))
        certain[np.arange(len(codes)), states] = 1.0
        return self.predict_hidden(codes, certain, position)

    def predict_codes(
        self, shown: IntArray, samples: IntArray, variables: IntArray, codes: IntArray
    ) -> FloatArray:
        """Return the probabilities of given codes of some cells: see `JointPMF.predict_codes`."""
        levels, posteriors = self.schema.offsets[variables] + codes, self.posterior(Codes(shown))
        chances = np.zeros(samples.size)
        for state in self._states.plain.tolist():
            chances += posteriors[samples, state] * self.factors[levels, state]
        if self._states.tied.size:
            chances += self._states.find_beliefs(shown, posteriors)[samples, levels]
        return chances

    def _condition(self, conditions: Conditions) -> tuple[Self, float]:
        found, log_probability = self._states.condition(conditions)
        return self.make(found, self.schema, self.origin), log_probability

    def can_meet(self, conditions: Conditions) -> bool:
        """Return whether the conditions have a joint probability above 0, taking the forests into account."""
        if not super().can_meet(conditions):
            return False
        return self._states.condition(conditions)[1] > -math.inf

    def weigh_combinations(self, positions: Sequence[int], combinations: IntArray) -> FloatArray:
        """Return the probabilities of some combinations of codes: see `JointPMF.weigh_combinations`."""
        codes = np.full((len(combinations), self.schema.n_variables), -1, np.int32)
        codes[:, list(positions)] = combinations
        return np.exp(self.log_prob(Codes(codes)))

    def marginal(self, variables: Sequence[str | int], given: Given | None = None) -> FloatArray:
        """Return the joint PMF of some variables, optionally given levels of others: see `JointPMF.marginal`.

        Raises
        ------
        MemoryPlanError
            If the table would have more than ``MAX_CELLS`` cells.
        """
        positions = find_positions(self.schema, variables, given, MAX_CELLS)
        sizes = [int(self.schema.cardinalities[position]) for position in positions]
        model = self.condition(given) if given is not None else self
        if len(positions) == 1:
            return np.asarray(model.factor(positions[0]) @ model.prior)
        chances = np.empty(math.prod(sizes))
        for start in range(0, chances.size, BATCH_ROWS):
            cells = np.arange(start, min(start + BATCH_ROWS, chances.size))
            codes = np.full((cells.size, self.schema.n_variables), -1, np.int32)
            codes[:, positions] = np.stack(np.unravel_index(cells, sizes), axis=1)
            chances[cells] = np.exp(model.log_prob(Codes(codes)))
        return np.asarray((chances / chances.sum()).reshape(sizes))

    def find_pairs(self) -> FloatArray:
        """Return the joint PMFs of all pairs of variables: see `JointPMF.find_pairs`."""
        return self._states.find_pairs(self.factors)

    def iterate_pairs(self, levels: IntArray, offsets: IntArray) -> Iterator[FloatArray]:
        """Yield the joint PMFs of each of some variables with all later ones: see `JointPMF.iterate_pairs`."""
        pairs = self.find_pairs()[np.ix_(levels, levels)]
        for begin, end in pairwise(offsets[:-1].tolist()):
            yield pairs[begin:end, end:]

    def expect_logs(self) -> tuple[FloatArray, FloatArray]:
        """Compute the mean and variance, given the state, of the log-probability of each variable given its parent."""
        return self._states.expect_logs(self.factors)

    def make_surprise_finder(self) -> FindSurprises:
        """Return a function that finds the least probable cell of each row: see `JointPMF.make_surprise_finder`."""
        return partial(find_surprises, self)

    def _draw(self, n_rows: int, rng: np.random.Generator) -> IntArray:
        return draw_tree_rows(self.parameters, n_rows, rng)

    def plot_forest(self, **options: Any) -> Axes:
        """Draw the edges between variables: see `pmflib.families.forests.figures.plot_forest`."""
        from pmflib.families.forests.figures import plot_forest

        return plot_forest(self.schema.names, list_edges(self), **options)

    def list_parts(self) -> tuple[Arrays, dict[str, object]]:
        """Return the arrays of forests and tables: see `JointPMF.list_parts`."""
        arrays: Arrays = {
            "parents": (self.forest.parents, ("state", "variable")),
            "tables": (self.tables, ("entry",)),
        }
        return arrays, {"dependence": "tree"}


def list_edges(model: Mixture) -> list[tuple[str, str, float]]:
    """Return the pairs of variables joined by an edge, and the share of all samples in states with that edge.

    Returns
    -------
    Names of both variables, in the order of the schema, and the prior of the states with that edge, in (0, 1]; the
    largest share first. Empty unless the model has forests.
    """
    if not isinstance(model, TreePMF):
        return []
    shares: dict[tuple[int, int], float] = defaultdict(float)
    for state, position in zip(*np.nonzero(model.forest.parents >= 0), strict=True):
        parent = int(model.forest.parents[state, position])
        shares[min(parent, int(position)), max(parent, int(position))] += float(model.prior[state])
    names = model.schema.names
    ordered = sorted(shares.items(), key=lambda each: (-each[1], each[0]))
    return [(names[first], names[second], min(share, 1.0)) for (first, second), share in ordered]


def _split_rows(n_rows: int) -> list[slice]:
    """Split rows into batches whose beliefs fit in memory together."""
    return [slice(start, min(start + 4096, n_rows)) for start in range(0, n_rows, 4096)]


def find_surprises(model: TreePMF, codes: IntArray, out: RowScores) -> None:
    """Find the least probable cell of each row given the others, and its most probable level.

    Parameters
    ----------
    model
        The model.
    codes, out
        As for `pmflib.model.marginals.find_surprises`.
    """
    out.states[:] = out.posteriors.argmax(axis=1)
    out.variables[:], out.expected[:] = -1, -1
    out.probabilities[:], out.expected_probabilities[:] = np.nan, np.nan
    for rows in _split_rows(len(codes)):
        inverses = model.invert_cells(codes[rows], out.posteriors[rows])
        observed = (codes[rows] >= 0).any(axis=1)
        out.variables[rows] = np.where(observed, inverses.argmax(axis=1), -1)
    for position in range(model.schema.n_variables):
        mine = np.flatnonzero(out.variables == position)
        if mine.size:
            pmf = model.predict_proba(Codes(codes[mine]), position)
            out.probabilities[mine] = np.minimum(
                pmf[np.arange(mine.size), codes[mine, position]], 1
            )
            out.expected[mine] = pmf.argmax(axis=1)
            out.expected_probabilities[mine] = np.minimum(pmf.max(axis=1), 1.0)
