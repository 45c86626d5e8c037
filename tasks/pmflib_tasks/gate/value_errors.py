"""Errors of expected values of variables whose levels are numbers, pooled over variables with the same scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pmflib.base.texts import list_some
from pmflib.schema import Schema, Variable

ERRORS = "errors"
"""Key of a summary of scores for the errors by scale, from `describe_errors`."""


def holds_numbers(variable: Variable) -> bool:
    """Whether a variable's levels are numbers, or bins of numbers, so that errors of its expected value have a unit.

    Ordered names have values too, but their distances are arbitrary.
    """
    return variable.values is not None and (variable.edges is not None or variable.is_numeric)


def find_scales(schema: Schema) -> dict[str, list[int]]:
    """Group the variables with the same values for their levels, whose errors can be pooled.

    Parameters
    ----------
    schema
        The variables.

    Returns
    -------
    Positions of the variables of each scale by its name, which lists the first variables, in the order of the first
    variables. Variables whose levels are not numbers are left out.
    """
    by_values: dict[tuple[float, ...], list[int]] = {}
    for position, variable in enumerate(schema):
        if variable.values is not None and holds_numbers(variable):
            by_values.setdefault(variable.values, []).append(position)
    return {
        list_some([schema[each].name for each in positions]): positions
        for positions in by_values.values()
    }


def describe_errors(n_cells: float, squared: float, absolute: float) -> dict[str, float]:
    """Compute the root mean squared and mean absolute error, in the unit of the values.

    Parameters
    ----------
    n_cells
        Number of cells, at least 1.
    squared, absolute
        Sums of the squared and of the absolute differences over the cells.
    """
    return {"rmse": math.sqrt(squared / n_cells), "mae": absolute / n_cells}


def list_error_rows(
    models: Sequence[Mapping[str, Any]], n_most: int
) -> tuple[list[tuple[Any, ...]], int]:
    """List the rows of a table of errors: measure, scale, value for each model, and value for single variables.

    Parameters
    ----------
    models
        Summaries of scores on the same cells, with the errors of the model and of single variables.
    n_most
        Maximum number of scales, those with the most cells.

    Returns
    -------
    The rows, and the number of scales left out.
    """
    scales: Mapping[str, Mapping[str, float]] = models[0].get(ERRORS, {})
    most = sorted(scales, key=lambda name: -scales[name]["cells"])[:n_most]
    rows = [
        (
            measure,
            name,
            *(each[ERRORS][name][measure] for each in models),
            scales[name][f"baseline_{measure}"],
        )
        for name in scales
        if name in most
        for measure in ("rmse", "mae")
    ]
    return rows, len(scales) - len(most)
