"""Cells held out of known people, which choices of a fit of traits are made by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import SparseBlock
from pmflib.hashing import mix_hashes
from pmflib.level_blocks import FLOOR, list_owners

HELD_OUT_SHARE = 0.1
CHOICE_CELLS = 1_000_000
"""Observed cells of the people that a choice is made by, at most about: differences are clear by then."""
BATCH_NUMBERS = 1 << 23
"""Probabilities in memory at a time while held-out cells are predicted."""

Predict = Callable[[SparseBlock, IntArray, IntArray], FloatArray]
"""PMFs of cells given all that is observed in their rows: of a block, rows and variables, as
`pmflib.traits.trait_model.TraitModel.predict_cells`."""


@dataclass(frozen=True, eq=False)
class HeldOutCells:
    """People with some of their cells taken out, to be predicted from the others.

    Parameters
    ----------
    block
        What is left.
    rows, variables, codes
        int64 of shape (n_cells,): the cells, by row, and their levels.
    """

    block: SparseBlock
    rows: IntArray
    variables: IntArray
    codes: IntArray

    @classmethod
    def draw(cls, block: SparseBlock, offsets: IntArray, seed: int) -> HeldOutCells | None:
        """Hold out a tenth of the cells of people with two or more; None where there are none.

        They are those of the least hashes of row and variable. Rows that count for several samples are one person here.
        """
        lengths = np.diff(block.indptr)
        people = np.repeat(np.arange(block.n_rows), lengths)
        variables = list_owners(offsets)[block.indices]
        free = np.flatnonzero(lengths[people] > 1)
        n_taken = round(HELD_OUT_SHARE * free.size)
        if not n_taken:
            return None
        hashes = mix_hashes(people[free] * (offsets.size - 1) + variables[free], seed)
        taken = np.sort(free[np.argpartition(hashes, n_taken - 1)[:n_taken]])
        kept = np.ones(block.n_observed, bool)
        kept[taken] = False
        ends = np.concatenate([[0], np.cumsum(kept)])[block.indptr]
        return cls(
            SparseBlock(ends.astype(np.int64), block.indices[kept], block.weights),
            people[taken],
            variables[taken],
            block.indices[taken] - offsets[variables[taken]],
        )

    def score(self, predict: Predict, n_each: int) -> FloatArray:
        """Log-probability of each cell, nats.

        Parameters
        ----------
        predict
            Gives the PMFs.
        n_each
            Numbers that it holds for a row of the block, or for a cell, if these are more.
        """
        cells = -(-self.codes.size // self.block.n_rows)
        n_rows = max(1, BATCH_NUMBERS // (n_each * cells))
        logs = np.empty(self.codes.size)
        for start in range(0, self.block.n_rows, n_rows):
            stop = min(start + n_rows, self.block.n_rows)
            first, last = np.searchsorted(self.rows, [start, stop])
            own = slice(first, last)
            part = self.block.cut(start, stop)
            chances = predict(part, self.rows[own] - start, self.variables[own])
            found = chances[np.arange(last - first), self.codes[own]]
            logs[own] = np.log(np.maximum(found, FLOOR))
        return logs
