"""Quarantine: rows that do not fit, with their file, row number and reason."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.base.errors import StoreError
from pmflib.ingest.dataset.identifiers import read_sample_hashes
from pmflib.ingest.options import REASONS
from pmflib.schema.variable import as_text
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import Layer, list_file_steps, list_layers
from pmflib.store.file_digests import check_file, read_checked
from pmflib.store.parquet_batches import read_batches
from pmflib.store.table_files import write_file

QUARANTINE = "quarantine.parquet"
"""File of quarantined rows in the folder of the artefact that rejected them."""
QUARANTINE_HASHES = "quarantine_hashes.npy"
"""File with the hash of the sample of each quarantined row, uint64, where samples are known: rows of samples that were
assembled again are quarantined again by a later artefact."""

RejectedRow: TypeAlias = tuple[str, int, str, str | None, str]
"""Name of the file; number of the row, from 1 for the first row of data; one of ``REASONS``; column at fault, None if
it is the row as a whole; text of the row: see `raw_text`."""
QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("column", pa.string()),
        pa.field("raw", pa.string(), nullable=False),
    ]
)
"""Columns of a quarantine: see `RejectedRow`."""
SUPERSEDED_SCHEMA = pa.schema(
    [
        *QUARANTINE_SCHEMA,
        pa.field("winner_file", pa.string()),
        pa.field("winner_row", pa.int64()),
        pa.field("winner_time", pa.string()),
        pa.field("winner_agrees", pa.bool_()),
    ]
)
"""Columns of a quarantine of superseded rows: also the file, row and time of the superseding row, and whether the two
agree; null for rows that were rejected for other reasons."""
ROW_GROUP = 1 << 14
"""Number of rows of a row group, which the writer buffers."""


class QuarantineWriter:
    """Writes a quarantine as a Parquet file, in bounded memory.

    Equal calls of `add` give equal bytes. Use it as a context manager.

    Parameters
    ----------
    path
        Path of the new file.
    schema
        ``QUARANTINE_SCHEMA`` or ``SUPERSEDED_SCHEMA``.
    """

    def __init__(self, path: Path, schema: pa.Schema = QUARANTINE_SCHEMA) -> None:
        self._file = pq.ParquetWriter(path, schema, compression="zstd")
        self._schema = schema
        self._rows: list[tuple[object, ...]] = []

    def add(self, row: tuple[object, ...]) -> None:
        """Add a row: a tuple of the columns of the schema."""
        assert row[2] in REASONS, row[2]
        self._rows.append(row)
        if len(self._rows) >= ROW_GROUP:
            self._flush()

    def add_all(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Add rows: see `add`."""
        for row in rows:
            self.add(row)

    def _flush(self) -> None:
        if self._rows:
            columns = zip(*self._rows, strict=True)
            arrays = [
                pa.array(column, field.type)
                for column, field in zip(columns, self._schema, strict=True)
            ]
            self._file.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
            self._rows.clear()

    def close(self) -> None:
        """Write the remaining rows."""
        self._flush()
        self._file.close()

    def __enter__(self) -> QuarantineWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def raw_text(fields: Sequence[object], delimiter: str = ",") -> str:
    """Format a row as CSV; undecodable bytes are escaped with a backslash, None is empty."""
    if len(delimiter) > 1:
        return delimiter.join(_quote(field_text(field), delimiter) for field in fields)
    line = io.StringIO()
    # the writer quotes only the characters of its line terminator, so that this must not be empty
    csv.writer(line, delimiter=delimiter, lineterminator="\r\n").writerow(map(field_text, fields))
    return line.getvalue().removesuffix("\r\n")


def _quote(text: str, delimiter: str) -> str:
    if delimiter in text or set(text) & set('"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def field_text(value: object) -> str:
    """Format a field; undecodable bytes are escaped with a backslash, None is empty."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return "" if value is None else as_text(value)


def export_quarantine(store: Store, dataset: Reference, out: Path) -> int:
    """Write all quarantined rows of a dataset to a CSV or Parquet file: file by file, then superseded rows.

    Parameters
    ----------
    store, dataset
        The dataset.
    out
        The file; one that exists is replaced.

    Returns
    -------
    Number of rows.

    Raises
    ------
    ConfigError
        If the suffix is neither .csv nor .parquet.
    StoreError
        If a part of the dataset is not in the store, or damaged.
    """
    return write_file(out, SUPERSEDED_SCHEMA, read_quarantine(store, dataset))


def read_quarantine(store: Store, dataset: Reference) -> Iterator[pa.RecordBatch]:
    """Rejected rows of a dataset, in batches of ``SUPERSEDED_SCHEMA``: see `export_quarantine`."""
    steps = list_file_steps(store, dataset)
    for step in steps:
        yield from read_part(store.locate(step.step) / QUARANTINE, None)
    # partitions of files were listed with their files
    done = {step.step.identity for step in steps}
    for layer in list_layers(store, dataset):
        if layer.partition.identity not in done:
            yield from read_part(store.locate(layer.partition) / QUARANTINE, layer)


def read_part(path: Path, layer: Layer | None) -> Iterator[pa.RecordBatch]:
    """Read the quarantine of one artefact, without the rows of samples that are superseded in its layer.

    Raises
    ------
    StoreError
        If it is damaged.
    """
    start = 0
    try:
        check_file(path)
        file = pq.ParquetFile(path)
        kept = None
        if layer is not None and layer.superseded.size and file.metadata.num_rows:
            hashes = np.load(
                io.BytesIO(read_checked(path.with_name(QUARANTINE_HASHES))), allow_pickle=False
            )
            gone = read_sample_hashes(layer.folder)[layer.superseded]
            kept = ~np.isin(hashes, gone)
        for batch in read_batches(file, ROW_GROUP):
            stop = start + batch.num_rows
            whole = _widen(batch)
            yield whole if kept is None else whole.filter(pa.array(kept[start:stop]))
            start = stop
    except StoreError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StoreError(
            f"quarantine of {path.parent.name!r} cannot be read ({error}); run the pipeline again"
        ) from error


def _widen(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the columns of superseded rows, as nulls."""
    arrays = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in SUPERSEDED_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SUPERSEDED_SCHEMA)
