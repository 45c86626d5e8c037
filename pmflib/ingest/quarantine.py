"""Rows that do not fit, kept with their file, their number in it and the reason."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.schema.variable import as_text

QUARANTINE = "quarantine.parquet"
"""Rejected rows, in the folder of the step that rejected them."""
QUARANTINE_HASHES = "quarantine_hashes.npy"
"""Hash of the sample of each rejected row, uint64, in the folder of a step that knew it: rows of superseded samples are
rejected by a later step once more."""

REASONS = (
    "ragged",
    "undecodable",
    "no_sample",
    "unknown_variable",
    "bad_time",
    "unknown_level",
    "duplicate",
)
"""Why a row is in quarantine; a row that fails in several ways has the first of these that holds: too few or too
many fields, or text after a closing quotation mark; bytes that are not UTF-8; no sample identifier; a variable the
schema lacks; a time that does not read; a value that is no level; an answer that another one of the same sample
supersedes."""

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
ROW_GROUP = 1 << 14
"""Rows of a row group: what the writer holds in memory."""


class QuarantineWriter:
    """Writes a quarantine as one Parquet file, in memory that does not grow with it.

    Equal calls of `add` give equal bytes. Use it in a ``with`` block.

    Parameters
    ----------
    path
        The new file.
    """

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetWriter(path, QUARANTINE_SCHEMA, compression="zstd")
        self._rows: list[tuple[str, int, str, str | None, str]] = []

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
        self.add_all([file], [row], reason, column, [raw])

    def add_all(
        self,
        files: Sequence[str],
        rows: Sequence[int],
        reason: str,
        column: str | None,
        raws: Sequence[str],
    ) -> None:
        """Keep several rows with the same reason and column; see `add`."""
        assert reason in REASONS, reason
        for place in range(0, len(files), ROW_GROUP):
            part = slice(place, place + ROW_GROUP)
            self._rows.extend(
                zip(
                    files[part],
                    rows[part],
                    repeat(reason),
                    repeat(column),
                    raws[part],
                    strict=False,
                )
            )
            if len(self._rows) >= ROW_GROUP:
                self._flush()

    def _flush(self) -> None:
        if self._rows:
            columns = zip(*self._rows, strict=True)
            arrays = [
                pa.array(column, field.type)
                for column, field in zip(columns, QUARANTINE_SCHEMA, strict=True)
            ]
            self._file.write_table(pa.Table.from_arrays(arrays, schema=QUARANTINE_SCHEMA))
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
