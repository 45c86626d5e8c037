"""Variances of what is estimated from stored samples: the protocol of their designs, and replicate weights by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import Block
from pmflib.base.errors import StoreError
from pmflib.base.hooks import find_offers
from pmflib.base.replicate_weights import ReplicateWeights
from pmflib.store.artefacts import Reference, Store
from pmflib.store.sample_blocks import (
    NO_REPLICATES,
    BlockReference,
    read_replicates,
    read_sampling_units,
)

DESIGNS = ("replicates", "psu")
"""Options of a source with which weights alone do not tell how its samples vary. What reads one is offered under its
name by the hook "stored_designs", and so is what reads the entry of a reweighted dataset: a function of all options and
entries that returns a `StoredVariance`, or None if weights tell after all."""


class StoredVariance(Protocol):
    """How estimates from stored samples vary, beyond weights: `pmflib.base.variance.Variance` of samples in a store."""

    def reduce(
        self, blocks: Sequence[BlockReference], most: int | None = None
    ) -> StoredReplicates | None:
        """Reduce to replicate weights.

        Parameters
        ----------
        blocks
            All blocks of the dataset.
        most
            Maximum number of sampling units; more are put into groups of their stratum, two a stratum at least. None
            keeps all.

        Returns
        -------
        The replicate weights; None if all samples are of one sampling unit, which shows no spread.

        Raises
        ------
        StoreError
            If a partition is gone or damaged, or has no units.
        """


def open_variance(store: Store, dataset: Reference) -> StoredVariance | None:
    """Open the design of a dataset; None if its samples have weights alone, or none: then rows are independent.

    Raises
    ------
    StoreError
        If the dataset is not in the store, or damaged; or if nothing in this installation reads its design.
    """
    # with it comes pyarrow.compute, which takes longer to load than the rest of this package
    from pmflib.store.dataset import OWN_CONTENT, read_content

    content = read_content(store, dataset)
    source = content["origin"].get("source", {})
    # weights that are not those of the source have a design of their own
    names = [*(content.keys() - OWN_CONTENT), *(each for each in DESIGNS if each in source)]
    if not names:
        return None
    name = names[0]
    offers = find_offers("stored_designs")
    if name not in offers:
        raise StoreError(
            f"dataset {dataset.path} has a sampling design ({name}), which this installation of pmflib cannot read; "
            "add the feature that reads it to pmflib.features.FEATURES"
        )
    opened: StoredVariance | None = offers[name](source | content)
    return opened


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

    def reduce(self, blocks: Sequence[BlockReference], most: int | None = None) -> StoredReplicates:
        """Return the replicate weights as they are: see `StoredVariance.reduce`."""
        return self

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
            return self.columns[np.searchsorted(self.hashes, read_drawn_units(item)[:, 1])]
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


def read_drawn_units(item: Block | BlockReference) -> IntArray:
    """Read the hashes of stratum and sampling unit of a block's samples, int64 of shape (n_rows, 2); refuse a lack."""
    found = read_sampling_units(item) if isinstance(item, BlockReference) else None
    if found is None:
        raise StoreError(
            "a partition of samples has no sampling units; delete its dataset, and run the pipeline again"
        )
    return found
