"""Plan of a run before it starts: the memory that its stages need, and the time that they took in earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.cluster.clients import count_threads, find_memory, open_client
from pmflib.cluster.memory import ClusterMemory, MemoryPlan, PlanWorker, read_workers
from pmflib.cluster.workers import find_scheduler, is_alone
from pmflib.core.errors import MemoryPlanError
from pmflib.core.machine import MachineMemory, count_processors
from pmflib.counting.replicate_counts import plan_replicates
from pmflib.counting.stored_pairs import choose_n_runs, plan_counting
from pmflib.em.forests.em import are_modest, plan_trees
from pmflib.em.memory import plan_em, plan_pass
from pmflib.fitting.fit_specifications import Options
from pmflib.fitting.traits import plan_trait_memory
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.ingest.dataset.sample_weights import name_replicates
from pmflib.ingest.sources import find_sources
from pmflib.model.traits.level_scores import LevelScores
from pmflib.schema import Schema
from pmflib.store.artefacts import Store
from pmflib.store.objects.addresses import is_bucket
from pmflib.store.run_records import RunRecord, list_records
from pmflib.store.sample_blocks import TARGET_GROUPS, count_groups
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.fit_traits import choose_n_states
from pmflib_tasks.stage import load_schema

EARLIER_RUNS = 10
"""Runs whose times a plan takes: of each stage the longest, for many nights do a part of the work."""
OF_COUNTS = ("quality", "fit", "publish")
"""Stages that work on counts and models: their time does not grow with the rows."""
MANY_SAMPLES = 1 << 40
"""Samples that memory is planned for before the first run: what grows with them has a limit far below."""


@dataclass(frozen=True)
class PlannedWorkers:
    """Workers that a run is planned for.

    Parameters
    ----------
    memory
        What data may take in each worker, and in the client.
    n_threads
        Threads of all workers.
    """

    memory: ClusterMemory
    n_threads: int

    @classmethod
    def find(cls, config: PipelineConfig) -> PlannedWorkers:
        """Workers that a run would have now: those of its scheduler, or those that it would start on this machine."""
        cluster = config.cluster
        if address := find_scheduler(cluster):
            with open_client(address, cluster) as client:
                return cls(find_memory(client, cluster.memory_limit), count_threads(client))
        n_workers = 1 if is_alone() else cluster.workers or count_processors()
        if is_alone() or not cluster.processes:
            return cls(ClusterMemory.here(cluster.memory_limit, n_workers), n_workers)
        # the workers hold nothing yet
        machine = replace(MachineMemory.read(), resident=0)
        names = [f"{number} of {n_workers}" for number in range(1, n_workers + 1)]
        info = {name: {"nthreads": 1, "memory_limit": 0, "host": ""} for name in names}
        workers = read_workers(info, dict.fromkeys(names, machine), cluster.memory_limit)
        return cls(ClusterMemory(tuple(workers), ClusterMemory.here().client, False), n_workers)

    @classmethod
    def assume(cls, n_workers: int, n_threads: int, memory: int) -> PlannedWorkers:
        """Workers of so many threads and such a memory limit, bytes, with a client on this machine."""
        info = {"of the plan": {"nthreads": n_threads, "memory_limit": memory, "host": ""}}
        # all are alike
        (worker,) = read_workers(info, {}, 0)
        memory_there = ClusterMemory((worker,), ClusterMemory.here().client, False)
        return cls(memory_there, n_workers * n_threads)


@dataclass(frozen=True)
class StagePlan:
    """What a stage of a run will take.

    Parameters
    ----------
    stage
        Name of the stage.
    worker_bytes, client_bytes
        Memory in the worker that needs most of it, and in the client; None where the stage plans none.
    seconds
        Time by the clock, of all of the work; None where no earlier run says it.
    number
        Number of the run that the time is from; 0 without one.
    """

    stage: str
    worker_bytes: int | None
    client_bytes: int | None
    seconds: float | None
    number: int = 0


@dataclass(frozen=True)
class RunPlan:
    """What a run will take.

    Parameters
    ----------
    stages
        Plan of each stage, in order.
    workers
        Workers that the run is planned for.
    rows
        Rows of the files; None where neither an earlier run nor the caller says them.
    refusals
        Why a run would be refused, with what is needed, what is there, and a remedy; empty if it fits.
    notes
        Where numbers are from, and what is left out.
    """

    stages: list[StagePlan]
    workers: PlannedWorkers
    rows: int | None
    refusals: list[str]
    notes: list[str]

    @property
    def seconds(self) -> float | None:
        """Time of all stages; None where no earlier run says it."""
        known = [stage.seconds for stage in self.stages if stage.seconds is not None]
        return sum(known) if known else None


def plan_run(
    config: PipelineConfig,
    workers: PlannedWorkers,
    *,
    rows: int | None = None,
    rank: int | None = None,
    passes: int | None = None,
) -> RunPlan:
    """Plan a run of a pipeline, which reads all data and fits from scratch.

    Parameters
    ----------
    config
        The pipeline.
    workers
        Workers that would work for it.
    rows
        Rows of the files, at least 1; None takes those of the last run, in proportion to the bytes of the files.
    rank
        Latent states, at least 1; None takes the configured rank, or that of the last run where it is chosen.
    passes
        Passes of EM, at least 1; None takes as many as the earlier run made.

    Raises
    ------
    SourceError
        If there are no files.
    StoreError
        If a record of a run is damaged.
    """
    schema, history = load_schema(config), PipelineHistory(config)
    n_replicates = 0
    if config.source.replicates:
        sources = find_sources(config.source_paths, config.source.suffixes, skip_empty=True)
        n_replicates = len(name_replicates(sources, config.source).replicate_columns)
    rank = rank or history.rank
    known = rank or config.model.rank != "auto"
    plans = list_plans(
        config, schema, workers.n_threads, rank, account=history.account, n_replicates=n_replicates
    )
    rows = rows or history.estimate_rows()
    notes, refusals = [], []
    if not known:
        notes.append("refine: its rank is chosen by the first run; --rank plans one")
    for stage, plan in list(plans.items()):
        try:
            workers.memory.check(plan)
        except MemoryPlanError as error:
            if stage == "fit_traits" and config.compares_traits:
                del plans[stage]
                notes.append(f"fit_traits is left out, and latent classes are published: {error}")
            else:
                refusals.append(f"{stage}: {error}")
    longest = history.find_longest()
    if not longest:
        notes.append("time: no run of this pipeline has ended yet, and says what stages take")
    stages = []
    for stage in list(dict.fromkeys(["ingest", "count", *longest, *plans])):
        record = longest.get(stage)
        seconds = None
        if record is not None and rows is not None:
            seconds = record.seconds[stage]
            if stage not in OF_COUNTS:
                seconds *= rows / _read_account(record).rows_in
            made = int(_read_fit(record).get("passes", 0))
            if stage == "refine" and passes and made:
                seconds *= passes / made
        worker, client = _weigh_stage(plans.get(stage), workers.memory)
        number = record.number if record else 0
        stages.append(StagePlan(stage, worker, client, seconds, number))
    return RunPlan(stages, workers, rows, refusals, notes)


class PipelineHistory:
    """What the last runs of a pipeline have recorded.

    Parameters
    ----------
    config
        The pipeline; its store need not be there yet.
    """

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config

    @cached_property
    def records(self) -> list[RunRecord]:
        """The last complete runs that had data, oldest first."""
        root = self._config.resolve(self._config.store.path)
        if not is_bucket(root) and not Path(root).is_dir():
            return []
        done = [
            record
            for record in list_records(Store(root), self._config.name)
            if record.action == "run" and record.is_complete and _read_account(record).rows_in
        ]
        return done[-EARLIER_RUNS:]

    @property
    def account(self) -> DatasetAccount | None:
        """Account of the rows of the last run; None without one."""
        return _read_account(self.records[-1]) if self.records else None

    @property
    def rank(self) -> int | None:
        """Rank of the latent classes of the last run, where the pipeline leaves it to be chosen."""
        if self._config.model.rank != "auto":
            return None
        return next((each["rank"] for each in map(_read_fit, self.records[::-1]) if each), None)

    def estimate_rows(self) -> int | None:
        """Rows of the files as they are, in proportion to their bytes in the last run; None without one."""
        if not self.records:
            return None
        last, source = self.records[-1], self._config.source
        read = sum(file.bytes or 0 for file in last.inputs)
        found = find_sources(self._config.source_paths, source.suffixes, skip_empty=True)
        factor = sum(each.size for each in found) / read if read else 1.0
        return max(1, round(_read_account(last).rows_in * factor))

    def find_longest(self) -> dict[str, RunRecord]:
        """By stage the run in which it took longest: a night that adds to the run before does a part of the work."""
        stages = dict.fromkeys(stage for record in self.records for stage in record.seconds)
        return {
            stage: max(self.records, key=lambda record: record.seconds.get(stage, 0.0))
            for stage in stages
        }


def _read_account(record: RunRecord) -> DatasetAccount:
    return DatasetAccount.find(record.facts) or DatasetAccount()


def _read_fit(record: RunRecord) -> dict[str, Any]:
    """Summary of the latent classes that a run has fitted; empty where it has none."""
    found: Any = record.facts.get("classes") or record.facts.get("model") or {}
    return found if "rank" in found else {}


def _weigh_stage(
    plan: PlanWorker | None, memory: ClusterMemory
) -> tuple[int, int] | tuple[None, None]:
    if plan is None:
        return None, None
    most = max((plan(worker.n_threads) for worker in memory.workers), key=lambda each: each.needed)
    return most.needed, sum(most.client_parts.values())


def list_plans(
    config: PipelineConfig,
    schema: Schema,
    n_threads: int,
    rank: int | None = None,
    *,
    account: DatasetAccount | None = None,
    n_replicates: int = 0,
) -> dict[str, PlanWorker]:
    """Memory plans of the stages of a run, by the number of threads of a worker.

    Parameters
    ----------
    config, schema
        The pipeline and its schema.
    n_threads
        Threads of all workers together, at least 1.
    rank
        Number of latent states in place of the configured one; where this is "auto" and None is given, EM is left out.
    account
        Account of the data; None plans for as many as there may be.
    n_replicates
        Replicate weights of a sample.
    """
    n_levels = schema.n_levels
    n_runs = choose_n_runs(config.store.folds, n_threads)

    def plan_counts(n: int) -> MemoryPlan:
        pairs = plan_counting(n_levels, n, n_runs)
        if not n_replicates:
            return pairs
        return pairs.take_larger(plan_replicates(n_levels, n_replicates, n))

    plans: dict[str, PlanWorker] = {"count": plan_counts}
    n_samples, n_observed, n_groups = MANY_SAMPLES, MANY_SAMPLES * schema.n_variables, TARGET_GROUPS
    if account is not None and account.samples:
        n_samples, n_observed = account.samples, account.observed
        n_groups = count_groups(n_observed, account.blocks)
    costs = [-(-n_observed // max(1, n_groups))] * n_groups
    known = rank or (None if config.model.rank == "auto" else config.model.rank)
    if known is not None and not config.has_traits:
        plans["refine"] = _plan_classes(config, schema, n_threads, known, costs)
    if config.has_traits or config.compares_traits:
        scores = LevelScores.make(schema, np.zeros(n_levels))
        n_states: Any = choose_n_states(config)

        def plan_traits(n: int) -> MemoryPlan:
            sizes = {"n_states": n_states, "n_threads": n, "n_all_threads": n_threads}
            return plan_trait_memory(scores, costs, n_samples, n_observed, **sizes)

        plans["fit_traits"] = plan_traits
    return plans


def _plan_classes(
    config: PipelineConfig, schema: Schema, n_threads: int, rank: int, costs: Sequence[int]
) -> PlanWorker:
    """Plan passes of EM, and those with forests where they are tried."""
    members, dependence = config.em.members, config.model.dependence
    options = Options.make(config.class_method, config.em.pseudo_count, members, rank)
    n_models = options.count_models(sum(costs), rank)

    def plan_worker(n: int) -> MemoryPlan:
        sizes = schema.n_levels, rank
        n_waiting = plan_pass(costs, n_threads, *sizes, n_models).n_waiting
        plan = plan_em(*sizes, n, n_models, n_waiting=n_waiting)
        if dependence == "tree" or (dependence == "auto" and are_modest(schema.offsets, rank)):
            n_waiting = plan_pass(costs, n_threads, *sizes).n_waiting
            trees = plan_trees(schema.offsets, rank, n, members, n_waiting=n_waiting)
            plan = plan.take_larger(trees)
        return plan

    return plan_worker


def check_run_width(config: PipelineConfig, schema: Schema) -> None:
    """Refuse a pipeline on this machine whose counts of pairs do not fit its memory, before its data are read.

    Workers of a scheduler that runs already are asked for their memory when they count.

    Raises
    ------
    MemoryPlanError
        As for `check_width`.
    """
    if not find_scheduler(config.cluster):
        workers = PlannedWorkers.find(config)
        check_width(schema, workers.memory, choose_n_runs(config.store.folds, workers.n_threads))


def check_width(schema: Schema, memory: ClusterMemory, n_runs: int = 1) -> None:
    """Refuse a schema whose counts of pairs do not fit.

    Parameters
    ----------
    schema
        Variables and levels.
    memory
        Memory of client and workers.
    n_runs
        As for `pmflib.counting.stored_pairs.plan_counting`.

    Raises
    ------
    MemoryPlanError
        With what is needed and what there is, which variables are widest, and a remedy.
    """
    try:
        memory.check(lambda n: plan_counting(schema.n_levels, n, n_runs))
    except MemoryPlanError as error:
        widest = sorted(schema, key=lambda variable: -variable.cardinality)[:3]
        shown = ", ".join(f"{each.name!r} ({each.cardinality:,})" for each in widest)
        raise MemoryPlanError(
            f"{error} The {schema.n_variables:,} variables have {schema.n_levels:,} levels in all, most of them "
            f"{shown}. A draft with fewer levels: pmf infer --max-levels, --bins, --min-count"
        ) from None
