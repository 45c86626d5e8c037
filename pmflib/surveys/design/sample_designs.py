"""Survey designs of stored samples: sampling units read from their blocks, and replicate weights from columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.blocks import Block
from pmflib.base.hashing import mix_hashes
from pmflib.base.machine import count_processors
from pmflib.base.replicate_weights import ReplicateWeights, group_units, join_lone_strata
from pmflib.store.sample_blocks import BlockReference
from pmflib.store.stored_variance import StoredReplicates, read_drawn_units


def open_replicates(described: Mapping[str, Any]) -> StoredReplicates:
    """Open replicate weights that were columns of the files, as the options of the source describe them."""
    how = described["replicate_method"], len(described["replicates"])
    options = described.get("fay"), described.get("replicate_factors")
    return StoredReplicates(ReplicateWeights.of_replicates(*how, *options))


def open_units(described: Mapping[str, Any]) -> StoredUnits:
    """Open strata and sampling units, which every block has with its samples."""
    return StoredUnits()


class StoredUnits:
    """Strata and sampling units of a dataset: a `pmflib.store.stored_variance.StoredVariance`."""

    def reduce(
        self, blocks: Sequence[BlockReference], most: int | None = None
    ) -> StoredReplicates | None:
        """Read units and strata from all blocks: see `pmflib.store.stored_variance.StoredVariance.reduce`."""
        filled = [block for block in blocks if block.n_rows]
        with ThreadPoolExecutor(count_processors(), "units") as pool:
            parts = list(pool.map(_list_units, filled))
        drawn = np.unique(np.concatenate([np.empty((0, 2), np.int64), *parts]), axis=0)
        drawn = drawn[np.argsort(drawn[:, 1], kind="stable")]
        if len(drawn) < 2:
            return None
        numbered = np.unique(drawn[:, 0], return_inverse=True)[1].ravel().astype(np.int64)
        strata, n_lone = join_lone_strata(numbered)
        notes: tuple[str, ...] = ()
        if n_lone:
            notes += (f"{n_lone} strata with a single unit are taken together, or with the next",)
        hashes, n_each = drawn[:, 1].copy(), np.bincount(strata)
        if most is None:
            record = ReplicateWeights.of_units(strata, notes=notes)
            return StoredReplicates(record, hashes, np.arange(hashes.size))
        n_groups = n_each
        if len(drawn) > most:
            n_groups = np.maximum(n_each * most // len(drawn), 2)
            notes += (f"{len(drawn):,} units are put into groups, which are taken as units",)
        groups, of_groups = group_units(strata, mix_hashes(hashes.view(np.uint64)), n_groups)
        record = ReplicateWeights.of_units(of_groups, len(drawn) - n_each.size, notes)
        return StoredReplicates(record, hashes, groups)


class StoredRows:
    """Samples that are drawn one by one, with weights: a `pmflib.store.stored_variance.StoredVariance`."""

    def reduce(self, blocks: Sequence[BlockReference], most: int | None = None) -> StoredReplicates:
        """Take each row as a unit, or groups of rows by hash: see `StoredVariance.reduce`."""
        n_rows = sum(block.n_rows for block in blocks)
        strata, columns = np.zeros(n_rows, np.int64), np.arange(n_rows)
        notes: tuple[str, ...] = ()
        if most is not None and n_rows > most:
            notes += (f"{n_rows:,} rows are put into groups, which are taken as units",)
            order = mix_hashes(columns.view(np.uint64))
            columns, strata = group_units(strata, order, np.array([max(most, 2)]))
        record = ReplicateWeights.of_units(strata, n_rows - 1, notes)
        return StoredRowGroups(record, columns=columns)


class StoredRowGroups(StoredReplicates):
    """Units by the position of a row among all."""

    def read_scaled(self, item: Block | BlockReference, first: int) -> IntArray:
        """Read the column of each sample of a block: see `StoredReplicates.read_scaled`."""
        assert self.columns is not None
        return self.columns[first : first + item.n_rows]


def _list_units(block: BlockReference) -> IntArray:
    return np.unique(read_drawn_units(block), axis=0)
