"""Times of answers, which decide which of several answers is kept."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.arrays import FloatArray

TimeFormat: TypeAlias = Literal["number", "instant"]


class TimeReader:
    """Reads the time column of one file, whose times are either all numbers or all instants.

    Which of the two is decided by the first batch that has a readable time: by the majority in it, numbers if
    there are as many. Times of the other format are not read, for the two cannot be ordered.
    Instants are microseconds since 1970 (an ISO 8601 text without a zone is taken as UTC). Both formats are
    float64: whole numbers keep their order up to 2**53, and instants to the microsecond until the year 2255.
    """

    def __init__(self) -> None:
        self.format: TimeFormat | None = None

    def read(self, column: pa.Array) -> FloatArray:
        """Read the times of a batch, float64 of shape (n_rows,); NaN where there is none, or none that can be read."""
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        readers = {"number": _read_numbers, "instant": _read_instants}
        if self.format is not None:
            return readers[self.format](column)
        numbers = _read_numbers(column)
        readable = int(np.count_nonzero(~np.isnan(numbers)))
        if readable == len(numbers):
            self.format = "number" if readable else None
            return numbers
        instants = _read_instants(column)
        if readable >= (others := int(np.count_nonzero(~np.isnan(instants)))):
            self.format = "number" if readable else None
            return numbers
        self.format = "instant" if others else None
        return instants


def _read_numbers(column: pa.Array) -> FloatArray:
    dtype = column.type
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype):
        return _finite(column.cast(pa.float64(), safe=False))
    if not _is_text(dtype):
        return np.full(len(column), math.nan)
    try:
        return _finite(column.cast(pa.string()).cast(pa.float64()))
    except pa.ArrowInvalid:
        texts = column.cast(pa.binary()).to_pylist()
        numbers = np.array([_number(text) for text in texts], np.float64)
        return np.where(np.isfinite(numbers), numbers, math.nan)


def _read_instants(column: pa.Array) -> FloatArray:
    dtype = column.type
    if pa.types.is_timestamp(dtype) or pa.types.is_date(dtype):
        zone = dtype.tz if pa.types.is_timestamp(dtype) else None
        return _microseconds(column.cast(pa.timestamp("us", zone), safe=False))
    if not _is_text(dtype):
        return np.full(len(column), math.nan)
    try:
        return _microseconds(column.cast(pa.string()).cast(pa.timestamp("us")))
    except pa.ArrowInvalid:
        return np.array([_instant(text) for text in column.cast(pa.binary()).to_pylist()])


def _microseconds(column: pa.Array) -> FloatArray:
    return _finite(column.cast(pa.int64()).cast(pa.float64(), safe=False))


def _finite(column: pa.Array) -> FloatArray:
    numbers = pc.fill_null(column, math.nan).to_numpy(zero_copy_only=False)
    out: FloatArray = np.where(np.isfinite(numbers), numbers, math.nan)
    return out


def _number(text: bytes | None) -> float:
    try:
        return math.nan if text is None else float(text.decode("utf-8"))
    except ValueError:
        return math.nan


def _instant(text: bytes | None) -> float:
    try:
        moment = datetime.fromisoformat((text or b"").decode("utf-8").strip())
    except ValueError:
        return math.nan
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return float((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


def _is_text(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(dtype)
        or pa.types.is_large_string(dtype)
        or pa.types.is_binary(dtype)
        or pa.types.is_large_binary(dtype)
    )
