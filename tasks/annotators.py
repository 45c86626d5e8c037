"""Stages of label logs: pairs of workers, and the annotators that these make likely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from pmflib.config import PipelineConfig
from pmflib.counting.worker_pair_counts import WorkerPairCounts
from pmflib.crowd.co_occurrence import MomentMethod, fit_pairs
from pmflib.crowd.pipeline.annotator_files import save_annotators
from pmflib.crowd.pipeline.checkpoint import remember_heights
from pmflib.crowd.pipeline.mapped import (
    Groups,
    count_stored,
    count_stored_meetings,
    evaluate_stored,
    join_groups,
)
from pmflib.crowd.pipeline.memory import (
    TABLE_COPIES,
    plan_label_passes,
    plan_moments,
    plan_worker_counts,
)
from pmflib.crowd.screening import judge_by
from pmflib.errors import SchemaError
from pmflib.running.clients import count_threads
from pmflib.running.grouping import group_blocks
from pmflib.running.memory_plan import MemoryPlan
from pmflib.schema import Schema
from pmflib.solvers.crowd.worker_marginals import check_levels
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_dataset_blocks
from tasks.progress import report
from tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

PAIRS_VERSION = 1
ANNOTATORS_VERSION = 2
PAIRS = "pairs"
ANNOTATORS = "annotators"
HEIGHTS = "heights.npz"
"""What the judge of annotators has found, in the folder of work under way."""


@stage(name="pairs")
def pairs(config: PipelineConfig, dataset: Reference, address: str = "") -> Reference:
    """Count the pairs of answers that workers gave to the same tasks.

    Parameters
    ----------
    config
        The pipeline; its method says what the counts are for.
    dataset
        What `ingest` returned.
    address
        Dask scheduler of the run; empty starts workers for this stage.

    Returns
    -------
    Reference to the counts: every method begins with the same.

    Raises
    ------
    MemoryPlanError
        If the counts would not fit, or the method cannot take so many workers.
    """
    store, schema = open_store(config), load_label_schema(config)
    if config.crowd.method in TABLE_COPIES:
        check_levels(schema.n_variables, schema[0].cardinality)
    entry = build_artefact(
        store,
        "worker-pairs",
        inputs={"dataset": dataset},
        options={"schema": schema.digest},
        version=PAIRS_VERSION,
        write=lambda folder, _: _write_pairs(config, store, schema, dataset, address, folder),
    )
    return entry.reference


@stage(name="annotators")
def annotators(
    config: PipelineConfig, dataset: Reference, pairs: Reference, address: str = ""
) -> Reference:
    """Find confusion matrices and the class prior from the pairs of workers, on one machine.

    Parameters
    ----------
    config
        The pipeline; its method and its seed count.
    dataset, pairs
        What `ingest` and `pairs` returned. Passes over the tasks judge what the pairs leave open.
    address
        Dask scheduler of the run; empty starts workers for this stage.

    Returns
    -------
    Reference to the annotators.

    Raises
    ------
    MemoryPlanError
        If the pairs would not fit in memory as the method needs them.
    """
    store, method = open_store(config), config.crowd.method
    schema = load_label_schema(config)
    report("annotators", 0, 1)
    entry = build_artefact(
        store,
        "annotators",
        inputs={"dataset": dataset, "pairs": pairs},
        options={"schema": schema.digest, "method": method, "seed": config.seed},
        version=ANNOTATORS_VERSION,
        write=lambda folder, work: _write_annotators(
            config, store, dataset, pairs, address, folder, work
        ),
    )
    report("annotators", 1, 1, method)
    return entry.reference


def load_label_schema(config: PipelineConfig) -> Schema:
    """Schema of a label log.

    Raises
    ------
    SchemaError
        If the workers' labels are not the same for all.
    """
    schema = load_schema(config)
    if any(variable.levels != schema[0].levels for variable in schema):
        raise SchemaError("the workers have different labels; let `pmf crowd` write the schema")
    return schema


def group_answers(config: PipelineConfig, store: Store, dataset: Reference) -> Groups:
    """Blocks of all answers, as they are worked on together."""
    return group_blocks(list_dataset_blocks(store, dataset, range(config.store.folds)))


def _write_pairs(
    config: PipelineConfig,
    store: Store,
    schema: Schema,
    dataset: Reference,
    address: str,
    folder: Path,
) -> Mapping[str, Any]:
    sizes = schema.n_variables, schema[0].cardinality
    groups = group_answers(config, store, dataset)
    n_tasks = sum(block.n_rows for group in groups for block in group)
    done = 0

    def tell(n: int) -> None:
        nonlocal done
        done += n
        # the last word is said when the counts are merged
        if done < n_tasks:
            report("pairs", done, n_tasks)

    with open_workers(config, address) as (client, limit):
        n_threads = count_threads(client)
        groups = join_groups(groups, n_threads)
        plan = plan_worker_counts(groups, *sizes, n_threads)
        if plan.needed > limit:
            # most pairs of a large crowd never meet: look before it is given up
            met = count_stored_meetings(client, groups, *sizes)
            plan = plan_worker_counts(groups, *sizes, n_threads, met)
        plan.check(limit)
        counts = count_stored(client, groups, *sizes, tell)
    report("pairs", n_tasks, n_tasks, f"{counts.n_pairs:,} pairs of {sizes[0]:,} workers")
    counts.save(folder / PAIRS)
    return {
        "workers": sizes[0],
        "answers": int(counts.n_answers.sum()),
        "pairs": counts.n_pairs,
        "meetings": int(counts.counts.sum()),
    }


def _write_annotators(
    config: PipelineConfig,
    store: Store,
    dataset: Reference,
    pairs: Reference,
    address: str,
    folder: Path,
    work: Path,
) -> Mapping[str, Any]:
    method = cast(MomentMethod, config.crowd.method)
    counts = WorkerPairCounts.load(store.locate(pairs) / PAIRS)
    sizes = counts.n_answers.size, counts.counts.shape[1]
    groups = group_answers(config, store, dataset)
    with open_workers(config, address) as (client, limit):
        passes = plan_label_passes(groups, *sizes, count_threads(client))
        plan = _join_plans(plan_moments(method, counts.n_pairs, *sizes), passes)
        plan.check(limit)
        evaluate = evaluate_stored(client, groups, *sizes, (limit - plan.needed) // 2)
        judge = remember_heights(
            judge_by(evaluate),
            work / HEIGHTS,
            lambda asked: report("annotators", 0, 1, f"{asked} judged"),
        )
        n_answers, n_pairs, normalised = counts.n_answers, counts.n_pairs, counts.normalise()
        # as many bytes as the pairs themselves
        del counts
        rng = np.random.default_rng(config.seed)
        found = fit_pairs(normalised, n_answers, method, judge=judge, rng=rng)
    save_annotators(folder / ANNOTATORS, found, rng)
    return {"method": method, "pairs": n_pairs, "prior": found.prior.tolist()}


def _join_plans(first: MemoryPlan, *others: MemoryPlan) -> MemoryPlan:
    """Plan of what is done at once; the first names it."""
    plans: Sequence[MemoryPlan] = (first, *others)
    parts = {name: size for plan in plans for name, size in plan.parts.items()}
    return MemoryPlan(first.stage, parts, first.remedy)
