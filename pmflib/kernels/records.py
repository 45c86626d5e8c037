"""Finding the records of CSV text, and those whose quotation marks do not pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pmflib.kernels.llvm.saved_code import compile_kernel

_ROW_START, _FIELD_START, _BARE, _QUOTED, _CLOSED = range(5)


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
    for place in range(data.size):
        byte = data[place]
        if byte == 0x0A or byte == 0x0D:
            if state == _QUOTED:
                continue
            if state != _ROW_START:
                if mangled:
                    found[n_found, 0] = n_records
                    found[n_found, 1] = start
                    found[n_found, 2] = place
                    n_found += 1
                n_records += 1
            state = _ROW_START
            mangled = False
            start = place + 1
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
