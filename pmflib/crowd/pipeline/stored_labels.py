"""Passes over a label log in a store: a map over groups of its blocks each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from pmflib.counting.worker_pair_counts import WorkerPairCounts
from pmflib.crowd.confidence import Calibration, find_calibration
from pmflib.crowd.copied_labels import MOST_LABEL_PAIRS, Copies
from pmflib.crowd.e_step import LogWeights
from pmflib.crowd.known_intercepts import MOST_SCORED, KnownScores, score_known
from pmflib.crowd.label_tally import LabelTally
from pmflib.crowd.left_out import LeftOutSums, Round, start_sums
from pmflib.crowd.pipeline.block_groups import (
    MOST_CELLS,
    count_group_label_pairs,
    count_groups,
    evaluate_group,
    find_copies_in_groups,
    label_partition,
    load_voted,
    score_known_group,
    sum_group,
)
from pmflib.crowd.pipeline.known_files import KNOWN
from pmflib.crowd.pipeline.label_tables import make_question_fields, pick_uncertain
from pmflib.crowd.pipeline.memory import plan_label_passes, plan_worker_counts
from pmflib.em.statistics import EMStatistics
from pmflib.errors import MemoryPlanError
from pmflib.running.clients import Client, count_threads
from pmflib.running.grouping import COUNTING_COARSENESS, group_blocks, weigh_blocks
from pmflib.running.held_items import HeldItems, keep_loaded
from pmflib.running.item_maps import map_items
from pmflib.running.maps import run_blocks
from pmflib.running.memory_plan import MemoryPlan
from pmflib.running.task_plans import plan_tasks
from pmflib.running.worker_memory import ClusterMemory, PlanWorker
from pmflib.running.worker_messages import listen_to_counts
from pmflib.schema import Schema
from pmflib.solvers.crowd.annotator_model import CrowdModel
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_dataset_blocks, list_partitions
from pmflib.store.handed_files import drop_handed, gather_in
from pmflib.store.mirrors import name_for_workers
from pmflib.store.sample_blocks import BlockReference

Groups: TypeAlias = Sequence[Sequence[BlockReference]]
"""Blocks that are worked on together, a Dask task each."""


class StoredLabels:
    """A label log in a store, and the workers of a cluster that pass over it.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread.
    store, dataset
        Where the labels are.
    schema
        Schema of the label log, as from `make_label_schema`.
    n_folds
        Number of folds of the dataset; all of them are used.
    memory
        What plans may use.
    known
        Artefact of the known labels, as from `tasks.known.find_known_labels`; None where there are none.

    Raises
    ------
    StoreError
        If the dataset is damaged, or not in the store.
    """

    def __init__(
        self,
        client: Client,
        store: Store,
        dataset: Reference,
        schema: Schema,
        *,
        n_folds: int,
        memory: ClusterMemory,
        known: Reference | None = None,
    ) -> None:
        self.client = client
        self.workers = schema.names
        self.classes = schema[0].levels
        self.memory = memory
        self.groups: Groups = group_blocks(list_dataset_blocks(store, dataset, range(n_folds)))
        self.partitions = list_partitions(store, dataset)
        self.known = "" if known is None else f"{store.address_artefact(known)}/{KNOWN}"
        self._loaded: HeldItems | None = None

    @property
    def n_workers(self) -> int:
        """Number of workers."""
        return len(self.workers)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return sum(block.n_rows for group in self.groups for block in group)

    def plan_passes(self, n_subclasses: int = 1, n_threads: int = 1) -> MemoryPlan:
        """Plan the memory of passes, and of labelling the tasks, in a worker of so many threads.

        Labels are read again in each pass.
        """
        sizes = self.n_workers, self.n_classes
        costs = [*map(weigh_blocks, self.groups)] or [0]
        n_held = plan_tasks(costs, count_threads(self.client)).n_held
        return plan_label_passes(
            self.groups, *sizes, n_threads, n_subclasses=n_subclasses, n_held=n_held
        )

    def keep_in_memory(self, plan_worker: PlanWorker) -> None:
        """Keep the labels where they are worked on, if they take at most half of the memory that a plan leaves.

        Parameters
        ----------
        plan_worker
            What is held besides, by a worker of so many threads.
        """
        blocks = [block for group in self.groups for block in group]
        # the stratum of every task, and at worst a tally of its votes and a stratum of its own
        votes = (12 + 8 * self.n_classes) * self.n_tasks
        if not blocks:
            return
        if (
            votes + sum(block.nbytes for block in blocks)
            <= self.memory.find_spare(plan_worker) // 2
        ):
            load = partial(
                load_voted, n_workers=self.n_workers, n_classes=self.n_classes, known=self.known
            )
            costs = [*map(weigh_blocks, self.groups)]
            self._loaded = keep_loaded(self.client, load, self.groups, costs, "load")

    def evaluate(self, weights: LogWeights) -> EMStatistics:
        """Sufficient statistics of all tasks: the E-step of a pass.

        Parameters
        ----------
        weights
            What tasks are scored under.
        """
        if not self.groups:
            return EMStatistics.zero(len(weights.labels), weights.n_states)
        return run_blocks(
            self.client,
            evaluate_group,
            self.groups if self._loaded is None else self._loaded,
            EMStatistics.merge,
            self.n_classes,
            self.known,
            weights,
            costs=[*map(weigh_blocks, self.groups)],
            name="pass",
        )

    def count_pairs(self, on_tasks: Callable[[int], None]) -> WorkerPairCounts:
        """Count the pairs of workers that share tasks: the same bits whoever counts which group, for integers add up.

        Parameters
        ----------
        on_tasks
            Called with the number of tasks counted so far, but for the last: progress.

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
            # most pairs of a large crowd share no task: see how many may, before it is given up
            n_pairs = self.count_label_pairs()
            self.memory.check(lambda n: plan_worker_counts(groups, *sizes, n, n_pairs))
        # a thread holds the counts of all that it counts, once
        shares = [groups[place::n_threads] for place in range(min(n_threads, len(groups)))]
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
                self.client, count_groups, shares, WorkerPairCounts.merge, *sizes, topic
            )

    def count_label_pairs(self) -> int:
        """Number of pairs of labels of the same task, in one quick pass over all tasks."""
        groups = _join_groups(self.groups, count_threads(self.client))
        sizes = self.n_workers, self.n_classes
        return sum(map_items(self.client, count_group_label_pairs, groups, *sizes))

    def calibrate(self, model: CrowdModel) -> Calibration:
        """Find how confidence in the labels under a crowd model is made believable, in four passes.

        Parameters
        ----------
        model
            Prior and confusion matrices.
        """
        weights = LogWeights.from_model(model, with_votes=False)
        costs = [*map(weigh_blocks, self.groups)]

        def measure(rounds: Sequence[Round], every: int) -> LeftOutSums:
            if not self.groups:
                return start_sums(rounds, self.n_workers, self.n_classes)
            return run_blocks(
                self.client,
                sum_group,
                self.groups if self._loaded is None else self._loaded,
                LeftOutSums.merge,
                self.n_classes,
                self.known,
                weights,
                rounds,
                every,
                costs=costs,
                name="calibration",
            )

        return find_calibration(measure, self.n_tasks)

    def score_known(self, model: CrowdModel) -> KnownScores:
        """Score the tasks whose label is known: see `pmflib.crowd.known_intercepts.score_known`.

        Parameters
        ----------
        model
            Crowd model that was estimated with the known labels.
        """
        if not self.groups or not self.known:
            return score_known([], model)
        return run_blocks(
            self.client,
            score_known_group,
            self.groups if self._loaded is None else self._loaded,
            KnownScores.merge,
            self.n_classes,
            self.known,
            model,
            max(1, self.n_tasks // MOST_SCORED),
            costs=[*map(weigh_blocks, self.groups)],
            name="known",
        )

    def find_copies(self, model: CrowdModel, calibration: Calibration) -> list[Copies]:
        """Find pairs of workers with the same mistakes, by one worker of the cluster.

        Of a large log it looks at one task of so many that their probabilities, and their pairs of labels, are as many
        as are worked on at a time.

        Parameters
        ----------
        model
            Prior and confusion matrices, by which labels are wrong or right.
        calibration
            Has the confusion matrices by which workers are wrong.
        """
        if not self.groups:
            return []
        blocks = [block for group in self.groups for block in group]
        n_cells = self.n_tasks * self.n_classes
        n_pairs = sum(block.n_observed**2 / max(block.n_rows, 1) for block in blocks) / 2
        every = math.ceil(max(n_cells / MOST_CELLS, n_pairs / MOST_LABEL_PAIRS, 1.0))
        weights = LogWeights.from_model(model, with_votes=False)
        confusion = calibration.rounds[-1].model.confusion
        (found,) = map_items(
            self.client,
            find_copies_in_groups,
            [self.groups],
            self.n_classes,
            self.known,
            weights,
            confusion,
            every,
        )
        return found

    def label(
        self,
        model: CrowdModel,
        calibration: Calibration,
        folder: Path,
        on_partition: Callable[[int, int], None],
    ) -> tuple[LabelTally, pa.Table]:
        """Write the true labels of every partition's tasks, and their probabilities, to Parquet.

        Parameters
        ----------
        model
            Prior and confusion matrices.
        calibration
            How confidence is found.
        folder
            Existing folder, for a file per partition.
        on_partition
            Called with the number of partitions done and in all, each time one is: progress.

        Returns
        -------
        Sums over all tasks, and those that are least certain, as from `list_questions`.
        """
        n_files = len(self.partitions)
        name = name_for_workers(folder)
        files = [
            (path, f"{name}/part-{place:05}.parquet") for place, path in enumerate(self.partitions)
        ]
        counted = map_items(
            self.client,
            label_partition,
            files,
            self.classes,
            self.known,
            LogWeights.from_model(model, with_votes=False),
            calibration,
            on_result=lambda n_done: on_partition(n_done, n_files),
        )
        drop_handed(gather_in(folder))
        none = LabelTally.zero(self.n_workers, self.n_classes)
        tally = LabelTally.merge([none, *(tally for tally, _ in counted)])
        empty = make_question_fields(self.classes).empty_table()
        return tally, pick_uncertain([empty, *(table for _, table in counted)])


def _join_groups(groups: Groups, n_threads: int) -> Groups:
    """Put groups together to be counted: a merge takes as long as many labels do, but all threads must work."""
    n_joined = max(1, min(COUNTING_COARSENESS, len(groups) // n_threads))
    return [
        [block for group in groups[start : start + n_joined] for block in group]
        for start in range(0, len(groups), n_joined)
    ]
