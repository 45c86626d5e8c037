"""Read the rows of CSV files with exact row numbers, keeping ragged rows and undecodable bytes."""

from __future__ import annotations

import csv
import io
import re
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice, zip_longest
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.csv

from pmflib.base.arrays import IntArray
from pmflib.base.errors import SourceError
from pmflib.ingest.chunks import FileChunk, RawRows, find_columns
from pmflib.ingest.csv import byte_stream
from pmflib.ingest.csv.byte_stream import (
    UNIT_SEPARATOR,
    CsvFeed,
    StreamPart,
    Utf8Stream,
    choose_separator,
    restore_bytes,
)
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.sources import DAMAGED, Source, open_source, spare_transient

DECIMAL_COMMA = r"^(\s*[+-]?[0-9]*),([0-9]+(?:[eE][+-]?[0-9]+)?\s*)$"
"""Pattern of numbers with a decimal comma."""


def restore_values(
    columns: Sequence[pa.BinaryArray], names: Sequence[str], config: SourceOptions
) -> list[pa.BinaryArray]:
    """Restore delimiters inside values, and replace decimal commas by points.

    Parameters
    ----------
    columns, names
        Binary columns of length n_rows, and their names.
    config
        Delimiter, decimal sign, and the columns of samples and variables, whose values are kept.
    """
    import pyarrow.compute as pc

    out = list(columns)
    if len(config.delimiter) > 1:
        out = [
            pc.replace_substring(each, UNIT_SEPARATOR.encode(), config.separator.encode())
            for each in out
        ]
    if config.decimal == ",":
        identifiers = {config.sample, config.variable}
        out = [
            each
            if name in identifiers
            else pc.replace_substring_regex(each, DECIMAL_COMMA.encode(), rb"\1.\2")
            for name, each in zip(names, out, strict=True)
        ]
    return out


HEADER_BYTES = 1 << 20
"""Largest size of the header, bytes."""
RELEASE_SECONDS = 10.0
"""Timeout for pyarrow's threads to finish pending reads, seconds."""

_FOREIGN = {
    b"PAR1": "a Parquet file; name it .parquet, or set source.format = 'parquet'",
    b"\x1f\x8b": "packed with gzip; name it .gz",
    b"\x28\xb5\x2f\xfd": "packed with zstd; name it .zst",
    b"\xfd7zXZ": "packed with xz; name it .xz",
    b"BZh": "packed with bzip2; name it .bz2",
    b"PK\x03\x04": "a zip archive or a spreadsheet; unpack it, or save it as CSV",
    b"\xff\xfe": "in UTF-16; set source.encoding = 'utf-16'",
    b"\xfe\xff": "in UTF-16; set source.encoding = 'utf-16'",
}


class UndecodableHeaderError(SourceError):
    """A header is not in the configured encoding."""


_BOM = b"\xef\xbb\xbf"
SEPARATOR_LINE = re.compile(r'"?sep=[^\r\n"]{1,10}"?\r?\n', re.IGNORECASE)
"""First line of files for Excel, which names the delimiter and is no header."""


def read_header(source: Source, config: SourceOptions) -> list[str]:
    """Names of the columns of a CSV file: the configured ones, or its first row.

    Raises
    ------
    SourceError
        If the file cannot be read or has no valid header.
    """
    with open_source(source) as stored:
        return _split_head(source, config, open_text(source, config, stored))[0]


def find_data(source: Source, config: SourceOptions) -> int:
    """Find the first byte after the header of a file in UTF-8 or a single-byte encoding.

    Raises
    ------
    SourceError
        If the file cannot be read or has no valid header.
    """
    with open_source(source) as stored:
        _, head, n_consumed = _split_head(source, config, open_text(source, config, stored))
    consumed = head[:n_consumed]
    return len(consumed if config.encoding == "utf-8" else consumed.decode("utf-8"))


def open_text(source: Source, config: SourceOptions, stored: IO[bytes]) -> Utf8Stream:
    """Convert an open CSV file to a stream in UTF-8 with a separator of one character.

    Raises
    ------
    SourceError
        During reading, if the file has the magic number of another format.
    """
    wide = config.encoding.startswith(("utf-16", "utf-32"))

    def check(head: bytes) -> None:
        for magic, what in _FOREIGN.items():
            if head.startswith(magic) and not (wide and "UTF-16" in what):
                raise SourceError(f"{source.name}: read as CSV, but it is {what}")

    return Utf8Stream(stored, config, check)


