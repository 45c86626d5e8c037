"""Stable 64-bit hashes: identical on every machine, in every process and version."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

HashArray: TypeAlias = npt.NDArray[np.uint64]


def mix_hashes(keys: npt.NDArray[Any], seed: int = 0) -> HashArray:
    """Mix integers so that their low bits are pseudo-random.

    Parameters
    ----------
    keys
        Integers of any shape.
    seed
        Integer in [0, 2**64); different seeds give unrelated hashes.

    Returns
    -------
    uint64 of the same shape.

    References
    ----------
    Steele, Lea, Flood (2014), "Fast splittable pseudorandom number generators": the splitmix64 finaliser.
    """
    with np.errstate(over="ignore"):
        z = keys.astype(np.uint64) + np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def assign_folds(keys: npt.NDArray[Any], n_folds: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Assign samples to folds by hashing their keys, so that folds are exchangeable even if the data are sorted.

    Parameters
    ----------
    keys
        Integers of shape (n_rows,): row numbers, or hashes of identifiers.
    n_folds
        Number of folds, at least 1.
    seed
        Integer in [0, 2**64).

    Returns
    -------
    int64 of shape (n_rows,), in [0, n_folds).
    """
    return (mix_hashes(keys, seed) % np.uint64(n_folds)).astype(np.int64)
