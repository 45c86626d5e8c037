"""Pair counts the slow, obvious way."""

import numpy as np

from pmflib.base import IntArray


def count_slowly(codes: IntArray, offsets: IntArray) -> IntArray:
    """Upper triangle by a loop over pairs of variables and rows."""
    table = np.zeros((offsets[-1],) * 2, np.int64)
    for left in range(offsets.size - 1):
        for right in range(left, offsets.size - 1):
            both = (codes[:, left] >= 0) & (codes[:, right] >= 0)
            a = offsets[left] + codes[both, left].astype(np.int64)
            b = offsets[right] + codes[both, right].astype(np.int64)
            for x, y in zip(a.tolist(), b.tolist(), strict=True):
                table[x, y] += 1
    return table


def draw_codes(
    n_rows: int, cardinalities: list[int], share: float, seed: int
) -> tuple[IntArray, IntArray]:
    """Random codes, observed with probability ``share``, and offsets; level 0 is the most frequent."""
    rng = np.random.default_rng(seed)
    dtype = np.int8 if max(cardinalities) <= 127 else np.int16
    columns = [
        rng.integers(0, rng.integers(1, size, n_rows, endpoint=True)) for size in cardinalities
    ]
    codes: IntArray = np.stack(columns, axis=1).astype(dtype)
    codes[rng.random(codes.shape) >= share] = -1
    return codes, np.concatenate([[0], np.cumsum(cardinalities)]).astype(np.int64)
