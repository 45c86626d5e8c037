"""Byte streams of CSV files for pyarrow: UTF-8, with a delimiter of one character."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import IO, Protocol

import numpy as np
import pyarrow as pa

from pmflib.ingest.options import WHITESPACE, SourceOptions

CSV_BYTES = 2 << 20
"""Size of a batch of CSV, bytes; fixed, so that results do not depend on the machine."""
MANGLED_AT_ONCE = 256
"""Largest number of rows with text after a closing quotation mark returned by one scan."""
READ_BYTES = 1 << 20
"""Chunk size for reading, bytes."""
LONGEST_LINE = 8 << 20
"""Approximate number of bytes without a line end that are buffered; no row is as long."""
UNIT_SEPARATOR = "\x1f"
"""Separator that replaces delimiters of several characters: the unit separator of ASCII."""
_ERRORS = "pmf_undecodable"


class ByteStream(Protocol):
    """A readable stream of bytes."""

    def read(self, n_bytes: int = -1, /) -> bytes:
        """Return at most the next ``n_bytes`` bytes."""
        ...


class CsvFeed:
    """Stream for pyarrow: the file without its header, decoded as Latin-1 and encoded in UTF-8, and a sentinel.

    Pyarrow decodes ragged rows as UTF-8 and fails on invalid bytes. Latin-1 characters always decode and can be mapped
    back to the original bytes. Short reads are completed, so that blocks are the same on every file system.

    Rows with text after a closing quotation mark are noted: such a mark more likely opens a field further down, so that
    the rows in between are inside one field, which is not noticed if its column is not read.
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
        """Return the next ``n_bytes`` bytes, or fewer at the end of the file; none after closing."""
        if self.closed:
            return b""
        while not self._ended and (n_bytes < 0 or len(self._ready) < n_bytes):
            part = self._stream.read(CSV_BYTES)
            self._ended = not part
            self._add(as_characters(bytes(part)) if part else self._sentinel)
        out = bytes(self._ready) if n_bytes < 0 else bytes(self._ready[:n_bytes])
        del self._ready[: len(out)]
        return out

    def close(self) -> None:
        """Close the feed, but not the stream, which its caller closes."""
        self.closed = True

    def take_mangled(self, stop: int) -> dict[int, str]:
        """Return and remove the noted rows before a row, as texts by number."""
        numbers = [number for number in list(self._mangled) if number < stop]
        return {number: self._mangled.pop(number) for number in numbers}

    def _add(self, data: bytes) -> None:
        from pmflib.ingest.kernels.texts import scan_records

        self._ready += data
        if len(self._rest) > 4 * CSV_BYTES:
            # too long for a row: pyarrow will raise an error
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
    """Decode bytes as Latin-1 and encode them in UTF-8; ASCII is unchanged."""
    return data if data.isascii() else data.decode("latin-1").encode("utf-8")


def restore_text(data: bytes) -> str:
    """Decode bytes encoded by `as_characters`; undecodable bytes are escaped with a backslash."""
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
    # bytes from 0x80 on became two, the second of which is a continuation byte
    extra = np.zeros(len(text) + 1, np.int32)
    np.cumsum((np.frombuffer(text, np.uint8) & 0xC0) == 0x80, out=extra[1:])
    ends = (ends - ends[0]) - extra[ends - ends[0]]
    restored = text.decode("utf-8").encode("latin-1")
    return pa.BinaryArray.from_buffers(
        pa.binary(),
        len(column),
        [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(restored)],
    )


def _mark_undecodable(error: UnicodeError) -> tuple[str, int]:
    """Replace undecodable bytes by 0xff, which never occurs in UTF-8, and their hexadecimal digits."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "\udcff" + "".join(f"\\x{byte:02x}" for byte in wrong), error.end


codecs.register_error(_ERRORS, _mark_undecodable)


def choose_separator(delimiter: str) -> str:
    """Single-character separator of the fields in a `Utf8Stream`."""
    return delimiter if len(delimiter) == 1 else UNIT_SEPARATOR


def separate_fields(data: bytes, delimiter: str) -> bytes:
    """Replace the delimiter in complete lines by `choose_separator`."""
    if len(delimiter) == 1:
        return data
    if delimiter != WHITESPACE:
        return data.replace(delimiter.encode(), UNIT_SEPARATOR.encode())
    data = re.sub(rb"[ \t]+", UNIT_SEPARATOR.encode(), data)
    return re.sub(rb"(?m)^\x1f|\x1f(?=\r?$)", b"", data)


class StreamPart:
    """Part of a stream.

    Parameters
    ----------
    stream
        The stream, positioned at the first byte.
    part
        Byte range [start, stop).
    """

    def __init__(self, stream: IO[bytes], part: tuple[int, int]) -> None:
        self._stream = stream
        self._left = part[1] - part[0]

    def read(self, n_bytes: int = -1) -> bytes:
        """Return the next ``n_bytes`` bytes, or fewer at the end of the part."""
        n_next = self._left if n_bytes < 0 else min(n_bytes, self._left)
        content = bytes(self._stream.read(n_next)) if n_next else b""
        self._left -= len(content)
        return content


class Utf8Stream:
    r"""Stream of a file converted to UTF-8, in bounded memory.

    Undecodable bytes become the byte 0xff and their hexadecimal digits, such as ``\xff\x81``, so that their field
    remains undecodable. Delimiters of several characters become `UNIT_SEPARATOR`, even within quotation marks: see
    `restore_values`.

    Parameters
    ----------
    stream
        The decompressed file.
    config
        Encoding and delimiter.
    check
        Called with the first bytes of the file; None for a part.
    """

    def __init__(
        self,
        stream: ByteStream,
        config: SourceOptions,
        check: Callable[[bytes], None] | None = None,
    ) -> None:
        self._stream = stream
        self._check = check
        self._decoder = (
            None
            if config.encoding == "utf-8"
            else codecs.getincrementaldecoder(config.encoding)(_ERRORS)
        )
        self._delimiter = config.delimiter
        self._ready = bytearray()
        self._rest = b""
        self._ended = False

    def read(self, n_bytes: int = -1) -> bytes:
        """Return the next ``n_bytes`` bytes, or fewer at the end of the file.

        Files that need no conversion are returned as read, perhaps in fewer bytes.
        """
        if self._decoder is None and len(self._delimiter) == 1:
            data = bytes(self._stream.read(n_bytes))
            if self._check is not None:
                self._check(data)
                self._check = None
            return data
        while not self._ended and (n_bytes < 0 or len(self._ready) < n_bytes):
            part = bytes(self._stream.read(READ_BYTES))
            if self._check is not None:
                self._check(part)
                self._check = None
            self._ended = not part
            if self._decoder is not None:
                text = self._decoder.decode(part, not part)
                part = text.encode("utf-8", "surrogateescape")
            self._ready += self._separate(part) if len(self._delimiter) > 1 else part
        out = bytes(self._ready) if n_bytes < 0 else bytes(self._ready[:n_bytes])
        del self._ready[: len(out)]
        return out

    def _separate(self, data: bytes) -> bytes:
        """Replace the delimiter in complete lines."""
        data = self._rest + data
        # neither a delimiter nor a run of blanks crosses a line end
        stop = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if self._ended or len(data) - stop > LONGEST_LINE:
            stop = len(data)
        self._rest = data[stop:]
        return separate_fields(data[:stop], self._delimiter)
