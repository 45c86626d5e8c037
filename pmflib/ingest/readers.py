"""Read the rows of raw CSV and Parquet files in batches, with their row numbers."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.core.errors import SourceError
from pmflib.ingest.chunks import FileChunk, RawRows, find_columns
from pmflib.ingest.csv.rows import read_csv_rows, read_header
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.sources import DAMAGED, Source, digest_source, open_source, spare_transient


def check_type(name: str, dtype: pa.DataType) -> None:
    """Check that a column has scalar texts, numbers, booleans or times.

    Raises
    ------
    SourceError
        If values are nested, or are times in an unknown time zone.
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
    """Convert a column to a type that encoders support; most columns are returned unchanged.

    Parameters
    ----------
    column
        Array of a type accepted by `check_type`.

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


def _spare_python(column: pa.Array) -> pa.Array:
    """Return times unchanged if Python supports all of them, and as texts otherwise."""
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


PARQUET_CELLS = 1 << 21
"""Number of cells of a batch of Parquet; fixed, so that results do not depend on the machine."""
PARQUET_ROWS = 1 << 17
"""Largest number of rows of a batch of Parquet."""


FREE_ROWS, ROWS_PER_BYTE = 5_000_000, 64
FREE_GROUP_BYTES, MOST_EXPANSION = 256 << 20, 1000
"""Limits of Parquet files, whose run lengths and compressed pages may state anything: up to ``FREE_ROWS`` rows, or
``ROWS_PER_BYTE`` of the file; up to ``FREE_GROUP_BYTES`` in a row group, or ``MOST_EXPANSION`` times the file. Rows of
eight answers of 1 % each, which hardly any survey has, take 1.5 bits an answer at best: 12 rows a byte."""


def is_parquet(source: Source, config: SourceOptions) -> bool:
    """Whether a file is read as Parquet, by the configured format or by its name."""
    if config.format == "auto":
        return source.name.lower().endswith((".parquet", ".pq"))
    return config.format == "parquet"


def read_columns(source: Source, config: SourceOptions) -> list[str]:
    """Read the names of a file's columns.

    Raises
    ------
    SourceError
        If the file cannot be read, or has no header and no columns are configured.
    """
    if is_parquet(source, config):
        with open_source(source, unpack=False) as stream:
            return list(_open_parquet(source, stream).schema_arrow.names)
    return read_header(source, config)


def read_rows(
    source: Source,
    config: SourceOptions,
    columns: Sequence[str],
    *,
    on_rows: Callable[[int], None] | None = None,
    chunk: FileChunk | None = None,
    coded: Sequence[str] = (),
) -> Iterator[RawRows]:
    """Read some columns of a file in batches, in bounded memory.

    Batches depend only on the file. Every row is either in exactly one batch or among the ragged rows.

    Parameters
    ----------
    source
        The file.
    config
        Format, delimiter, and column names of CSV files without a header.
    columns
        Distinct names of the requested columns.
    on_rows
        Called with the number of rows of each batch once the caller has finished with it.
    chunk
        Part of the file to read; None reads all and checks the digest of the file.
    coded
        Columns with few distinct texts, which are read from Parquet as dictionaries.

    Raises
    ------
    SourceError
        If a column is missing or duplicated, the file is truncated, damaged or of another format, a quotation mark is
        never closed, or the digest of the file differs.
    """
    if is_parquet(source, config):
        batches = _read_parquet_rows(
            source, columns, None if chunk is None else chunk.groups, coded
        )
    else:
        batches = read_csv_rows(source, config, columns, chunk)
    for raw in batches:
        yield raw
        if on_rows is not None:
            on_rows(raw.batch.num_rows + len(raw.ragged))


def _open_parquet(
    source: Source, stream: object, dictionaries: Sequence[str] = ()
) -> pq.ParquetFile:
    """Open a Parquet file, reading the texts of some columns as dictionaries."""
    try:
        file = pq.ParquetFile(stream, pre_buffer=False, read_dictionary=list(dictionaries))
    except DAMAGED as error:
        spare_transient(error)
        raise SourceError(
            f"{source.name}: is no readable Parquet file, or was cut short ({error}); "
            "copy it again, or set source.format"
        ) from error
    # some file systems do not report sizes: see `Source`
    if (size := source.size) <= 1:
        return file
    metadata = file.metadata
    if metadata.num_rows > max(FREE_ROWS, ROWS_PER_BYTE * size):
        raise SourceError(
            f"{source.name}: states {metadata.num_rows:,} rows in {size:,} bytes; the limit is {ROWS_PER_BYTE} rows a "
            f"byte, or {FREE_ROWS:,}: if they are yours, write them in smaller files"
        )
    groups = range(metadata.num_row_groups)
    largest = max((metadata.row_group(index).total_byte_size for index in groups), default=0)
    if largest > max(FREE_GROUP_BYTES, MOST_EXPANSION * size):
        raise SourceError(
            f"{source.name}: a row group states {largest:,} bytes in a file of {size:,}; the limit is "
            f"{MOST_EXPANSION:,} times the file, or {FREE_GROUP_BYTES:,}: if it is yours, write smaller row groups"
        )
    return file


def count_group_rows(source: Source) -> list[int]:
    """Number of rows of each row group of a Parquet file.

    Raises
    ------
    SourceError
        If the file cannot be read, or states more rows or bytes than its size allows.
    """
    with open_source(source, unpack=False) as stream:
        metadata = _open_parquet(source, stream).metadata
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def _read_parquet_rows(
    source: Source, columns: Sequence[str], groups: range | None, coded: Sequence[str]
) -> Iterator[RawRows]:
    with open_source(source, unpack=False) as stream:
        file = _open_parquet(source, stream)
        indices = find_columns(source, file.schema_arrow.names, columns)
        for index in indices:
            field = file.schema_arrow.field(index)
            try:
                check_type(field.name, field.type)
            except SourceError as error:
                raise SourceError(f"{source.name}: {error}") from None
        leaves = file.metadata.schema
        paths = {leaves.column(index).path for index in range(len(leaves))}
        if dictionaries := [name for name in coded if name in paths]:
            # nested and missing columns, for which Arrow would raise a KeyError, were rejected above
            file = _open_parquet(source, stream, dictionaries)
        size = max(1, min(PARQUET_ROWS, PARQUET_CELLS // max(1, len(columns))))
        metadata, asked = file.metadata, groups
        groups = range(metadata.num_row_groups) if groups is None else groups
        first = 1 + sum(metadata.row_group(index).num_rows for index in range(groups.start))
        stop = first + sum(metadata.row_group(index).num_rows for index in groups)
        batches = file.iter_batches(size, list(groups), columns=list(columns), use_threads=False)
        while True:
            try:
                batch = next(batches, None)
            except DAMAGED as error:
                spare_transient(error)
                raise SourceError(
                    f"{source.name}: damaged at or after row {first} ({error}); copy the file again"
                ) from error
            if batch is None:
                break
            rows = np.arange(first, first + batch.num_rows, dtype=np.int64)
            # in the requested order and supported types
            arrays = [simplify(batch.column(name)) for name in columns]
            yield RawRows(pa.RecordBatch.from_arrays(arrays, names=list(columns)), rows)
            first += batch.num_rows
        if first != stop:
            raise SourceError(
                f"{source.name}: its rows end at {first - 1}, and its footer states {stop - 1}; copy the file again"
            )
    if source.digest and asked is None:
        # Parquet is not read sequentially, and so is hashed separately
        source.check(digest_source(source))
