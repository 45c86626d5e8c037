"""Samples in a store for EM: blocks in groups, mapped over by Dask workers or in this thread."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.blocks import Block, DenseBlock
from pmflib.counting.counting_tasks import choose_runs, cut_fold
from pmflib.counting.memory import plan_counting
from pmflib.counting.pair_counts import PairCounts
from pmflib.counting.stored_pairs import count_group, merge_tables
from pmflib.em.block_scores import (
    AddScores,
    ScoreRows,
    score_average,
    score_difference,
    score_under,
)
from pmflib.em.duplicates import merge_duplicates
from pmflib.em.in_memory import SamplesInMemory
from pmflib.em.members import merge_each, merge_scores
from pmflib.em.pass_tasks import PassPlan, choose_side_by_side, choose_tasks, plan_pass
from pmflib.em.statistics import EMStatistics, em_statistics, take_logs
from pmflib.running.clients import Client, count_threads, find_memory
from pmflib.running.grouping import group_blocks, weigh_blocks
from pmflib.running.held_items import HeldItems, keep_loaded
from pmflib.running.maps import PendingResult, run_blocks, start_blocks
from pmflib.schema import Schema
from pmflib.selection.comparison import estimate_gain
from pmflib.store.artefacts import Reference, Store
from pmflib.store.file_digests import name_place
from pmflib.store.mirrors import find_place
from pmflib.store.sample_blocks import BlockGroup, BlockReference, read_blocks

P = TypeVar("P")
R = TypeVar("R")

KEPT_SHARE = 4
"""Samples are kept in memory, where nothing else is said, up to the available memory divided by this: training and
held-out samples leave half of it to the passes."""
CHANGED_SHARE = 4
"""Samples are dealt anew when the number of threads has changed by more than itself divided by this: those that workers
keep must then be read again."""


@dataclass(frozen=True, eq=False)
class StoredSamples:
    """Samples of some folds of a dataset in a store: a `pmflib.em.samples.Samples`.

    `pmflib.fit_em` takes them in place of codes. Blocks are read in groups that depend on the dataset alone, so that
    results have the same bits with any number of workers, and without any.

    Parameters
    ----------
    blocks
        Blocks of the samples, in the order of the dataset.
    schema
        Variables of the dataset.
    client
        Dask client whose workers see the store; None to work in this thread.
    spare_bytes
        Memory of all workers together that they may keep blocks in from one pass to the next; blocks that do not fit
        are read again for every pass.
    target
        Variable whose log-likelihood given the others models are judged by; None is that of all.

    Examples
    --------
    Refine a model on the first folds of a dataset and stop where it is best on the last::

        store = Store("store")
        dataset = ...  # the reference that the stage `ingest` returned
        schema = pmf.Schema.load("schema.json")
        with distributed.Client() as client:
            training = pmf.StoredSamples.open(store, dataset, schema, range(14), client)
            validation = pmf.StoredSamples.open(store, dataset, schema, [14], client)
            result = pmf.fit_em(training, rank=20, validation=validation)
    """

    blocks: Sequence[BlockReference]
    schema: Schema
    client: Client = None
    spare_bytes: int = 0
    target: int | None = None
    _held: list[HeldItems] = field(default_factory=list, init=False, repr=False)
    # runs side by side take the same blocks
    _holding: Lock = field(default_factory=Lock, init=False, repr=False)

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
        """Find the samples of some folds of a dataset; none is read yet.

        Parameters
        ----------
        store, dataset
            The store, and which dataset in it.
        schema
            Schema that the dataset was encoded with.
        folds
            Folds whose samples are wanted.
        client
            Dask client whose workers see the store; None to work in this thread.
        spare_bytes
            As for the class; by default a quarter of what the workers have.

        Raises
        ------
        StoreError
            If the dataset or a part of it is not in the store, or damaged.
        """
        # with it comes pyarrow.compute, which takes longer to load than the rest of this package
        from pmflib.store.dataset import list_dataset_blocks

        if spare_bytes is None:
            spare_bytes = find_memory(client).total // KEPT_SHARE
        return cls(list_dataset_blocks(store, dataset, folds), schema, client, spare_bytes)

    @property
    def n_rows(self) -> int:
        """Number of samples."""
        return sum(block.n_rows for block in self.blocks)

    @property
    def n_observed(self) -> int:
        """Number of observed cells."""
        return sum(block.n_observed for block in self.blocks)

    @property
    def n_side_by_side(self) -> int:
        """Independent runs of EM at a time: several where there are many threads, else one."""
        return choose_side_by_side(count_threads(self.client))

    def digest(self) -> str:
        """SHA-256 of the places of the blocks and of the rows in them, in hexadecimal; no block is read."""
        total = hashlib.sha256()
        for block in self.blocks:
            place = name_place(find_place(block.path))
            total.update(f"{place} {block.start} {block.stop} {block.fold} ".encode())
            if block.superseded is not None:
                total.update(block.superseded.astype(np.int64).tobytes())
        return total.hexdigest()

    def with_client(self, client: Client) -> StoredSamples:
        """Samples of the same blocks for other workers, or, for None, for this thread."""
        return replace(self, client=client)

    def with_spare(self, spare_bytes: int) -> StoredSamples:
        """Samples of the same blocks, kept in other bytes of memory."""
        return replace(self, spare_bytes=spare_bytes)

    def with_target(self, target: int | None) -> StoredSamples:
        """Samples of the same blocks that judge by another variable, or, for None, by all."""
        return replace(self, target=target)

    def load(self, rank: int) -> SamplesInMemory:
        """Read all samples; ``rank`` is as for `SamplesInMemory`, which judge by the same target."""
        return SamplesInMemory(self.read_codes(), self.schema.offsets, rank, self.target)

    def read_codes(self) -> IntArray:
        """Read all samples: codes of shape (n_rows, n_variables), -1 missing."""
        parts = [np.empty((0, self.schema.n_variables), self.schema.code_dtype)]
        parts += [block.to_codes(self.schema.offsets) for block in read_blocks(self.blocks)]
        return np.concatenate(parts)

    def count_pairs(self) -> PairCounts:
        """Count the co-occurrences of levels, by the folds of the dataset, in their order.

        Raises
        ------
        MemoryPlanError
            If the tables of counts would not fit in memory.
        """
        folds = sorted({block.fold for block in self.blocks})
        n_levels, n_counts = self.schema.n_levels, max(1, len(folds))
        n_threads = count_threads(self.client)
        n_runs = choose_runs(n_counts, n_threads)
        find_memory(self.client).check(lambda n: plan_counting(n_levels, n, n_runs, n_counts))
        counts = PairCounts.zero(self.schema, n_counts)
        for place, fold in enumerate(folds):
            mine = [block for block in self.blocks if block.fold == fold]
            # one fold at a time: all threads count it
            runs = cut_fold(mine, 1, n_threads)
            counts.tables[place] = run_blocks(
                self.client,
                count_group,
                runs,
                merge_tables,
                self.schema.offsets,
                result_bytes=8 * n_levels**2,
                name=f"count-{fold:02}",
            )
            counts.n_rows[place] = sum(block.n_rows for block in mine)
        return counts

    def plan_pass(self, rank: int, n_models: int = 1) -> PassPlan:
        """Tasks of a pass under models of a rank, with the threads that there are now."""
        costs = [*map(weigh_blocks, self._groups)]
        return plan_pass(costs, count_threads(self.client), self.schema.n_levels, rank, n_models)

    def evaluate(self, models: Sequence[Parameters]) -> list[EMStatistics]:
        """Sufficient statistics under each of several models of one rank, at least one.

        Models are dealt to no more tasks than keep all threads busy: a block that is not kept is read once per task.
        """
        return [each for share in self.start_pass(models) for each in share.wait()]

    def start_pass(self, models: Sequence[Parameters]) -> list[PendingResult[list[EMStatistics]]]:
        """Start what `evaluate` waits for: the statistics of each share of the models."""
        plan = self.plan_pass(models[0][0].size, len(models))
        step = plan.models_per_share
        return [
            start_blocks(
                self.client,
                evaluate_group,
                self._hold(),
                merge_each,
                self.schema.offsets,
                models[first : first + step],
                result_bytes=step * plan.model_bytes,
                name="pass",
            )
            for first in range(0, len(models), step)
        ]

    def start_ahead(self, models: Sequence[Parameters]) -> Callable[[], list[EMStatistics]] | None:
        """Start a pass while its models are judged, where there are many threads; returned is what waits for it."""
        if self.n_side_by_side == 1:
            return None
        pending = self.start_pass(models)
        return lambda: [each for share in pending for each in share.wait()]

    def score(
        self, models: Sequence[Parameters], meanwhile: Callable[[], None] | None = None
    ) -> float:
        """Log-likelihood under the average of models, at least one; nats per sample, 0 without samples.

        ``meanwhile`` is called once the tasks are handed to the workers.
        """
        total, n_samples = self._add_up(score_average, [models], meanwhile)
        return float(total / max(n_samples, 1))

    def compare(self, first: Parameters, second: Parameters) -> tuple[float, float]:
        """Mean gain of a sample by the first of two models over the second, nats, and its standard error."""
        return estimate_gain(self._add_up(score_difference, [[first], [second]]))

    def map_groups(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        *shared: Any,
        result_bytes: int = 0,
        name: str = "",
    ) -> R:
        """Map a function over the groups of blocks, which are kept where they fit, and merge the results.

        Parameters
        ----------
        function
            Called as ``function(group, *shared)``: see `iterate_distinct`.
        merge, shared, result_bytes, name
            As for `pmflib.running.maps.start_blocks`.
        """
        options = {"result_bytes": result_bytes, "name": name}
        return run_blocks(self.client, function, self._hold(), merge, *shared, **options)  # type: ignore[arg-type]

    def _add_up(
        self,
        add: AddScores,
        averages: Sequence[Sequence[Parameters]],
        meanwhile: Callable[[], None] | None = None,
    ) -> FloatArray:
        """Sums of scores under averages of models over the groups, in a tree that depends on their number alone."""
        shared = self.schema.offsets, add, score_under, averages, self.target
        pending = start_blocks(
            self.client, judge_group, self._hold(), merge_scores, *shared, name="score"
        )
        if meanwhile is not None and self.client is not None:
            meanwhile()
        return pending.wait()

    @cached_property
    def _groups(self) -> Sequence[Sequence[Any]]:
        """Groups of blocks; an empty block where there is none."""
        if not self.blocks:
            return [[]]
        return group_blocks(self.blocks)

    def _hold(self) -> HeldItems:
        """What `_deal_groups` returns, for one thread of the client at a time."""
        with self._holding:
            return self._deal_groups()

    def _deal_groups(self) -> HeldItems:
        """Groups where they are worked on, dealt to the threads that there are: blocks if they fit, else references."""
        costs = [*map(weigh_blocks, self._groups)]
        n_tasks = choose_tasks(costs, count_threads(self.client))
        if self._held:
            held = self._held[0]
            n_wanted = min(n_tasks, len(held))
            if abs(n_wanted - held.plan.n_runs) * CHANGED_SHARE <= held.plan.n_runs:
                return held
            # they go before others come
            self._held.clear()
            del held
        fits = sum(block.nbytes for block in self.blocks) <= self.spare_bytes
        load: Callable[[Any], Any] = list
        groups: Sequence[Any] = self._groups
        if not self.blocks:
            groups = [[DenseBlock(np.empty((0, self.schema.n_variables), np.int8))]]
        elif fits:
            load = load_group
        name = "load" if fits else "list"
        self._held.append(keep_loaded(self.client, load, groups, costs, name, n_tasks))
        return self._held[0]


def iterate_distinct(group: BlockGroup) -> Iterator[Block]:
    """Blocks of a group, one at a time; those that are read have their equal rows merged where that pays.

    Whether blocks are kept in memory or read again for every pass must not change the result: they are merged either
    way, and loaded blocks are taken as they are.
    """
    read = read_blocks(item for item in group if isinstance(item, BlockReference))
    yield from map(merge_duplicates, read)
    yield from (item for item in group if not isinstance(item, BlockReference))


def load_group(group: Sequence[BlockReference]) -> list[Block]:
    """Read all blocks of a group; equal rows are merged where that pays."""
    return list(iterate_distinct(group))


def evaluate_group(
    group: BlockGroup, offsets: IntArray, models: Sequence[Parameters]
) -> list[EMStatistics]:
    """Sufficient statistics of a group under each of several models; the blocks are read once."""
    logs = [take_logs(*model) for model in models]
    return merge_each(
        [[em_statistics(block, offsets, *log) for log in logs] for block in iterate_distinct(group)]
    )


def judge_group(
    group: BlockGroup,
    offsets: IntArray,
    add: AddScores,
    score: Callable[[P, IntArray], ScoreRows],
    averages: Sequence[Sequence[P]],
    target: int | None,
) -> FloatArray:
    """Sums of the scores of a group under averages of models, whose logarithms are taken once."""
    scores = [[score(model, offsets) for model in models] for models in averages]
    return merge_scores([add(block, offsets, *scores, target) for block in iterate_distinct(group)])
