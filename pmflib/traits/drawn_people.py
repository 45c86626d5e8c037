"""People drawn by the hash of their place: which, depends on the samples alone, and no list of all is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pmflib.arrays import IntArray
from pmflib.blocks import Block, SparseBlock, concatenate_blocks
from pmflib.hashing import HashArray, mix_hashes

MARGIN = 6.0
"""Standard deviations by which more people are looked at than are wanted, so that there are hardly ever fewer."""
ALL = 2**64 - 1


class DrawnPeople(NamedTuple):
    """Some people who have anything observed.

    Parameters
    ----------
    hashes
        uint64 of shape (n_people,), increasing.
    block
        Their samples.
    """

    hashes: HashArray
    block: SparseBlock


class Draw(NamedTuple):
    """Which people are drawn: those of the least hashes.

    Parameters
    ----------
    wanted
        Their number, at most.
    limit
        Largest hash that is looked at.
    seed
        Seed of the hashes.
    """

    wanted: int
    limit: int
    seed: int

    @classmethod
    def plan(cls, wanted: int, n_people: int, seed: int) -> Draw:
        """Draw a number of people from so many."""
        enough = wanted + MARGIN * (wanted**0.5 + MARGIN)
        limit = ALL if enough >= n_people else int(enough / n_people * ALL)
        return cls(wanted, limit, seed)

    def take(self, block: Block, first: int, offsets: IntArray) -> DrawnPeople:
        """Draw from a block whose rows have their places from ``first`` on."""
        hashes = mix_hashes(np.arange(first, first + block.n_rows), self.seed)
        near = np.flatnonzero(hashes <= np.uint64(self.limit))
        part = block.take(near).to_sparse(offsets)
        known = np.flatnonzero(np.diff(part.indptr) > 0)
        return self._keep(hashes[near[known]], part.take(known))

    def merge(self, parts: Sequence[DrawnPeople], offsets: IntArray) -> DrawnPeople:
        """Draw from what was drawn from parts, at least one."""
        if len(parts) == 1:
            return parts[0]
        block = concatenate_blocks([part.block for part in parts], offsets)
        hashes = np.concatenate([part.hashes for part in parts])
        return self._keep(hashes, block.to_sparse(offsets))

    def _keep(self, hashes: HashArray, block: SparseBlock) -> DrawnPeople:
        order = np.argsort(hashes)[: self.wanted]
        return DrawnPeople(hashes[order], block.take(order))
