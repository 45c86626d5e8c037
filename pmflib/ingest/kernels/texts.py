"""CSV text in a byte buffer: finding records, and hashing concatenated texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pmflib.base.compiled.saved_code import compile_kernel

EMPTY = 1
PADDED = 2
"""Mark of a text that begins or ends with a byte up to 0x20: a blank or a control character."""
FOREIGN = 4
"""Mark of a text with a byte above 0x7f."""


@compile_kernel()
def hash_texts(
    data: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int32],
    hashes: npt.NDArray[np.uint64],
    marks: npt.NDArray[np.uint8],
) -> Any:
    """Hash every text, and mark texts that need further treatment.

    Parameters
    ----------
    data
        uint8 of shape (n_bytes,): the concatenated texts.
    ends
        int32 of shape (n_texts + 1,): text t is ``data[ends[t]:ends[t + 1]]``.
    hashes
        uint64 of shape (n_texts,), written: FNV-1a of each text's bytes.
    marks
        uint8 of shape (n_texts,), written: sum of the marks EMPTY, PADDED and FOREIGN that apply.

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
"""Number of parser states in CSV text."""
ROW_START = _ROW_START
"""State between records."""
_STEP = 1 << 14


@compile_kernel()
def scan_records(
    data: npt.NDArray[np.uint8],
    delimiter: int,
    found: npt.NDArray[np.int64],
) -> Any:
    """Scan complete records, and note those with text after a closing quotation mark.

    Blank lines are not records. A quotation mark opens a field only at its start, as in pyarrow.

    Parameters
    ----------
    data
        uint8 of shape (n_bytes,), starting at the beginning of a record.
    delimiter
        Byte between fields.
    found
        int64 of shape (capacity, 3), written: for each noted record, the number of records before it, its first byte
        and its end.

    Returns
    -------
    Length in bytes of the complete records, their number, and how many were noted. The scan ends at the last complete
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
    """Scan a part of CSV text from every possible initial state, since the text before it is unknown.

    Blank lines are not records. A quotation mark opens a field only at its start, as in pyarrow. Lanes that reach the
    same state are merged.

    Parameters
    ----------
    data
        uint8 of shape (n_bytes,).
    delimiter
        Byte between fields.
    base
        Position of the first byte in the text.
    lanes
        int64 of shape (N_STATES, 3), one row per initial state, changed in place: the current state, the number of
        records completed, and the position after the first line end outside a quoted field, -1 until it is found.
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
