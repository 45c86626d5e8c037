"""Export of fits as a DataFrame, CSV or an Excel workbook."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.base.constraints import check_shapes
from pmflib.base.errors import PmfError
from pmflib.base.texts import guard_cell, show_text

if TYPE_CHECKING:
    import pandas as pd

    from pmflib.model import JointPMF

COLUMNS = ("parameter", "state", "variable", "level", "value", "error", "lower", "upper")
"""Columns of the table of parameters, one parameter per row: ``share`` of a state, or ``probability`` of a level given
the state. Item response models have ``discrimination`` (logits between the two levels per standard deviation of the
trait), ``threshold`` (standard deviations of the trait), and, as centred logits, ``intercept`` and ``slope`` of each
level; the column of the state then contains the trait's number.
"""


class ArrayErrors(Protocol):
    """Standard errors and intervals of an array of parameters; NaN if unavailable."""

    @property
    def errors(self) -> FloatArray:
        """Standard errors."""

    @property
    def lower(self) -> FloatArray:
        """Lower interval limits."""

    @property
    def upper(self) -> FloatArray:
        """Upper interval limits."""


Errors = Mapping[str, ArrayErrors]
"""Errors of ``prior`` (rank,) and ``factors`` (n_levels, rank), or of ``discriminations``, ``thresholds``, ``base`` and
``slopes`` of item responses: see `pmflib.information.parameter_errors.ParameterErrors`."""


def list_parameters(model: JointPMF, errors: Errors | None = None) -> Iterator[tuple[Any, ...]]:
    """Yield rows of all parameters with the columns `COLUMNS`: state shares first, then levels.

    Parameters
    ----------
    model
        The model.
    errors
        Standard errors of its parameters; None leaves these columns NaN.

    Raises
    ------
    PmfError
        If errors belong to another model.
    """
    arrays, rows = model.list_parameters()
    for name, values in arrays.items():
        if errors is not None:
            own = errors[name].errors
            check_shapes("pass the errors of this model", PmfError, **{name: (own, values.shape)})
    for name, at, row in rows:
        if errors is None:
            yield (*row, math.nan, math.nan, math.nan)
        else:
            found = errors[name]
            of_one = (found.errors[at], found.lower[at], found.upper[at])
            yield (*row, *map(float, of_one))


def make_frame(model: JointPMF, errors: Errors | None = None) -> pd.DataFrame:
    """Return the parameters as a pandas DataFrame with the columns `COLUMNS`; see `list_parameters`.

    Raises
    ------
    PmfError
        If pandas is not installed, or errors belong to another model.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise PmfError(
            "to_frame makes a pandas DataFrame, and pandas is not installed; install it, or use to_csv"
        ) from error
    return pd.DataFrame(list(list_parameters(model, errors)), columns=list(COLUMNS))


def write_csv(model: JointPMF, path: Path, errors: Errors | None = None) -> None:
    """Write the parameters as UTF-8 CSV, one per line, with full precision; unknown values are empty.

    Names that a spreadsheet would run as formulas are prefixed by an apostrophe; see `guard_cell`.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for row in map(_leave_out_unknown, list_parameters(model, errors)):
            rows.writerow([guard_cell(x) if isinstance(x, str) else x for x in row])


def write_workbook(
    model: JointPMF, statistics: Mapping[str, Any], path: Path, errors: Errors | None = None
) -> None:
    """Write an Excel workbook with sheets for parameters, state profiles and fit statistics.

    Raises
    ------
    PmfError
        If openpyxl is not installed, or errors belong to another model.
    """
    try:
        from openpyxl import Workbook
        from openpyxl.cell import WriteOnlyCell
    except ImportError as error:
        raise PmfError(
            "to_excel needs openpyxl, which is not installed; install pmflib[excel], or use to_csv"
        ) from error
    book = Workbook(write_only=True)
    sheets: dict[str, list[Sequence[Any]]] = {
        "parameters": [COLUMNS, *map(_leave_out_unknown, list_parameters(model, errors))],
        "profiles": list(_list_profiles(model)),
        "fit": [("statistic", "value"), *statistics.items()],
    }
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            cells = [WriteOnlyCell(sheet, show_text(x) if isinstance(x, str) else x) for x in row]
            for cell in cells:
                if cell.data_type == "f":
                    # a level that begins with = is text, not a formula
                    cell.data_type = "s"
            sheet.append(cells)
    book.save(path)


def _leave_out_unknown(row: Sequence[Any]) -> list[Any]:
    """Return the row with None in place of NaN."""
    return [None if isinstance(x, float) and math.isnan(x) else x for x in row]


def _list_profiles(model: JointPMF) -> Iterator[Sequence[Any]]:
    """Yield state shares, and the probability of every level in each state and overall."""
    yield ("variable", "level", *(f"state {state}" for state in range(model.rank)), "all")
    yield ("share", "", *model.prior.tolist(), float(model.prior.sum()))
    overall = np.asarray(model.factors @ model.prior)
    for position, variable in enumerate(model.schema):
        first = int(model.schema.offsets[position])
        for code, level in enumerate(variable.levels):
            values = model.factors[first + code].tolist()
            yield (variable.name, str(level), *values, float(overall[first + code]))
