"""What one Dask task does with a group of blocks: functions of references or of loaded blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.blocks import Block
from pmflib.em.duplicates import merge_duplicates
from pmflib.em.members import merge_each, merge_scores
from pmflib.em.statistics import EMStatistics, ScoreBlock, em_statistics, take_logs
from pmflib.store.sample_blocks import BlockReference, read_blocks

Group: TypeAlias = Sequence[BlockReference] | Sequence[Block]
"""Blocks, or where they are."""


def iterate_distinct(group: Group) -> Iterator[Block]:
    """Blocks of a group one at a time; equal rows of those that are read are merged where that pays.

    Whether blocks are kept in memory or read again for every pass must not change the result: they are merged either
    way, and loaded blocks are taken as they are.
    """
    read = read_blocks(item for item in group if isinstance(item, BlockReference))
    yield from map(merge_duplicates, read)
    yield from (item for item in group if not isinstance(item, BlockReference))


def load_group(group: Sequence[BlockReference]) -> list[Block]:
    """Read all blocks of a group, for EM: equal rows are merged where that pays."""
    return list(iterate_distinct(group))


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
