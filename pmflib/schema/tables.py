"""Conversion of tables in memory, from any library, to Arrow tables."""

from __future__ import annotations

import math
import zoneinfo
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FloatArray, find_extremes, name_type
from pmflib.base.constraints import check_distinct
from pmflib.base.errors import SchemaError
from pmflib.schema.variable import MISSING, as_text, is_absent, read_number

CATEGORIES = b"pmflib.categories"
"""Metadata of fields whose dictionary declares all levels of the column, in order."""


def as_arrow(
    table: object, wanted: Collection[str] | None = None, *, lists: Collection[str] = ()
) -> pa.Table:
    """Convert a table in memory to an Arrow table, of types that can be counted and encoded.

    Parameters
    ----------
    table
        Arrow table or batch, mapping of columns, pandas or polars DataFrame, or an object with the Arrow PyCapsule
        interface. Names of columns become texts.
    wanted
        Columns that are used; others are not read, and null. None uses all.
    lists
        Columns whose cells may hold lists.

    Raises
    ------
    SchemaError
        If the object is no such table, if columns differ in length or have the same name, or if a column holds periods,
        intervals, time spans, or several values in a cell.
    """
    read = partial(_read_column, wanted=wanted, lists=lists)
    if isinstance(table, pa.Table | pa.RecordBatch):
        check_distinct(map(str, table.schema.names), "columns are")
        found = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
        for index, field in enumerate(found.schema):
            column = read(field.name, found[index])
            if column.type != field.type:
                found = found.set_column(index, field.with_type(column.type), column)
        return found
    if hasattr(table, "collect") and hasattr(table, "collect_schema"):
        raise SchemaError(
            f"table is {name_type(table)}, which is not computed yet; pass table.collect()"
        )
    if isinstance(table, Mapping):
        check_distinct(map(str, table), "columns are")
        return _join_columns({str(name): values for name, values in table.items()}, read)
    # pandas refuses columns of mixed types here, and does not say which NaN are missing
    if hasattr(table, "__arrow_c_stream__") and not hasattr(table, "iloc"):
        columns = pa.table(table)
        declared = {name for name in columns.column_names if _declares_levels(table, name)}
        return _join_columns(
            dict(zip(columns.column_names, columns.columns, strict=True)), read, declared
        )
    if hasattr(table, "columns") and hasattr(table, "__getitem__"):
        check_distinct(map(str, table.columns), "columns are")
        return _join_columns({str(name): table[name] for name in table.columns}, read)
    raise SchemaError(
        f"table is {name_type(table)}; expected an Arrow table, a mapping of columns, or a pandas or polars frame"
        f"{_name_remedy(table)}"
    )


def name_columns(array: np.ndarray[Any, Any], names: Sequence[str] = ()) -> pa.Table:
    """Make a table of an array of answers, with these columns, or v0, v1, ... if it has a row.

    Raises
    ------
    SchemaError
        If it has no two axes, or no names are given and it has no row.
    """
    if array.ndim != 2 or not (names or array.size):
        raise SchemaError(
            f"the table is an array of shape {array.shape}; pass one of shape (n_rows, n_columns), at least one each"
        )
    names = names or [f"v{position}" for position in range(array.shape[1])]
    return as_arrow(dict(zip(names, array.T, strict=True)))


def are_codes(table: np.ndarray[Any, Any]) -> bool:
    """Return whether the answers of each column are 0, 1, ... without a gap, -1 missing, and so equal their codes."""
    if table.ndim != 2 or not table.size or not np.issubdtype(table.dtype, np.integer):
        return False
    lows, highs = find_extremes(table)
    if lows.min() < MISSING or highs.max() >= len(table):
        return False
    return all(np.bincount(column.astype(np.int64) - MISSING)[1:].all() for column in table.T)


def _name_remedy(table: object) -> str:
    """Return a remedy for an object that is not a table, if known."""
    if isinstance(table, str | Path):
        return "; read the file first, with pandas.read_csv for one, or have `pmf infer` draft a schema from it"
    if hasattr(table, "to_frame"):
        return "; table.to_frame() is one of a single column"
    if isinstance(table, np.ndarray):
        return "; name its columns: pandas.DataFrame(table, columns=[...])"
    if isinstance(table, Sequence):
        return "; of rows: pandas.DataFrame(rows, columns=[...])"
    return ""


