"""Costs of the stages of a run: read, sort, count, fit, refine, evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pmflib.counting.counting_tasks import choose_runs, count_folds_ahead, plan_fold_runs
from pmflib.counting.kernel_choice import TILE_ROWS, CountingWork, estimate_costs
from pmflib.counting.memory import plan_counting
from pmflib.em.memory import plan_em
from pmflib.em.pass_tasks import PassPlan, plan_pass
from pmflib.planning.sizes import ClusterSize, FitSize, LogSize
from pmflib.planning.speeds import Speeds
from pmflib.planning.stage_costs import MapTimes, MapWork, StageCost, add_parts, time_maps
from pmflib.planning.stored_bytes import (
    SPILL_FILES,
    block_disk_bytes,
    count_partition_files,
    sample_disk_bytes,
    spill_row_bytes,
)
from pmflib.planning.task_counts import (
    FoldPart,
    IngestShape,
    MapTasks,
    count_ingest,
    list_planned_blocks,
    plan_folds,
)
from pmflib.running.grouping import COUNTING_COARSENESS
from pmflib.running.memory_limits import USED_SHARE
from pmflib.running.memory_plan import MemoryPlan
from pmflib.running.task_plans import plan_tasks
from pmflib.running.worker_memory import OWN_BYTES, ClusterMemory, WorkerMemory, find_least_limit
from pmflib.store.sample_blocks import choose_block_rows

BLOCK_RECORD = 700
"""Bytes of a block's reference in the memory of the client, and of what it keeps of its task."""
ENTRY_BYTES = 3000
"""Bytes of a manifest entry, without the references of its inputs."""
CLIENT_BYTES = 250 << 20
"""Bytes of a client that has imported what it needs."""
HASH_BYTES = 1.2e9
"""Bytes of a file that a core hashes in a second."""
LOOK_BYTES = 500e6
"""Bytes of a file that a core looks through for places to cut in a second."""
READING_BYTES = 192 << 20
"""Bytes that a thread holds while it reads a file, or a piece of one."""
SORTED_TIMES = 6
"""Size of what a thread holds while it sorts the rows of a partition, as a multiple of their spills."""
OPENING_SECONDS = 5e-4
"""Seconds of opening a spill and finding the pages of some buckets."""
REFERENCE_BYTES = 260
"""Bytes of a reference to an artefact in a list or an entry."""
FIT_TABLES = 10
"""Tables of pairs that the client holds while it makes a first model."""
JUDGED_SHARE = 0.5
"""Seconds of scoring a sample, as a share of those of a pass."""
JOB_BYTES, LEVEL_BYTES = 2000, 40
"""Bytes of the settings that tasks of ingest share: of themselves, and for each level of the schema."""
SAVED_BYTES = 2e8
"""Bytes of tables and states that the client saves in a second."""
PASS_SECONDS = 0.015
"""Seconds of the client in a pass: the update, its checkpoint, progress."""
FIT_SECONDS = 2.0
"""Seconds of a first model, however small."""


