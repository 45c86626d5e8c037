"""A mixture over latent states: predictions for rows, probabilities of events, sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from pmflib.base.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    sum_blocks,
)
from pmflib.base.blocks import Block, DenseBlock
from pmflib.base.codes import Codes
from pmflib.base.constraints import (
    NONNEGATIVE,
    Interval,
    at_least,
    check,
    check_entries,
    check_shapes,
    check_type,
)
from pmflib.base.display.summary import Summarised, format_count
from pmflib.base.errors import PmfError
from pmflib.model.conditions import (
    Conditions,
    Given,
    condition_states,
    describe_conditions,
    encode_conditions,
    find_able_states,
    list_few,
)
from pmflib.model.marginals import (
    MAX_MARGINAL_CELLS,
    FindSurprises,
    SurpriseTables,
    find_positions,
    find_surprises,
    mix_factors,
)
from pmflib.model.origin import ModelOrigin
from pmflib.model.sufficient_statistics import take_logs
from pmflib.schema import Schema
from pmflib.schema.variable import MISSING

BATCH_ROWS, BATCH_ENTRIES = 65_536, 1 << 25
"""Most rows, and most of their posteriors, processed at a time, so that memory does not grow with the table."""

Arrays: TypeAlias = dict[str, tuple[Any, tuple[str, ...]]]
"""Mapping from the name of an array to the array and the names of its dimensions."""

ParameterRow: TypeAlias = tuple[str, tuple[int, ...], tuple[Any, ...]]
"""Name of an array of parameters, the index of one, and what it is: parameter, state, variable, level, value."""


@dataclass(frozen=True, eq=False)
class Mixture(Summarised):
    """Parameters of a model, with inference for partially observed rows and for events.

    Functions for questions, descriptions, figures and scores accept this class; `pmflib.model.joint_pmf.JointPMF`, with
    the same parameters and errors, has methods for all of them. The class itself is that of latent classes; other kinds
    of model are derived from `JointPMF` and answer for themselves wherever states and factors do not say all.
    """

    kind: ClassVar[str] = "classes"
    """Name of the kind of model, which tables of kinds use."""

    prior: FloatArray
    factors: FloatArray
    schema: Schema
    origin: ModelOrigin = field(default_factory=ModelOrigin)

    def __post_init__(self) -> None:
        check_type(Schema, "pass a pmflib.Schema", schema=self.schema)
        object.__setattr__(self, "origin", ModelOrigin.of(self.origin))
        for name, values in (("prior", self.prior), ("factors", self.factors)):
            check_type(np.ndarray, f"pass an array: numpy.asarray({name})", **{name: values})
        check_shapes(
            "as the schema needs",
            PmfError,
            prior=(self.prior, ("rank",)),
            factors=(self.factors, (self.schema.n_levels, "rank")),
        )
        check(at_least(1), rank=self.rank)
        check_entries(NONNEGATIVE, prior=self.prior, factors=self.factors)
        sums = np.add.reduceat(self.factors, self.schema.offsets[:-1], axis=0)
        if abs(self.prior.sum() - 1) > 1e-6 or np.abs(sums - 1).max() > 1e-6:
            raise PmfError(
                "prior, or a variable's rows of factors, do not sum to 1; normalise them"
            )

    @property
    def rank(self) -> int:
        """Number of latent states."""
        return len(self.prior)

    @property
    def is_mixture(self) -> bool:
        """Whether a row's cells are predicted by the posterior of its states and the factors, and by nothing else."""
        return True

    @property
    def n_parameters(self) -> int:
        """Number of free parameters: rank - 1 for the prior, and cardinality - 1 per variable and latent state."""
        return self.rank - 1 + self.rank * (self.schema.n_levels - self.schema.n_variables)

    def count_free(self, level_counts: IntArray | None = None) -> int:
        """Count the free parameters that are not 0: see `pmflib.fits.criteria.count_parameters`."""
        free, kept = self.factors > 0, self.prior > 0
        if level_counts is not None:
            check_shapes(
                "as the schema has levels", level_counts=(level_counts, (self.schema.n_levels,))
            )
            free &= (level_counts > 0)[:, None]
        sizes = np.add.reduceat(free[:, kept], self.schema.offsets[:-1], axis=0, dtype=np.int64)
        return int(kept.sum()) - 1 + int(np.maximum(sizes - 1, 0).sum())

    def list_parameters(self) -> tuple[dict[str, FloatArray], Iterator[ParameterRow]]:
        """Return the arrays of the parameters by name, and a row for each parameter: see `pmflib.fits.exports`."""
        return {"prior": self.prior, "factors": self.factors}, self._iterate_parameters()

    def _iterate_parameters(self) -> Iterator[ParameterRow]:
        for state, share in enumerate(self.prior.tolist()):
            yield "prior", (state,), ("share", state, "", "", share)
        for position, variable in enumerate(self.schema):
            first = int(self.schema.offsets[position])
            for code, level in enumerate(variable.levels):
                for state, value in enumerate(self.factors[first + code].tolist()):
                    named = "probability", state, variable.name, str(level), value
                    yield "factors", (first + code, state), named

    def describe_rank(self) -> str:
        """Return the number of states, and what they are if not classes, for a summary."""
        return format_count(self.rank)

    def summarise_kind(self) -> dict[str, object]:
        """Return what the summary of a fit says of a kind of model, JSON types; empty for latent classes."""
        return {}

    def factor(self, variable: str | int) -> FloatArray:
        """Return the conditional PMF of a variable given the latent state, (cardinality, rank); columns sum to 1."""
        return self.factors[self.schema.rows_of(variable)]

    def _count_batch(self) -> int:
        """Return the number of rows processed at a time."""
        return max(1, min(BATCH_ROWS, BATCH_ENTRIES // self.rank))

    def _iterate_blocks(
        self, codes: IntArray, hidden: int | None = None
    ) -> Iterator[tuple[slice, DenseBlock]]:
        """Yield the rows in batches, each validated while it is in cache; one variable may be hidden."""
        n_batch = self._count_batch()
        for start in range(0, len(codes), n_batch):
            rows = slice(start, min(start + n_batch, len(codes)))
            part = codes[rows]
            if hidden is not None:
                part = part.copy()
                part[:, hidden] = MISSING
            yield rows, DenseBlock(self.schema.check_codes(part))

    def score_block(self, block: Block, log_probs: FloatArray, posteriors: FloatArray) -> None:
        """Fill in the log-probability and the posterior of every row of a block of valid rows.

        Parameters
        ----------
        block
            The rows.
        log_probs
            float64 of shape (n_rows,).
        posteriors
            float64 of shape (n_rows, rank), or (n_rows, 0) to skip the posteriors.
        """
        from pmflib.model.row_tables import score_block

        score_block(block, self.schema.offsets, *self._logs, log_probs, posteriors)

    @cached_property
    def _logs(self) -> tuple[FloatArray, FloatArray]:
        return take_logs(self.prior, self.factors)

    def encode(self, table: object, hidden: int | None = None) -> IntArray:
        """Encode a table as a plain array; of codes, only shape and dtype are checked."""
        if self.schema.holds_codes(table):
            self.schema.check_shape(table)
            return np.asarray(table)
        name = None if hidden is None else self.schema.names[hidden]
        return np.asarray(self.schema.encode(table, hidden=name))

    def log_prob(self, table: object) -> FloatArray:
        """Return the log-probability of the observed cells of each row.

        Parameters
        ----------
        table
            `Codes` of shape (n_rows, n_variables), -1 missing, or a table that the schema can encode.

        Returns
        -------
        float64 of shape (n_rows,), nats; 0 for a row with nothing observed.

        Raises
        ------
        SchemaError
            If the table does not fit the schema.
        """
        codes = self.encode(table)
        log_probs = np.empty(len(codes))
        for rows, block in self._iterate_blocks(codes):
            self.score_block(block, log_probs[rows], np.empty((block.n_rows, 0)))
        return log_probs

    def posterior(self, table: object) -> FloatArray:
        """Return the posterior of the latent state of each row.

        Returns
        -------
        float64 of shape (n_rows, rank), rows sum to 1; the prior for a row with nothing observed.
        """
        codes = self.encode(table)
        posteriors = np.empty((len(codes), self.rank))
        for rows, block in self._iterate_blocks(codes):
            self.score_block(block, np.empty(block.n_rows), posteriors[rows])
        return posteriors

    def predict_proba(self, table: object, variable: str | int) -> FloatArray:
        """Return the PMF of a variable in each row, given the other observed variables.

        Parameters
        ----------
        table
            As for `log_prob`; the column of the variable itself is ignored and may be absent.
        variable
            Name or position.

        Returns
        -------
        float64 of shape (n_rows, cardinality), rows sum to 1; the model's marginal if nothing else is observed.

        Raises
        ------
        SchemaError
            If the variable is unknown, or the table does not fit the schema.
        """
        position = self.schema.position(variable)
        factor = self.factor(position)
        codes = self.encode(table, position)
        probabilities = np.empty((len(codes), len(factor)))
        n_batch = min(len(codes), self._count_batch())
        posteriors, log_probs = np.empty((n_batch, self.rank)), np.empty(n_batch)
        for rows, block in self._iterate_blocks(codes, position):
            self.score_block(block, log_probs[: block.n_rows], posteriors[: block.n_rows])
            np.matmul(posteriors[: block.n_rows], factor.T, out=probabilities[rows])
        return probabilities

    def predict_hidden(self, codes: IntArray, posteriors: FloatArray, position: int) -> FloatArray:
        """Return the PMF of a variable missing from the rows, from their known posteriors.

        Sums are accumulated state by state instead of by BLAS, whose last bits depend on the number of threads and on
        the alignment of arrays in memory, which on a worker depends on the message they arrived in.

        Parameters
        ----------
        codes
            Valid codes of shape (n_rows, n_variables), -1 at the variable.
        posteriors
            float64 of shape (n_rows, rank), as returned by `posterior`.
        position
            Position of the variable.

        Returns
        -------
        float64 of shape (n_rows, cardinality), rows sum to 1.
        """
        factor = self.factor(position)
        mixed = np.zeros((len(posteriors), len(factor)))
        for state in range(self.rank):
            mixed += posteriors[:, state, None] * factor[:, state]
        return mixed

    def make_predictor(
        self, shown: IntArray, hidden: BoolArray
    ) -> Callable[[int, IntArray], FloatArray]:
        """Return a function that predicts the PMFs of a variable in rows where it is hidden.

        Parameters
        ----------
        shown
            Codes of shape (n_rows, n_variables); -1 at hidden cells and at missing ones.
        hidden
            bool of shape (n_rows, n_variables): cells to predict.

        Returns
        -------
        Function of the position of a variable and of all rows where it is hidden, int64 in ascending order. It returns
        float64 of shape (n_cells, cardinality), rows sum to 1.
        """
        posteriors = self.posterior(Codes(shown))
        return lambda position, rows: self.predict_hidden(shown[rows], posteriors[rows], position)

    def predict_codes(
        self, shown: IntArray, samples: IntArray, variables: IntArray, codes: IntArray
    ) -> FloatArray:
        """Return the probabilities of given codes of some cells, each given the observed cells of its row.

        Sums run state by state, as in `predict_hidden`.

        Parameters
        ----------
        shown
            Codes of shape (n_rows, n_variables); -1 at these cells and at missing ones.
        samples, variables, codes
            int64 of shape (n_cells,): row, position of the variable, and code whose probability is requested.

        Returns
        -------
        float64 of shape (n_cells,).
        """
        levels = self.schema.offsets[variables] + codes
        posteriors = self.posterior(Codes(shown))
        chances = np.zeros(samples.size)
        for state in range(self.rank):
            chances += posteriors[samples, state] * self.factors[levels, state]
        return chances

    def expect_logs(self) -> tuple[FloatArray, FloatArray]:
        """Compute the mean and variance, given the state, of the log-probability of each variable in complete rows.

        Returns
        -------
        float64 of shape (n_variables, rank) each, in nats and squared nats.
        """
        offsets, logs = self.schema.offsets, self._logs[1]
        means = sum_blocks(self.factors * logs, offsets)
        return means, sum_blocks(self.factors * logs**2, offsets) - means**2

    def make_surprise_finder(self) -> FindSurprises:
        """Return a function that finds the least probable cell of each row given the others.

        Returns
        -------
        Function of valid codes of shape (n_rows, n_variables), -1 missing, and of the scores of these rows with known
        posteriors: see `pmflib.model.marginals.find_surprises`.
        """
        return partial(find_surprises, SurpriseTables.make(*self._logs, self.schema.offsets))

    def predict_gaps(self, codes: IntArray) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """Yield the PMFs of all missing cells, each given the observed cells of its row, in batches of rows.

        Parameters
        ----------
        codes
            Shape (n_rows, n_variables), -1 missing.

        Yields
        ------
        Position of a variable; the rows of a batch that lack it, int64 of shape (n_cells,), in ascending order; and its
        PMFs there, float64 of shape (n_cells, cardinality).
        """
        for rows, block in self._iterate_blocks(codes):
            gaps = block.codes < 0
            posteriors = np.empty((block.n_rows, self.rank))
            self.score_block(block, np.empty(block.n_rows), posteriors)
            for position in np.flatnonzero(gaps.any(axis=0)).tolist():
                mine = np.flatnonzero(gaps[:, position])
                yield position, rows.start + mine, posteriors[mine] @ self.factor(position).T

    def predict_in_states(self, codes: IntArray, states: IntArray, position: int) -> FloatArray:
        """Return the PMF of a variable missing from the rows, given their observed cells and latent states.

        Parameters
        ----------
        codes
            Valid codes of shape (n_rows, n_variables), -1 at the variable.
        states
            int64 of shape (n_rows,), in [0, rank).
        position
            Position of the variable.

        Returns
        -------
        float64 of shape (n_rows, cardinality), rows sum to 1.
        """
        return self.factor(position)[:, states].T

    def marginal(self, variables: Sequence[str | int], given: Given | None = None) -> FloatArray:
        """Return the joint PMF of some variables, optionally given levels of others.

        Parameters
        ----------
        variables
            Names or positions, distinct, at least one.
        given
            Levels of other variables: an answer, in the words or numbers of the data, or a collection of allowed ones.

        Returns
        -------
        float64 with one axis per variable, as long as its cardinality, in the order of ``variables``; sums to 1.

        Raises
        ------
        SchemaError
            If a variable or level is unknown, or occurs twice.
        PmfError
            If the condition has probability 0.
        MemoryPlanError
            If the table would have more than ``MAX_MARGINAL_CELLS`` cells.
        """
        positions = find_positions(self.schema, variables, given, MAX_MARGINAL_CELLS)
        prior = self.condition(given).prior if given is not None else self.prior
        return mix_factors(prior, [self.factor(position) for position in positions])

    def condition(self, given: Given | None) -> Self:
        """Condition the model on levels of some variables.

        Parameters
        ----------
        given
            As for `marginal`.

        Returns
        -------
        Joint PMF of all variables, with the same states and schema; conditioned variables have mass only on the given
        levels.

        Raises
        ------
        SchemaError
            If a variable or level is unknown.
        PmfError
            If the condition has probability 0.
        """
        return self.condition_codes(encode_conditions(self.schema, given))[0]

    def condition_codes(self, conditions: Conditions) -> tuple[Self, float]:
        """Condition on codes of some variables; the result is again a mixture over the same states.

        Parameters
        ----------
        conditions
            As from `pmflib.model.conditions.encode_conditions`.

        Returns
        -------
        The conditional model, whose prior is the posterior of the states and whose factors of the conditioned variables
        have mass only on the given levels; and the log-probability of the conditions, nats.

        Raises
        ------
        PmfError
            If the conditions have probability 0.
        """
        if not conditions:
            return self, 0.0
        found, log_probability = self._condition(conditions)
        if log_probability == -math.inf:
            positions = self.find_impossible(conditions)
            raise PmfError(
                f"nobody can have {describe_conditions(self.schema, conditions, positions)}: the model gives that "
                "probability 0, and no answer; leave a condition out, or fit with a larger pseudo-count"
            )
        return found, log_probability

    def _condition(self, conditions: Conditions) -> tuple[Self, float]:
        """Do `condition_codes`; for impossible conditions, return the model unchanged and -inf."""
        prior, factors, log_probability = condition_states(
            self.prior, self.factors, self.schema.offsets, conditions
        )
        return type(self)(prior, factors, self.schema, self.origin), log_probability

    def find_impossible(self, conditions: Conditions) -> tuple[int, ...]:
        """Find a smallest set of conditions that have joint probability 0 under the model.

        Parameters
        ----------
        conditions
            As for `condition_codes`.

        Returns
        -------
        Positions of one variable, of two, or of all conditioned variables, whichever is the smallest impossible set;
        empty if the conditions are possible.
        """
        able = {
            position: find_able_states(
                self.prior, self.factors, self.schema.offsets, {position: codes}
            )
            for position, codes in conditions.items()
        }
        for positions in list_few(conditions):
            if not np.all([able[position] for position in positions], axis=0).any():
                return positions
        return () if self.can_meet(conditions) else tuple(conditions)

    def can_meet(self, conditions: Conditions) -> bool:
        """Return whether the conditions have a joint probability above 0."""
        able = find_able_states(self.prior, self.factors, self.schema.offsets, conditions)
        return bool(able.any())

    def weigh_combinations(self, positions: Sequence[int], combinations: IntArray) -> FloatArray:
        """Return the probabilities of some combinations of codes.

        Parameters
        ----------
        positions
            Positions of the variables, distinct, at least one.
        combinations
            Codes of shape (n_combinations, n_places).

        Returns
        -------
        float64 of shape (n_combinations,).
        """
        with np.errstate(divide="ignore"):
            logs = np.log(self.prior)[None, :] + sum(
                np.log(self.factor(position))[combinations[:, n]]
                for n, position in enumerate(positions)
            )
        return np.asarray(np.exp(logs).sum(axis=1))

    def iterate_pairs(self, levels: IntArray, offsets: IntArray) -> Iterator[FloatArray]:
        """Yield the joint PMFs of each of some variables with all later ones, one variable at a time.

        Parameters
        ----------
        levels
            int64: positions of all levels of these variables, stacked.
        offsets
            int64 of shape (n + 1,): offsets of the variables in ``levels``.

        Yields
        ------
        For each variable but the last, float64 of shape (cardinality, total number of levels of the later variables).
        """
        factors = self.factors[levels]
        for begin, end in pairwise(offsets[:-1].tolist()):
            yield (factors[begin:end] * self.prior) @ factors[end:].T

    def find_pairs(self) -> FloatArray:
        """Return the joint PMFs of all pairs of variables: float64 (n_levels, n_levels), symmetric.

        The block of a variable with itself has its PMF on the diagonal and 0 elsewhere.
        """
        pairs = np.asarray((self.factors * self.prior) @ self.factors.T)
        singles = self.factors @ self.prior
        for begin, end in pairwise(self.schema.offsets.tolist()):
            pairs[begin:end, begin:end] = np.diag(singles[begin:end])
        return pairs

    @property
    def unsupported(self) -> Mapping[str, str]:
        """Operations the model does not support, with what the error message says of each; empty for latent classes.

        They are "search" for the most likely combinations of too many variables to enumerate, "rake" to margins, and
        "criteria" of the fit by the number of parameters.
        """
        return {}

    def sample(
        self, n_rows: int, rng: np.random.Generator | int, *, given: Given | None = None
    ) -> Codes:
        """Draw samples from the model.

        Parameters
        ----------
        n_rows
            Number of samples, at least 0.
        rng
            Generator, or a seed for one.
        given
            Levels that all samples have, as for `marginal`; None means no condition.

        Returns
        -------
        `Codes` of the schema's dtype, shape (n_rows, n_variables), nothing missing; `Schema.decode` returns the labels.

        Raises
        ------
        SchemaError, PmfError
            As `condition` does.
        """
        check(Interval(whole=True), n_rows=n_rows)
        model = self.condition(given) if given is not None else self
        return Codes(model._draw(n_rows, np.random.default_rng(rng)))

    def _draw(self, n_rows: int, rng: np.random.Generator) -> IntArray:
        from pmflib.model.sampling import sample_codes

        return sample_codes(self.prior, self.factors, self.schema.offsets, n_rows, rng)

    def list_parts(self) -> tuple[Arrays, dict[str, object]]:
        """Return the arrays and attributes of the model's Zarr group that are specific to its class.

        The arrays are int32 or float64; the digest of a model covers them along with prior, factors and schema.
        """
        return {}, {}
