"""Rows that do not fit, kept with their file, their number in it and the reason."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.core.errors import StoreError
from pmflib.ingest.dataset.identifiers import read_sample_hashes
from pmflib.ingest.options import REASONS
from pmflib.schema.variable import as_text
from pmflib.store.artefacts import Reference, Store
from pmflib.store.caches import find_local_path
from pmflib.store.dataset import Layer, list_file_steps, list_layers
from pmflib.store.file_digests import check_file, read_checked
from pmflib.store.table_files import write_file

QUARANTINE = "quarantine.parquet"
"""Rejected rows, in the folder of the step that rejected them."""
QUARANTINE_HASHES = "quarantine_hashes.npy"
"""Hash of the sample of each rejected row, uint64, in the folder of a step that knew it: rows of superseded samples are
rejected by a later step once more."""

QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("column", pa.string()),
        pa.field("raw", pa.string(), nullable=False),
    ]
)
"""Columns of a quarantine: see `QuarantineWriter.add`."""
SUPERSEDED_SCHEMA = pa.schema(
    [
        *QUARANTINE_SCHEMA,
        pa.field("winner_file", pa.string()),
        pa.field("winner_row", pa.int64()),
        pa.field("winner_time", pa.string()),
        pa.field("winner_agrees", pa.bool_()),
    ]
)
"""Columns of a quarantine of rows that others supersede: also the file and row of the one that did, its time where rows
have one, and whether it says the same. Null for rows that are rejected for another reason."""
ROW_GROUP = 1 << 14
"""Rows of a row group: what the writer holds in memory."""


class QuarantineWriter:
    """Writes a quarantine as one Parquet file, in memory that does not grow with it.

    Equal calls of `add` give equal bytes. Use it in a ``with`` block.

    Parameters
    ----------
    path
        The new file.
    schema
        ``QUARANTINE_SCHEMA``, or ``SUPERSEDED_SCHEMA`` where rows are superseded.
    """

    def __init__(self, path: Path, schema: pa.Schema = QUARANTINE_SCHEMA) -> None:
        self._file = pq.ParquetWriter(path, schema, compression="zstd")
        self._schema = schema
        self._rows: list[tuple[object, ...]] = []

    def add(self, file: str, row: int, reason: str, column: str | None, raw: str) -> None:
        """Keep a row.

        Parameters
        ----------
        file
            Name of the source.
        row
            Number of the row in it; 1 is the first row of data.
        reason
            One of ``REASONS``.
        column
            Column at fault, None where it is the row as a whole.
        raw
            The row's text: see `raw_text`.
        """
        self.add_all([(file, row, reason, column, raw)])

    def add_all(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Keep several rows, each a tuple of the columns of the schema; see `add`."""
        for row in rows:
            assert row[2] in REASONS, row[2]
            self._rows.append(row)
            if len(self._rows) >= ROW_GROUP:
                self._flush()

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
        """Write what is left."""
        self._flush()
        self._file.close()

    def __enter__(self) -> QuarantineWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def raw_text(fields: Sequence[object], delimiter: str = ",") -> str:
    """Write one row as CSV from its fields; bytes that are not UTF-8 are escaped with a backslash, None is empty."""
    if len(delimiter) > 1:
        return delimiter.join(_quote(field_text(field), delimiter) for field in fields)
    line = io.StringIO()
    # the writer quotes the characters of its line terminator: with an empty one, it would not quote a newline
    csv.writer(line, delimiter=delimiter, lineterminator="\r\n").writerow(map(field_text, fields))
    return line.getvalue().removesuffix("\r\n")


def _quote(text: str, delimiter: str) -> str:
    if delimiter in text or set(text) & set('"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def field_text(value: object) -> str:
    """Text of one field; bytes that are not UTF-8 are escaped with a backslash, None is empty."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return "" if value is None else as_text(value)


def export_quarantine(store: Store, dataset: Reference, out: Path) -> int:
    """Write all rejected rows of a dataset into one file, CSV or Parquet by its suffix: file by file, then duplicates.

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
    """Read the quarantine of one step, but rows of the samples that are superseded in the layer that it made.

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
            gone = read_sample_hashes(find_local_path(layer.path))[layer.superseded]
            kept = ~np.isin(hashes, gone)
        for batch in file.iter_batches(ROW_GROUP, use_threads=False):
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
    """Give rows that nothing has superseded the columns of those that are."""
    arrays = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in SUPERSEDED_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SUPERSEDED_SCHEMA)
