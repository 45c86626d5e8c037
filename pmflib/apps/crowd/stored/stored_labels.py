"""Label logs in a store: passes and maps over groups of their blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from pmflib.apps.crowd.e_step import LabelSource, LogWeights, evaluate_blocks, take_labels
from pmflib.apps.crowd.label_counts import LabelCounts
from pmflib.apps.crowd.labelling import LabelRule, ScoredTasks
from pmflib.apps.crowd.m_step import update_crowd_model
from pmflib.apps.crowd.pairs.annotator_model import CrowdModel
from pmflib.apps.crowd.stored.block_groups import (
    FoldReader,
    call_with_groups,
    compare_fold,
    count_group_label_pairs,
    count_worker_pairs_of_groups,
    label_fold,
    load_voted,
    plan_label_passes,
    plan_worker_counts,
    work_on_blocks,
    work_on_fold,
    work_on_scored,
)
from pmflib.apps.crowd.stored.classifier_files import (
    PREDICTIONS,
    Predictions,
    name_predictions,
    predict_fold,
)
from pmflib.apps.crowd.stored.known_files import KNOWN
from pmflib.apps.crowd.stored.label_blocks import LabelReference, group_folds, list_label_blocks
from pmflib.apps.crowd.stored.label_tables import (
    make_question_fields,
    name_labels,
    pick_uncertain,
)
from pmflib.apps.crowd.stored.worker_models import (
    NO_GAIN,
    WorkerModel,
    count_held_out_folds,
    make_gain,
)
from pmflib.apps.crowd.worker_pair_counts import WorkerPairCounts
from pmflib.base.blocks import SparseBlock, concatenate_blocks
from pmflib.base.comparison import PairedGain, merge_sums
from pmflib.base.errors import MemoryPlanError
from pmflib.cluster.clients import Client, count_threads
from pmflib.cluster.item_maps import map_items
from pmflib.cluster.maps import listen_to_counts, run_blocks
from pmflib.cluster.memory import ClusterMemory, MemoryPlan, PlanWorker
from pmflib.cluster.task_plans import plan_tasks
from pmflib.em.checkpoint import digest_fit
from pmflib.em.stored_blocks import StoredBlocks
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.checkpoints import drop_arrived, gather_in
from pmflib.store.objects.local_files import name_for_workers
from pmflib.store.sample_blocks import COUNTING_COARSENESS, BlockReference

R = TypeVar("R")

Groups: TypeAlias = Sequence[Sequence[BlockReference]]
"""Groups of blocks, one Dask task each."""


class StoredLabels(LabelSource, StoredBlocks):
    """A label log in a store, with the workers of a cluster.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread.
    store, dataset
        Store and dataset of the labels.
    schema
        Schema of the label log, as from `make_label_schema`.
    memory
        Memory of the cluster.
    known
        Artefact of the known labels, as from `pmflib_tasks.crowd.known.find_known_labels`; None without any.
    classifier
        Artefact of the predictions of a classifier, as from `pmflib_tasks.crowd.known.find_predictions`; None without
        one.

    Raises
    ------
    StoreError
        If the dataset is damaged, or missing from the store.
    """

    def __init__(
        self,
        client: Client,
        store: Store,
        dataset: Reference,
        schema: Schema,
        *,
        memory: ClusterMemory,
        known: Reference | None = None,
        classifier: Reference | None = None,
    ) -> None:
        super().__init__(list_label_blocks(store, dataset, schema), schema.offsets, client)
        self.workers = schema.names
        self.classes = schema[0].levels
        self.memory = memory
        self.known = "" if known is None else f"{store.address_artefact(known)}/{KNOWN}"
        self.predictions = (
            "" if classifier is None else f"{store.address_artefact(classifier)}/{PREDICTIONS}"
        )
        self._digests = schema.digest, "" if known is None else known.digest
        self.n_workers, self.n_classes = len(self.workers), len(self.classes)
        self.n_tasks = sum(block.n_rows for block in self.blocks)
        self.with_known = known is not None

    def digest(self) -> str:
        """SHA-256 digest of the labels, the schema and the known labels, in hexadecimal; identifies checkpoints."""
        return digest_fit(super().digest(), *self._digests)

    @cached_property
    def groups(self) -> Groups:
        """Groups of whole folds, independent of the partitions: see `group_folds`."""
        return group_folds([each for each in self.blocks if isinstance(each, LabelReference)])

    def plan_passes(self, n_subclasses: int = 1, n_threads: int = 1) -> MemoryPlan:
        """Plan the memory of passes that read the labels again, and of labelling, in a worker of the cluster."""
        sizes = self.n_workers, self.n_classes
        n_waiting = plan_tasks(self.costs, count_threads(self.client)).n_waiting
        return plan_label_passes(
            self.groups, *sizes, n_threads, n_subclasses=n_subclasses, n_waiting=n_waiting
        )

    def keep_in_memory(self, plan_worker: PlanWorker) -> None:
        """Keep the labels in the memory of the workers, if they need at most half of what a plan leaves.

        Parameters
        ----------
        plan_worker
            Plans the other memory of a worker, given its number of threads.
        """
        # the stratum of every task, and in the worst case one stratum per task
        votes = (12 + 8 * self.n_classes) * self.n_tasks
        needed = votes + sum(block.nbytes for block in self.blocks)
        if needed > self.memory.find_spare(plan_worker) // 2:
            return
        self._load = partial(
            load_voted, n_workers=self.n_workers, n_classes=self.n_classes, known=self.known
        )
        self._is_kept = True
        self._kept.clear()

    def map_each(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        each: Sequence[tuple[Any, ...]],
        *,
        result_bytes: int = 0,
        name: str = "",
        meanwhile: Callable[[], None] | None = None,
    ) -> list[R]:
        """Map the function over groups of blocks; if there are no tasks, it is called with an empty list."""
        if not self.groups:
            return [function([], *shared) for shared in each]
        own = self.n_workers, self.n_classes, self.known, function
        options: dict[str, Any] = {
            "result_bytes": result_bytes,
            "name": name,
            "meanwhile": meanwhile,
        }
        return super().map_each(work_on_blocks, merge, [(*own, *one) for one in each], **options)

    def start_each(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        each: Sequence[tuple[Any, ...]],
        *,
        result_bytes: int = 0,
        name: str = "",
    ) -> Callable[[], list[R]]:
        """Return a function that runs `map_each`."""
        options: dict[str, Any] = {"result_bytes": result_bytes, "name": name}
        return partial(self.map_each, function, merge, each, **options)

    def sample(self, every: int) -> SparseBlock:
        """Return the labels of one task in ``every`` of each group."""
        blocks = self.map_blocks(take_labels, _join_lists, every, name="held-out labels")
        nothing = SparseBlock(np.zeros(1, np.int64), np.zeros(0, np.int32))
        offsets = self.offsets
        return concatenate_blocks([nothing, *blocks], offsets).to_sparse(offsets)

    def count_pairs(self, on_tasks: Callable[[int], None]) -> WorkerPairCounts:
        """Count the pairs of workers that share tasks, in integers.

        Parameters
        ----------
        on_tasks
            Progress callback, given the number of tasks counted so far.

        Raises
        ------
        MemoryPlanError
            If the counts do not fit in memory.
        """
        sizes = self.n_workers, self.n_classes
        n_threads = count_threads(self.client)
        groups = _join_groups(self.groups, n_threads)
        try:
            self.memory.check(lambda n: plan_worker_counts(groups, *sizes, n))
        except MemoryPlanError:
            # most pairs of a large crowd share no task: count how many may do so before giving up
            n_pairs = self.count_label_pairs()
            self.memory.check(lambda n: plan_worker_counts(groups, *sizes, n, n_pairs))
        # each thread holds one set of counts
        shares = [groups[index::n_threads] for index in range(min(n_threads, len(groups)))]
        if not shares:
            return WorkerPairCounts.zero(*sizes)
        n_counted, n_tasks = 0, self.n_tasks

        def add(n: int) -> None:
            nonlocal n_counted
            n_counted += n
            if n_counted < n_tasks:
                on_tasks(n_counted)

        with listen_to_counts(self.client, add) as topic:
            return run_blocks(
                self.client,
                count_worker_pairs_of_groups,
                shares,
                WorkerPairCounts.merge,
                *sizes,
                topic,
            )

    def count_label_pairs(self) -> int:
        """Count the pairs of labels of the same task, in one quick pass over all tasks."""
        groups = _join_groups(self.groups, count_threads(self.client))
        sizes = self.n_workers, self.n_classes
        return sum(map_items(self.client, count_group_label_pairs, groups, *sizes))

    def score_under(self, model: CrowdModel) -> StoredTasks:
        """Return the tasks with their posterior under a crowd model, which is recomputed for each map."""
        return StoredTasks(self, LogWeights.from_model(model, with_votes=False))

    def hold_out(self, model: CrowdModel, least: int, n_folds: int) -> dict[int, CrowdModel]:
        """Update a crowd model without each of the last folds in turn: the models by fold.

        Parameters
        ----------
        model
            Model estimated from all tasks.
        least
            Minimum number of folds to hold out.
        n_folds
            Number of folds of the log.
        """
        if not self.groups:
            return {}
        weights = LogWeights.from_model(model, with_votes=True)
        total, kind = self.evaluate(weights), model.annotator_model
        found = {}
        first = n_folds - count_held_out_folds(self.n_observed, n_folds, least)
        for fold, blocks in self.list_folds():
            if fold < first:
                continue
            own = self.n_workers, self.n_classes, self.known
            (part,) = map_items(
                self.client, work_on_blocks, [blocks], *own, evaluate_blocks, weights
            )
            # rounding can leave negative numbers for workers without other tasks
            found[fold] = update_crowd_model(
                np.maximum(total.level_mass - part.level_mass, 0.0),
                np.maximum(total.state_mass - part.state_mass, 0.0),
                kind,
                model.pseudo_count or 1.0,
            )
        return found

    def compare_models(self, new: WorkerModel, live: WorkerModel) -> PairedGain:
        """Estimate the gain of one model over another in predicting labels that both have held out.

        Parameters
        ----------
        new, live
            Models of the same classes; workers unknown to a model have the pooled confusion matrix.
        """
        both = new.fit_to(self.workers).held_out, live.fit_to(self.workers).held_out
        items = [
            (blocks, both[0][fold], both[1][fold])
            for fold, blocks in self.list_folds()
            if fold in both[0] and fold in both[1]
        ]
        return make_gain(merge_sums([NO_GAIN, *map_items(self.client, compare_fold, items)]))

    def predict(self, table: Predictions, folder: Path, on_fold: Callable[[int, int], None]) -> int:
        """Write the class probabilities of a classifier, a file for each fold.

        Parameters
        ----------
        table
            The class probabilities.
        folder, on_fold
            As for `StoredTasks.label`.

        Returns
        -------
        Number of tasks with class probabilities.
        """
        address = name_for_workers(folder)
        parts = [(blocks, name_predictions(address, fold)) for fold, blocks in self.list_folds()]
        found = map_items(
            self.client,
            predict_fold,
            parts,
            table,
            self.offsets,
            on_result=lambda n_done: on_fold(n_done, len(parts)),
        )
        drop_arrived(gather_in(folder))
        return sum(found)

    def list_folds(self) -> list[tuple[int, list[BlockReference]]]:
        """List the folds that have tasks, in order, and the blocks of each."""
        return [(fold, [*blocks]) for fold, blocks in groupby(self.blocks, key=attrgetter("fold"))]


class StoredTasks(ScoredTasks):
    """Tasks of a stored log with their posterior, by the workers of a cluster.

    Parameters
    ----------
    labels
        The label log.
    weights
        Weights under which tasks are scored.
    """

    def __init__(self, labels: StoredLabels, weights: LogWeights) -> None:
        self._labels, self._weights = labels, weights
        names = labels.workers, labels.classes
        self.workers, self.classes = (pa.array(each, pa.string()) for each in names)
        self.n_tasks, self.with_predictions = labels.n_tasks, bool(labels.predictions)
        self.n_label_pairs = (
            sum(block.n_observed**2 / max(block.n_rows, 1) for block in labels.blocks) / 2
        )
        self._reader = FoldReader(labels.classes, labels.known, weights, labels.predictions)

    def map(self, function: Callable[..., R], merge: Callable[[Sequence[R]], R], *shared: Any) -> R:
        """Map the function over groups of blocks."""
        shared = self._weights, function, *shared
        found: R = self._labels.map_blocks(work_on_scored, merge, *shared, name="scored")
        return found

    def map_folds(self, function: Callable[..., R], *shared: Any) -> list[R]:
        """Map the function over the folds that have tasks."""
        folds = [blocks for _, blocks in self._labels.list_folds()]
        return map_items(self._labels.client, work_on_fold, folds, self._reader, function, *shared)

    def call(self, function: Callable[..., R], *shared: Any) -> R:
        """Call the function on one worker of the cluster."""
        labels = self._labels
        if not labels.groups:
            return function([], *shared)
        own = labels.n_workers, labels.n_classes, labels.known, self._weights, function
        found: list[R] = map_items(labels.client, call_with_groups, [labels.groups], *own, *shared)
        return found[0]

    def label(
        self, rule: LabelRule, folder: Path, on_fold: Callable[[int, int], None]
    ) -> tuple[LabelCounts, pa.Table]:
        """Write the true labels of all tasks and their probabilities to Parquet, a file for each fold.

        Parameters
        ----------
        rule
            Rule for computing probabilities.
        folder
            Existing folder.
        on_fold
            Progress callback, given the numbers of labelled folds and of all folds.

        Returns
        -------
        Sums over all tasks, and the least certain tasks, as from `list_questions`.
        """
        labels, address = self._labels, name_for_workers(folder)
        parts = [(blocks, name_labels(address, fold)) for fold, blocks in labels.list_folds()]
        counted = map_items(
            labels.client,
            label_fold,
            parts,
            self._reader,
            rule,
            on_result=lambda n_done: on_fold(n_done, len(parts)),
        )
        drop_arrived(gather_in(folder))
        none = LabelCounts.zero(labels.n_workers, labels.n_classes)
        counts = LabelCounts.merge([none, *(each for each, _ in counted)])
        empty = make_question_fields(labels.classes).empty_table()
        return counts, pick_uncertain([empty, *(table for _, table in counted)])


def _join_lists(parts: Sequence[list[SparseBlock]]) -> list[SparseBlock]:
    """Concatenate lists of blocks."""
    return [block for part in parts for block in part]


def _join_groups(groups: Groups, n_threads: int) -> Groups:
    """Join groups for counting, because merges are expensive, but keep all threads busy."""
    n_joined = max(1, min(COUNTING_COARSENESS, len(groups) // n_threads))
    return [
        [block for group in groups[start : start + n_joined] for block in group]
        for start in range(0, len(groups), n_joined)
    ]
