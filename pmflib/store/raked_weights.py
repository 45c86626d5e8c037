"""Raked weights of stored samples: a factor for each cell of the known margins, applied when blocks are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.blocks import Block
from pmflib.core.raking import find_levels
from pmflib.core.replicate_weights import ReplicateWeights
from pmflib.store.caches import find_local_path
from pmflib.store.zarr_arrays import read_arrays, write_arrays

RAKING = "raking"
"""Name of the Zarr group of factors in a raked dataset."""
ARRAYS = {
    "offsets": ("variable",),
    "keys": ("cell",),
    "factors": ("cell",),
    "by_replicate": ("cell", "replicate"),
    "hashes": ("sampling_unit",),
    "columns": ("sampling_unit",),
    "strata": ("replicate",),
}
"""Arrays of the group and their dimensions."""
NO_NUMBERS, NO_FACTORS = (partial(np.empty, 0, dtype) for dtype in (np.int64, np.float64))


@dataclass(frozen=True, eq=False)
class RakedWeights:
    """Factors by which the weights of samples are multiplied; an instance travels to workers.

    Parameters
    ----------
    offsets
        int64: offsets of the variables' levels in the samples.
    positions, shapes
        Variables of each margin, and their numbers of levels.
    unit
        Weight of a sample without weights, in units; 0 if samples have weights.
    keys
        int64 of shape (n_cells,), sorted: cells of samples, as `find_keys` numbers them.
    factors
        float64 of shape (n_cells,): factor of the weights in units.
    by_replicate
        float64 of shape (n_cells, n_replicates): factors of the weights of each replicate.
    hashes, columns, strata
        int64: hashes of the sampling units, sorted, the replicate that leaves each out, and the stratum of each
        replicate; empty for given replicates.
    """

    offsets: IntArray
    positions: tuple[tuple[int, ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    unit: int
    keys: IntArray = field(default_factory=NO_NUMBERS)
    factors: FloatArray = field(default_factory=NO_FACTORS)
    by_replicate: FloatArray = field(default_factory=NO_FACTORS)
    hashes: IntArray = field(default_factory=NO_NUMBERS)
    columns: IntArray = field(default_factory=NO_NUMBERS)
    strata: IntArray = field(default_factory=NO_NUMBERS)

    def write(self, path: Path) -> None:
        """Write a new group."""
        given = {name: (getattr(self, name), dims) for name, dims in ARRAYS.items()}
        arrays = {name: each for name, each in given.items() if each[0].size}
        attributes = {"positions": self.positions, "shapes": self.shapes, "unit": self.unit}
        write_arrays(path, arrays, {"kind": RAKING, **attributes})

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
        """Weights in units before raking, float64 of shape (n_rows,)."""
        return np.full(block.n_rows, float(self.unit)) if block.weights is None else block.weights

    def weigh(self, block: Block) -> FloatArray:
        """Raked weights of samples that have their weights in units: whole numbers of at least 1, float64 (n_rows,)."""
        found: FloatArray = np.rint(self.read_units(block) * self.factors[self._locate(block)])
        return np.maximum(found, 1.0)

    def weigh_replicates(self, block: Block, drawn: IntArray) -> IntArray:
        """Raked replicate weights in units, int64 of shape (n_rows, n_replicates).

        Parameters
        ----------
        block
            Samples with their weights in units.
        drawn
            Their replicate weights, int64 of shape (n_rows, n_replicates), or hashes of stratum and unit, (n_rows, 2).
        """
        given = drawn.astype(np.float64)
        if self.hashes.size:
            columns = self.columns[np.searchsorted(self.hashes, drawn[:, 1])]
            given = ReplicateWeights.of_units(self.strata).spread(columns, self.read_units(block))
        given *= self.by_replicate[self._locate(block)]
        return np.rint(given).astype(np.int64)

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
    arrays: Any
    arrays, attributes = read_arrays(find_local_path(path), kind=RAKING)
    positions, shapes = (tuple(map(tuple, attributes[name])) for name in ("positions", "shapes"))
    return RakedWeights(positions=positions, shapes=shapes, unit=attributes["unit"], **arrays)
