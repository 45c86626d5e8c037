"""Rows of a raw file, batch by batch, each with its number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.config import SourceConfig
from pmflib.errors import SourceError
from pmflib.ingest.csv_rows import read_csv_rows, read_header
from pmflib.ingest.parquet_columns import check_type, simplify
from pmflib.ingest.pieces import Piece
from pmflib.ingest.raw_rows import RawRows, find_columns
from pmflib.ingest.sources import DAMAGED, Source, digest_source, open_source, spare_transient

PARQUET_CELLS = 1 << 21
"""Cells of a batch read from Parquet: fixed, so that what is written does not depend on the machine."""
PARQUET_ROWS = 1 << 17
"""Rows of a batch read from Parquet, at most."""


def is_parquet(source: Source, config: SourceConfig) -> bool:
    """Whether a file is read as Parquet: by the configured format, or else by its name."""
    if config.format == "auto":
        return source.name.lower().endswith((".parquet", ".pq"))
    return config.format == "parquet"


def read_columns(source: Source, config: SourceConfig) -> list[str]:
    """Names of a file's columns, in their order in the file.

    Raises
    ------
    SourceError
        If the file cannot be read, or has no header and none is configured.
    """
    if is_parquet(source, config):
        with open_source(source, unpack=False) as stream:
            return list(_open_parquet(source, stream).schema_arrow.names)
    return read_header(source, config)


def read_rows(
    source: Source,
    config: SourceConfig,
    columns: Sequence[str],
    *,
    on_rows: Callable[[int], None] | None = None,
    piece: Piece | None = None,
    coded: Sequence[str] = (),
) -> Iterator[RawRows]:
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
    on_rows
        Called with the number of rows of each batch, once the caller has dealt with it.
    piece
        Part of the file that is read; None reads all. The digest of a file is checked where all of it is read.
    coded
        Columns whose texts, in a Parquet file, are read as a dictionary and its indices: each distinct text is decoded
        once. For columns of few distinct texts.

    Raises
    ------
    SourceError
        If a column is absent or there twice, the file is cut short, damaged or of another format, a quotation mark
        is never closed, or the bytes are not those of the source's digest.
    """
    if is_parquet(source, config):
        batches = _read_parquet_rows(
            source, columns, None if piece is None else piece.groups, coded
        )
    else:
        batches = read_csv_rows(source, config, columns, piece)
    for raw in batches:
        yield raw
        if on_rows is not None:
            on_rows(raw.batch.num_rows + len(raw.ragged))


def _open_parquet(
    source: Source, stream: object, dictionaries: Sequence[str] = ()
) -> pq.ParquetFile:
    """Open a file; texts of some columns are read with a dictionary, each distinct one once."""
    try:
        return pq.ParquetFile(stream, pre_buffer=False, read_dictionary=list(dictionaries))
    except DAMAGED as error:
        spare_transient(error)
        raise SourceError(
            f"{source.name}: is no readable Parquet file, or was cut short ({error}); "
            "copy it again, or set source.format"
        ) from error


def count_group_rows(source: Source) -> list[int]:
    """Number of rows of each row group of a Parquet file.

    Raises
    ------
    SourceError
        If the file cannot be read.
    """
    with open_source(source, unpack=False) as stream:
        metadata = _open_parquet(source, stream).metadata
        return [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]


def _read_parquet_rows(
    source: Source, columns: Sequence[str], groups: range | None, coded: Sequence[str]
) -> Iterator[RawRows]:
    with open_source(source, unpack=False) as stream:
        file = _open_parquet(source, stream)
        places = find_columns(source, file.schema_arrow.names, columns)
        for place in places:
            field = file.schema_arrow.field(place)
            try:
                check_type(field.name, field.type)
            except SourceError as error:
                raise SourceError(f"{source.name}: {error}") from None
        leaves = file.metadata.schema
        paths = {leaves.column(place).path for place in range(len(leaves))}
        if dictionaries := [name for name in coded if name in paths]:
            # columns that are nested or not there have been refused by now: Arrow would end with a KeyError
            file = _open_parquet(source, stream, dictionaries)
        size = max(1, min(PARQUET_ROWS, PARQUET_CELLS // max(1, len(columns))))
        metadata, asked = file.metadata, groups
        groups = range(metadata.num_row_groups) if groups is None else groups
        first = 1 + sum(metadata.row_group(place).num_rows for place in range(groups.start))
        stop = first + sum(metadata.row_group(place).num_rows for place in groups)
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
            yield RawRows(_simplify(batch, columns), rows)
            first += batch.num_rows
        if first != stop:
            raise SourceError(
                f"{source.name}: its rows end at {first - 1}, and its footer states {stop - 1}; copy the file again"
            )
    if source.digest and asked is None:
        # Parquet is not read from its first byte to its last
        source.check(digest_source(source))


def _simplify(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Put columns in the wanted order, in types that the compute functions accept."""
    arrays = [simplify(batch.column(name)) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
