"""Some samples of a dataset, in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmflib.arrays import IntArray
from pmflib.schema import Schema
from pmflib.store.sample_blocks import BlockReference, read_block

N_BLOCKS = 16
"""Blocks that samples are taken from, spread over the dataset: sources are often sorted."""


def take_samples(
    blocks: Sequence[BlockReference], schema: Schema, n_samples: int, n_blocks: int = N_BLOCKS
) -> IntArray:
    """Read some samples of a dataset, from blocks spread over it.

    Parameters
    ----------
    blocks
        All blocks, in order.
    schema
        Variables of the dataset.
    n_samples
        Limit of the samples.
    n_blocks
        Number of blocks to read; `N_BLOCKS` at least.

    Returns
    -------
    Codes of shape (at most n_samples, n_variables), -1 missing.
    """
    filled = [block for block in blocks if block.n_rows]
    places = np.linspace(0, len(filled) - 1, min(max(n_blocks, N_BLOCKS), len(filled)))
    chosen = [filled[place] for place in np.unique(places.astype(np.int64))]
    # a few blocks may be small: the others give more
    is_all = sum(block.n_rows for block in chosen) <= n_samples
    share = n_samples if is_all else n_samples // len(chosen)
    taken = [np.empty((0, schema.n_variables), schema.code_dtype)]
    taken += [read_block(block).to_codes(schema.offsets)[:share] for block in chosen]
    return np.concatenate(taken)
