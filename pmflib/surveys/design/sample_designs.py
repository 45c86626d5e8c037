"""Survey designs of stored samples, and their reduction to replicate weights."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import Block
from pmflib.base.errors import StoreError
from pmflib.base.hashing import mix_hashes
from pmflib.base.machine import count_processors
from pmflib.base.replicate_weights import ReplicateWeights, group_units, join_lone_strata
from pmflib.store.artefacts import Reference, Store
from pmflib.store.sample_blocks import (
    NO_REPLICATES,
    BlockReference,
    read_replicates,
    read_sampling_units,
)


@dataclass(frozen=True)
class StoredDesign:
    """Survey design of a dataset beyond weights.

    Parameters
    ----------
    record
        Record of given or raked replicate weights; None of strata and sampling units, which are read from the blocks.
    """

    record: ReplicateWeights | None = None

    @classmethod
    def open(cls, store: Store, dataset: Reference) -> StoredDesign | None:
        """Read the design of a dataset; None if its samples have weights alone, or none.

        Raises
        ------
        StoreError
            If the dataset is not in the store, or damaged.
        """
        # with it comes pyarrow.compute, which takes longer to load than the rest of this package
        from pmflib.store.dataset import read_content

        content = read_content(store, dataset)
        if "raking" in content:
            raked = content["raking"]["replicates"]
            if raked is None:
                return None
            read = {"factors": np.array(raked["factors"]), "notes": tuple(raked["notes"])}
            return cls(ReplicateWeights(**raked | read))
        source = content["origin"].get("source", {})
        if "replicates" in source:
            how = source["replicate_method"], len(source["replicates"])
            options = source.get("fay"), source.get("replicate_factors")
            return cls(ReplicateWeights.of_replicates(*how, *options))
        return cls() if "psu" in source else None

    def reduce(
        self, blocks: Sequence[BlockReference], most: int | None = None
    ) -> StoredReplicates | None:
        """Reduce the design to replicate weights.

        Parameters
        ----------
        blocks
            All blocks of the dataset.
        most
            Maximum number of units; more are put into groups of their stratum, two a stratum at least. None keeps all.

        Returns
        -------
        The replicate weights; None if all samples are of one sampling unit, which shows no spread.

        Raises
        ------
        StoreError
            If a partition is gone or damaged, or has no units.
        """
        if self.record is not None:
            return StoredReplicates(self.record)
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


@dataclass(frozen=True, eq=False)
class StoredReplicates:
    """Replicate weights of stored samples, read block by block; an instance travels to workers.

    Parameters
    ----------
    record
        Factors and degrees of freedom.
    hashes
        int64 of shape (n_units,), sorted: hash of each sampling unit; None of given replicate weights.
    columns
        int64 of shape (n_units,): column of each unit.
    """

    record: ReplicateWeights
    hashes: IntArray | None = None
    columns: IntArray | None = None

    def read(self, item: Block | BlockReference) -> IntArray:
        """Read the weights of the samples of a block, in units.

        Returns
        -------
        int64 of shape (n_rows, n_columns); or the sparse form of units, int64 of shape (n_rows,).

        Raises
        ------
        StoreError
            If the partition is gone or damaged, or has no such weights.
        """
        if self.hashes is not None and self.columns is not None:
            return self.columns[np.searchsorted(self.hashes, _read_units(item)[:, 1])]
        found = read_replicates(item) if isinstance(item, BlockReference) else None
        if found is None or found.shape[1] != self.record.n_columns:
            raise StoreError(NO_REPLICATES)
        return found

    def read_scaled(self, item: Block | BlockReference, first: int) -> FloatArray | IntArray:
        """Read the weights of the samples of a block, in the unit of the weights that the block has.

        Returns
        -------
        float64 of shape (n_columns, n_rows); or the sparse form of units, int64 of shape (n_rows,).
        """
        found = self.read(item)
        if self.hashes is not None:
            return found
        assert isinstance(item, BlockReference)
        assert item.weights is not None
        # a block leaves equal weights out, and then counts each row as one sample
        scale = item.n_rows / item.weights.totals[0] if item.scale is None else item.scale
        weights: FloatArray = found.T * np.float64(scale)
        return weights


def _list_units(block: BlockReference) -> IntArray:
    return np.unique(_read_units(block), axis=0)


def _read_units(item: Block | BlockReference) -> IntArray:
    found = read_sampling_units(item) if isinstance(item, BlockReference) else None
    if found is None:
        raise StoreError(
            "a partition of samples has no sampling units; delete its dataset, and run the pipeline again"
        )
    return found
