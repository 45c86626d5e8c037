"""Samples in a store as input of EM: blocks in groups, processed by Dask workers or the current thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pmflib.base.arrays import check_row_order
from pmflib.base.blocks import DenseBlock, concatenate_blocks
from pmflib.base.codes import Codes
from pmflib.base.constraints import check_schemas
from pmflib.base.errors import PmfError
from pmflib.base.variance import weigh_samples
from pmflib.base.weights import WeightSums
from pmflib.cluster.clients import Client, count_threads, find_memory
from pmflib.cluster.maps import run_blocks
from pmflib.cluster.task_plans import TaskPlan
from pmflib.counts.pair_counts import PairCounts
from pmflib.counts.stored_pairs import (
    choose_n_runs,
    count_group_pairs,
    merge_tables,
    plan_counting,
    split_fold_blocks,
)
from pmflib.em.block_source import BlocksInMemory, BlockSource
from pmflib.em.memory import plan_pass
from pmflib.em.stored_blocks import StoredBlocks
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import take_block
from pmflib.store.sample_blocks import (
    BlockReference,
    add_sums,
    read_blocks,
    restore_units,
    scale_blocks,
)
from pmflib.store.stored_variance import StoredVariance, open_variance

KEPT_SHARE = 4
"""By default, samples are kept in memory up to the available memory divided by this; training and held-out samples then
leave half of it to the passes.
"""


class StoredSamples(StoredBlocks):
    """Samples in a store, from some folds of a dataset.

    `pmflib.fit_em` accepts them in place of codes. Blocks are read in groups that depend only on the dataset, so
    results have the same bits for any number of workers.

    Parameters
    ----------
    blocks
        Blocks of the samples in the order of the dataset; weighted samples are scaled by `scale_blocks`.
    schema
        Variables of the dataset.
    client
        Dask client whose workers see the store; None to work in this thread.
    spare_bytes
        Total memory of all workers for keeping blocks between passes, bytes; blocks that do not fit are read again in
        every pass.
    target
        Variable whose conditional log-likelihood given the others is the evaluation criterion; None for the joint
        log-likelihood.
    dataset
        Store and reference of the dataset, which has the design of the samples; None if that is weights alone.

    Examples
    --------
    Refine a model on the first folds of a dataset and stop where the last fold is predicted best::

        store = Store("store")
        dataset = ...  # the reference that the stage `ingest` returned
        schema = pmf.Schema.load("schema.json")
        with distributed.Client() as client:
            training = pmf.em.StoredSamples.open(store, dataset, schema, range(14), client)
            validation = pmf.em.StoredSamples.open(store, dataset, schema, [14], client)
            result = pmf.fit_em(training, rank=20, validation=validation)
    """

    def __init__(
        self,
        blocks: Sequence[BlockReference],
        schema: Schema,
        client: Client = None,
        spare_bytes: int = 0,
        target: int | None = None,
        dataset: tuple[Store, Reference] | None = None,
    ) -> None:
        is_kept = sum(block.nbytes for block in blocks) <= spare_bytes
        super().__init__(blocks, schema.offsets, client, target, is_kept=is_kept)
        self.schema, self.spare_bytes, self.dataset = schema, spare_bytes, dataset

    @classmethod
    def open(
        cls,
        store: Store,
        dataset: Reference,
        schema: Schema,
        folds: Sequence[int],
        client: Client = None,
        *,
        spare_bytes: int | None = None,
    ) -> StoredSamples:
        """Open the samples of some folds of a dataset, without reading them.

        Weights, if any, are scaled to sum to Kish's effective sample size, as for samples in memory.

        Parameters
        ----------
        store, dataset
            The store, and the reference of the dataset in it.
        schema
            Schema with which the dataset was encoded.
        folds
            Folds to include.
        client
            Dask client whose workers see the store; None to work in this thread.
        spare_bytes
            As for the class; by default a quarter of the memory of the workers.

        Raises
        ------
        StoreError
            If the dataset or a part of it is missing from the store or damaged.
        """
        # imports pyarrow.compute, which takes longer to load than the rest of this package
        from pmflib.store.dataset import list_dataset_blocks

        if spare_bytes is None:
            spare_bytes = find_memory(client).total // KEPT_SHARE
        blocks = scale_blocks(list_dataset_blocks(store, dataset, folds))
        return cls(blocks, schema, client, spare_bytes, dataset=(store, dataset))

    @property
    def n_rows(self) -> int:
        """Return the number of samples."""
        return sum(block.n_rows for block in self.blocks)

    def with_client(self, client: Client) -> StoredSamples:
        """Return the same samples with another Dask client; None to work in this thread."""
        return self._change(client=client)

    def with_spare(self, spare_bytes: int) -> StoredSamples:
        """Return the same samples with another memory limit for kept blocks."""
        return self._change(spare_bytes=spare_bytes)

    def with_target(self, target: int | None) -> StoredSamples:
        """Return the same samples with another target, or with None."""
        return self._change(target=target)

    def with_blocks(self, blocks: Sequence[BlockReference]) -> StoredSamples:
        """Return samples with other blocks of the same dataset."""
        return self._change(blocks=blocks)

    def _change(self, **changes: Any) -> StoredSamples:
        kept = ("blocks", "schema", "client", "spare_bytes", "target", "dataset")
        return StoredSamples(**{name: getattr(self, name) for name in kept} | changes)

    def find_variance(self) -> StoredVariance | None:
        """Open the design of the samples; None if that is weights alone, or none.

        Raises
        ------
        StoreError
            As `open_variance` does.
        """
        return None if self.dataset is None else open_variance(*self.dataset)

    def load(self, rank: int) -> BlocksInMemory:
        """Read all samples; ``rank`` is as for `BlocksInMemory.cut`. The target is kept."""
        return BlocksInMemory.cut(self.read_block(), self.offsets, rank, self.target)

    @property
    def n_effective(self) -> float:
        """Return the effective number of samples: Kish's formula if they are weighted."""
        return sum(block.n_samples for block in self.blocks)

    @property
    def is_weighted(self) -> bool:
        """Return whether rows have weights."""
        return any(block.weights is not None and block.scale is not None for block in self.blocks)

    def read_block(self) -> DenseBlock:
        """Read all samples, with their weights."""
        nothing = DenseBlock(np.empty((0, self.schema.n_variables), self.schema.code_dtype))
        read = concatenate_blocks([nothing, *read_blocks(self.blocks)], self.schema.offsets)
        assert isinstance(read, DenseBlock)
        return read

    def read_some(self, number: int) -> DenseBlock:
        """Read ``number`` samples spread over the blocks, or all if there are no more, with their weights."""
        if number >= self.n_rows:
            return self.read_block()
        # blocks that would hold them if all blocks were equal, and as many again
        n_blocks = 2 * number * len(self.blocks) // self.n_rows
        return take_block(self.blocks, self.schema, number, n_blocks)

    def read_codes(self) -> Codes:
        """Read all samples: `Codes` of shape (n_rows, n_variables), -1 missing."""
        parts = [np.empty((0, self.schema.n_variables), self.schema.code_dtype)]
        parts += [block.to_codes(self.schema.offsets) for block in read_blocks(self.blocks)]
        return Codes(np.concatenate(parts))

    def count_pairs(self) -> PairCounts:
        """Count the co-occurrences of levels by fold, in the order of the folds; weighted samples give weighted counts.

        Raises
        ------
        MemoryPlanError
            If the tables of counts do not fit in memory.
        """
        folds = sorted({block.fold for block in self.blocks})
        n_levels, n_counts = self.schema.n_levels, max(1, len(folds))
        n_threads = count_threads(self.client)
        n_runs = choose_n_runs(n_counts, n_threads)
        find_memory(self.client).check(lambda n: plan_counting(n_levels, n, n_runs, n_counts))
        counts = PairCounts.zero(self.schema, n_counts)
        parts: list[WeightSums | None] = []
        for index, fold in enumerate(folds):
            mine = restore_units(block for block in self.blocks if block.fold == fold)
            # one fold at a time, counted by all threads
            runs = split_fold_blocks(mine, 1, n_threads)
            counts.tables[index] = run_blocks(
                self.client,
                count_group_pairs,
                runs,
                merge_tables,
                self.schema.offsets,
                result_bytes=8 * n_levels**2,
                name=f"count-{fold:02}",
            )
            counts.n_rows[index] = sum(block.n_rows for block in mine)
            parts.append(add_sums(mine))
        known = [each for each in parts if each is not None]
        return replace(counts, weights=WeightSums.stack(known)) if known else counts

    def plan_pass(self, rank: int, n_models: int = 1) -> TaskPlan:
        """Plan the tasks of a pass under models of a rank, given the current number of threads."""
        n_threads = count_threads(self.client)
        return plan_pass(self.costs, n_threads, self.schema.n_levels, rank, n_models)


def find_effective(samples: StoredSamples | DenseBlock) -> float | None:
    """Return the effective number of weighted samples; None without weights."""
    if isinstance(samples, StoredSamples):
        return samples.n_effective if samples.is_weighted else None
    return None if samples.weights is None else samples.n_samples


def open_source(
    schema: Schema, rank: int, samples: object, weight: object | None = None
) -> BlockSource:
    """Open samples in memory or stored, with their weights, as blocks for models of a rank."""
    if isinstance(samples, StoredSamples):
        if weight is not None:
            weigh_samples(samples, weight, schema.weight_decimals)
        check_schemas(model=schema, samples=samples)
        return samples
    block = read_samples(schema, samples, weight)
    return BlocksInMemory.cut(block, schema.offsets, rank)


def read_samples(schema: Schema, samples: object, weight: object | None = None) -> DenseBlock:
    """Read samples in memory, at least one, with their weights."""
    codes = schema.encode(samples)
    if not len(codes):
        raise PmfError("samples has no rows; pass at least one")
    check_row_order(samples, weight=weight)
    return weigh_samples(DenseBlock(codes), weight, schema.weight_decimals)