def _declares_levels(table: Any, name: str) -> bool:
    """Return whether a column of a polars DataFrame has a fixed list of levels."""
    return hasattr(table, "schema") and type(table.schema[name]).__name__ == "Enum"


def _join_columns(
    columns: Mapping[str, Any], read: Callable[[str, Any], Any], declared: Collection[str] = ()
) -> pa.Table:
    """Make a table from columns; dictionaries that are declared lists of levels are marked in the field's metadata."""
    arrays = {name: read(name, values) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise SchemaError(f"columns differ in length: {lengths}; pass one value per row")
    fields = []
    for name, array in arrays.items():
        kind = type(getattr(columns[name], "dtype", None)).__name__
        is_declared = name in declared or kind in ("CategoricalDtype", "Enum")
        is_coded = pa.types.is_dictionary(array.type)
        known = {CATEGORIES: b""} if is_coded and (is_declared or array.type.ordered) else None
        fields.append(pa.field(name, array.type, metadata=known))
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def _read_column(
    name: str, values: Any, *, wanted: Collection[str] | None, lists: Collection[str]
) -> pa.Array | pa.ChunkedArray:
    """Convert a column of any library; a column of mixed types becomes texts, one that is not wanted null."""
    if wanted is not None and name not in wanted and hasattr(values, "__len__"):
        return pa.nulls(len(values))
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise SchemaError(
            f"column {name!r} is {values!r}, {name_type(values)}; pass a list of values, one per row, also for a "
            "single row"
        )
    if isinstance(values, pa.Array | pa.ChunkedArray):
        column = values
    elif hasattr(values, "__arrow_c_stream__") and not hasattr(values, "iloc"):
        column = pa.chunked_array(values)
    else:
        column = _convert(name, values)
    if name in lists and isinstance(column.type, pa.ListType | pa.LargeListType):
        return column
    if fault := find_type_fault(column.type):
        raise SchemaError(f"column {name!r} holds {fault}")
    if isinstance(column, pa.ChunkedArray):
        chunks = [simplify(chunk) for chunk in column.chunks]
        return pa.chunked_array(chunks, chunks[0].type if chunks else column.type)
    return simplify(column)


def _convert(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """Convert a list, an array or a pandas column."""
    try:
        if hasattr(values, "sparse"):
            values = values.sparse.to_dense()
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        given = [value for value in values if not is_absent(value)]
        nested = next((value for value in given if isinstance(value, NESTED)), None)
        if nested is not None:
            raise SchemaError(f"column {name!r} holds {_SEVERAL} (as {nested!r})") from None
        return pa.array(
            [None if is_absent(value) else as_text(value) for value in values], pa.string()
        )
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(
            f"column {name!r} holds {getattr(values, 'dtype', name_type(values))}, which is no text, number, boolean "
            f"or time ({str(error)[:80]}); convert it"
        ) from None


NESTED = (list, tuple, set, frozenset, dict, np.ndarray)
"""Types of values of which a cell holds several."""
_SEVERAL = "several values in a cell; flatten it: a column for each of them, with yes and no"


def find_type_fault(dtype: pa.DataType, *, has_spans: bool = False) -> str:
    """Return why a column of this type cannot be encoded, with a remedy; "" if it can.

    Parameters
    ----------
    dtype
        Type of the column.
    has_spans
        Whether time spans are texts, as in files.
    """
    inner = _innermost(dtype)
    name = str(dtype.value_type if pa.types.is_dictionary(dtype) else dtype)
    if "pandas.period" in name:
        return "periods; convert it to texts, .astype(str), or to times, .dt.start_time"
    if "pandas.interval" in name or (
        pa.types.is_struct(inner) and {field.name for field in inner} == {"left", "right"}
    ):
        return "intervals; convert it to texts, .astype(str), or name them: pandas.cut(..., labels=[...])"
    if pa.types.is_nested(inner) or pa.types.is_run_end_encoded(inner) or pa.types.is_union(inner):
        return f"{dtype}: {_SEVERAL}"
    if pa.types.is_interval(inner) or (pa.types.is_duration(inner) and not has_spans):
        return "time spans; convert it to a number, as .dt.total_seconds()"
    if pa.types.is_timestamp(inner) and inner.tz is not None and not _is_known(inner.tz):
        return (
            f"times of the zone {inner.tz!r}, which this machine does not know; write them in UTC, or install the zone "
            "(package tzdata)"
        )
    return ""


def simplify(column: pa.Array) -> pa.Array:
    """Convert a column to a type that encoders support; most columns are returned unchanged.

    Parameters
    ----------
    column
        Array of a type without a `find_type_fault`.

    Returns
    -------
    An array of the same length. UUIDs become texts; times have at most microseconds, like Python's; times outside the
    years 1 to 9999, which Python does not support, become texts that match no level.
    """
    dtype = column.type
    inner = _innermost(dtype)
    if pa.types.is_dictionary(dtype) and not (_is_plain(inner) and dtype.value_type == inner):
        column = column.dictionary_decode()
        dtype = column.type
    if isinstance(dtype, pa.BaseExtensionType):
        if dtype == pa.uuid():
            return pa.array(
                [None if one is None else str(one) for one in column.to_pylist()], pa.string()
            )
        column = column.cast(pa.bool_()) if dtype == pa.bool8() else column.storage
        dtype = column.type
    if pa.types.is_null(dtype) or dtype == pa.string_view():
        return column.cast(pa.string())
    if dtype == pa.binary_view():
        return column.cast(pa.binary())
    if pa.types.is_float16(dtype):
        return column.cast(pa.float32())
    if pa.types.is_timestamp(dtype) and dtype.unit == "ns":
        column = column.cast(pa.timestamp("us", dtype.tz), safe=False)
    elif pa.types.is_duration(dtype) and dtype.unit == "ns":
        column = column.cast(pa.duration("us"), safe=False)
    elif pa.types.is_time64(dtype) and dtype.unit == "ns":
        column = column.cast(pa.time64("us"), safe=False)
    return column if _is_plain(column.type) else _spare_python(column)


def read_numbers(column: pa.Array | pa.ChunkedArray) -> FloatArray:
    """Read the numbers of a column, float64 of shape (n_rows,); NaN for other values."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        # unsafe casting rounds integers beyond 2**53
        cast = column.cast(pa.float64(), safe=False).fill_null(math.nan)
        return np.asarray(cast.to_numpy(zero_copy_only=False))
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    values = coded.dictionary.to_pylist()
    texts = [
        each.decode("utf-8", "replace") if isinstance(each, bytes) else as_text(each)
        for each in values
    ]
    found = [math.nan if (number := read_number(text)) is None else number for text in texts]
    places = coded.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
    numbers = np.array([*found, math.nan])
    return np.asarray(numbers[places])


def _spare_python(column: pa.Array) -> pa.Array:
    """Return times unchanged if Python supports all of them, and as texts otherwise."""
    distinct = column.unique()
    try:
        distinct.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException):
        coded = column.dictionary_encode()
        texts = pa.array([_write_time(one) for one in coded.dictionary], pa.string())
        return texts.take(coded.indices)
    return column


def _write_time(value: pa.Scalar) -> str:
    try:
        return str(value.as_py())
    except (ValueError, OverflowError, pa.ArrowException):
        return f"{value.value} {value.type}"


def _innermost(dtype: pa.DataType) -> pa.DataType:
    while True:
        if pa.types.is_dictionary(dtype):
            dtype = dtype.value_type
        elif isinstance(dtype, pa.BaseExtensionType):
            dtype = dtype.storage_type
        else:
            return dtype


def _is_plain(dtype: pa.DataType) -> bool:
    return not (
        pa.types.is_temporal(dtype)
        or pa.types.is_float16(dtype)
        or isinstance(dtype, pa.BaseExtensionType)
    )


def _is_known(zone: str) -> bool:
    if zone[:1] in "+-":
        return True
    try:
        zoneinfo.ZoneInfo(zone)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return False
    return True
