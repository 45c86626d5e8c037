"""Read the rows of raw files in batches, with their row numbers, by a reader for each format: CSV and Parquet.

Features offer readers of other formats under the hook ``"readers"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.base.errors import SourceError
from pmflib.base.hooks import find_offers
from pmflib.ingest.chunks import FileChunk, RawRows, find_columns, find_format
from pmflib.ingest.csv.rows import UndecodableHeaderError, read_csv_rows, read_header
from pmflib.ingest.csv.sniffing import follow_file
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.sources import DAMAGED, Source, digest_source, open_source, spare_transient
from pmflib.schema.file_columns import FileColumn
from pmflib.schema.tables import find_type_fault, simplify
from pmflib.store.parquet_batches import read_batches

PARQUET_CELLS = 1 << 21
"""Number of cells of a batch of Parquet; fixed, so that results do not depend on the machine."""
PARQUET_ROWS = 1 << 17
"""Largest number of rows of a batch of Parquet."""


FREE_ROWS, ROWS_PER_BYTE = 5_000_000, 64
FREE_GROUP_BYTES, MOST_EXPANSION = 256 << 20, 1000
"""Limits of Parquet files, whose run lengths and compressed pages may state anything: up to ``FREE_ROWS`` rows, or
``ROWS_PER_BYTE`` of the file; up to ``FREE_GROUP_BYTES`` in a row group, or ``MOST_EXPANSION`` times the file. Rows of
eight answers of 1 % each, which hardly any survey has, take 1.5 bits an answer at best: 12 rows a byte."""


@dataclass(frozen=True)
class Reader:
    """Reads the files of a format.

    Parameters
    ----------
    read_names
        Names of the columns of a file, in order, given the file and its options.
    read_rows
        Batches of some columns of a file, given the file, its options, the columns, the chunk to read (None for all)
        and the columns of levels: see `read_rows`.
    read_declared
        What a file says of its columns, by their names in order; formats that say nothing have none.
    """

    read_names: Callable[[Source, SourceOptions], list[str]]
    read_rows: Callable[
        [Source, SourceOptions, Sequence[str], FileChunk | None, Sequence[str]], Iterator[RawRows]
    ]
    read_declared: Callable[[Source, SourceOptions], Mapping[str, FileColumn]] = (
        lambda source, config: MappingProxyType({})
    )


def _find_reader(source: Source, config: SourceOptions) -> Reader:
    name, offers = find_format(source, config), find_offers("readers")
    reader: Reader | None = READERS.get(name) or offers.get(name)
    if reader is None:
        raise SourceError(
            f"{source.name}: no feature of this installation reads files of format {name!r}; convert it to one of "
            f"{', '.join((*READERS, *offers))}"
        )
    return reader


def read_columns(source: Source, config: SourceOptions) -> list[str]:
    """Read the names of a file's columns.

    Raises
    ------
    SourceError
        If the file cannot be read, no reader of its format is installed, or it has no header and no columns are
        configured.
    """
    return _find_reader(source, config).read_names(source, config)


def read_declared(source: Source, config: SourceOptions) -> Mapping[str, FileColumn]:
    """Read what a file says of its columns, by their names in order; empty for CSV and Parquet.

    Raises
    ------
    SourceError
        As for `read_columns`.
    """
    return _find_reader(source, config).read_declared(source, config)


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
        Format, delimiter, and column names of CSV files without a header. A file whose header has another delimiter is
        read with its own, and its own encoding and decimal sign.
    columns
        Distinct names of the requested columns.
    on_rows
        Called with the number of rows of each batch once the caller has finished with it.
    chunk
        Part of the file to read; None reads all and checks the digest of the file.
    coded
        Columns of levels: read from Parquet as dictionaries, if they are texts, and from files of SPSS, Stata and SAS
        as the labels of their codes.

    Raises
    ------
    SourceError
        If a column is missing or duplicated, the file is truncated, damaged or of another format, a quotation mark is
        never closed, or the digest of the file differs.
    """
    for raw in _find_reader(source, config).read_rows(source, config, columns, chunk, coded):
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
    source: Source,
    config: SourceOptions,
    columns: Sequence[str],
    chunk: FileChunk | None,
    coded: Sequence[str],
) -> Iterator[RawRows]:
    with open_source(source, unpack=False) as stream:
        file = _open_parquet(source, stream)
        indices = find_columns(source, file.schema_arrow.names, columns)
        for index in indices:
            field = file.schema_arrow.field(index)
            if fault := find_type_fault(field.type, has_spans=True):
                raise SourceError(f"{source.name}: column {field.name!r} holds {fault}")
        leaves = file.metadata.schema
        paths = {leaves.column(index).path for index in range(len(leaves))}
        if dictionaries := [name for name in coded if name in paths]:
            # nested and missing columns, for which Arrow would raise a KeyError, were rejected above
            file = _open_parquet(source, stream, dictionaries)
        size = max(1, min(PARQUET_ROWS, PARQUET_CELLS // max(1, len(columns))))
        metadata, asked = file.metadata, None if chunk is None else chunk.groups
        groups = range(metadata.num_row_groups) if asked is None else asked
        first = 1 + sum(metadata.row_group(index).num_rows for index in range(groups.start))
        stop = first + sum(metadata.row_group(index).num_rows for index in groups)
        batches = read_batches(file, size, groups=groups, columns=list(columns))
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


def _read_parquet_names(source: Source, config: SourceOptions) -> list[str]:
    with open_source(source, unpack=False) as stream:
        return list(_open_parquet(source, stream).schema_arrow.names)


def _read_csv_names(source: Source, config: SourceOptions) -> list[str]:
    try:
        header = read_header(source, config)
    except UndecodableHeaderError:
        header = []
    return header if len(header) > 1 else read_header(source, follow_file(source, config))


def _read_csv_rows(
    source: Source,
    config: SourceOptions,
    columns: Sequence[str],
    chunk: FileChunk | None,
    coded: Sequence[str],
) -> Iterator[RawRows]:
    return read_csv_rows(source, config, columns, chunk, follow=follow_file)


READERS: dict[str, Reader] = {
    "csv": Reader(_read_csv_names, _read_csv_rows),
    "parquet": Reader(_read_parquet_names, _read_parquet_rows),
}
"""Readers by format, without those that features offer."""
