"""The fitted joint PMF: probabilities, predictions, marginals, samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmflib.argument_checks import check_whole, name_type
from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import DenseBlock
from pmflib.displays.summary import Summarised, Summary
from pmflib.em.statistics import take_logs
from pmflib.errors import MemoryPlanError, PmfError, SchemaError
from pmflib.schema import Schema
from pmflib.schema.variable import MISSING
from pmflib.store.mirrors import find_place
from pmflib.store.zarr_arrays import read_arrays, refuse_damage, write_arrays

if TYPE_CHECKING:
    import pyarrow as pa

    from pmflib.counting.pair_counts import PairCounts
    from pmflib.model.reference_scores import ReferenceScores
    from pmflib.plots.drawing import Axes
    from pmflib.questions.answers import Answer
    from pmflib.questions.conditions import Given
    from pmflib.questions.evidence import Evidence

KIND = "joint PMF"
"""Attribute ``kind`` of the Zarr group of a model."""

BATCH_ROWS = 65_536
"""Rows worked on at a time, so that memory does not grow with the table."""

MAX_MARGINAL_CELLS = 1 << 26
"""Cells of the largest marginal that is computed."""


@dataclass(frozen=True, eq=False)
class JointPMF(Summarised):
    """The joint distribution of all variables, as a mixture over latent states.

    ``Pr(i_1, ..., i_N) = sum_f prior[f] * prod_n factor(n)[i_n, f]``; the full tensor is never formed.

    Parameters
    ----------
    prior
        float64 of shape (rank,), probabilities that sum to 1.
    factors
        float64 of shape (n_levels, rank): conditional PMFs, stacked; the rows of each variable sum to 1 per column.
    schema
        Variables and their levels.
    origin
        Facts on how the model was fitted, plain JSON types.

    Raises
    ------
    PmfError
        If shapes do not agree, or something is no probability.
    """

    prior: FloatArray
    factors: FloatArray
    schema: Schema
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema):
            raise PmfError(f"schema is {name_type(self.schema)}; give a pmflib.Schema")
        for name, values in (("prior", self.prior), ("factors", self.factors)):
            if not isinstance(values, np.ndarray):
                raise PmfError(
                    f"{name} is {name_type(values)}; give an array: numpy.asarray({name})"
                )
        expected = (self.schema.n_levels, self.prior.size)
        if self.prior.ndim != 1 or not self.prior.size or self.factors.shape != expected:
            raise PmfError(
                f"factors has shape {self.factors.shape} and prior {self.prior.shape}; the schema needs "
                f"({self.schema.n_levels}, rank) and (rank,), rank at least 1"
            )
        for name, values in (("prior", self.prior), ("factors", self.factors)):
            if not np.isfinite(values).all() or values.min() < 0:
                raise PmfError(f"{name} has a value that is no probability: {values.min()}")
        sums = np.add.reduceat(self.factors, self.schema.offsets[:-1], axis=0)
        if abs(self.prior.sum() - 1) > 1e-6 or np.abs(sums - 1).max() > 1e-6:
            raise PmfError(
                "prior, or a variable's rows of factors, do not sum to 1; normalise them"
            )

    def __repr__(self) -> str:
        """Sizes, and the method that fitted it."""
        method = f", method {self.origin['method']!r}" if "method" in self.origin else ""
        return f"JointPMF(rank {self.rank}, {self.schema.n_variables} variables, {self.schema.n_levels} levels{method})"

    def summary(self) -> Summary:
        """Latent states by size with what distinguishes each: text in a terminal, HTML in a notebook."""
        from pmflib.displays.model_summary import summarise_model

        return summarise_model(self)

    @property
    def rank(self) -> int:
        """Number of latent states."""
        return len(self.prior)

    @property
    def n_parameters(self) -> int:
        """Free parameters: rank - 1 of the prior, and cardinality - 1 per variable and latent state."""
        return self.rank - 1 + self.rank * (self.schema.n_levels - self.schema.n_variables)

    def factor(self, variable: str | int) -> FloatArray:
        """Conditional PMF of a variable given the latent state, (cardinality, rank), columns sum to 1."""
        return self.factors[self.schema.rows_of(variable)]

    def _iterate_blocks(
        self, codes: IntArray, hidden: int | None = None
    ) -> Iterator[tuple[slice, DenseBlock]]:
        """Rows in batches, which are checked while the cache holds them; one variable may be hidden."""
        for start in range(0, len(codes), BATCH_ROWS):
            rows = slice(start, min(start + BATCH_ROWS, len(codes)))
            part = codes[rows]
            if hidden is not None:
                part = part.copy()
                part[:, hidden] = MISSING
            yield rows, DenseBlock(self.schema.check_codes(part))

    def _score(self, block: DenseBlock, log_probs: FloatArray, posteriors: FloatArray) -> None:
        from pmflib.em.row_tables import score_block

        score_block(block, self.schema.offsets, *self._logs, log_probs, posteriors)

    @cached_property
    def _logs(self) -> tuple[FloatArray, FloatArray]:
        return take_logs(self.prior, self.factors)

    def _encode(self, table: object, hidden: int | None = None) -> IntArray:
        """Codes of a table; an array of codes is given back, and only its shape and dtype are checked."""
        if isinstance(table, np.ndarray):
            self.schema.check_shape(table)
            return table
        return self.schema.encode(
            table, hidden=None if hidden is None else self.schema.names[hidden]
        )

    def log_prob(self, table: object) -> FloatArray:
        """Log-probability of what is observed in each row.

        Parameters
        ----------
        table
            Codes of shape (n_rows, n_variables), -1 missing; or a table that the schema can encode.

        Returns
        -------
        float64 of shape (n_rows,), nats; 0 for a row with nothing observed.

        Raises
        ------
        SchemaError
            If the table does not fit the schema.
        """
        codes = self._encode(table)
        log_probs = np.empty(len(codes))
        for rows, block in self._iterate_blocks(codes):
            self._score(block, log_probs[rows], np.empty((block.n_rows, 0)))
        return log_probs

    def posterior(self, table: object) -> FloatArray:
        """Posterior of the latent state of each row.

        Returns
        -------
        float64 of shape (n_rows, rank), rows sum to 1; the prior for a row with nothing observed.
        """
        codes = self._encode(table)
        posteriors = np.empty((len(codes), self.rank))
        for rows, block in self._iterate_blocks(codes):
            self._score(block, np.empty(block.n_rows), posteriors[rows])
        return posteriors

    def predict_proba(self, table: object, variable: str | int) -> FloatArray:
        """PMF of a variable in each row, given the other variables observed there.

        Parameters
        ----------
        table
            As for `log_prob`; the variable's own column is ignored, and may be absent.
        variable
            Name or place.

        Returns
        -------
        float64 of shape (n_rows, cardinality), rows sum to 1; the model's marginal where nothing else is observed.

        Raises
        ------
        SchemaError
            If the variable is unknown, or the table does not fit the schema.
        """
        place = self.schema.position(variable)
        factor = self.factor(place)
        codes = self._encode(table, place)
        probabilities = np.empty((len(codes), len(factor)))
        n_batch = min(len(codes), BATCH_ROWS)
        posteriors, log_probs = np.empty((n_batch, self.rank)), np.empty(n_batch)
        for rows, block in self._iterate_blocks(codes, place):
            self._score(block, log_probs[: block.n_rows], posteriors[: block.n_rows])
            np.matmul(posteriors[: block.n_rows], factor.T, out=probabilities[rows])
        return probabilities

    def predict(self, table: object, variable: str | int) -> IntArray:
        """Most probable code of a variable in each row (MAP), given the others; the first of equals.

        Returns
        -------
        int64 of shape (n_rows,), in [0, cardinality); `Schema` holds the labels.
        """
        codes: IntArray = self.predict_proba(table, variable).argmax(axis=1)
        return codes

    def expected_value(self, table: object, variable: str | int) -> FloatArray:
        """Expected value of an ordinal variable in each row, given the others (MMSE).

        Returns
        -------
        float64 of shape (n_rows,), in the units of the variable's values.

        Raises
        ------
        SchemaError
            If the variable has no values.
        """
        values = self.schema[variable].numeric_values()
        expected: FloatArray = self.predict_proba(table, variable) @ values
        return expected

    def complete(self, table: object) -> IntArray:
        """Fill every missing cell with its most probable code given what its row holds, each on its own.

        Returns
        -------
        The schema's dtype, shape (n_rows, n_variables), no -1 left; observed cells keep their code.
        """
        codes = self.schema.encode(table).copy()
        for rows, block in self._iterate_blocks(codes):
            posteriors = np.empty((block.n_rows, self.rank))
            self._score(block, np.empty(block.n_rows), posteriors)
            batch = codes[rows]
            for place in range(self.schema.n_variables):
                gaps = np.flatnonzero(batch[:, place] < 0)
                if gaps.size:
                    batch[gaps, place] = (posteriors[gaps] @ self.factor(place).T).argmax(axis=1)
        return codes

    def score(
        self,
        table: object,
        targets: Sequence[str] = (),
        *,
        reference: ReferenceScores | None = None,
        probabilities: bool = False,
    ) -> pa.Table:
        """Score rows: how probable, how unusual, which cell is least expected, what the others say of some variables.

        Parameters
        ----------
        table
            As for `log_prob`.
        targets
            Names of variables to predict from the others.
        reference
            Scores that percentiles refer to, as `pmflib.model.reference_scores.ReferenceScores` reads them; by default
            those of samples drawn from the model.
        probabilities
            Whether the probability of every level of a target is wanted, too.

        Returns
        -------
        Arrow table with the columns of `pmflib.model.score_tables.TableScorer.score`, a row per row.

        Raises
        ------
        SchemaError
            If the table does not fit the schema, or a target is no variable.
        """
        from pmflib.model.reference_scores import ReferenceScores
        from pmflib.model.score_tables import TableScorer, Wanted

        codes = self._encode(table)
        reference = ReferenceScores.draw(self) if reference is None else reference
        return TableScorer(self, reference, Wanted(tuple(targets), probabilities)).score(codes)[0]

    def marginal(self, variables: Sequence[str | int], given: Given | None = None) -> FloatArray:
        """Joint PMF of some variables, possibly given levels of others.

        Parameters
        ----------
        variables
            Names or places, distinct, at least one.
        given
            Level of other variables: a label, a code, or a collection of these, of which a row has one.

        Returns
        -------
        float64 with one axis per variable, of its cardinality, in the order of ``variables``; sums to 1.

        Raises
        ------
        SchemaError
            If a variable or level is unknown, or occurs twice.
        PmfError
            If what is given has probability 0.
        MemoryPlanError
            If the table would have more than ``MAX_MARGINAL_CELLS`` cells.
        """
        if isinstance(variables, str | int):
            raise SchemaError(
                f"variables is {variables!r}, a single one; give a list: [{variables!r}]"
            )
        places = [self.schema.position(variable) for variable in variables]
        from pmflib.questions.conditions import encode_conditions

        known = {*encode_conditions(self.schema, given)}
        if not places or len(set(places)) < len(places) or known & {*places}:
            raise SchemaError(
                f"variables {list(variables)} given {dict(given or {})}: each may occur once, at least one"
            )
        cells = math.prod(int(self.schema.cardinalities[place]) for place in places)
        if cells > MAX_MARGINAL_CELLS:
            raise MemoryPlanError(
                f"the marginal of {len(places)} variables has {cells} cells, above {MAX_MARGINAL_CELLS}; "
                "name fewer variables, or use log_prob or sample"
            )
        prior = self.condition(given).prior if given else self.prior
        # two halves, so that no table of cells x rank is formed
        half = len(places) // 2
        left = self._spread(prior[None, :], places[:half])
        right = self._spread(np.ones((1, self.rank)), places[half:])
        joint: FloatArray = left @ right.T
        return joint.reshape([int(self.schema.cardinalities[place]) for place in places])

    def condition(self, given: Given) -> JointPMF:
        """Model of those who have some levels: again a joint PMF of all variables.

        Parameters
        ----------
        given
            As for `marginal`.

        Returns
        -------
        The model, of the same states and schema; the variables that are given have the given levels alone.

        Raises
        ------
        SchemaError
            If a variable or level is unknown.
        PmfError
            If nobody can have these levels: they have probability 0.
        """
        from pmflib.questions.conditions import condition, encode_conditions

        return condition(self, encode_conditions(self.schema, given))[0]

    def ask(
        self, question: str, counts: PairCounts | Evidence | None = None, *, top: int = 5
    ) -> Answer:
        """Answer a question in words, such as ``P(label=e | odor=f)``: see `pmflib.questions.ask`."""
        from pmflib.questions.answering import ask

        return ask(self, question, counts, top=top)

    def _spread(self, table: FloatArray, places: Sequence[int]) -> FloatArray:
        """Products of some variables' factors, a row per combination of their levels, times the table's row."""
        for place in places:
            table = (table[:, None, :] * self.factor(place)[None, :, :]).reshape(-1, self.rank)
        return table

    def sample(
        self, n_rows: int, rng: np.random.Generator | int, *, given: Given | None = None
    ) -> IntArray:
        """Draw samples.

        Parameters
        ----------
        n_rows
            Number of samples, at least 0.
        rng
            Generator, or a seed for one.
        given
            Levels that all of them have, as for `marginal`; None is no condition.

        Returns
        -------
        The schema's dtype, shape (n_rows, n_variables), nothing missing; `Schema.decode` gives labels.

        Raises
        ------
        SchemaError, PmfError
            As `condition` does.
        """
        from pmflib.model.sampling import sample_codes

        check_whole("n_rows", n_rows)
        model = self.condition(given) if given else self
        generator = np.random.default_rng(rng)
        return sample_codes(model.prior, model.factors, self.schema.offsets, n_rows, generator)

    def plot_states(self, **options: Any) -> Axes:
        """Draw what distinguishes the states: see `pmflib.plots.model_plots.plot_states`."""
        from pmflib.plots.model_plots import plot_states

        return plot_states(self, **options)

    def plot_associations(self, **options: Any) -> Axes:
        """Draw the pairs that go together most: see `pmflib.plots.model_plots.plot_associations`."""
        from pmflib.plots.model_plots import plot_associations

        return plot_associations(self, **options)

    def plot_marginal(self, variable: str | int, **options: Any) -> Axes:
        """Draw the PMF of a variable: see `pmflib.plots.model_plots.plot_marginal`."""
        from pmflib.plots.model_plots import plot_marginal

        return plot_marginal(self, variable, **options)

    def save(self, path: str | Path) -> None:
        """Write the model as a Zarr group; the folder must not exist."""
        write_arrays(
            Path(path),
            {
                "prior": (self.prior, ("state",)),
                "factors": (self.factors, ("level", "state")),
                "offsets": (self.schema.offsets, ("variable_edge",)),
            },
            {
                "kind": KIND,
                "units": "probability",
                "schema": self.schema.to_json(),
                "origin": dict(self.origin),
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> JointPMF:
        """Read a model that `save` wrote, from a folder or from a store in a bucket by its URL.

        Raises
        ------
        StoreError
            If the group is absent, damaged, or holds something else.
        """
        place = find_place(path)
        arrays, attributes = read_arrays(place, ["prior", "factors"], kind=KIND)
        with refuse_damage(place):
            schema = Schema.from_json(attributes["schema"])
            return cls(arrays["prior"], arrays["factors"], schema, dict(attributes["origin"]))
