"""Plan a run: the memory that its stages need, and their time according to earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pmflib.base.errors import MemoryPlanError
from pmflib.base.machine import MachineMemory, count_processors
from pmflib.cluster.clients import count_threads, find_memory, open_client
from pmflib.cluster.memory import ClusterMemory, MemoryPlan, PlanWorker, read_workers
from pmflib.cluster.workers import find_scheduler, is_alone
from pmflib.counts.selection import (
    Requested,
    bound_levels,
    describe_requested,
    find_requested,
)
from pmflib.counts.stored_pairs import choose_n_runs, plan_counting, plan_fold_merges
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.ingest.dataset.design_columns import name_replicates
from pmflib.ingest.sources import find_sources
from pmflib.schema import Schema
from pmflib.store.artefacts import Store
from pmflib.store.objects.addresses import is_bucket
from pmflib.store.run_records import RunRecord, list_records
from pmflib.store.sample_blocks import COUNTING_COARSENESS, TARGET_GROUPS, count_groups
from pmflib.surveys.design.replicate_counts import plan_replicates
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.features import list_offers
from pmflib_tasks.planned_stages import PlannedStage, RunSizes
from pmflib_tasks.stage import load_schema

EARLIER_RUNS = 10
"""Number of earlier runs considered; the longest time of each stage is used, as increments do only part of the work."""
OF_COUNTS = ("quality", "fit", "marginals", "publish")
"""Stages that work on counts and models, whose time does not depend on the number of rows."""
MANY_SAMPLES = 1 << 40
"""Number of samples assumed before the first run; memory that depends on it is bounded anyway."""


@dataclass(frozen=True)
class PlannedWorkers:
    """Workers for which a run is planned.

    Parameters
    ----------
    memory
        Memory for data in each worker and in the client.
    n_threads
        Total number of threads.
    """

    memory: ClusterMemory
    n_threads: int

    @classmethod
    def find(cls, config: PipelineConfig) -> PlannedWorkers:
        """Find the workers that a run would use: those of its scheduler, or new ones on this machine."""
        cluster = config.cluster
        if address := find_scheduler(cluster):
            with open_client(address, cluster) as client:
                return cls(find_memory(client, cluster.memory_limit), count_threads(client))
        n_workers = 1 if is_alone() else cluster.workers or count_processors()
        if is_alone() or not cluster.processes:
            return cls(ClusterMemory.here(cluster.memory_limit, n_workers), n_workers)
        # new workers are empty
        machine = replace(MachineMemory.read(), resident=0)
        names = [f"{number} of {n_workers}" for number in range(1, n_workers + 1)]
        info = {name: {"nthreads": 1, "memory_limit": 0, "host": ""} for name in names}
        workers = read_workers(info, dict.fromkeys(names, machine), cluster.memory_limit)
        return cls(ClusterMemory(tuple(workers), ClusterMemory.here().client, False), n_workers)

    @classmethod
    def assume(cls, n_workers: int, n_threads: int, memory: int) -> PlannedWorkers:
        """Assume workers with a number of threads and a memory limit, bytes, and a client on this machine."""
        info = {"of the plan": {"nthreads": n_threads, "memory_limit": memory, "host": ""}}
        # one stands for all
        (worker,) = read_workers(info, {}, 0)
        memory_there = ClusterMemory((worker,), ClusterMemory.here().client, False)
        return cls(memory_there, n_workers * n_threads)


@dataclass(frozen=True)
class StagePlan:
    """Planned memory and time of one stage.

    Parameters
    ----------
    stage
        Name of the stage.
    worker_bytes, client_bytes
        Memory of the worker that needs most, and of the client; None if the stage has no memory plan.
    seconds
        Elapsed time; None without an earlier run.
    number
        Number of the run with this time; 0 without one.
    tasks
        Number of Dask tasks of the stage, or of each pass of EM, with those that merge; None if unknown, or without
        workers.
    """

    stage: str
    worker_bytes: int | None
    client_bytes: int | None
    seconds: float | None
    number: int = 0
    tasks: int | None = None


@dataclass(frozen=True)
class RunPlan:
    """Plan of a run.

    Parameters
    ----------
    stages
        Plans of the stages in order.
    workers
        Workers for which the run is planned.
    rows
        Number of rows of the files; None if unknown.
    refusals
        Reasons why a run would be refused, with needed and available memory and a remedy; empty if it fits.
    notes
        Sources of the numbers, and omissions.
    """

    stages: list[StagePlan]
    workers: PlannedWorkers
    rows: int | None
    refusals: list[str]
    notes: list[str]

    @property
    def seconds(self) -> float | None:
        """Total time of all stages; None without an earlier run."""
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
    """Plan a full run of a pipeline, which reads all data and fits from scratch.

    Parameters
    ----------
    config
        The pipeline.
    workers
        Workers of the run.
    rows
        Number of rows of the files, at least 1; None scales that of the last run by the size of the files.
    rank
        Number of latent states, at least 1; None takes the configured rank, or for "auto" that of the last run.
    passes
        Number of EM passes, at least 1; None takes that of the earlier run.

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
    own = list_own_stages(config, schema, workers.n_threads, history.account)
    replaced = {name for each in own for name in each.replaces}
    notes, refusals = [], []
    variables = config.counts.variables
    requested: Requested | None = None
    if not isinstance(variables, str):
        requested = variables if isinstance(variables, int) else list(variables)
    if not n_replicates:
        # tables that do not fit are refused with those of the other stages
        with suppress(MemoryPlanError):
            requested = choose_pairs(config, schema, workers)
    if requested is not None:
        notes.append(f"count: {describe_requested(schema, requested)}")
    plans = list_plans(
        config,
        schema,
        workers.n_threads,
        rank,
        account=history.account,
        n_replicates=n_replicates,
        n_counted=bound_levels(schema, requested),
    )
    rows = rows or history.estimate_rows()
    if not rank and config.model.rank == "auto" and "refine" not in replaced:
        notes.append("refine: its rank is chosen by the first run; --rank plans one")
    for stage, plan in list(plans.items()):
        try:
            workers.memory.check(plan)
        except MemoryPlanError as error:
            if instead := next((each.otherwise for each in own if each.name == stage), ""):
                del plans[stage]
                notes.append(f"{stage} is left out, and {instead}: {error}")
            else:
                refusals.append(f"{stage}: {error}")
    longest = history.find_longest()
    if not longest:
        notes.append("time: no run of this pipeline has ended yet, and says what stages take")
    tasks = count_tasks(config, schema, workers.n_threads, history.account, rows, rank)
    stages = []
    placed = [
        name
        for stage in ("ingest", "count")
        for name in (stage, *(each.name for each in own if each.after == stage))
    ]
    absent = replaced | {each.name for each in own if not each.applies}
    for stage in dict.fromkeys([*placed, *longest, *plans]):
        if stage in absent:
            continue
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
        stages.append(StagePlan(stage, worker, client, seconds, number, tasks.get(stage)))
    return RunPlan(stages, workers, rows, refusals, notes)


