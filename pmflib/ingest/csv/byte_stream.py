"""Bytes of a CSV file on their way to pyarrow: UTF-8, with one character between two fields."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import IO, Protocol

import numpy as np
import pyarrow as pa

from pmflib.ingest.options import WHITESPACE, SourceOptions

CSV_BYTES = 2 << 20
"""Bytes of CSV in a batch: fixed, so that what is written does not depend on the machine."""
MANGLED_AT_ONCE = 256
"""Rows with text after a closing quotation mark that one scan returns, at most."""
READ_BYTES = 1 << 20
"""Bytes that are read at a time."""
LONGEST_LINE = 8 << 20
"""Bytes without the end of a line that are kept back, about: no row is as long."""
UNIT_SEPARATOR = "\x1f"
"""Character between fields where the delimiter is not a single one: the "unit separator" of ASCII."""
_ERRORS = "pmf_undecodable"


class ByteStream(Protocol):
    """What bytes are read from."""

    def read(self, n_bytes: int = -1, /) -> bytes:
        """Return the next bytes: at most ``n_bytes`` of them."""
        ...


class CsvFeed:
    """Stream for pyarrow: the file without its header, each byte as the character of its number, then the sentinel.

    Pyarrow decodes the text of a ragged row as UTF-8 and fails where it is not; Latin-1 characters always decode,
    and lead back to the very bytes. Short reads are filled up, so that blocks are split alike on every file system.

    On the way, rows with text after a closing quotation mark are noted: such a mark more likely opened a field
    further down, and the rows in between are inside one field, invisible if its column is not read.
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
        """Return the next bytes: ``n_bytes`` of them, or fewer at the end of the file; none once it is closed."""
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
        """Mark the feed as closed; the caller who opened the stream closes it."""
        self.closed = True

    def take_mangled(self, stop: int) -> dict[int, str]:
        """Numbers and texts of the rows noted before a row; they are forgotten here."""
        numbers = [number for number in list(self._mangled) if number < stop]
        return {number: self._mangled.pop(number) for number in numbers}

    def _add(self, data: bytes) -> None:
        from pmflib.kernels.texts import scan_records

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


def _mark_undecodable(error: UnicodeError) -> tuple[str, int]:
    """Replace bytes that do not decode by a byte that UTF-8 never has, and their hexadecimal digits."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "\udcff" + "".join(f"\\x{byte:02x}" for byte in wrong), error.end


codecs.register_error(_ERRORS, _mark_undecodable)


def choose_separator(delimiter: str) -> str:
    """Single character between the fields of what `Utf8Stream` gives."""
    return delimiter if len(delimiter) == 1 else UNIT_SEPARATOR


def separate_fields(data: bytes, delimiter: str) -> bytes:
    """Whole lines with `choose_separator` where the delimiter was."""
    if len(delimiter) == 1:
        return data
    if delimiter != WHITESPACE:
        return data.replace(delimiter.encode(), UNIT_SEPARATOR.encode())
    data = re.sub(rb"[ \t]+", UNIT_SEPARATOR.encode(), data)
    return re.sub(rb"(?m)^\x1f|\x1f(?=\r?$)", b"", data)


class StreamPart:
    """Bytes of a stream up to a position.

    Parameters
    ----------
    stream
        The stream, at the first byte.
    part
        Position of the first byte, and of the one after the last.
    """

    def __init__(self, stream: IO[bytes], part: tuple[int, int]) -> None:
        self._stream = stream
        self._left = part[1] - part[0]

    def read(self, n_bytes: int = -1) -> bytes:
        """Return the next bytes: ``n_bytes`` of them, or fewer at the end of the part."""
        n_next = self._left if n_bytes < 0 else min(n_bytes, self._left)
        content = bytes(self._stream.read(n_next)) if n_next else b""
        self._left -= len(content)
        return content


class Utf8Stream:
    r"""Stream of a file in UTF-8, in memory that does not grow with it.

    Bytes that do not decode become the byte 0xff and their hexadecimal digits, as ``\xff\x81``, so that whoever decodes
    the field finds it undecodable. Delimiters of several characters become `UNIT_SEPARATOR`, also within quotation
    marks: see `restore_delimiters`.

    Parameters
    ----------
    stream
        The file, unpacked.
    config
        Encoding and delimiter.
    check
        Called with the first bytes of the file; None for a part of it.
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
        """Return the next bytes: ``n_bytes`` of them, or fewer at the end of the file.

        What is in that form already is returned as it is read, perhaps in fewer bytes.
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
        """Put the separator into whole lines."""
        data = self._rest + data
        # neither a delimiter nor a run of blanks goes over the end of a line
        stop = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if self._ended or len(data) - stop > LONGEST_LINE:
            stop = len(data)
        self._rest = data[stop:]
        return separate_fields(data[:stop], self._delimiter)
