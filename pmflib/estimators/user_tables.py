"""Conversion of user tables (arrays, pandas, polars, Arrow) to Arrow and back, with their own values and types."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.utils.validation import validate_data

from pmflib.core.arrays import BoolArray, FloatArray, IntArray
from pmflib.core.errors import SchemaError
from pmflib.schema import Variable
from pmflib.schema.tables import as_arrow
from pmflib.schema.variable import is_absent, read_number

Values = Sequence[Any]
"""Python values of a column."""


@dataclass(frozen=True, eq=False)
class UserTable:
    """A user's table, converted to Arrow.

    Parameters
    ----------
    given
        The original table; lists as an array.
    columns
        The same as an Arrow table.
    """

    given: Any
    columns: pa.Table

    @classmethod
    def read(cls, estimator: Any, table: Any, *, reset: bool) -> UserTable:
        """Validate and convert a table, and store or compare its features as scikit-learn does.

        Parameters
        ----------
        estimator
            Estimator with ``n_features_in_`` and ``feature_names_in_``, which are set or compared.
        table
            DataFrame, Arrow table, array of shape (n_rows, n_columns), or lists.
        reset
            Whether the features are stored (in fit) or compared.

        Raises
        ------
        ValueError
            If the table has no rows or columns, contains infinity, or has other features than in fit.
        """
        if is_frame(table):
            validate_data(estimator, table, reset=reset, skip_check_array=True)
            for what, size in zip(("sample", "feature"), table.shape, strict=True):
                if not size:
                    raise ValueError(
                        f"Found array with 0 {what}(s) (shape={tuple(table.shape)}) while a minimum of 1 is required "
                        f"by {type(estimator).__name__}."
                    )
            columns = as_arrow(table)
            if not reset and not hasattr(estimator, "feature_names_in_"):
                # fitted to an array: columns are matched by position
                table = np.asarray(table)
        else:
            table = validate_data(
                estimator, table, reset=reset, dtype=None, ensure_all_finite="allow-nan"
            )
            columns = as_arrow({f"x{position}": column for position, column in enumerate(table.T)})
        for name, column in zip(columns.column_names, columns.columns, strict=True):
            if pa.types.is_floating(column.type) and np.isinf(column.to_numpy()).any():
                raise ValueError(f"Input X contains infinity in column {name!r}; make it missing")
        return cls(table, columns)

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return int(self.columns.num_rows)

    def list_values(self, position: int) -> Values | None:
        """Return the original values of a column of mixed types; None if Arrow represents them."""
        given = self.given
        if isinstance(given, np.ndarray):
            column = given[:, position]
        elif hasattr(given, "iloc"):
            column = given.iloc[:, position]
        else:
            return None
        if column.dtype != object or not pa.types.is_string(self.columns.columns[position].type):
            return None
        return None if all(isinstance(value, str) for value in column) else list(column)

    def fill(self, filled: Mapping[int, tuple[BoolArray, Values]]) -> Any:
        """Fill cells of some columns.

        Parameters
        ----------
        filled
            By column position: which cells, (n_rows,), and a value for each of them.

        Returns
        -------
        A table like the original, with other cells unchanged. Columns keep their dtypes, except that integer columns
        with fractional values become floats.
        """
        if isinstance(self.given, np.ndarray):
            array = self.given.copy()
            for position, (cells, values) in filled.items():
                array[cells, position] = values
            return array
        if hasattr(self.given, "iloc"):
            frame = self.given.copy()
            for position, (cells, values) in filled.items():
                column = frame.iloc[:, position].copy()
                if has_fraction(values) and "int" in str(column.dtype).lower():
                    column = column.astype("Float64")
                column[cells] = values
                frame.isetitem(position, column)
            return frame
        if hasattr(self.given, "with_columns"):
            polars = importlib.import_module("polars")
            columns = []
            for position, (cells, values) in filled.items():
                column = self.given[:, position]
                dtype = polars.Float64 if has_fraction(values) else column.dtype
                spread = _spread(cells, values)
                other = polars.Series(column.name, spread).cast(dtype)
                columns.append(column.cast(dtype).zip_with(polars.Series(~cells), other))
            return self.given.with_columns(columns)
        table = self.columns
        for position, (cells, values) in filled.items():
            column = table.columns[position].combine_chunks()
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            dtype = pa.float64() if has_fraction(values) else column.type
            new = pc.replace_with_mask(column.cast(dtype), pa.array(cells), pa.array(values, dtype))
            table = table.set_column(position, table.column_names[position], new)
        return table


def convert_frame(table: Any, container: str) -> Any:
    """Convert a DataFrame or an Arrow table to pandas or polars for ``set_output``, because scikit-learn loses dtypes.

    Parameters
    ----------
    table
        Any table.
    container
        "pandas", "polars" or "default".
    """
    is_arrow = isinstance(table, pa.Table)
    if container == "pandas" and (is_arrow or hasattr(table, "with_columns")):
        return table.to_pandas()
    if container == "polars" and is_arrow:
        return importlib.import_module("polars").from_arrow(table)
    if container == "polars" and hasattr(table, "iloc"):
        return importlib.import_module("polars").from_pandas(table)
    return table


def is_frame(table: Any) -> bool:
    """Return whether columns have names: a pandas or polars DataFrame, or an Arrow table."""
    if getattr(table, "ndim", 2) != 2 or not hasattr(table, "shape"):
        return False
    return hasattr(table, "columns") or isinstance(table, pa.Table)


def has_fraction(values: Values) -> bool:
    """Return whether any value is a non-integer number."""
    return any(isinstance(value, float) and not value.is_integer() for value in values)


def make_user_table(like: Any, columns: Mapping[str, Values]) -> Any:
    """Make a table from columns with the type of another table.

    Parameters
    ----------
    like
        A table like `UserTable.given`, with the same columns; its rows are not used.
    columns
        Values of each column.

    Returns
    -------
    A table with the dtypes of ``like`` where they can represent the values.
    """
    if isinstance(like, np.ndarray):
        made = np.empty((len(next(iter(columns.values()))), len(columns)), like.dtype)
        for position, values in enumerate(columns.values()):
            made[:, position] = values
        return made
    if hasattr(like, "iloc"):
        pandas = importlib.import_module("pandas")
        made = pandas.DataFrame({name: list(values) for name, values in columns.items()})
        made.columns = like.columns
        for position, dtype in enumerate(like.dtypes):
            made.isetitem(position, made.iloc[:, position].astype(dtype))
        return made
    if hasattr(like, "with_columns"):
        polars = importlib.import_module("polars")
        return polars.DataFrame(
            [polars.Series(name, values).cast(like[name].dtype) for name, values in columns.items()]
        )
    if isinstance(like, pa.Table):
        arrays = {}
        for name, values in columns.items():
            dtype = like.schema.field(name).type
            plain = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
            arrays[name] = pa.array(values, plain)
        return pa.table(arrays)
    raise SchemaError(f"a table like a {type(like).__name__} cannot be made; give a frame or array")


def _spread(cells: BoolArray, values: Values) -> list[Any]:
    """Return a value for every row, None if the cell is not to be filled."""
    given = iter(values)
    return [next(given) if cell else None for cell in cells.tolist()]


MOST_KEPT = 64
"""Maximum number of values kept per bin, spread over its numbers by rank."""


@dataclass(frozen=True)
class LevelValues:
    """Original values of the levels of one variable.

    Parameters
    ----------
    by_level
        Values of each level: several increasing numbers for a bin, otherwise one value.
    means
        Mean of each level, if the column is numeric; otherwise None.
    """

    by_level: tuple[tuple[Any, ...], ...]
    means: tuple[float, ...] | None = None

    @classmethod
    def find(
        cls, variable: Variable, column: pa.ChunkedArray, mixed: Sequence[Any] | None = None
    ) -> LevelValues:
        """Find the values of a variable's levels in a column.

        Parameters
        ----------
        variable
            The variable of the column.
        column
            The column from which the variable was inferred.
        mixed
            Original values of the column, if Arrow has them only as strings.
        """
        is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if mixed is not None:
            seen = Counter(value for value in mixed if not is_absent(value))
        else:
            counted = column.value_counts()
            pairs = zip(*(counted.field(i).to_pylist() for i in (0, 1)), strict=True)
            seen = Counter({value: n for value, n in pairs if not is_absent(value)})
        found: list[list[Any]] = [[] for _ in variable.levels]
        # the most frequent first; ties go to the first seen
        for value, _ in seen.most_common():
            code = variable.encode_value(value)
            if code >= 0:
                found[code].append(value)
        by_level = []
        for code, values in enumerate(found):
            if not values:
                by_level.append((_make_value(variable, code, is_number=is_number),))
            elif variable.edges is not None:
                by_level.append(_pick(sorted(values), seen))
            else:
                by_level.append((values[0],))
        means = variable.values if is_number else None
        return cls(tuple(by_level), means)

    @property
    def typical(self) -> list[Any]:
        """Return one value per level: the middle one for a bin."""
        return [values[len(values) // 2] for values in self.by_level]

    def pick(self, codes: IntArray, uniforms: FloatArray) -> list[Any]:
        """Choose a value for the level of each code, given a number in [0, 1) for each."""
        picked = []
        for code, uniform in zip(codes.tolist(), uniforms.tolist(), strict=True):
            values = self.by_level[code]
            picked.append(values[int(uniform * len(values))])
        return picked


def _make_value(variable: Variable, code: int, *, is_number: bool) -> Any:
    """Make a value for a level that does not occur in the column: its number, or its text."""
    if not is_number:
        return variable.levels[code]
    if variable.values is not None:
        return variable.values[code]
    return read_number(variable.levels[code])


def _pick(rising: Sequence[Any], seen: Counter[Any]) -> tuple[Any, ...]:
    """Select some of the numbers in a bin, in proportion to their frequency."""
    counts = np.array([seen[value] for value in rising])
    ends = np.cumsum(counts)
    n_kept = int(min(MOST_KEPT, ends[-1]))
    ranks = (np.arange(n_kept) + 0.5) / n_kept * ends[-1]
    return tuple(rising[position] for position in np.searchsorted(ends, ranks, side="left"))