class PipelineHistory:
    """Records of the last runs of a pipeline.

    Parameters
    ----------
    config
        The pipeline, whose store need not exist yet.
    """

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config

    @cached_property
    def records(self) -> list[RunRecord]:
        """The last complete runs with data, oldest first."""
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
        """Rank of the latent classes of the last run, if the configured rank is "auto"."""
        if self._config.model.rank != "auto":
            return None
        return next((each["rank"] for each in map(_read_fit, self.records[::-1]) if each), None)

    def estimate_rows(self) -> int | None:
        """Estimate the number of rows by the size of the files relative to the last run; None without one."""
        if not self.records:
            return None
        last, source = self.records[-1], self._config.source
        read = sum(file.bytes or 0 for file in last.inputs)
        found = find_sources(self._config.source_paths, source.suffixes, skip_empty=True)
        factor = sum(each.size for each in found) / read if read else 1.0
        return max(1, round(_read_account(last).rows_in * factor))

    def find_longest(self) -> dict[str, RunRecord]:
        """Find the run in which each stage took longest, as increments do only part of the work."""
        stages = dict.fromkeys(stage for record in self.records for stage in record.seconds)
        return {
            stage: max(self.records, key=lambda record: record.seconds.get(stage, 0.0))
            for stage in stages
        }


def _read_account(record: RunRecord) -> DatasetAccount:
    return RunFacts(record.facts).account or DatasetAccount()


def _read_fit(record: RunRecord) -> dict[str, Any]:
    """Summary of the latent classes fitted by a run; empty without any."""
    found: Any = record.facts.get("classes") or record.facts.get("model") or {}
    return found if "rank" in found else {}


def _weigh_stage(
    plan: PlanWorker | None, memory: ClusterMemory
) -> tuple[int, int] | tuple[None, None]:
    if plan is None:
        return None, None
    most = max((plan(worker.n_threads) for worker in memory.workers), key=lambda each: each.needed)
    return most.needed, sum(most.client_parts.values())


