"""What the stages of a planned run share: partitions, groups, memory of a worker and of the client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pmflib.cluster.memory import (
    HELD_OUT_PART,
    KEPT_PART,
    OWN_BYTES,
    ClusterMemory,
    MemoryPlan,
    WorkerMemory,
)
from pmflib.cluster.task_plans import plan_tasks
from pmflib.core.machine import USED_SHARE
from pmflib.counting.block_counting import (
    TILE_ROWS,
    WEIGHED_SHARE,
    CountingWork,
    estimate_costs,
    estimate_joined,
)
from pmflib.counting.stored_pairs import choose_n_runs, plan_counting
from pmflib.em.forests.samples import are_modest, plan_trees
from pmflib.em.memory import SharedPassPlan, choose_side_by_side, choose_tasks, plan_em, plan_pass
from pmflib.store.sample_blocks import choose_block_rows
from pmflib_tasks.operations.planning.sizes import (
    ClusterSize,
    FitSize,
    LogSize,
    block_disk_bytes,
    count_partition_files,
    sample_disk_bytes,
    spill_row_bytes,
)
from pmflib_tasks.operations.planning.speeds import (
    BLOCK_RECORD,
    BLOCK_SENT,
    RESIDENT_SENT,
    SCORED_SHARE,
    Speeds,
)
from pmflib_tasks.operations.planning.stage_costs import MapWork, StageCost, add_parts, time_maps
from pmflib_tasks.operations.planning.task_counts import (
    FoldPart,
    IngestShape,
    MapTasks,
    count_ingest,
    list_planned_blocks,
    plan_folds,
)


@dataclass(frozen=True)
class PlannedRun:
    """A run as its stages see it before it runs.

    Parameters
    ----------
    log, fit, cluster, speeds
        Sizes and speeds.
    """

    log: LogSize
    fit: FitSize
    cluster: ClusterSize
    speeds: Speeds

    @cached_property
    def shape(self) -> IngestShape:
        """Tasks and artefacts of the ingest."""
        return count_ingest(self.log, self.fit.folds, self.fit.buckets)

    @property
    def sample_bytes(self) -> float:
        """Bytes of all partitions on disk."""
        return self.log.samples * sample_disk_bytes(self.log)

    @property
    def spill_bytes(self) -> float:
        """Bytes of all spills; 0 where samples have no identifiers."""
        return self.log.rows * spill_row_bytes(self.log) if self.log.identified else 0.0

    @cached_property
    def pass_plan(self) -> SharedPassPlan:
        """Tasks of a pass over the training samples."""
        log, fit = self.log, self.fit
        costs = self.gather(0, fit.train).costs
        return plan_pass(costs, self.cluster.n_threads, log.levels, fit.rank * fit.members)

    @property
    def model_bytes(self) -> int:
        """Bytes of a model, and of its sufficient statistics."""
        return 8 * (self.log.levels + 1) * self.fit.rank * self.fit.members

    @cached_property
    def counting_memory(self) -> MemoryPlan:
        """Memory of counting in a worker, and in the client."""
        n_runs = choose_n_runs(self.fit.folds, self.cluster.n_threads)
        return plan_counting(self.log.levels, self.cluster.threads, n_runs)

    @cached_property
    def em_memory(self) -> MemoryPlan:
        """Memory of a pass in a worker, and in the client, without samples."""
        fit, n_waiting = self.fit, self.pass_plan.tasks.n_waiting
        sizes = self.log.levels, fit.rank, self.cluster.threads, fit.members
        return plan_em(*sizes, n_waiting=n_waiting, n_runs=self.n_side_by_side)

    @cached_property
    def forest_memory(self) -> MemoryPlan | None:
        """Memory of a pass with forests in a worker, and in the client; None where none are tried."""
        fit = self.fit
        if fit.forests is None or fit.schema is None:
            return None
        offsets = fit.schema.offsets
        if not fit.forests.is_forced and not are_modest(offsets, fit.rank):
            return None
        n_waiting = plan_pass(
            self.gather(0, fit.train).costs, self.cluster.n_threads, self.log.levels, fit.rank
        ).tasks.n_waiting
        return plan_trees(offsets, fit.rank, self.cluster.threads, fit.members, n_waiting=n_waiting)

    @property
    def refine_memory(self) -> MemoryPlan:
        """Memory that the stage of EM is planned with: of its passes, and of those with forests."""
        forests = self.forest_memory
        return self.em_memory if forests is None else self.em_memory.take_larger(forests)

    def plan_states(self, n_states: int) -> MemoryPlan:
        """Memory of predictions by one model of so many states, of which no statistics are kept."""
        return plan_em(self.log.levels, n_states, self.cluster.threads, n_waiting=0)

    @property
    def n_side_by_side(self) -> int:
        """Runs of EM that are under way at a time."""
        n_runs = self.fit.runs if self.fit.validation else 1
        return min(choose_side_by_side(self.cluster.n_threads), n_runs)

    @property
    def scores_beside(self) -> bool:
        """Whether a model is scored while the next pass is made."""
        return self.gather(*self.parts[1]).n_rows > 0

    @cached_property
    def keeps(self) -> tuple[bool, bool]:
        """Whether the blocks of training, and of validation, stay in the workers' memory from pass to pass of EM."""
        training, held_out = (self.gather(*part).n_bytes for part in self.parts)
        spare_bytes = self.find_spare(self.refine_memory)
        return training <= spare_bytes, held_out <= spare_bytes // HELD_OUT_PART

    def find_spare(self, plan: MemoryPlan) -> int:
        """Bytes of all workers that blocks of training may be kept in: a part of what the passes of a plan leave."""
        cluster = self.cluster
        data = max(0, cluster.worker_room - OWN_BYTES)
        worker = WorkerMemory("worker", cluster.threads, data, cluster.memory)
        # all are alike
        memory = ClusterMemory((worker,), cluster.client_memory, is_shared=False)
        return memory.find_spare(lambda _: plan) * cluster.workers // KEPT_PART

    @cached_property
    def kept_bytes(self) -> int:
        """Bytes of the blocks that a worker keeps from pass to pass."""
        kept = [
            self.gather(*part).n_bytes
            for part, is_kept in zip(self.parts, self.keeps, strict=True)
            if is_kept
        ]
        return -(-sum(kept) // self.cluster.workers)

    @cached_property
    def keeping_memory(self) -> int:
        """Least memory of a worker with which all blocks stay in the workers' memory, bytes."""
        training, held_out = (self.gather(*part).n_bytes for part in self.parts)
        share = KEPT_PART * max(training, HELD_OUT_PART * held_out) / self.cluster.workers
        return int((self.refine_memory.needed + OWN_BYTES + share) / USED_SHARE) + (1 << 20)

    @property
    def parts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """First fold, and the one after the last, of training and of validation."""
        fit = self.fit
        return (0, fit.train), (fit.train, fit.train + fit.validation)

    def gather(self, first: int, stop: int, coarseness: int = 1) -> FoldPart:
        """Samples of the folds from one up to another."""
        fit = self.fit
        return plan_folds(self.log, fit.folds, fit.buckets, first, stop, coarseness)

    @property
    def n_blocks(self) -> int:
        """Blocks of the dataset."""
        return self.gather(0, self.fit.folds).n_blocks

    def client_bytes(self, plan: MemoryPlan) -> int:
        """Memory of the client in a stage that works on blocks."""
        own = sum(plan.client_parts.values())
        return self.speeds.client_bytes + own + self.n_blocks * BLOCK_RECORD

    def count_row_seconds(self) -> float:
        """Seconds of counting a sample, by the rule that chooses the kernel."""
        log = self.log
        observed = log.variables * log.observed
        work = CountingWork(
            n_rows=choose_block_rows(log.variables),
            n_levels=log.levels,
            n_variables=log.variables,
            n_observed=observed,
            n_pairs=(observed * observed + observed * (1 - log.observed) + observed) / 2,
            n_planes=log.levels - (log.variables if log.observed >= 1 else 0),
            sparse=log.is_sparse,
        )
        costs = estimate_costs(work, sweeps=min(1.0, 2 * work.n_rows / TILE_ROWS))
        least = min(costs.values())
        if log.design_columns:
            # weights of many digits are scattered, or added up by groups of variables: several times as long
            base = -(-log.levels // log.variables) + (log.observed < 1)
            joined = estimate_joined(np.full(log.variables, base, np.int64), work.n_rows)
            least = min(WEIGHED_SHARE * costs["scatter"], joined)
        return self.speeds.count_share * least * 1e-9 / work.n_rows

    def map_blocks(self, tasks: MapTasks, n_rows: float, seconds: float) -> MapWork:
        """Map over groups of blocks that are read from the store, of so many rows and seconds of work each."""
        log = self.log
        n_blocks = max(1.0, n_rows / max(log.samples, 1) * self.n_blocks)
        return MapWork(
            tasks,
            leaf_seconds=seconds + n_rows * log.row_bytes / self.speeds.block_bytes,
            leaf_read=n_rows * block_disk_bytes(log),
            # a partition's descriptions, and the chunks
            leaf_requests=2 + (2 if log.is_sparse else 1) * n_blocks,
            # references of blocks
            sent_bytes=200 + BLOCK_SENT * n_blocks,
        )

    def hold_blocks(
        self, tasks: MapTasks, part: FoldPart, row_seconds: float, *, is_kept: bool
    ) -> tuple[MapWork, MapWork]:
        """Maps over blocks that are assigned to the workers once: one that assigns them, and one of those that follow.

        Blocks that stay in the workers' memory are read by the first; of others it sends the references.
        """
        of_leaf = part.n_rows / tasks.leaves
        work = self.map_blocks(tasks, of_leaf, of_leaf * row_seconds)
        decoding = of_leaf * self.log.row_bytes / self.speeds.block_bytes
        assigning = replace(work, tasks=MapTasks(tasks.leaves, balance=tasks.balance))
        if is_kept:
            assigning = replace(assigning, leaf_seconds=decoding)
            seconds = work.leaf_seconds - decoding
            work = replace(work, leaf_seconds=seconds, leaf_read=0.0, leaf_requests=0.0)
        else:
            assigning = replace(assigning, leaf_seconds=0.0, leaf_read=0.0, leaf_requests=0.0)
        return assigning, replace(work, sent_bytes=RESIDENT_SENT)

    def measure_fit(
        self, row_seconds: float, model_bytes: int, *, is_kept: bool | None = None
    ) -> MapWork:
        """Map that measures the likelihood of the training samples under the model that was fitted.

        Whether their blocks stay in the workers' memory is as for EM if it is not said.
        """
        is_kept = self.keeps[0] if is_kept is None else is_kept
        part, result_bytes = self.gather(*self.parts[0]), 8 * self.log.levels
        costs = part.costs or (0,)
        plan = plan_tasks(costs, choose_tasks(costs, self.cluster.n_threads), result_bytes)
        _, work = self.hold_blocks(
            MapTasks.of_plan(plan, None), part, SCORED_SHARE * row_seconds, is_kept=is_kept
        )
        return replace(work, result_bytes=result_bytes, copied_bytes=model_bytes)

    def count_sample_files(self) -> int:
        """Files of all partitions: those of one are counted for all."""
        blocks = list_planned_blocks(self.log, self.fit.folds, self.fit.buckets)
        first = [block for block in blocks if block.path == blocks[0].path]
        return self.shape.partitions * count_partition_files(self.log, first)

    def make_stage(
        self,
        name: str,
        works: Sequence[MapWork],
        *,
        client_seconds: float,
        read_bytes: float,
        written_bytes: float,
        files: int,
        worker_memory: int,
        client_memory: int,
        side_by_side: int = 1,
    ) -> StageCost:
        """Add up maps and the work of the client between them.

        Where maps are side by side, the client works for one while workers are busy with another.
        """
        cluster, speeds = self.cluster, self.speeds
        done = [time_maps(work, cluster, speeds) for work in works]
        all_works = [*works, *(work.beside for work in works if work.beside is not None)]
        at_work = sum(times.wall for times in done)
        client_wall = max(client_seconds / side_by_side, client_seconds - at_work)
        wall = at_work + client_wall
        useful = sum(add_seconds(work, speeds) for work in all_works)
        return StageCost(
            name,
            tasks=sum(work.repeats * work.tasks.total for work in all_works),
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            network_bytes=sum(times.network_bytes for times in done),
            files=files,
            requests=sum(w.repeats * w.tasks.leaves * w.leaf_requests for w in all_works),
            worker_seconds=sum(times.worker for times in done),
            waiting_seconds=sum(times.waiting for times in done),
            scheduler_seconds=sum(times.scheduler for times in done),
            client_seconds=client_seconds + sum(times.client for times in done),
            wall_seconds=wall,
            worker_memory=worker_memory,
            client_memory=client_memory,
            efficiency=min(1.0, useful / max(wall * cluster.n_threads, 1e-300)),
            parts=add_parts(*(times.parts for times in done), {"client": client_wall}),
        )


def add_seconds(work: MapWork, speeds: Speeds) -> float:
    """Seconds that one thread would take alone for all leaves of maps: the work itself, and its storage."""
    moved = work.leaf_read + work.leaf_written
    stored = moved / speeds.storage_bytes + work.leaf_requests * speeds.request_seconds
    return work.repeats * work.tasks.leaves * (work.leaf_seconds + stored)
