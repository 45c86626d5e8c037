"""Joint PMFs of some variables as tables, and the least probable observed cell of each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.errors import MemoryPlanError, SchemaError
from pmflib.model.conditions import Given, encode_conditions
from pmflib.schema import Schema

MAX_MARGINAL_CELLS = 1 << 26
"""Cells of the largest marginal that is computed."""


def find_positions(
    schema: Schema, variables: Sequence[str | int], given: Given | None, most: int
) -> list[int]:
    """Places of the variables of a marginal, checked.

    Parameters
    ----------
    schema
        Variables of the model.
    variables, given
        As for `pmflib.model.joint_pmf.JointPMF.marginal`.
    most
        Cells that the table may have.

    Raises
    ------
    SchemaError
        If a variable or level is unknown, or occurs twice, or there is no variable.
    MemoryPlanError
        If the table would have more cells.
    """
    if isinstance(variables, str | int):
        raise SchemaError(f"variables is {variables!r}, a single one; give a list: [{variables!r}]")
    positions = [schema.position(variable) for variable in variables]
    known = {*encode_conditions(schema, given)}
    if not positions or len(set(positions)) < len(positions) or known & {*positions}:
        raise SchemaError(
            f"variables {list(variables)} given {dict(given or {})}: each may occur once, at least one"
        )
    cells = math.prod(int(schema.cardinalities[position]) for position in positions)
    if cells > most:
        raise MemoryPlanError(
            f"the marginal of {len(positions)} variables has {cells} cells, above {most}; "
            "name fewer variables, or use log_prob or sample"
        )
    return positions


def mix_factors(prior: FloatArray, factors: Sequence[FloatArray]) -> FloatArray:
    """Joint PMF of variables that are independent within each latent state.

    Parameters
    ----------
    prior
        float64 of shape (rank,).
    factors
        Conditional PMF of each variable given the state, (cardinality, rank) each.

    Returns
    -------
    float64 with one axis per variable, of its cardinality.
    """
    # two halves, so that no table of cells x rank is formed
    half = len(factors) // 2
    left = _spread(prior[None, :], factors[:half])
    right = _spread(np.ones((1, prior.size)), factors[half:])
    joint: FloatArray = left @ right.T
    return joint.reshape([len(factor) for factor in factors])


def _spread(table: FloatArray, factors: Sequence[FloatArray]) -> FloatArray:
    """Products of some factors, a row per combination of their levels, times the table's row."""
    for factor in factors:
        table = (table[:, None, :] * factor[None, :, :]).reshape(-1, table.shape[1])
    return table


FindSurprises: TypeAlias = Callable[[IntArray, "RowScores"], None]
"""Fills, given valid codes of rows, what their scores say of the least probable cell, and the states."""


@dataclass(frozen=True, eq=False)
class RowScores:
    """Scores of some rows.

    Parameters
    ----------
    log_probs
        float64 of shape (n_rows,): log-probability of what is observed, nats; 0 where nothing is.
    posteriors
        float64 of shape (n_rows, rank); the prior where nothing is observed.
    states
        int32 of shape (n_rows,): most probable latent state, the first of equals.
    n_observed
        int32 of shape (n_rows,): observed cells.
    surprises
        float64 of shape (n_rows,): how far the log-probability is below the one expected of rows with the same cells
        observed, in their standard deviations under the model; nan where nothing is observed.
    variables
        int32 of shape (n_rows,): variable whose level is the least probable given the others; -1 where nothing is
        observed.
    probabilities
        float64 of shape (n_rows,): that probability; nan where nothing is observed.
    expected
        int32 of shape (n_rows,): code of its most probable level given the others; -1 where nothing is observed.
    expected_probabilities
        float64 of shape (n_rows,): probability of that level; nan where nothing is observed.
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
        """Room for the scores of some rows."""

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
        """The same arrays, some rows of them."""
        return RowScores(*(getattr(self, each.name)[rows] for each in fields(self)))


@dataclass(frozen=True, eq=False)
class SurpriseTables:
    """Tables of a model that surprises are found by; they are made once.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    inverses
        float64 of shape (n_levels * padded,): inverses of the levels' probabilities, padded and flat.
    safe
        uint8 of shape (n_levels,): whether none of them is too small to divide by.
    factors, log_prior, log_factors
        float64 of shapes (n_levels, rank), (rank,) and (n_levels, rank), probabilities at least as large as the floor.
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
        """Tables of logarithms, as `pmflib.model.statistics.take_logs` gives them."""
        from pmflib.kernels.row_surprises import LANES, SAFE

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
        Scores of the rows, whose posteriors are known; filled are states, and what is said of the least probable cell.
    """
    from pmflib.kernels.row_surprises import make_find_surprises

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
