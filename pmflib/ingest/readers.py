"""Rows of a raw file, batch by batch, each with its number."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.arrays import IntArray
from pmflib.config import SourceConfig
from pmflib.errors import SourceError
from pmflib.ingest.sources import DAMAGED, Source, open_source

PARQUET_CELLS = 1 << 21
"""Cells of a batch read from Parquet: fixed, so that what is written does not depend on the machine."""
PARQUET_ROWS = 1 << 17


@dataclass(frozen=True)
class RawRows:
    """Rows of a file as they stand there.

    Parameters
    ----------
    batch
        The wanted columns, in the order they were wanted: binary from CSV, as typed from Parquet.
    rows
        int64 of shape (n_rows,): number of each row in the file; 1 is the first row of data, and blank lines are no
        rows.
    ragged
        Number and text of the rows in between that have too few or too many fields; their bytes that are not
        UTF-8 are escaped with a backslash.
    """

    batch: pa.RecordBatch
    rows: IntArray
    ragged: tuple[tuple[int, str], ...] = ()


def is_parquet(source: Source, config: SourceConfig) -> bool:
    """Whether a file is read as Parquet: by the configured format, or else by its name."""
    if config.format == "auto":
        return source.name.lower().endswith((".parquet", ".pq"))
    return config.format == "parquet"


def read_columns(source: Source, config: SourceConfig) -> list[str]:
    """Names of a file's columns, in order, as they stand in it.

    Raises
    ------
    SourceError
        If the file cannot be read, or has no header and none is configured.
    """
    from pmflib.ingest.csv_rows import read_header

    if is_parquet(source, config):
        with open_source(source, unpack=False) as stream:
            return list(_open_parquet(source, stream).schema_arrow.names)
    return read_header(source, config)


def read_rows(source: Source, config: SourceConfig, columns: Sequence[str]) -> Iterator[RawRows]:
    """Read some columns of a file in memory that does not grow with it.

    Batches are cut at places that depend on the file alone. Every row of the file is in exactly one batch or among
    the ragged ones.

    Parameters
    ----------
    source
        The file.
    config
        Format, delimiter, and column names of CSV files without a header.
    columns
        Names of the wanted columns, all distinct.

    Raises
    ------
    SourceError
        If a column is absent or there twice, the file is cut short, damaged or of another format, or a
        quotation mark is never closed.
    """
    from pmflib.ingest.csv_rows import read_csv_rows

    if is_parquet(source, config):
        yield from _read_parquet_rows(source, columns)
    else:
        yield from read_csv_rows(source, config, columns)


def find_columns(source: Source, header: Sequence[str], columns: Sequence[str]) -> list[int]:
    """Place of each wanted column in a header.

    Raises
    ------
    SourceError
        If a wanted column is absent, or the header has it more than once.
    """
    times = Counter(header)
    places = {name: place for place, name in enumerate(header)}
    for name in columns:
        if name not in places:
            close = difflib.get_close_matches(name, header, n=3, cutoff=0.5)
            hint = f"; did you mean {close}?" if close else ""
            shown = list(header[:12]) + (["..."] if len(header) > 12 else [])
            raise SourceError(
                f"{source.name}: no column {name!r}; its {len(header)} columns are {shown}{hint} "
                "If the first row is data, name the columns in source.columns; "
                "if they are one column, set source.delimiter"
            )
        if times[name] > 1:
            raise SourceError(
                f"{source.name}: column {name!r} stands {times[name]} times in the header; "
                "rename all but one, or take them out"
            )
    return [places[name] for name in columns]


def _open_parquet(source: Source, stream: object) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(stream, pre_buffer=False)
    except DAMAGED as error:
        raise SourceError(
            f"{source.name}: is no readable Parquet file, or was cut short ({error}); "
            "copy it again, or set source.format"
        ) from error


def _read_parquet_rows(source: Source, columns: Sequence[str]) -> Iterator[RawRows]:
    with open_source(source, unpack=False) as stream:
        file = _open_parquet(source, stream)
        places = find_columns(source, file.schema_arrow.names, columns)
        for place in places:
            field = file.schema_arrow.field(place)
            if pa.types.is_nested(field.type):
                raise SourceError(
                    f"{source.name}: column {field.name!r} holds {field.type}; a column of texts, numbers, "
                    "booleans or times is needed: flatten it"
                )
        size = max(1, min(PARQUET_ROWS, PARQUET_CELLS // max(1, len(columns))))
        first = 1
        batches = file.iter_batches(size, columns=list(columns), use_threads=False)
        while True:
            try:
                batch = next(batches, None)
            except DAMAGED as error:
                raise SourceError(
                    f"{source.name}: damaged at or after row {first} ({error}); copy the file again"
                ) from error
            if batch is None:
                break
            rows = np.arange(first, first + batch.num_rows, dtype=np.int64)
            yield RawRows(_flatten(batch, columns), rows)
            first += batch.num_rows
        if first - 1 != file.metadata.num_rows:
            raise SourceError(
                f"{source.name}: {first - 1} rows were read of the {file.metadata.num_rows} "
                "its footer states; copy the file again"
            )


def _flatten(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Put columns in the wanted order, in types whose values the compute functions know."""
    arrays = []
    for name in columns:
        column = batch.column(name)
        if pa.types.is_null(column.type) or column.type == pa.string_view():
            column = column.cast(pa.string())
        elif column.type == pa.binary_view():
            column = column.cast(pa.binary())
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