def read_csv_rows(
    source: Source,
    config: SourceOptions,
    columns: Sequence[str],
    chunk: FileChunk | None = None,
    *,
    follow: Callable[[Source, SourceOptions], SourceOptions] | None = None,
) -> Iterator[RawRows]:
    """Read some columns of a CSV file or a chunk of it: see `read_rows`.

    Where the header cannot be decoded, or is one column and lacks another, ``follow`` finds the options of the file.
    """
    part = None if chunk is None else chunk.bytes
    with open_source(source, check=part is None) as stored:
        stream = open_text(source, config, stored)
        separator = choose_separator(config.delimiter)
        try:
            header, head, n_consumed = _split_head(source, config, stream)
        except UndecodableHeaderError:
            if follow is None:
                raise
            header = []
        if follow is not None and len(header) < 2 and not set(columns) <= set(header):
            yield from read_csv_rows(source, follow(source, config), columns, chunk)
            return
        head = head[n_consumed:]
        indices = find_columns(source, header, columns)
        first = 0
        if chunk is not None and part is not None:
            stored.seek(part[0])
            # rows are counted from the start of the chunk, and reported from that of the file
            stream, head, first = (
                Utf8Stream(StreamPart(stored, part), config),
                b"",
                chunk.first_row - 1,
            )
        # a ragged row: unless it comes last, it is inside an unclosed quotation
        sentinel = separator * len(header) + "pmf-end-of-file"
        feed = CsvFeed(stream, head, sentinel.encode(), ord(separator))
        ragged: list[tuple[int, str]] = []
        batches = _parse(source, separator, header, indices, feed, ragged, first)
        cursor = 1
        for batch in batches:
            rows = _number_rows(cursor, batch.num_rows, ragged)
            if rows.size:
                cursor = int(rows[-1]) + 1
            before = [row for row in ragged if row[0] < cursor]
            del ragged[: len(before)]
            mangled = feed.take_mangled(cursor)
            if keep := [row not in mangled for row in rows.tolist()] if mangled else []:
                # their fields are in wrong columns, even if their number is right
                before += [(row, mangled[row]) for row in rows.tolist() if row in mangled]
                batch, rows = batch.filter(pa.array(keep)), rows[keep]
            batch = pa.RecordBatch.from_arrays(
                [restore_bytes(column) for column in batch.columns], names=list(columns)
            )
            if config.short_rows == "pad":
                batch, rows, before = _pad(batch, rows, before, separator, indices, len(header))
            restored = _restore(batch, columns, config)
            yield RawRows(restored, rows + first, _restore_ragged(before, config, first))
        if not ragged or ragged[-1][1] != sentinel:
            raise SourceError(
                f"{source.name}: a quotation mark in row {first + (ragged[-1][0] if ragged else cursor - 1)} "
                "is never closed, and the rest of the file would be its text; correct that row, or copy the file again"
            )
        n_rows = ragged[-1][0] - 1
        if chunk is not None and chunk.n_rows not in (None, n_rows):
            raise SourceError(
                f"{source.name}: {n_rows} rows from row {first + 1} on, where {chunk.n_rows} were counted before; "
                "it has changed while it was read: run again when the file is complete"
            )
        if ragged[:-1]:
            empty = pa.RecordBatch.from_arrays(
                [pa.array([], pa.binary())] * len(columns), names=list(columns)
            )
            rows, before = np.empty(0, np.int64), ragged[:-1]
            if config.short_rows == "pad":
                empty, rows, before = _pad(empty, rows, before, separator, indices, len(header))
                empty = _restore(empty, columns, config)
            yield RawRows(empty, rows + first, _restore_ragged(before, config, first))


