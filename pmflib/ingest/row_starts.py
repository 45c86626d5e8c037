"""Where rows begin in ranges of a CSV file that are looked through each on its own."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

import numpy as np

from pmflib.arrays import IntArray
from pmflib.ingest.sources import DAMAGED, Source, open_source, spare_transient

SCAN_BYTES = 4 << 20
"""Bytes that are looked through at a time."""


def is_random_access(source: Source) -> bool:
    """Whether a file can be read from any place, and not only from its beginning."""
    with open_source(source, unpack=False) as stream:
        try:
            stream.seek(source.size // 2)
        except (OSError, ValueError, NotImplementedError):
            return False
    return True


def is_bytewise(encoding: str) -> bool:
    """Whether texts in an encoding can be cut before any ASCII character: UTF-8, or a byte for a character."""
    if encoding == "utf-8":
        return True
    for byte in range(256):
        text = codecs.getincrementaldecoder(encoding)("replace").decode(bytes([byte]))
        # a byte that waits for others gives no text yet
        if len(text) != 1 or text.isascii() != (byte < 128) or (byte < 128 and text != chr(byte)):
            return False
    return True


def follow_range(item: tuple[Source, int, int], delimiter: str) -> IntArray:
    """Follow the rows of a range of bytes of a CSV file, from every state that it may begin in.

    Parameters
    ----------
    item
        The file, the first byte, and the one after the last.
    delimiter
        Character between fields.

    Returns
    -------
    int64 of shape (N_STATES, 3): see `follow_records`.
    """
    from pmflib.kernels.records import N_STATES, follow_records

    source, start, stop = item
    lanes: IntArray = np.full((N_STATES, 3), -1, np.int64)
    lanes[:, 0], lanes[:, 1] = np.arange(N_STATES), 0
    with open_source(source, unpack=False) as stream:
        try:
            stream.seek(start)
            while start < stop and (content := stream.read(min(SCAN_BYTES, stop - start))):
                part = np.frombuffer(content, np.uint8)
                follow_records(part, ord(delimiter), start, lanes)
                start += len(content)
        except DAMAGED as error:
            spare_transient(error)
            raise
    return lanes


def join_ranges(
    ranges: Sequence[tuple[int, int]], followed: Sequence[IntArray]
) -> list[tuple[int, int, int, int]]:
    """Join what was found in the ranges of a file, in order, to its pieces.

    Parameters
    ----------
    ranges
        First byte of each range and the one after its last; the first begins with the first row of data.
    followed
        What `follow_range` gives for each.

    Returns
    -------
    First byte of each piece, the one after its last, the number of its first row and of its rows. A range in which no
    row begins belongs to the piece before it.
    """
    from pmflib.kernels.records import ROW_START

    state, n_rows = ROW_START, 0
    starts: list[tuple[int, int]] = []
    for (start, stop), lanes in zip(ranges, followed, strict=True):
        now, ended, cut = lanes[state].tolist()
        if state == ROW_START:
            starts.append((start, n_rows))
        elif 0 <= cut < stop:
            starts.append((cut, n_rows + 1))
        state, n_rows = now, n_rows + ended
    n_rows += state != ROW_START
    ends = [*starts[1:], (ranges[-1][1], n_rows)]
    return [
        (start, stop, before + 1, after - before)
        for (start, before), (stop, after) in zip(starts, ends, strict=True)
    ]
