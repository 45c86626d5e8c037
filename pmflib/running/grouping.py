"""Groups of consecutive blocks, each worth one task of Dask."""

from __future__ import annotations

from collections.abc import Sequence

from pmflib.store.sample_blocks import BlockReference

MIN_GROUP = 1 << 22
MAX_GROUP = 1 << 26
"""Observed cells in a group of blocks, one Dask task: from about ten milliseconds of work to about a second. A task
costs Dask one to three milliseconds."""
WANTED_GROUPS = 64
COUNTING_COARSENESS = 4
"""Coarseness of groups that are counted: that is quicker than an EM pass, and several folds are counted at a time."""
BLOCK_COST = 1 << 15
"""What opening a block costs, in observed cells: many small blocks are work too."""


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
        How many times larger groups may be than those of an EM pass.

    Returns
    -------
    Groups in order; none for no blocks.
    """
    total = sum(block.n_observed + BLOCK_COST for block in blocks)
    target = min(MAX_GROUP, max(MIN_GROUP, total // WANTED_GROUPS) * coarseness)
    groups: list[list[BlockReference]] = []
    filled = target
    for block in blocks:
        if filled >= target:
            groups.append([])
            filled = 0
        groups[-1].append(block)
        filled += block.n_observed + BLOCK_COST
    return groups
