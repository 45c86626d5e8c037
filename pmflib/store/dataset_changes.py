"""What one dataset holds and another does not, as references to blocks: no sample is read."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pmflib.arrays import IntArray
from pmflib.store.sample_blocks import BlockReference


@dataclass(frozen=True)
class DatasetChange:
    """Blocks that lead from one dataset to another.

    Parameters
    ----------
    added
        Samples that the new dataset alone holds, in the order of its blocks.
    removed
        Samples that the base alone holds, in the order of its blocks.
    """

    added: tuple[BlockReference, ...]
    removed: tuple[BlockReference, ...]

    @property
    def n_observed(self) -> int:
        """Number of observed cells on both sides, about: of a part of a block its share by rows."""
        return sum(block.n_observed for block in (*self.added, *self.removed))

    @property
    def n_blocks(self) -> int:
        """Number of references on both sides."""
        return len(self.added) + len(self.removed)


def compare_blocks(base: Iterable[BlockReference], new: Iterable[BlockReference]) -> DatasetChange:
    """List the blocks, and parts of blocks, that one of two datasets holds and the other does not.

    Parameters
    ----------
    base, new
        Blocks of the datasets, of one store and of the same folds, as `list_dataset_blocks` gives them.

    Returns
    -------
    The change. The base less its removed blocks and with the added ones holds the samples of the new dataset, each as
    often. Of a block that both hold, the rows that are superseded in the new one alone are removed, and those that are
    in the base alone are added.
    """
    before, after = list(base), list(new)
    return DatasetChange(
        added=tuple(_list_parts(after, before)), removed=tuple(_list_parts(before, after))
    )


def _list_parts(
    blocks: Iterable[BlockReference], others: Iterable[BlockReference]
) -> Iterator[BlockReference]:
    """List the parts of blocks, in order, that the blocks at the same places of another dataset do not hold."""
    partners: defaultdict[tuple[str, int, int], deque[BlockReference]] = defaultdict(deque)
    for block in others:
        partners[_locate(block)].append(block)
    for block in blocks:
        # a partition may be in a dataset twice: of two files with the same content
        waiting = partners[_locate(block)]
        if not waiting:
            yield block
            continue
        lost = _list_superseded(waiting.popleft())
        rows = np.setdiff1d(lost, _list_superseded(block), assume_unique=True)
        if rows.size:
            yield take_rows(block, rows)


def _locate(block: BlockReference) -> tuple[str, int, int]:
    return block.path, block.start, block.stop


def take_rows(block: BlockReference, rows: IntArray) -> BlockReference:
    """Refer to some rows of a block alone.

    Parameters
    ----------
    block
        With all of these rows.
    rows
        int64, sorted: rows of the partition, at least one.

    Returns
    -------
    A reference whose observed cells are the block's share by rows.
    """
    others = np.setdiff1d(np.arange(block.start, block.stop), rows, assume_unique=True)
    share = max(1, block.n_observed * rows.size // block.n_rows)
    return replace(block, superseded=others, n_observed=share)


def _list_superseded(block: BlockReference) -> IntArray:
    return np.empty(0, np.int64) if block.superseded is None else block.superseded
