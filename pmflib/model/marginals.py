"""Joint PMFs of selected variables as tables, and the least probable observed cell of each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.constraints import check_size
from pmflib.base.errors import SchemaError
from pmflib.model.conditions import Given, encode_conditions
from pmflib.schema import Schema

MAX_MARGINAL_CELLS = 1 << 26
"""Maximum number of cells of a marginal."""


def find_positions(
    schema: Schema, variables: Sequence[str | int], given: Given | None, most: int
) -> list[int]:
    """Validate the variables of a marginal and return their positions.

    Parameters
    ----------
    schema
        Variables of the model.
    variables, given
        As for `pmflib.model.joint_pmf.JointPMF.marginal`.
    most
        Maximum number of cells of the table.

    Raises
    ------
    SchemaError
        If a variable or level is unknown or occurs twice, or no variable is given.
    MemoryPlanError
        If the table would have more cells.
    """
    if isinstance(variables, str | int):
        raise SchemaError(f"variables is {variables!r}, a single one; pass a list: [{variables!r}]")
    positions = [schema.position(variable) for variable in variables]
    known = {*encode_conditions(schema, given)}
    if not positions or len(set(positions)) < len(positions) or known & {*positions}:
        raise SchemaError(
            f"variables {list(variables)} given {dict(given or {})}: each may occur once, at least one"
        )
    cells = math.prod(int(schema.cardinalities[position]) for position in positions)
    hint = "name fewer variables, or use log_prob or sample"
    check_size(cells, most, f"cells in the marginal of {len(positions)} variables", hint)
    return positions


def mix_factors(prior: FloatArray, factors: Sequence[FloatArray]) -> FloatArray:
    """Compute the joint PMF of variables that are independent given the latent state.

    Parameters
    ----------
    prior
        float64 of shape (rank,).
    factors
        Conditional PMF of each variable given the state, (cardinality, rank) each.

    Returns
    -------
    float64 with one axis per variable, whose length is the cardinality.
    """
    # split in two halves, which avoids a table of cells x rank
    half = len(factors) // 2
    left = _spread(prior[None, :], factors[:half])
    right = _spread(np.ones((1, prior.size)), factors[half:])
    joint: FloatArray = left @ right.T
    return joint.reshape([len(factor) for factor in factors])


def _spread(table: FloatArray, factors: Sequence[FloatArray]) -> FloatArray:
    """Multiply the rows of the table by the products of some factors, one row per combination of their levels."""
    for factor in factors:
        table = (table[:, None, :] * factor[None, :, :]).reshape(-1, table.shape[1])
    return table


FindSurprises: TypeAlias = Callable[[IntArray, "RowScores"], None]
"""Function that, given valid codes, fills in the states and the fields on the least probable cell of the scores."""


@dataclass(frozen=True, eq=False)
class RowScores:
    """Scores of some rows.

    Parameters
    ----------
    log_probs
        float64 of shape (n_rows,): log-probability of the observed cells, nats; 0 if nothing is observed.
    posteriors
        float64 of shape (n_rows, rank); the prior if nothing is observed.
    states
        int32 of shape (n_rows,): most probable latent state, the first one if tied.
    n_observed
        int32 of shape (n_rows,): number of observed cells.
    surprises
        float64 of shape (n_rows,): expected log-probability of rows with the same cells observed minus the
        log-probability of the row, in standard deviations under the model; NaN if nothing is observed.
    variables
        int32 of shape (n_rows,): variable whose level is the least probable given the others; -1 if nothing is
        observed.
    probabilities
        float64 of shape (n_rows,): that probability; NaN if nothing is observed.
    expected
        int32 of shape (n_rows,): code of its most probable level given the others; -1 if nothing is observed.
    expected_probabilities
        float64 of shape (n_rows,): probability of that level; NaN if nothing is observed.
    """

    log_probs: FloatArray
    posteriors: FloatArray
    states: IntArray
    n_observed: IntArray
    surprises: FloatArray
    variables: IntArray
    probabilities: FloatArray
    expected: IntArray
    expected_probabilities: FloatArray

    @classmethod
    def reserve(cls, n_rows: int, rank: int) -> RowScores:
        """Allocate arrays for the scores of some rows."""

        def reals() -> FloatArray:
            return np.empty(n_rows)

        def integers() -> IntArray:
            return np.empty(n_rows, np.int32)

        return cls(
            log_probs=reals(),
            posteriors=np.empty((n_rows, rank)),
            states=integers(),
            n_observed=integers(),
            surprises=reals(),
            variables=integers(),
            probabilities=reals(),
            expected=integers(),
            expected_probabilities=reals(),
        )

    def cut(self, rows: slice) -> RowScores:
        """Return the scores of a slice of the rows, as views."""
        return RowScores(*(getattr(self, each.name)[rows] for each in fields(self)))


@dataclass(frozen=True, eq=False)
class SurpriseTables:
    """Precomputed tables of a model for `find_surprises`.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    inverses
        float64 of shape (n_levels * padded,): inverses of the levels' probabilities, padded and flattened.
    safe
        uint8 of shape (n_levels,): whether all of a level's probabilities are large enough to divide by.
    factors, log_prior, log_factors
        float64 of shapes (n_levels, rank), (rank,) and (n_levels, rank); probabilities are at least the floor.
    """

    offsets: IntArray
    inverses: FloatArray
    safe: IntArray
    factors: FloatArray
    log_prior: FloatArray
    log_factors: FloatArray

    @classmethod
    def make(
        cls, log_prior: FloatArray, log_factors: FloatArray, offsets: IntArray
    ) -> SurpriseTables:
        """Build the tables from logarithms as returned by `pmflib.model.sufficient_statistics.take_logs`."""
        from pmflib.model.kernels.row_surprises import LANES, SAFE

        rank = log_prior.size
        padded = -(-rank // LANES) * LANES
        inverses = np.zeros((len(log_factors), padded))
        inverses[:, :rank] = np.exp(-log_factors)
        safe = log_factors.min(axis=1) >= np.log(SAFE)
        return cls(
            offsets,
            inverses.ravel(),
            safe.astype(np.uint8),
            np.exp(log_factors),
            log_prior,
            log_factors,
        )


def find_surprises(tables: SurpriseTables, codes: IntArray, out: RowScores) -> None:
    """Find the least probable cell of each row given the others, and its most probable level.

    Parameters
    ----------
    tables
        Tables of the model.
    codes
        Valid codes of shape (n_rows, n_variables), -1 missing.
    out
        Scores of the rows with known posteriors; the states and the fields on the least probable cell are filled in.
    """
    from pmflib.model.kernels.row_surprises import make_find_surprises

    padded = tables.inverses.size // len(tables.factors)
    make_find_surprises(padded)(
        codes,
        tables.offsets,
        out.posteriors,
        (tables.inverses, tables.safe, tables.factors, tables.log_prior, tables.log_factors),
        np.zeros((2, padded)),
        (
            *(out.states, out.variables, out.probabilities),
            *(out.expected, out.expected_probabilities),
        ),
    )
