"""A first guess of the rank: singular vectors of training pairs that held-out pairs confirm."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.level_blocks import list_owners, repeat_blocks, sum_blocks

# Chosen: standard errors above zero that confirm a direction.
_CONFIRMED = 3.0


def scale_pairs(table: FloatArray | IntArray, offsets: IntArray) -> tuple[FloatArray, FloatArray]:
    """Scale pair counts so that sampling noise is alike everywhere, as correspondence analysis does.

    Parameters
    ----------
    table
        Symmetric co-occurrence counts, of shape (n_levels, n_levels); diagonal blocks are not read.
    offsets
        int64 of shape (n_variables + 1,).

    Returns
    -------
    scaled
        float64 of shape (n_levels, n_levels): P(a, b) / sqrt(P(a) P(b)) by pair of variables, with
        the pair's own single marginals; 0 where a pair was never observed.
    noise
        float64 of shape (n_levels, n_levels): variance of an entry, about one over the pair's
        support; 0 where never observed.
    """
    owners = list_owners(offsets)
    counts = np.where(owners[:, None] == owners, 0.0, table)
    # rows[a, k]: samples with level a that also hold variable k
    rows = sum_blocks(counts, offsets, axis=1)
    support = sum_blocks(rows, offsets)
    expected = rows[:, owners] * rows[:, owners].T
    scaled = np.where(expected > 0, counts / np.sqrt(np.where(expected > 0, expected, 1.0)), 0.0)
    noise = np.where(support > 0, 1.0 / np.where(support > 0, support, 1.0), 0.0)
    return scaled, noise[owners][:, owners]


def count_confirmed(
    training: FloatArray | IntArray,
    held_out: FloatArray | IntArray,
    offsets: IntArray,
    first: BoolArray,
) -> int:
    """Count the singular vectors of training pairs that held-out pairs confirm.

    Parameters
    ----------
    training, held_out
        Symmetric co-occurrence counts of shape (n_levels, n_levels), of different samples.
    offsets
        int64 of shape (n_variables + 1,).
    first
        bool of shape (n_variables,), the first side of a split of the variables; the pairs across
        make the matrix.

    Returns
    -------
    Singular directions whose value on the held-out pairs is above three standard errors: at least
    1, at most the levels of the smaller side.
    """
    side = repeat_blocks(first, offsets)
    place = np.ix_(side, ~side)
    left, _, right = np.linalg.svd(scale_pairs(training, offsets)[0][place], full_matrices=False)
    fresh, noise = (part[place] for part in scale_pairs(held_out, offsets))
    values = np.einsum("ak,ab,kb->k", left, fresh, right, optimize=True)
    variances = np.einsum("ak,ab,kb->k", left**2, noise, right**2, optimize=True)
    return max(1, int((values > _CONFIRMED * np.sqrt(variances)).sum()))
