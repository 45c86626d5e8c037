"""Groups of consecutive blocks, each worth one task of Dask."""

from __future__ import annotations

from collections.abc import Sequence

from pmflib.store.sample_blocks import BlockReference

MIN_GROUP = 1 << 22
"""Least observed cells in a group of blocks: about ten milliseconds of an EM pass; a task costs Dask one to three."""
MAX_GROUP = 1 << 26
"""Most observed cells in a group of blocks: about a second of an EM pass."""
WANTED_GROUPS = 64
"""Number of groups between these two limits: all threads work, and each group costs one task."""
COUNTING_COARSENESS = 4
"""Coarseness of groups to count: counting is quicker than an EM pass, and several folds are counted at a time."""
BLOCK_COST = 1 << 15
"""Cost of opening a block, in observed cells."""


def group_blocks(
    blocks: Sequence[BlockReference], coarseness: int = 1
) -> list[list[BlockReference]]:
    """Put consecutive blocks together until a group is worth a task.

    The groups depend on the blocks alone, never on the workers: floating-point sums over them are the same bits
    wherever they run.

    Parameters
    ----------
    blocks
        In the order of the dataset.
    coarseness
        Factor by which groups may be larger than those of an EM pass.

    Returns
    -------
    Groups in order; none for no blocks.
    """
    target = _choose_size(weigh_blocks(blocks), coarseness)
    groups: list[list[BlockReference]] = []
    filled = target
    for block in blocks:
        if filled >= target:
            groups.append([])
            filled = 0
        groups[-1].append(block)
        filled += block.n_observed + BLOCK_COST
    return groups


def weigh_blocks(blocks: Sequence[BlockReference]) -> int:
    """Cost of working on some blocks: observed cells, and what it takes to open each."""
    return sum(block.n_observed + BLOCK_COST for block in blocks)


def count_groups(n_observed: int, n_blocks: int, coarseness: int = 1) -> int:
    """Number of groups that `group_blocks` makes of equal blocks, without any.

    Parameters
    ----------
    n_observed
        Observed cells of all blocks.
    n_blocks
        Number of blocks.
    coarseness
        As for `group_blocks`.
    """
    if not n_blocks:
        return 0
    cost = n_observed // n_blocks + BLOCK_COST
    per_group = -(-_choose_size(cost * n_blocks, coarseness) // cost)
    return -(-n_blocks // per_group)


def _choose_size(total: int, coarseness: int) -> int:
    """Cost from which a group is full."""
    return min(MAX_GROUP, max(MIN_GROUP, total // WANTED_GROUPS) * coarseness)
