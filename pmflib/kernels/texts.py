"""Hashes of texts that lie end to end in one buffer."""

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
        for place in range(start, stop):
            byte = data[place]
            value = (value ^ np.uint64(byte)) * prime
            if byte > 0x7F:
                mark |= np.uint8(FOREIGN)
        if start == stop:
            mark |= np.uint8(EMPTY)
        elif data[start] <= 0x20 or data[stop - 1] <= 0x20:
            mark |= np.uint8(PADDED)
        hashes[text] = value
        marks[text] = mark
