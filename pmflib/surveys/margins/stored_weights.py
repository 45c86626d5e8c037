"""Raked weights of stored samples: a factor for each cell of the known margins, applied when blocks are read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import Block
from pmflib.base.replicate_weights import ReplicateWeights
from pmflib.store.array_groups import read_arrays
from pmflib.store.objects.local_files import find_local_path
from pmflib.store.sample_blocks import (
    BlockReference,
    read_block,
    read_replicates,
    read_sampling_units,
)
from pmflib.store.zarr_arrays import write_arrays
from pmflib.surveys.margins.factors import find_levels

RAKING = "raking"
"""Name of the Zarr group of factors in a raked dataset."""
_nothing: Any = partial(np.empty, 0)


@dataclass(frozen=True, eq=False)
class RakedWeights:
    """Factors by which the weights of samples are multiplied; an instance travels to workers.

    Parameters
    ----------
    positions, shapes
        Variables of each margin, and their numbers of levels.
    unit
        Weight of a sample without weights, in units.
    offsets
        int64: offsets of the levels of the variables.
    hashes, columns, strata
        int64: hashes of the sampling units, sorted, the replicate that leaves each out, and the stratum of each
        replicate; empty for given replicates, or without any.
    keys
        int64 of shape (n_cells,), sorted: cells of samples, as `find_keys` numbers them.
    factors
        float64 of shape (n_cells,): factor of the weights in units.
    by_replicate
        float64 of shape (n_cells, n_replicates): factors of the weights of each replicate.
    """

    positions: tuple[tuple[int, ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    unit: int
    offsets: IntArray
    hashes: IntArray = field(default_factory=_nothing)
    columns: IntArray = field(default_factory=_nothing)
    strata: IntArray = field(default_factory=_nothing)
    keys: IntArray = field(default_factory=_nothing)
    factors: FloatArray = field(default_factory=_nothing)
    by_replicate: FloatArray = field(default_factory=_nothing)

    def write(self, path: Path) -> None:
        """Write a new group."""
        arrays, attributes = {}, {"kind": RAKING}
        for name, each in vars(self).items():
            if not isinstance(each, np.ndarray):
                attributes[name] = each
            elif each.size:
                arrays[name] = each, ("cell", "replicate") if each.ndim > 1 else (name,)
        write_arrays(path, arrays, attributes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of cells of each margin, and one for samples without a value."""
        return tuple(int(np.prod(shape)) + 1 for shape in self.shapes)

    def find_keys(self, block: Block) -> IntArray:
        """Number the cell of each sample: int64 of shape (n_rows,)."""
        levels = find_levels(block.to_codes(self.offsets), self.positions, self.shapes)
        keys: IntArray = np.ravel_multi_index(tuple(levels.T), self.sizes).astype(np.int64)
        return keys

    def read_units(self, block: Block) -> FloatArray:
        """Read weights in units before raking: float64 of shape (n_rows,)."""
        return np.full(block.n_rows, float(self.unit)) if block.weights is None else block.weights

    def spread(self, block: Block, drawn: IntArray | None) -> FloatArray:
        """Compute replicate weights in units before raking.

        Parameters
        ----------
        block
            Samples with their weights in units.
        drawn
            Their replicate weights, int64 of shape (n_rows, n_replicates), or hashes of stratum and unit, (n_rows, 2);
            None without any.

        Returns
        -------
        float64 of shape (n_rows, n_replicates).
        """
        if drawn is None:
            return np.empty((block.n_rows, 0))
        if not self.hashes.size:
            return drawn.astype(np.float64)
        columns = self.columns[np.searchsorted(self.hashes, drawn[:, 1])]
        return ReplicateWeights.of_units(self.strata).spread(columns, self.read_units(block))

    def weigh(self, block: Block) -> FloatArray:
        """Rake the weights of samples that have theirs in units: whole numbers of at least 1, float64 (n_rows,)."""
        return np.maximum(np.rint(self.read_units(block) * self.factors[self._locate(block)]), 1.0)

    def weigh_replicates(self, block: Block, spread: FloatArray) -> IntArray:
        """Rake replicate weights, the result of `spread`: whole numbers, int64 of the same shape."""
        return np.rint(spread * self.by_replicate[self._locate(block)]).astype(np.int64)

    def read_replicates(self, reference: BlockReference) -> IntArray | None:
        """Read the raked replicate weights of a block; None without any before."""
        block, spread = self.read_unraked(reference)
        return self.weigh_replicates(block, spread) if spread.size else None

    def read_unraked(self, reference: BlockReference) -> tuple[Block, FloatArray]:
        """Read samples with weights as before raking, in units, and their replicate weights: see `spread`."""
        before = replace(reference, reweighting=None, scale=1.0)
        read = read_sampling_units if self.hashes.size else read_replicates
        block = read_block(before)
        return block, self.spread(block, read(before))

    def _locate(self, block: Block) -> IntArray:
        # superseded rows, whose weights nobody uses, may have other cells
        return np.minimum(np.searchsorted(self.keys, self.find_keys(block)), self.keys.size - 1)


@lru_cache(maxsize=4)
def open_raking(path: str) -> RakedWeights:
    """Open the factors of a raked dataset by the path or URL of their group.

    Raises
    ------
    StoreError
        If they are gone or damaged.
    """
    arrays, known = read_arrays(find_local_path(path), kind=RAKING)
    made: Any = {name: tuple(map(tuple, known[name])) for name in ("positions", "shapes")}
    return RakedWeights(**made | arrays, unit=known["unit"])
