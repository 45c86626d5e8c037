import numpy as np
import pytest

from pmflib.counts.kernels import replicate_sums
from pmflib.counts.kernels.replicate_sums import add_replicates


def add_slowly(codes, changes, offsets):
    tables = np.zeros((changes.shape[1], offsets[-1], offsets[-1]), np.int64)
    for row, change in zip(codes.tolist(), changes, strict=True):
        held = [offsets[v] + code for v, code in enumerate(row) if code >= 0]
        for place, a in enumerate(held):
            for b in held[place:]:
                tables[:, a, b] += change
    return tables


@pytest.mark.parametrize("sizes", [[2], [3, 1, 4, 20, 5], [2] * 17, [150, 3, 130], [600, 2]])
@pytest.mark.parametrize("n_replicates", [1, 8, 11])
@pytest.mark.parametrize("n_rows", [1, 300])
def test_add_replicates__sums_are_those_of_a_loop(sizes, n_replicates, n_rows, monkeypatch):
    monkeypatch.setattr(replicate_sums, "JOINED_ROWS", 128)
    rng = np.random.default_rng(n_rows + n_replicates)
    codes = rng.integers(0, sizes, (n_rows, len(sizes))).astype(np.int16)
    codes[rng.random(codes.shape) < 0.1] = -1
    # the first column is complete in the first rows alone
    codes[:200, 0] = np.abs(codes[:200, 0])
    changes = rng.integers(-(1 << 50), 1 << 50, (n_rows, n_replicates))
    changes[rng.random(n_rows) < 0.3, :8] = 0
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    found = np.full((n_replicates, offsets[-1], offsets[-1]), 7, np.int64)
    add_replicates(codes, changes, offsets, found)
    assert (found - 7 == add_slowly(codes, changes, offsets)).all()
