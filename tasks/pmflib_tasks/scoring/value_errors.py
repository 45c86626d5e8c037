"""Errors of expected values: of variables whose levels are numbers, and pooled over those that share a scale alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pmflib.core.texts import list_some
from pmflib.schema import Schema, Variable

ERRORS = "errors"
"""Key of a summary of scores: errors by scale, as `describe_errors` gives them."""


def holds_numbers(variable: Variable) -> bool:
    """Whether an error of a variable's expected value is in the unit of its values.

    Its levels are numbers, or bins of numbers, with a value each. Names in order have values too, but their distances
    are those of whoever wrote the schema.
    """
    return variable.values is not None and (variable.edges is not None or variable.is_numeric)


def find_scales(schema: Schema) -> dict[str, list[int]]:
    """Find the variables whose errors may be added: those with the same values for their levels.

    Parameters
    ----------
    schema
        The variables.

    Returns
    -------
    Positions of the variables of each scale, by the name of the variable, or the first names and how many more; in the
    order of the first variables. Variables whose levels are no numbers are in none.
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
    """Root mean squared and mean absolute error, in the unit of the values.

    Parameters
    ----------
    n_cells
        Number of cells, at least 1.
    squared, absolute
        Sums over them of the squares, and of the absolute values, of differences.
    """
    return {"rmse": math.sqrt(squared / n_cells), "mae": absolute / n_cells}


def list_error_rows(
    models: Sequence[Mapping[str, Any]], n_most: int
) -> tuple[list[tuple[Any, ...]], int]:
    """Rows of a table of errors: measure and scale, the figure of each model, and that of single variables.

    Parameters
    ----------
    models
        Summaries of scores on the same cells, each with the errors of single variables beside its own.
    n_most
        Scales that are listed at most, those of the most cells.

    Returns
    -------
    The rows, and the number of scales that are left out.
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