def _parse(
    source: Source,
    delimiter: str,
    header: Sequence[str],
    indices: Sequence[int],
    feed: CsvFeed,
    ragged: list[tuple[int, str]],
    first: int,
) -> Iterator[pa.RecordBatch]:
    """Parse a feed, which ``first`` rows of the file precede."""
    names = [str(index) for index in range(len(header))]
    included = [names[index] for index in indices]

    def keep(row: pyarrow.csv.InvalidRow) -> str:
        ragged.append((row.number, byte_stream.restore_text(row.text.encode("utf-8"))))
        return "skip"

    shared = _SharedObjects()
    stream, reader = _LentStream(feed, shared), None
    shared.add(stream)
    shared.add(keep)
    done = first
    try:
        reader = pyarrow.csv.open_csv(
            stream,
            # without threads, row numbers and batches are the same everywhere
            pyarrow.csv.ReadOptions(
                use_threads=False, block_size=byte_stream.CSV_BYTES, column_names=names
            ),
            pyarrow.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=keep
            ),
            pyarrow.csv.ConvertOptions(
                include_columns=included,
                column_types=dict.fromkeys(included, pa.binary()),
                strings_can_be_null=False,
                check_utf8=False,
            ),
        )
        for batch in reader:
            yield batch
            done += batch.num_rows
    except pa.ArrowInvalid as error:
        if "straddl" not in str(error):
            raise SourceError(
                f"{source.name}: cannot be read as CSV after {done} rows ({error}); check source.delimiter"
            ) from error
        raise SourceError(
            f"{source.name}: a row after row {done + len(ragged)} does not end within {byte_stream.CSV_BYTES} bytes; "
            "is a quotation mark never closed there?"
        ) from error
    except DAMAGED as error:
        spare_transient(error)
        raise _truncated(source, error) from error
    finally:
        # threads of pyarrow release Python objects late: after the interpreter's shutdown, the process would abort
        feed.close()
        del reader, stream, keep
        shared.wait(RELEASE_SECONDS)


class _SharedObjects:
    """Python objects that threads of pyarrow hold."""

    def __init__(self) -> None:
        self._n_held = 0
        self._changed = threading.Condition()

    def add(self, lent: object) -> None:
        """Count an object until it is released."""
        with self._changed:
            self._n_held += 1
        weakref.finalize(lent, self._remove)

    def wait(self, seconds: float) -> None:
        """Wait until all are released, or for a timeout."""
        with self._changed:
            self._changed.wait_for(lambda: not self._n_held, seconds)

    def _remove(self) -> None:
        with self._changed:
            self._n_held -= 1
            self._changed.notify_all()


class _LentStream:
    """A feed for pyarrow, which counts the objects that pyarrow still holds."""

    def __init__(self, feed: CsvFeed, shared: _SharedObjects) -> None:
        def read(n_bytes: int = -1) -> np.ndarray:
            # unlike bytes, arrays support weak references; tracebacks of errors refer to the feed, not to this stream
            content = np.frombuffer(feed.read(n_bytes), np.uint8)
            shared.add(content)
            return content

        self.read, self.close, self.closed = read, feed.close, False


def _truncated(source: Source, error: BaseException) -> SourceError:
    return SourceError(
        f"{source.name}: cannot be unpacked to its end, so it was cut short or damaged ({error}); "
        "copy the file again"
    )


def _number_rows(cursor: int, n_rows: int, ragged: Sequence[tuple[int, str]]) -> IntArray:
    """Numbers of the next rows from the cursor on that are not ragged."""
    rows = np.arange(cursor, cursor + n_rows, dtype=np.int64)
    gaps = np.array([number for number, _ in ragged], np.int64)
    # each gap shifts the rows after it by one
    rows += np.searchsorted(gaps - np.arange(gaps.size), rows, side="right")
    return rows


def _split_head(
    source: Source, config: SourceOptions, stream: Utf8Stream
) -> tuple[list[str], bytes, int]:
    """Read the column names; return them, the first bytes in UTF-8, and the length of all before the data."""
    if not config.delimiter.isascii():
        raise SourceError(
            f"{source.name}: source.delimiter {config.delimiter!r} is not ASCII; write the files with a "
            "comma or a tab"
        )
    try:
        head = _read_full(stream, HEADER_BYTES)
    except DAMAGED as error:
        spare_transient(error)
        raise _truncated(source, error) from error
    whole, head = head, head.removeprefix(_BOM)
    if line := SEPARATOR_LINE.match(head[:20].decode("latin-1")):
        head = head[line.end() :]
    n_mark = len(whole) - len(head)
    if config.columns is not None:
        return list(config.columns), whole, n_mark
    used = 0

    def lines() -> Iterator[str]:
        nonlocal used
        text = io.TextIOWrapper(io.BytesIO(head), "utf-8", "surrogateescape", newline="")
        for line in text:
            used += len(line.encode("utf-8", "surrogateescape"))
            yield line

    try:
        rows = csv.reader(lines(), delimiter=choose_separator(config.delimiter))
        found = list(islice((row for row in rows if row), config.header_rows))
    except csv.Error as error:
        raise SourceError(
            f"{source.name}: its header cannot be read as CSV ({error}); check source.delimiter"
        ) from error
    if not found or len(head) == used >= HEADER_BYTES - len(_BOM):
        raise SourceError(
            f"{source.name}: no header in its first {len(head)} bytes; "
            "add one, or name the columns in source.columns"
        )
    header = join_header(found)
    try:
        [name.encode() for name in header]
    except UnicodeEncodeError:
        shown = [name.encode("utf-8", "surrogateescape") for name in header[:8]]
        raise UndecodableHeaderError(
            f"{source.name}: its header {shown} is not in the encoding {config.encoding}; set source.encoding, as to "
            "'cp1252' or 'latin-1' (pmf infer: --encoding), or save the file as UTF-8"
        ) from None
    if len(config.delimiter) > 1:
        header = [name.replace(UNIT_SEPARATOR, config.separator) for name in header]
    if config.repeated_columns == "number":
        header = number_names(header)
    return header, whole, n_mark + used


