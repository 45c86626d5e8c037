"""Joint PMFs of some variables as tables: which may be asked for, and their cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.errors import MemoryPlanError, SchemaError
from pmflib.schema import Schema

if TYPE_CHECKING:
    from pmflib.questions.conditions import Given

MAX_MARGINAL_CELLS = 1 << 26
"""Cells of the largest marginal that is computed."""


def place_marginal(
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
    from pmflib.questions.conditions import encode_conditions

    if isinstance(variables, str | int):
        raise SchemaError(f"variables is {variables!r}, a single one; give a list: [{variables!r}]")
    places = [schema.position(variable) for variable in variables]
    known = {*encode_conditions(schema, given)}
    if not places or len(set(places)) < len(places) or known & {*places}:
        raise SchemaError(
            f"variables {list(variables)} given {dict(given or {})}: each may occur once, at least one"
        )
    cells = math.prod(int(schema.cardinalities[place]) for place in places)
    if cells > most:
        raise MemoryPlanError(
            f"the marginal of {len(places)} variables has {cells} cells, above {most}; "
            "name fewer variables, or use log_prob or sample"
        )
    return places


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
