"""Bytes of a CSV file as UTF-8 with one character between two fields, whatever they are in the file."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import IO

from pmflib.config import SourceConfig
from pmflib.config.csv_options import WHITESPACE
from pmflib.ingest.csv_feed import ByteStream

READ_BYTES = 1 << 20
"""Bytes that are read at a time."""
LONGEST_LINE = 8 << 20
"""Bytes without the end of a line that are held back, about: no row is as long."""
CUT = "\x1f"
"""Character that fields are cut at where the delimiter is not a single one: the "unit separator" of ASCII."""

_ERRORS = "pmf_undecodable"


def _mark_undecodable(error: UnicodeError) -> tuple[str, int]:
    """Replace bytes that do not decode by a byte that UTF-8 never has, and their hexadecimal digits."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "\udcff" + "".join(f"\\x{byte:02x}" for byte in wrong), error.end


codecs.register_error(_ERRORS, _mark_undecodable)


def cut_character(delimiter: str) -> str:
    """Single character between the fields of what `Utf8Stream` gives."""
    return delimiter if len(delimiter) == 1 else CUT


def cut_lines(data: bytes, delimiter: str) -> bytes:
    """Whole lines with `cut_character` where the delimiter was."""
    if len(delimiter) == 1:
        return data
    if delimiter != WHITESPACE:
        return data.replace(delimiter.encode(), CUT.encode())
    data = re.sub(rb"[ \t]+", CUT.encode(), data)
    return re.sub(rb"(?m)^\x1f|\x1f(?=\r?$)", b"", data)


class StreamPart:
    """Bytes of a stream up to a place.

    Parameters
    ----------
    stream
        The stream, at the first byte.
    part
        Place of the first byte, and of the one after the last.
    """

    def __init__(self, stream: IO[bytes], part: tuple[int, int]) -> None:
        self._stream = stream
        self._left = part[1] - part[0]

    def read(self, n_bytes: int = -1) -> bytes:
        """Return the next bytes: ``n_bytes`` of them, or fewer at the end of the part."""
        wanted = self._left if n_bytes < 0 else min(n_bytes, self._left)
        content = bytes(self._stream.read(wanted)) if wanted else b""
        self._left -= len(content)
        return content


class Utf8Stream:
    r"""Stream of a file in UTF-8, in memory that does not grow with it.

    Bytes that do not decode become the byte 0xff and their hexadecimal digits, as ``\xff\x81``, so that whoever decodes
    the field finds it undecodable. Delimiters of several characters become `CUT`, also within quotation marks: see
    `restore_delimiters`.

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
        config: SourceConfig,
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

        What is in the wanted form is passed on as it is read, perhaps in fewer bytes.
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
            self._ready += self._cut(part) if len(self._delimiter) > 1 else part
        out = bytes(self._ready) if n_bytes < 0 else bytes(self._ready[:n_bytes])
        del self._ready[: len(out)]
        return out

    def _cut(self, data: bytes) -> bytes:
        """Put the cutting character into whole lines."""
        data = self._rest + data
        # neither a delimiter nor a run of blanks goes over the end of a line
        stop = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if self._ended or len(data) - stop > LONGEST_LINE:
            stop = len(data)
        self._rest = data[stop:]
        return cut_lines(data[:stop], self._delimiter)
