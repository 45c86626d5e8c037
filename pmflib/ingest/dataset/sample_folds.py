"""Folds of samples: by a hash of the sampling unit, of the identifier, or of the file and the row number."""

from __future__ import annotations

import hashlib

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.hashing import HashArray, mix_hashes


def seed_file(name: str) -> int:
    """Return the seed of the hashes of a file's row numbers, from its name.

    Equal rows of different files get unrelated folds, and a file that has grown keeps its folds, so that no model is
    evaluated on rows that an earlier one was fitted to.
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])


def hash_samples(hashes: HashArray, units: IntArray | None) -> HashArray:
    """Return the hash of each sample that decides its fold.

    Parameters
    ----------
    hashes
        Hashes of the identifiers or, without these, of the row numbers with the seed of the file, uint64 (n_rows,).
    units
        Hashes of strata and sampling units, int64 (n_rows, 2), which replace them; None without units.
    """
    return hashes if units is None else mix_hashes(units[:, 1].view(np.uint64))


def find_folds(hashes: HashArray, n_folds: int) -> IntArray:
    """Return the fold of each sample from its hash, int64 (n_rows,), in [0, n_folds)."""
    return (hashes % np.uint64(n_folds)).astype(np.int64)