def count_tasks(
    config: PipelineConfig,
    schema: Schema,
    n_threads: int,
    account: DatasetAccount | None,
    rows: int | None,
    rank: int | None,
) -> dict[str, int]:
    """Count the Dask tasks of counting and of a pass of EM; empty before the first run.

    Parameters
    ----------
    config, schema
        The pipeline and its schema.
    n_threads
        Total number of threads, at least 1.
    account, rows
        Account of the data of the last run, and the number of rows to plan for.
    rank
        Number of latent states; None takes the configured rank.
    """
    if account is None or not account.blocks or n_threads == 1:
        return {}
    factor = (rows or account.rows_in) / max(account.rows_in, 1)
    n_observed, n_blocks = round(account.observed * factor), max(1, round(account.blocks * factor))
    n_folds = config.store.folds
    share = -(-n_observed // n_folds), -(-n_blocks // n_folds)
    n_runs = min(count_groups(*share, COUNTING_COARSENESS), choose_n_runs(n_folds, n_threads))
    fold = plan_fold_merges(n_runs, schema.n_levels)
    found = {"count": n_folds * (fold.n_runs + fold.n_merges)}
    known = _find_rank(config, rank)
    if known is not None and not config.has_traits:
        from pmflib.em.memory import plan_pass

        n_train = len(config.fold_split.train)
        groups = count_groups(n_observed * n_train // n_folds, n_blocks * n_train // n_folds)
        costs = [-(-n_observed // max(1, groups))] * max(1, groups)
        one = plan_pass(costs, n_threads, schema.n_levels, known)
        found["refine"] = one.n_runs + one.n_merges
    return found


def _find_rank(config: PipelineConfig, rank: int | None) -> int | None:
    """Return the given rank, or the configured one; None for "auto" and stacks."""
    if rank is not None or config.model.rank == "auto":
        return rank
    return config.model.rank


def list_plans(
    config: PipelineConfig,
    schema: Schema,
    n_threads: int,
    rank: int | None = None,
    *,
    account: DatasetAccount | None = None,
    n_replicates: int = 0,
    n_counted: int | None = None,
) -> dict[str, PlanWorker]:
    """List the memory plans of the stages of a run, as functions of the number of threads of a worker.

    Parameters
    ----------
    config, schema
        The pipeline and its schema.
    n_threads
        Total number of threads, at least 1.
    rank
        Number of latent states; None takes the configured rank, without EM for "auto".
    account
        Account of the data; None assumes `MANY_SAMPLES`.
    n_replicates
        Number of replicate weights.
    n_counted
        Number of levels of the variables whose pairs are counted; None for those of all.
    """
    n_levels = schema.n_levels if n_counted is None else n_counted
    n_runs = choose_n_runs(config.store.folds, n_threads)

    def plan_counts(n: int) -> MemoryPlan:
        pairs = plan_counting(n_levels, n, n_runs)
        if not n_replicates:
            return pairs
        return pairs.take_larger(plan_replicates(n_levels, n_replicates, n))

    plans: dict[str, PlanWorker] = {"count": plan_counts}
    known = _find_rank(config, rank)
    if known is not None and not config.has_traits:
        costs = measure_run(config, schema, n_threads, account).costs
        plans["refine"] = _plan_classes(config, schema, n_threads, known, costs)
    if config.is_stack:
        plans["stack"] = _plan_stack(config, schema, n_threads, account)
    for each in list_own_stages(config, schema, n_threads, account):
        if each.memory is not None and each.applies:
            plans[each.name] = each.memory
        for stage in each.replaces:
            plans.pop(stage, None)
    return plans


def measure_run(
    config: PipelineConfig, schema: Schema, n_threads: int, account: DatasetAccount | None
) -> RunSizes:
    """Measure a run by the account of its data; None assumes `MANY_SAMPLES`."""
    n_samples, n_observed, n_groups = MANY_SAMPLES, MANY_SAMPLES * schema.n_variables, TARGET_GROUPS
    if account is not None and account.samples:
        n_samples, n_observed = account.samples, account.observed
        n_groups = count_groups(n_observed, account.blocks)
    costs = [-(-n_observed // max(1, n_groups))] * n_groups
    return RunSizes(config, schema, n_threads, n_samples, n_observed, costs)


def list_own_stages(
    config: PipelineConfig, schema: Schema, n_threads: int, account: DatasetAccount | None
) -> list[PlannedStage]:
    """List the stages of the features, as `measure_run` finds the sizes of the run."""
    sizes = measure_run(config, schema, n_threads, account)
    return [each for offer in list_offers("plan") for each in offer(sizes)]


def _plan_classes(
    config: PipelineConfig, schema: Schema, n_threads: int, rank: int, costs: Sequence[int]
) -> PlanWorker:
    """Plan the EM passes, including those of other kinds of models that are tried."""
    # a run checks the width of its counts alone
    from pmflib.em.memory import plan_em, plan_pass
    from pmflib.fits.fit_specifications import Options
    from pmflib.fits.kinds import choose_kinds, is_forced

    members, dependence = config.em.members, config.model.dependence
    options = Options.make(config.class_method, config.em.pseudo_count, members, rank)
    n_models = options.count_models(sum(costs), rank)

    def plan_worker(n: int) -> MemoryPlan:
        sizes = schema.n_levels, rank
        n_waiting = plan_pass(costs, n_threads, *sizes, n_models).n_waiting
        plan = plan_em(*sizes, n, n_models, n_waiting=n_waiting)
        for kind in choose_kinds(dependence):
            is_tried = is_forced(dependence) or kind.is_modest(schema.offsets, rank)
            if kind.plan is not None and is_tried:
                n_waiting = plan_pass(costs, n_threads, *sizes).n_waiting
                own = kind.plan(schema.offsets, rank, n, members, n_waiting=n_waiting)
                plan = plan.take_larger(own)
        return plan

    return plan_worker


def choose_pairs(
    config: PipelineConfig, schema: Schema, workers: PlannedWorkers
) -> Requested | None:
    """Choose which pairs a pipeline counts; None for all.

    Raises
    ------
    MemoryPlanError
        As for `check_width`.
    """
    n_runs = choose_n_runs(config.store.folds, workers.n_threads)
    return check_width(schema, workers.memory, n_runs, config.counts.variables)


def _plan_stack(
    config: PipelineConfig, schema: Schema, n_threads: int, account: DatasetAccount | None
) -> PlanWorker:
    """Plan the step of a stack that needs most, for training samples of the size of the data."""
    from pmflib.em.memory import plan_pass
    from pmflib.fits.from_samples import make_stack

    sizes = measure_run(config, schema, n_threads, account)
    share = len(config.fold_split.train) / config.store.folds
    n_rows, n_observed = (round(share * each) for each in (sizes.n_samples, sizes.n_observed))
    fit = make_stack(schema, config.model.effort, config.model.dependence)

    def count_waiting(n_states: int) -> int:
        return plan_pass(sizes.costs, n_threads, schema.n_levels, n_states).n_waiting

    return lambda n: fit.plan(n_rows, n_observed, n, count_waiting)


def check_run_width(config: PipelineConfig, schema: Schema) -> None:
    """Check that the pair counts of a pipeline fit into the memory of this machine, before reading data.

    Workers of an existing scheduler are checked when they count.

    Raises
    ------
    MemoryPlanError
        As for `check_width`.
    """
    if not find_scheduler(config.cluster):
        choose_pairs(config, schema, PlannedWorkers.find(config))


def check_width(
    schema: Schema,
    memory: ClusterMemory,
    n_runs: int = 1,
    variables: str | int | tuple[str, ...] = "auto",
) -> Requested | None:
    """Check that the pair counts of a schema fit into memory.

    Parameters
    ----------
    schema
        Variables and levels.
    memory
        Memory of client and workers.
    n_runs
        As for `pmflib.counts.stored_pairs.plan_counting`.
    variables
        Variables whose pairs are counted: `counts.variables` of the pipeline.

    Returns
    -------
    Which pairs are counted, as for `pmflib.counts.selection.choose_counted`; None for all.

    Raises
    ------
    MemoryPlanError
        If they do not, with the needed and available memory, the widest variables and a remedy.
    """

    def check_size(n_levels: int) -> None:
        memory.check(lambda n: plan_counting(n_levels, n, n_runs))

    try:
        return find_requested(variables, schema, check_size)
    except MemoryPlanError as error:
        widest = sorted(schema, key=lambda variable: -variable.cardinality)[:3]
        shown = ", ".join(f"{each.name!r} ({each.cardinality:,})" for each in widest)
        raise MemoryPlanError(
            f"{error} The {schema.n_variables:,} variables have {schema.n_levels:,} levels in all, most of them "
            f"{shown}; [counts] variables = 'auto' counts the pairs of as many variables as fit"
        ) from None


def note_width(schema: Schema) -> str:
    """Say which pairs of a drafted schema are counted on this machine; "" for all."""
    requested = check_width(schema, ClusterMemory.here())
    if requested is None:
        return ""
    why = "tables of all would not fit into memory ([counts] variables in pipeline.toml)"
    return f"{describe_requested(schema, requested)}; {why}"
