"""Bytes of a CSV file on their way to pyarrow."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

CSV_BYTES = 2 << 20
"""Bytes of CSV in a batch: fixed, so that what is written does not depend on the machine."""
MANGLED_AT_ONCE = 256
"""Rows with text after a closing quotation mark that one scan returns, at most."""


class ByteStream(Protocol):
    """What bytes are read from."""

    def read(self, n_bytes: int = -1, /) -> bytes:
        """Return the next bytes: at most ``n_bytes`` of them."""
        ...


class CsvFeed:
    """Stream for pyarrow: the file without its header, each byte as the character of its number, then the sentinel.

    Pyarrow decodes the text of a ragged row as UTF-8 and fails where it is not; Latin-1 characters always decode,
    and lead back to the very bytes. Short reads are filled up, so that blocks are cut alike on every file system.

    On the way, rows with text after a closing quotation mark are noted: such a mark more likely opened a field
    further down, and the rows in between are inside one field, invisible if its column is not wanted.
    """

    closed = False

    def __init__(self, stream: ByteStream, head: bytes, sentinel: bytes, delimiter: int) -> None:
        self._stream = stream
        self._ready = bytearray()
        self._delimiter = delimiter
        self._n_rows = 0
        self._rest = b""
        self._mangled: dict[int, str] = {}
        self._add(as_characters(head))
        self._sentinel = b"\n" + sentinel
        self._ended = False

    def read(self, n_bytes: int = -1) -> bytes:
        """Return the next bytes: ``n_bytes`` of them, or fewer at the end of the file."""
        while not self._ended and (n_bytes < 0 or len(self._ready) < n_bytes):
            part = self._stream.read(CSV_BYTES)
            self._ended = not part
            self._add(as_characters(bytes(part)) if part else self._sentinel)
        out = bytes(self._ready) if n_bytes < 0 else bytes(self._ready[:n_bytes])
        del self._ready[: len(out)]
        return out

    def close(self) -> None:
        """Mark the feed as closed; the caller who opened the stream closes it."""
        self.closed = True

    def take_mangled(self, stop: int) -> dict[int, str]:
        """Numbers and texts of the rows noted before a row; they are forgotten here."""
        numbers = [number for number in list(self._mangled) if number < stop]
        return {number: self._mangled.pop(number) for number in numbers}

    def _add(self, data: bytes) -> None:
        from pmflib.kernels.records import scan_records

        self._ready += data
        if len(self._rest) > 4 * CSV_BYTES:
            # no row is as long: pyarrow will raise an error
            return
        data = self._rest + data
        found = np.empty((MANGLED_AT_ONCE, 3), np.int64)
        done, n_found = 0, MANGLED_AT_ONCE
        while n_found == MANGLED_AT_ONCE:
            part = np.frombuffer(data, np.uint8)[done:]
            stop, n_records, n_found = scan_records(part, self._delimiter, found)
            for before, start, end in found[:n_found].tolist():
                text = restore_text(data[done + start : done + end])
                self._mangled[self._n_rows + before + 1] = text
            self._n_rows += n_records
            done += stop
        self._rest = data[done:]


def as_characters(data: bytes) -> bytes:
    """Each byte as the character of its number, in UTF-8; ASCII stays as it is."""
    return data if data.isascii() else data.decode("latin-1").encode("utf-8")


def restore_text(data: bytes) -> str:
    """Text of bytes that went through `as_characters`; bytes that are not UTF-8 are escaped with a backslash."""
    return data.decode("utf-8").encode("latin-1").decode("utf-8", "backslashreplace")


def restore_bytes(column: pa.BinaryArray) -> pa.BinaryArray:
    """Undo `as_characters` in every value of a column."""
    _, offsets, data = column.buffers()
    if data is None:
        return column
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    text = memoryview(data)[int(ends[0]) : int(ends[-1])].tobytes()
    if text.isascii():
        return column
    # a byte of 0x80 and above became two: the second of each pair is a continuation byte
    extra = np.zeros(len(text) + 1, np.int32)
    np.cumsum((np.frombuffer(text, np.uint8) & 0xC0) == 0x80, out=extra[1:])
    ends = (ends - ends[0]) - extra[ends - ends[0]]
    restored = text.decode("utf-8").encode("latin-1")
    return pa.BinaryArray.from_buffers(
        pa.binary(),
        len(column),
        [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(restored)],
    )
