"""A mixture over latent states, and what follows from it for rows: probabilities, posteriors, missing cells, traits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pmflib.argument_checks import name_type
from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import DenseBlock
from pmflib.displays.summary import Summarised
from pmflib.em.statistics import take_logs
from pmflib.errors import PmfError
from pmflib.level_blocks import sum_blocks
from pmflib.schema import Schema
from pmflib.schema.variable import MISSING

if TYPE_CHECKING:
    from pmflib.model.row_scores import FindSurprises
    from pmflib.traits.trait_model import TraitModel, TraitScores

BATCH_ROWS = 65_536
"""Rows worked on at a time, so that memory does not grow with the table."""


@dataclass(frozen=True, eq=False)
class RowPredictions(Summarised):
    """What a mixture over latent states says of rows, some of whose cells are observed.

    Parameters and errors are those of `pmflib.model.joint_pmf.JointPMF`.
    """

    prior: FloatArray
    factors: FloatArray
    schema: Schema
    origin: Mapping[str, Any] = field(default_factory=dict)
    trait_model: TraitModel | None = None

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
        if self.trait_model is not None and self.trait_model.schema != self.schema:
            raise PmfError("trait_model has another schema; give the one that the states are of")

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

    def score_block(self, block: DenseBlock, log_probs: FloatArray, posteriors: FloatArray) -> None:
        """Fill the log-probability of every row of a block of valid rows, (n_rows,), and its posterior.

        Parameters
        ----------
        block
            The rows.
        log_probs
            float64 of shape (n_rows,).
        posteriors
            float64 of shape (n_rows, rank), or (n_rows, 0) where posteriors are not wanted.
        """
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
            self.score_block(block, log_probs[rows], np.empty((block.n_rows, 0)))
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
            self.score_block(block, np.empty(block.n_rows), posteriors[rows])
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
        if self.trait_model is not None:
            return self.trait_model.predict_proba(codes, place)
        probabilities = np.empty((len(codes), len(factor)))
        n_batch = min(len(codes), BATCH_ROWS)
        posteriors, log_probs = np.empty((n_batch, self.rank)), np.empty(n_batch)
        for rows, block in self._iterate_blocks(codes, place):
            self.score_block(block, log_probs[: block.n_rows], posteriors[: block.n_rows])
            np.matmul(posteriors[: block.n_rows], factor.T, out=probabilities[rows])
        return probabilities

    def predict_hidden(self, codes: IntArray, posteriors: FloatArray, place: int) -> FloatArray:
        """PMF of a variable that rows do not hold, whose posteriors are known.

        State by state, for no product is left to BLAS: its last bits depend on its threads, and on the alignment of an
        array in memory, which on a worker is that of a part of a message.

        Parameters
        ----------
        codes
            Valid codes of shape (n_rows, n_variables), -1 at the variable.
        posteriors
            float64 of shape (n_rows, rank), as `posterior` has found them.
        place
            Place of the variable.

        Returns
        -------
        float64 of shape (n_rows, cardinality), rows sum to 1.
        """
        factor = self.factor(place)
        mixed = np.zeros((len(posteriors), len(factor)))
        for state in range(self.rank):
            mixed += posteriors[:, state, None] * factor[:, state]
        return mixed

    def predict_codes(
        self, shown: IntArray, samples: IntArray, variables: IntArray, codes: IntArray
    ) -> FloatArray:
        """Probabilities of codes of some cells, each given what its row holds.

        With traits, rows are folded in. Otherwise state by state, as in `predict_hidden`.

        Parameters
        ----------
        shown
            Shape (n_rows, n_variables), -1 at the cells and where missing.
        samples, variables, codes
            int64 of shape (n_cells,): row, place of the variable, and code whose probability is wanted.

        Returns
        -------
        float64 of shape (n_cells,).
        """
        if self.trait_model is not None:
            folded = self.trait_model.predict_cells(DenseBlock(shown), samples, variables)
            return np.asarray(folded[np.arange(samples.size), codes])
        levels = self.schema.offsets[variables] + codes
        posteriors = self.posterior(shown)
        chances = np.zeros(samples.size)
        for state in range(self.rank):
            chances += posteriors[samples, state] * self.factors[levels, state]
        return chances

    def expect_logs(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance, given the state, of the log-probability of each variable in complete rows.

        Returns
        -------
        float64 of shape (n_variables, rank) each, nats and their squares.
        """
        offsets, logs = self.schema.offsets, self._logs[1]
        means = sum_blocks(self.factors * logs, offsets)
        return means, sum_blocks(self.factors * logs**2, offsets) - means**2

    def make_surprise_finder(self) -> FindSurprises:
        """Make a function that finds the least probable cell of each row given the others.

        Returns
        -------
        Called with valid codes of shape (n_rows, n_variables), -1 missing, and scores of these rows whose posteriors
        are known: see `pmflib.model.surprises.find_surprises`.
        """
        from pmflib.model.surprises import SurpriseTables, find_surprises

        return partial(find_surprises, SurpriseTables.make(*self._logs, self.schema.offsets))

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
        filled: IntArray = self.schema.encode(table).copy()
        # a copy, for what is filled is not observed
        for place, rows, chances in self.predict_gaps(filled.copy()):
            filled[rows, place] = chances.argmax(axis=1)
        return filled

    def predict_gaps(self, codes: IntArray) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """PMFs of all missing cells, each given what its row holds, some thousand rows at a time.

        Parameters
        ----------
        codes
            Shape (n_rows, n_variables), -1 missing.

        Yields
        ------
        Place of a variable, the rows of a batch that do not hold it, int64 of shape (n_cells,), rising, and its PMFs
        there, float64 of shape (n_cells, cardinality). Rows are folded in where the model has traits.
        """
        for rows, block in self._iterate_blocks(codes):
            gaps = block.codes < 0
            if self.trait_model is not None:
                cells, places = np.nonzero(gaps)
                chances = self.trait_model.predict_cells(block, cells, places)
            else:
                posteriors = np.empty((block.n_rows, self.rank))
                self.score_block(block, np.empty(block.n_rows), posteriors)
            for place in np.flatnonzero(gaps.any(axis=0)).tolist():
                mine = np.flatnonzero(gaps[:, place])
                if self.trait_model is not None:
                    found = chances[places == place, : self.schema[place].cardinality]
                else:
                    found = posteriors[mine] @ self.factor(place).T
                yield place, rows.start + mine, found

    def predict_in_states(self, codes: IntArray, states: IntArray, place: int) -> FloatArray:
        """PMF of a variable that rows do not hold, given the latent state of each row, too.

        Parameters
        ----------
        codes
            Valid codes of shape (n_rows, n_variables), -1 at the variable.
        states
            int64 of shape (n_rows,), in [0, rank).
        place
            Place of the variable.

        Returns
        -------
        float64 of shape (n_rows, cardinality), rows sum to 1.
        """
        return self.factor(place)[:, states].T

    def traits(self, table: object) -> TraitScores:
        """Scores of each row on the continuous traits of the model, with standard errors.

        Parameters
        ----------
        table
            As for `log_prob`; also rows never seen, and rows with nothing observed.

        Returns
        -------
        Scores and errors, (n_rows, n_traits) each; the first trait explains most.

        Raises
        ------
        PmfError
            If the model has no traits.
        """
        if self.trait_model is None:
            raise PmfError(
                "the model has latent states and no traits; fit one that has: pmflib.fit_traits(table).model"
            )
        return self.trait_model.score_traits(self.schema.encode(table))
