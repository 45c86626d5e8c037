"""Conversion of user tables (arrays, pandas, polars, Arrow) to Arrow and back, with their own values and types."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
from sklearn.utils.validation import validate_data

from pmflib.base.arrays import BoolArray, FloatArray, IntArray, name_type
from pmflib.base.errors import PmfError, SchemaError
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
        SchemaError
            If the table has no rows or columns, contains infinity or something that is no value, or has other features
            than in fit.
        """
        name = type(estimator).__name__
        if not (hasattr(table, "__len__") or hasattr(table, "__array__") or np.isscalar(table)):
            raise SchemaError(f"X is {name_type(table)}; {name} takes a table in memory")
        try:
            if is_frame(table):
                columns = as_arrow(table)
                validate_data(estimator, _name_alike(table), reset=reset, skip_check_array=True)
                for what, size in zip(("sample", "feature"), table.shape, strict=True):
                    if not size:
                        raise SchemaError(
                            f"Found array with 0 {what}(s) (shape={tuple(table.shape)}) while a minimum of 1 is "
                            f"required by {name}."
                        )
                if not reset and not is_frame(estimator._empty):
                    # fitted to an array: columns are matched by position
                    table = np.asarray(table)
            else:
                table = validate_data(
                    estimator, table, reset=reset, dtype=None, ensure_all_finite="allow-nan"
                )
                names = [f"x{position}" for position in range(table.shape[1])]
                columns = as_arrow(dict(zip(names, table.T, strict=True)))
        except PmfError:
            raise
        except ValueError as error:
            raise SchemaError(str(error)) from error
        for name, column in zip(columns.column_names, columns.columns, strict=True):
            if pa.types.is_floating(column.type) and np.isinf(column.to_numpy()).any():
                raise SchemaError(f"Input X contains infinity in column {name!r}; make it missing")
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
        given = self.given
        is_pandas = hasattr(given, "iloc")
        # pandas may have names by which no column is found, such as NaN
        numbered = given.set_axis(range(given.shape[1]), axis=1) if is_pandas else given
        frame = nw.from_native(numbered, eager_only=True)
        columns = []
        for position, (cells, values) in filled.items():
            column = _widen(frame[:, position], values)
            columns.append(column.scatter(np.flatnonzero(cells).tolist(), values))
        made = frame.with_columns(columns).to_native()
        return made.set_axis(given.columns, axis=1) if is_pandas else made


def _widen(column: nw.Series[Any], values: Values) -> nw.Series[Any]:
    """Give a column a type that can represent values: floats for fractions, a categorical with their levels."""
    if has_fraction(values) and column.dtype.is_integer():
        return column.cast(nw.Float64)
    if column.dtype not in (nw.Enum, nw.Categorical):
        return column
    native = column.to_native()
    if hasattr(native, "iloc"):
        new = [value for value in dict.fromkeys(values) if value not in native.cat.categories]
        return nw.from_native(native.cat.add_categories(new), series_only=True)
    if isinstance(column.dtype, nw.Enum):
        return column.cast(nw.Enum(list(dict.fromkeys([*column.dtype.categories, *values]))))
    return column


def convert_frame(table: Any, container: str) -> Any:
    """Convert a DataFrame or an Arrow table to pandas or polars for ``set_output``, because scikit-learn loses dtypes.

    Parameters
    ----------
    table
        Any table.
    container
        "pandas", "polars" or "default".
    """
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame) and container == "pandas":
        return frame.to_pandas()
    if isinstance(frame, nw.DataFrame) and container == "polars":
        return frame.to_polars()
    return table


def is_frame(table: Any) -> bool:
    """Return whether columns have names: a pandas or polars DataFrame, or an Arrow table."""
    if getattr(table, "ndim", 2) != 2 or not hasattr(table, "shape"):
        return False
    return hasattr(table, "columns") or isinstance(table, pa.Table)


def _name_alike(table: Any) -> Any:
    """Return a frame whose names are all texts, or none is: scikit-learn refuses others."""
    are_texts = {isinstance(name, str) for name in getattr(table, "columns", ())}
    if hasattr(table, "iloc") and len(are_texts) > 1:
        return table.set_axis([str(name) for name in table.columns], axis=1)
    return table


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
    raise SchemaError(f"a table like a {type(like).__name__} cannot be made; pass a frame or array")


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
