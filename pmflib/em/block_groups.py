"""What one Dask task does with a group of blocks: functions of references or of loaded blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import Block
from pmflib.counting.adding import add_blocks
from pmflib.model import JointPMF
from pmflib.model.evaluation import HeldOutScores, choose_hidden, score_hidden
from pmflib.store.sample_blocks import BlockReference, read_blocks

Group: TypeAlias = Sequence[BlockReference] | Sequence[Block]
"""Blocks, or where they are."""


def iterate_blocks(group: Group) -> Iterator[Block]:
    """Blocks of a group, one at a time; references are read as they come."""
    yield from read_blocks(item for item in group if isinstance(item, BlockReference))
    yield from (item for item in group if not isinstance(item, BlockReference))


def count_group(group: Group, offsets: IntArray) -> IntArray:
    """Pair counts of a group: int64 of shape (n_levels, n_levels), upper triangle."""
    table = np.zeros((int(offsets[-1]),) * 2, np.int64)
    add_blocks(iterate_blocks(group), offsets, table)
    return table


def merge_tables(parts: Sequence[IntArray]) -> IntArray:
    """Sum of count tables, at least one; the parts stay as they are."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def score_group(
    group: Sequence[BlockReference], model: JointPMF, baseline: FloatArray, share: float, seed: int
) -> HeldOutScores:
    """Held-out scores of a group; a cell is hidden by its place in its partition, whoever asks."""
    parts = []
    for reference, block in zip(group, read_blocks(group), strict=True):
        codes = block.to_codes(model.schema.offsets)
        # a partition's folder is named by its digest
        key = int(Path(reference.path).parent.name[:12], 16) ^ seed
        hidden = choose_hidden(codes, np.arange(reference.start, reference.stop), share, key)
        parts.append(score_hidden(codes, hidden, model, baseline))
    return HeldOutScores.merge(parts)
