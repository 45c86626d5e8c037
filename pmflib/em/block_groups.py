"""What one Dask task does with a group of blocks: functions of references or of loaded blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.blocks import Block
from pmflib.counting.adding import add_blocks
from pmflib.em.duplicates import merge_duplicates
from pmflib.em.members import merge_each, merge_scores
from pmflib.em.statistics import EMStatistics, ScoreBlock, em_statistics, take_logs
from pmflib.model import JointPMF
from pmflib.model.evaluation import HeldOutScores, choose_hidden, score_hidden
from pmflib.store.sample_blocks import BlockReference, read_blocks

Group: TypeAlias = Sequence[BlockReference] | Sequence[Block]
"""Blocks, or where they are."""


def iterate_blocks(group: Group) -> Iterator[Block]:
    """Blocks of a group, one at a time; references are read as they come."""
    yield from read_blocks(item for item in group if isinstance(item, BlockReference))
    yield from (item for item in group if not isinstance(item, BlockReference))


def iterate_distinct(group: Group) -> Iterator[Block]:
    """Blocks of a group as `iterate_blocks`, equal rows of those that are read merged where that pays.

    Whether blocks are kept in memory or read again for every pass must not change the result: they are merged either
    way, and loaded blocks are taken as they are.
    """
    read = read_blocks(item for item in group if isinstance(item, BlockReference))
    yield from map(merge_duplicates, read)
    yield from (item for item in group if not isinstance(item, BlockReference))


def load_group(group: Sequence[BlockReference]) -> list[Block]:
    """Read all blocks of a group, for EM: equal rows are merged where that pays."""
    return list(iterate_distinct(group))


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


def run_e_step(group: Group, offsets: IntArray, models: Sequence[Parameters]) -> list[EMStatistics]:
    """Sufficient statistics of a group under each of several models; the blocks are read once."""
    logs = [take_logs(*model) for model in models]
    return merge_each(
        [[em_statistics(block, offsets, *log) for log in logs] for block in iterate_distinct(group)]
    )


def judge_group(
    group: Group,
    offsets: IntArray,
    score: ScoreBlock,
    models: Sequence[Parameters],
    target: int | None,
) -> FloatArray:
    """Sums of the scores of a group."""
    logs = [take_logs(*model) for model in models]
    return merge_scores([score(block, offsets, logs, target) for block in iterate_distinct(group)])


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
