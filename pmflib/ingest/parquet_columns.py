"""Columns of Parquet files in types that the compute functions and Python can read, whatever was written."""

from __future__ import annotations

import zoneinfo

import pyarrow as pa
import pyarrow.compute as pc

from pmflib.errors import SourceError


def check_type(name: str, dtype: pa.DataType) -> None:
    """Refuse a column whose values are no single texts, numbers, booleans or times.

    Raises
    ------
    SourceError
        If values are nested, or are times of a zone that this machine does not know.
    """
    inner = _innermost(dtype)
    if pa.types.is_nested(inner) or pa.types.is_run_end_encoded(inner) or pa.types.is_union(inner):
        raise SourceError(
            f"column {name!r} holds {dtype}; a column of texts, numbers, booleans or times is needed: flatten it"
        )
    if pa.types.is_timestamp(inner) and inner.tz is not None and not _is_known(inner.tz):
        raise SourceError(
            f"column {name!r} holds times of the zone {inner.tz!r}, which this machine does not know; write them in "
            "UTC, or install the zone (package tzdata)"
        )


def simplify(column: pa.Array) -> pa.Array:
    """Put a column into a type that all that follows can read; most columns stay as they are.

    Parameters
    ----------
    column
        Array that `check_type` accepts.

    Returns
    -------
    An array of the same length. Identifiers (UUID) are texts; times are in microseconds, where Python's end; a time
    beyond the years 1 to 9999, which Python has not, is a text of its number, as no level or time is written.
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


def _spare_python(column: pa.Array) -> pa.Array:
    """Times as they are where Python can read them all, else as texts."""
    distinct = pc.unique(column)
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
