"""Text in one buffer: records of CSV found in it, and hashes of texts that lie end to end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pmflib.kernels.llvm.saved_code import compile_kernel

EMPTY = 1
PADDED = 2
"""A text that begins or ends with a byte up to 0x20: a blank or a control character."""
FOREIGN = 4
"""A text with a byte above 0x7f."""


@compile_kernel()
def hash_texts(
    data: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int32],
    hashes: npt.NDArray[np.uint64],
    marks: npt.NDArray[np.uint8],
) -> Any:
    """Hash every text, and mark those that need a second look.

    Parameters
    ----------
    data
        uint8 of shape (n_bytes,): the texts, one after the other.
    ends
        int32 of shape (n_texts + 1,): text t is ``data[ends[t]:ends[t + 1]]``.
    hashes
        uint64 of shape (n_texts,), written: FNV-1a of each text's bytes.
    marks
        uint8 of shape (n_texts,), written: sum of EMPTY, PADDED and FOREIGN where they hold.

    References
    ----------
    Fowler, Noll, Vo, Eastlake (2019), "The FNV non-cryptographic hash algorithm", 64 bits, variant 1a.
    """
    prime = np.uint64(0x100000001B3)
    for text in range(ends.size - 1):
        start, stop = ends[text], ends[text + 1]
        value = np.uint64(0xCBF29CE484222325)
        mark = np.uint8(0)
        for position in range(start, stop):
            byte = data[position]
            value = (value ^ np.uint64(byte)) * prime
            if byte > 0x7F:
                mark |= np.uint8(FOREIGN)
        if start == stop:
            mark |= np.uint8(EMPTY)
        elif data[start] <= 0x20 or data[stop - 1] <= 0x20:
            mark |= np.uint8(PADDED)
        hashes[text] = value
        marks[text] = mark


_ROW_START, _FIELD_START, _BARE, _QUOTED, _CLOSED = range(5)
N_STATES = 5
"""States in which a byte of CSV text may find its reader."""
ROW_START = _ROW_START
"""State in which no record is under way."""
_STEP = 1 << 14


@compile_kernel()
def scan_records(
    data: npt.NDArray[np.uint8],
    delimiter: int,
    found: npt.NDArray[np.int64],
) -> Any:
    """Walk over whole records, and note those with text after a closing quotation mark.

    Blank lines are no records. A quotation mark opens only at the start of a field, as in pyarrow.

    Parameters
    ----------
    data
        uint8 of shape (n_bytes,), from the start of a record on.
    delimiter
        Byte between fields.
    found
        int64 of shape (capacity, 3), written: number of records before, first byte and end of each that was noted.

    Returns
    -------
    Bytes of the records that are whole, their number, and how many were noted. The walk ends at the last whole
    record, or when ``found`` is full.
    """
    state = _ROW_START
    mangled = False
    start = n_records = n_found = 0
    for position in range(data.size):
        byte = data[position]
        if byte == 0x0A or byte == 0x0D:
            if state == _QUOTED:
                continue
            if state != _ROW_START:
                if mangled:
                    found[n_found, 0] = n_records
                    found[n_found, 1] = start
                    found[n_found, 2] = position
                    n_found += 1
                n_records += 1
            state = _ROW_START
            mangled = False
            start = position + 1
            if n_found == found.shape[0]:
                break
        elif state == _QUOTED:
            if byte == 0x22:
                state = _CLOSED
        elif state == _CLOSED:
            if byte == 0x22:
                state = _QUOTED
            elif byte == delimiter:
                state = _FIELD_START
            else:
                state = _BARE
                mangled = True
        elif byte == delimiter:
            state = _FIELD_START
        elif state != _BARE:
            state = _QUOTED if byte == 0x22 else _BARE
    return start, n_records, n_found


@compile_kernel()
def follow_records(
    data: npt.NDArray[np.uint8],
    delimiter: int,
    base: int,
    lanes: npt.NDArray[np.int64],
) -> Any:
    """Walk over a part of CSV text from every state that it may begin in, for what is before it is not known.

    Blank lines are no records. A quotation mark opens only at the start of a field, as in pyarrow. Lanes that have come
    to one state are walked as one.

    Parameters
    ----------
    data
        uint8 of shape (n_bytes,).
    delimiter
        Byte between fields.
    base
        Position of the first byte in the text.
    lanes
        int64 of shape (N_STATES, 3), one row for each state that the text began in, changed in place: the state now,
        the number of records that have ended, and the position after the first end of a line that is no part of a
        field, -1 before it is met.
    """
    before = np.empty((N_STATES, 2), np.int64)
    first = np.empty(N_STATES, np.int64)
    for start in range(0, data.size, _STEP):
        stop = min(start + _STEP, data.size)
        before[:] = lanes[:, :2]
        for lane in range(N_STATES):
            twin = lane
            for other in range(lane):
                if before[other, 0] == before[lane, 0]:
                    twin = other
                    break
            if twin < lane:
                lanes[lane, 0] = lanes[twin, 0]
                lanes[lane, 1] += lanes[twin, 1] - before[twin, 1]
                first[lane] = first[twin]
            else:
                state, n_records, line_start = lanes[lane, 0], 0, -1
                for position in range(start, stop):
                    byte = data[position]
                    if state == _QUOTED:
                        if byte == 0x22:
                            state = _CLOSED
                    elif byte == 0x0A or byte == 0x0D:
                        if state != _ROW_START:
                            n_records += 1
                        state = _ROW_START
                        if line_start < 0:
                            line_start = position + 1
                    elif byte == delimiter:
                        state = _FIELD_START
                    elif byte == 0x22:
                        if state == _CLOSED or state == _ROW_START or state == _FIELD_START:
                            state = _QUOTED
                    else:
                        state = _BARE
                lanes[lane, 0] = state
                lanes[lane, 1] += n_records
                first[lane] = line_start
            if lanes[lane, 2] < 0 and first[lane] >= 0:
                lanes[lane, 2] = base + first[lane]