def number_names(names: Sequence[str]) -> list[str]:
    """Number the names that stand before in a header, as pandas and DuckDB do: "q", "q_1"; blank ones stay blank."""
    out: list[str] = []
    taken = {*names}
    for place, name in enumerate(names):
        if name.strip() and name in names[:place]:
            name = next(new for k in count(1) if (new := f"{name}_{k}") not in taken)
            taken.add(name)
        out.append(name)
    return out


def join_header(rows: Sequence[Sequence[str]]) -> list[str]:
    """Name the columns by the rows of a header: see `SourceOptions.header_rows`."""
    first = list(rows[0])
    if len(rows) == 1 or (all(first) and len(set(first)) == len(first)):
        return first
    groups: list[str] = []
    for name in first:
        groups.append(name.strip() or (groups[-1] if groups else ""))
    times = Counter(groups)
    return [
        f"{group}: {name}" if name.strip() and times[group] > 1 else group
        for group, name in zip_longest(groups, rows[1][: len(groups)], fillvalue="")
    ]


def _read_full(stream: Utf8Stream, n_bytes: int) -> bytes:
    parts = []
    while n_bytes > 0 and (part := stream.read(n_bytes)):
        parts.append(bytes(part))
        n_bytes -= len(part)
    return b"".join(parts)


def _restore(
    batch: pa.RecordBatch, columns: Sequence[str], config: SourceOptions
) -> pa.RecordBatch:
    """Restore delimiters and decimal signs in every column."""
    return pa.RecordBatch.from_arrays(
        restore_values(batch.columns, columns, config), names=list(columns)
    )


def _pad(
    batch: pa.RecordBatch,
    rows: IntArray,
    ragged: Sequence[tuple[int, str]],
    separator: str,
    indices: Sequence[int],
    width: int,
) -> tuple[pa.RecordBatch, IntArray, list[tuple[int, str]]]:
    """Add rows that only lack fields at their end to a batch, in order; return it, its row numbers, and the others."""
    padded: dict[int, list[str]] = {}
    for number, text in ragged:
        fields = next(csv.reader(io.StringIO(text, newline=""), delimiter=separator), [])
        # a backslash may stand for an undecodable byte; a last field that is empty was not cut
        if 1 < len(fields) < width and fields[-1].strip() and "\\x" not in text:
            padded[number] = [*fields, *[""] * (width - len(fields))]
    if not padded:
        return batch, rows, list(ragged)
    cells = [
        pa.array([fields[index].encode() for fields in padded.values()], pa.binary())
        for index in indices
    ]
    more = pa.RecordBatch.from_arrays(cells, names=batch.schema.names)
    numbers = np.concatenate([rows, np.array(list(padded), np.int64)])
    order = np.argsort(numbers)
    whole = pa.Table.from_batches([batch, more]).take(pa.array(order)).combine_chunks()
    rest = [each for each in ragged if each[0] not in padded]
    return whole.to_batches()[0], numbers[order], rest


def _restore_ragged(
    ragged: Sequence[tuple[int, str]], config: SourceOptions, first: int
) -> tuple[tuple[int, str], ...]:
    """Row numbers and original texts of ragged rows, in order."""
    ragged = [(first + row, text) for row, text in ragged]
    if len(config.delimiter) > 1:
        ragged = [(row, text.replace(UNIT_SEPARATOR, config.separator)) for row, text in ragged]
    return tuple(sorted(ragged))