@dataclass(frozen=True)
class Planner:
    """Plans the stages of one run.

    Parameters
    ----------
    log, fit, cluster, speeds
        Sizes and speeds.
    """

    log: LogSize
    fit: FitSize
    cluster: ClusterSize
    speeds: Speeds

    def plan(self) -> list[StageCost]:
        """Costs of all stages, in order."""
        return [
            *self.plan_ingest(),
            self.plan_counts(),
            self.plan_start(),
            self.plan_refine(),
            self.plan_evaluate(),
        ]

    def plan_ingest(self) -> tuple[StageCost, StageCost]:
        """Read raw files, and sort their rows into samples."""
        log, speeds, cluster, shape = self.log, self.speeds, self.cluster, self.shape
        # every file is hashed; large ones are looked through for places to cut; then they are read
        hashing = MapWork(
            # the root of the store, and whether to hash again
            MapTasks.of_items(shape.files, None, None),
            leaf_seconds=log.raw_bytes / shape.files / HASH_BYTES,
            leaf_read=log.raw_bytes / shape.files,
            leaf_requests=1,
        )
        looked = log.raw_bytes if shape.cut_files else 0
        looking = MapWork(
            MapTasks.of_items(max(1, shape.looks), None),
            leaf_seconds=looked / max(1, shape.looks) / LOOK_BYTES,
            leaf_read=looked / max(1, shape.looks),
            leaf_requests=1,
        )
        sample_bytes, spill_bytes = self.sample_bytes, self.spill_bytes
        partition_files = self.count_sample_files()
        piece_files = SPILL_FILES if log.identified else partition_files / shape.pieces + 1
        encoding = MapWork(
            MapTasks.of_items(shape.pieces, None),
            leaf_seconds=log.csv_bytes / shape.pieces / speeds.read_bytes,
            leaf_read=log.raw_bytes / shape.pieces,
            leaf_requests=1 + piece_files,
            leaf_written=(spill_bytes or sample_bytes) / shape.pieces,
            copied_bytes=JOB_BYTES + LEVEL_BYTES * log.levels,
        )
        works = [hashing, *([looking] if shape.looks else []), encoding]
        entries = shape.files + shape.cut_files + shape.pieces
        n_files = round(entries + 2 * shape.cut_files + piece_files * shape.pieces)
        read = self._make_stage(
            "read",
            works,
            read_bytes=2.0 * log.raw_bytes + looked,
            written_bytes=spill_bytes or sample_bytes,
            files=n_files,
            client_seconds=entries * speeds.artefact_seconds,
            worker_memory=OWN_BYTES + READING_BYTES * cluster.threads,
            client_memory=CLIENT_BYTES + entries * ENTRY_BYTES,
        )
        if not log.identified:
            return read, StageCost("sort")
        n_parts = shape.partitions
        opened = shape.openings / n_parts
        sorting = MapWork(
            # the settings, and the list of spills
            MapTasks.of_items(n_parts, None, None),
            leaf_seconds=spill_bytes / n_parts / speeds.sort_bytes + opened * OPENING_SECONDS,
            leaf_read=spill_bytes / n_parts,
            leaf_requests=3 * opened + partition_files / n_parts,
            leaf_written=sample_bytes / n_parts,
            copied_bytes=JOB_BYTES + LEVEL_BYTES * log.levels,
        )
        # the list of spills, and the entry of the dataset
        listed = REFERENCE_BYTES * (2 * shape.pieces + n_parts)
        written = sample_bytes + n_parts * ENTRY_BYTES + listed
        sort = self._make_stage(
            "sort",
            [sorting],
            read_bytes=spill_bytes,
            written_bytes=written,
            files=n_parts + partition_files + 3,
            client_seconds=2 * n_parts * speeds.artefact_seconds + listed / SAVED_BYTES,
            worker_memory=OWN_BYTES + round(SORTED_TIMES * spill_bytes / n_parts) * cluster.threads,
            client_memory=round(
                CLIENT_BYTES
                + n_parts * ENTRY_BYTES
                + 2 * listed
                + self.n_blocks * BLOCK_RECORD
            ),
        )
        return read, sort

    def list_maps(self) -> dict[str, MapWork]:
        """Maps of counting, of a pass and of its score: what the simulation plays."""
        passing = [work for work in self._list_passes()[0] if work.repeats > 1 or self.fit.passes == 1]
        names = ["pass", "score"][: len(passing)]
        return {"count": self._list_counts()[0], **dict(zip(names, passing, strict=True))}

    def _list_counts(self) -> tuple[MapWork, int, int]:
        """Average map over the blocks of a fold; tasks of all folds, and their number."""
        log, n_threads = self.log, self.cluster.n_threads
        table = 8 * log.levels**2
        folds = [self.gather(fold, fold + 1, COUNTING_COARSENESS) for fold in range(self.fit.folds)]
        filled = [part for part in folds if part.n_rows]
        maps = []
        for part in filled:
            runs = plan_fold_runs(part.costs, len(filled), n_threads)
            tasks = plan_tasks([1] * runs.n_runs, n_threads, table)
            offsets = 8 * (log.variables + 1)
            maps.append(MapTasks.of_plan(tasks, offsets, balance=runs.balance))
        n_leaves = sum(tasks.leaves for tasks in maps)
        rows_of_leaf = log.samples / max(n_leaves, 1)
        seconds = rows_of_leaf * self.count_row_seconds()
        work = replace(
            self._map_blocks(_mean(maps), rows_of_leaf, seconds),
            result_bytes=table,
            repeats=len(maps),
            side_by_side=count_folds_ahead(max(1, len(filled)), n_threads),
        )
        return work, sum(tasks.total for tasks in maps), len(maps)

    def plan_counts(self) -> StageCost:
        """Count the pairs of levels, fold by fold."""
        log, plan, table = self.log, self.counting_memory, 8 * self.log.levels**2
        work, n_tasks, n_maps = self._list_counts()
        return self._make_stage(
            "count",
            [work],
            tasks=n_tasks,
            read_bytes=log.samples * block_disk_bytes(log),
            written_bytes=2.0 * n_maps * table,
            files=14 + 2 * n_maps,
            client_seconds=3 * n_maps * table / SAVED_BYTES,
            worker_memory=OWN_BYTES + plan.needed,
            client_memory=self._client_bytes(plan),
        )

    def plan_start(self) -> StageCost:
        """Fit the first model to the counts: the client alone."""
        log, fit = self.log, self.fit
        table = 8 * log.levels**2
        seconds = FIT_SECONDS + log.levels**2 * fit.rank * self.speeds.fit_ns * 1e-9
        if fit.start == "random":
            # the counts are read, and little else
            seconds = PASS_SECONDS + fit.train * table / SAVED_BYTES
        return StageCost(
            "fit",
            read_bytes=float(fit.train * table),
            written_bytes=8.0 * log.levels * (fit.rank + 1),
            files=8,
            requests=8.0 + fit.train,
            client_seconds=seconds,
            wall_seconds=seconds,
            client_memory=CLIENT_BYTES + FIT_TABLES * table,
            parts={"client": seconds},
        )

    def _list_passes(self) -> tuple[list[MapWork], float]:
        """Maps that load blocks, make passes over them and score held-out ones; bytes read in all."""
        log, fit, n_threads = self.log, self.fit, self.cluster.n_threads
        model = self.model_bytes
        runs = fit.runs if fit.validation else 1
        passes, scores = runs * fit.passes, runs * (fit.passes + 1)
        cell_seconds = log.variables * log.observed * fit.rank * fit.members * self.speeds.em_ns * 1e-9
        training, held_out = (self.gather(*part) for part in self._parts)
        offsets = 8 * (log.variables + 1)
        passing = MapTasks.of_plan(self.pass_plan.tasks, offsets, None)
        judged = plan_tasks(held_out.costs or (0,), n_threads)
        judging = MapTasks.of_plan(judged, offsets, None, None, None)
        works, read = [], 0.0
        for name, tasks, part, share, repeats, result in (
            ("train", passing, training, 1.0, passes, model),
            ("judge", judging, held_out, JUDGED_SHARE, scores, 16),
        ):
            if name == "judge" and not part.n_rows:
                continue
            of_leaf = part.n_rows / tasks.leaves
            work = self._map_blocks(tasks, of_leaf, of_leaf * cell_seconds * share)
            kept = self.keeps[name == "judge"]
            # blocks, or references to them, are dealt to the workers once
            dealt = replace(work, tasks=MapTasks(tasks.leaves, balance=tasks.balance))
            decoding = of_leaf * log.row_bytes / self.speeds.block_bytes
            if kept:
                works.append(replace(dealt, leaf_seconds=decoding))
                work = replace(
                    work,
                    leaf_seconds=work.leaf_seconds - decoding,
                    leaf_read=0.0,
                    leaf_requests=0.0,
                )
            else:
                nothing = {"leaf_seconds": 0.0, "leaf_read": 0.0, "leaf_requests": 0.0}
                works.append(replace(dealt, **nothing))
            read += part.n_rows * block_disk_bytes(log) * (1 if kept else repeats)
            works.append(
                replace(
                    work,
                    sent_bytes=300.0,
                    result_bytes=result,
                    copied_bytes=model,
                    repeats=repeats,
                )
            )
        return works, read

    def plan_refine(self) -> StageCost:
        """Make passes of EM over the training samples, each judged on the held-out ones."""
        log, fit, plan, model = self.log, self.fit, self.em_memory, self.model_bytes
        works, read = self._list_passes()
        passes = fit.passes * (fit.runs if fit.validation else 1)
        a_pass = PASS_SECONDS + 4 * model / SAVED_BYTES
        return self._make_stage(
            "refine",
            works,
            read_bytes=read,
            written_bytes=4.0 * model * passes,
            files=8 + passes,
            client_seconds=passes * a_pass,
            worker_memory=OWN_BYTES + plan.needed + self.kept_bytes,
            client_memory=self._client_bytes(plan) + FIT_TABLES * 8 * log.levels**2,
        )

    def plan_evaluate(self) -> StageCost:
        """Hide answers of the test samples, and predict them."""
        log, fit, speeds = self.log, self.fit, self.speeds
        test = self.gather(fit.train + fit.validation, fit.folds)
        if not test.n_rows:
            return StageCost("evaluate")
        # groups are dealt to tasks without their costs
        plan = plan_tasks([1] * len(test.costs), self.cluster.n_threads)
        tasks = MapTasks.of_plan(plan, None, 8 * log.levels, None, None)
        rows = test.n_rows / tasks.leaves
        seconds = rows * log.variables * log.observed * fit.rank * fit.members
        work = self._map_blocks(tasks, rows, seconds * speeds.evaluate_ns * 1e-9)
        work = replace(work, copied_bytes=self.model_bytes, result_bytes=100 * log.variables)
        return self._make_stage(
            "evaluate",
            [work],
            read_bytes=rows * tasks.leaves * block_disk_bytes(log),
            written_bytes=2000.0 * log.variables,
            files=3,
            client_seconds=0.1,
            worker_memory=OWN_BYTES + self.em_memory.needed,
            client_memory=self._client_bytes(self.em_memory),
        )

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
    def pass_plan(self) -> PassPlan:
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
        n_runs = choose_runs(self.fit.folds, self.cluster.n_threads)
        return plan_counting(self.log.levels, self.cluster.threads, n_runs)

    @cached_property
    def em_memory(self) -> MemoryPlan:
        """Memory of a pass in a worker, and in the client, without samples."""
        fit, n_held = self.fit, self.pass_plan.tasks.n_held
        sizes = self.log.levels, fit.rank, self.cluster.threads, fit.members
        return plan_em(*sizes, n_held=n_held)

    @cached_property
    def keeps(self) -> tuple[bool, bool]:
        """Whether the blocks of training, and of validation, stay in the workers' memory from pass to pass."""
        training, held_out = (self.gather(*part).n_bytes for part in self._parts)
        return training <= self.spare_bytes, held_out <= self.spare_bytes // 8

    @cached_property
    def spare_bytes(self) -> int:
        """Bytes of all workers that blocks of training may be kept in: half of what the passes leave."""
        cluster = self.cluster
        data = max(0, int(USED_SHARE * cluster.memory) - OWN_BYTES)
        worker = WorkerMemory("worker", cluster.threads, data, cluster.memory)
        # all are alike
        memory = ClusterMemory((worker,), cluster.client_memory, is_shared=False)
        return memory.find_spare(lambda _: self.em_memory) * cluster.workers // 2

    @cached_property
    def kept_bytes(self) -> int:
        """Bytes of the blocks that a worker keeps from pass to pass."""
        kept = [
            self.gather(*part).n_bytes
            for part, is_kept in zip(self._parts, self.keeps, strict=True)
            if is_kept
        ]
        return -(-sum(kept) // self.cluster.workers)

    @property
    def least_memory(self) -> int:
        """Least memory of a worker in which counting and passes fit at all, bytes; blocks are then read in each pass."""
        return max(map(find_least_limit, (self.counting_memory, self.em_memory)))

    @cached_property
    def keeping_memory(self) -> int:
        """Least memory of a worker with which all blocks stay in the workers' memory, bytes."""
        training, held_out = (self.gather(*part).n_bytes for part in self._parts)
        share = max(2 * training, 16 * held_out) / self.cluster.workers
        return int((self.em_memory.needed + OWN_BYTES + share) / USED_SHARE) + (1 << 20)

    @property
    def _parts(self) -> tuple[tuple[int, int], tuple[int, int]]:
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

    def _client_bytes(self, plan: MemoryPlan) -> int:
        """Memory of the client in a stage that works on blocks."""
        own = sum(plan.client_parts.values())
        return CLIENT_BYTES + own + self.n_blocks * BLOCK_RECORD

    def count_row_seconds(self) -> float:
        """Seconds of counting a sample, by the rule that chooses the kernel."""
        log = self.log
        held = log.variables * log.observed
        work = CountingWork(
            n_rows=choose_block_rows(log.variables),
            n_levels=log.levels,
            n_variables=log.variables,
            n_held=held,
            n_pairs=(held * held + held * (1 - log.observed) + held) / 2,
            n_planes=log.levels - (log.variables if log.observed >= 1 else 0),
            sparse=log.is_sparse,
        )
        costs = estimate_costs(work, sweeps=min(1.0, 2 * work.n_rows / TILE_ROWS))
        return self.speeds.count_share * min(costs.values()) * 1e-9 / work.n_rows

    def _map_blocks(self, tasks: MapTasks, n_rows: float, seconds: float) -> MapWork:
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
            sent_bytes=200 + 120 * n_blocks,
        )

    def count_sample_files(self) -> int:
        """Files of all partitions: those of one are counted for all."""
        blocks = list_planned_blocks(self.log, self.fit.folds, self.fit.buckets)
        first = [block for block in blocks if block.path == blocks[0].path]
        return self.shape.partitions * count_partition_files(self.log, first)

    def _make_stage(
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
        tasks: int | None = None,
    ) -> StageCost:
        """Add up maps and the work of the client between them; tasks are those of the maps, or given."""
        cluster, speeds = self.cluster, self.speeds
        done = [time_maps(work, cluster, speeds) for work in works]
        wall = sum(times.wall for times in done) + client_seconds
        useful = sum(_work(work, speeds) for work in works)
        if tasks is None:
            tasks = sum(work.repeats * work.tasks.total for work in works)
        return StageCost(
            name,
            tasks=tasks,
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            network_bytes=sum(times.network_bytes for times in done),
            files=files,
            requests=sum(w.repeats * w.tasks.leaves * w.leaf_requests for w in works),
            worker_seconds=sum(times.worker for times in done),
            waiting_seconds=sum(times.waiting for times in done),
            scheduler_seconds=sum(times.scheduler for times in done),
            client_seconds=client_seconds + sum(times.client for times in done),
            wall_seconds=wall,
            worker_memory=worker_memory,
            client_memory=client_memory,
            efficiency=min(1.0, useful / max(wall * cluster.n_threads, 1e-300)),
            parts=add_parts(*(times.parts for times in done), {"client": client_seconds}),
        )


def _mean(maps: Sequence[MapTasks]) -> MapTasks:
    """Tasks of an average map."""
    if not maps:
        return MapTasks(1)

    def mean(name: str) -> int:
        return round(sum(getattr(tasks, name) for tasks in maps) / len(maps))

    balance = sum(tasks.balance for tasks in maps) / len(maps)
    depth = max(tasks.depth for tasks in maps)
    return MapTasks(max(1, mean("leaves")), mean("merges"), mean("shared"), depth, mean("moved"), balance)


def _work(work: MapWork, speeds: Speeds) -> float:
    """Seconds that one thread would take alone for all leaves of maps: the work itself, and its storage."""
    moved = work.leaf_read + work.leaf_written
    stored = moved / speeds.storage_bytes + work.leaf_requests * speeds.request_seconds
    return work.repeats * work.tasks.leaves * (work.leaf_seconds + stored)
