"""Stages of label logs: who answers and what, and the true labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from pmflib.arrays import FloatArray
from pmflib.config import PipelineConfig
from pmflib.crowd.aggregation import RULES, limit_passes
from pmflib.crowd.census import CENSUS, Census, make_label_schema, take_census
from pmflib.crowd.checkpoint import load_fit, save_fit
from pmflib.crowd.passes import CrowdFit, Evaluate, run_passes, weigh_levels
from pmflib.crowd.stored import evaluate_group, label_partition, load_voted, make_worker_table
from pmflib.em.statistics import EMStatistics
from pmflib.errors import PmfError, SchemaError
from pmflib.ingest import Source, digest_source, find_sources
from pmflib.parallel import (
    Client,
    check_workers_see,
    count_threads,
    keep_loaded,
    map_items,
    run_blocks,
)
from pmflib.plan import group_blocks, plan_em
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import QUARANTINE, SAMPLES, list_dataset_blocks, read_partitions
from pmflib.store.runs import name_labelling, write_run
from pmflib.store.samples import BlockReference
from tasks.stage import load_schema, open_store, open_workers, publish_facts, report, stage, timed

CENSUS_VERSION = 1
VERSION = 4
LABELS = "labels"
WORKERS = "workers.parquet"
STATE = "state.npz"
"""Where the passes stand, in the folder of work under way."""


@stage(name="census")
def census(
    config: PipelineConfig, classes: tuple[str, ...] | None = None, address: str = ""
) -> dict[str, Reference]:
    """List the workers and labels of all sources, and write the schema that makes of them.

    Parameters
    ----------
    config
        The pipeline; its source is laid out long: a sample is a task, a variable a worker, a value a label.
    classes
        Labels that there are; None takes all that were given.
    address
        Dask scheduler of the run; empty starts workers for this stage.

    Returns
    -------
    Census of each file, by the file's digest. A file whose census was taken before is not read again.

    Raises
    ------
    SchemaError, SourceError
        If a file cannot be read, or holds no answers.
    """
    store = open_store(config)
    paths = config.source.path
    found = find_sources(
        config.resolve(paths) if isinstance(paths, str) else tuple(map(config.resolve, paths))
    )
    with open_workers(config, address) as (client, _):
        check_workers_see(client, str(store.root.resolve()))
        parts = map_items(
            client,
            _take_one,
            found,
            config,
            str(store.root.resolve()),
            on_result=lambda done: report("census", done, len(found)),
        )
    taken = [Census.load(store.locate(entry.reference) / CENSUS) for entry in parts]
    schema = make_label_schema(Census.merge(taken), config.source, classes)
    schema.save(config.resolve(config.schema_.file))
    return {entry.inputs["source"].digest: entry.reference for entry in parts}


def _take_one(source: Source, config: PipelineConfig, root: str) -> Entry:
    store = Store(root)
    raw = store.record_source(source.name, digest_source(source), {"bytes": source.size}).reference

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        taken = take_census(source, config.source)
        taken.save(folder / CENSUS)
        return {"workers": len(taken.workers), "labels": len(taken.labels)}

    return store.build(
        "census",
        inputs={"source": raw},
        options={
            "name": source.name,
            "source": config.source.model_dump(mode="json", exclude={"path"}),
        },
        version=CENSUS_VERSION,
        write=write,
    )


@stage(name="aggregate")
def aggregate(
    config: PipelineConfig, dataset: Reference, method: str = "auto", address: str = ""
) -> Reference:
    """Find the true labels of all tasks, and how good the workers are.

    Parameters
    ----------
    config
        The pipeline; its EM section limits the passes.
    dataset
        What `ingest` returned.
    method
        A method of `pmflib.crowd.aggregate` that passes over the tasks.
    address
        Dask scheduler of the run; empty starts workers for this stage.

    Returns
    -------
    Reference to a folder with ``labels``, a Parquet file per partition, and ``workers.parquet``.

    Raises
    ------
    PmfError
        If the method is unknown.
    MemoryPlanError
        If the parameters and statistics would not fit.
    """
    if method not in RULES:
        raise PmfError(f"method is {method!r}; give one of {list(RULES)}")
    store, schema = open_store(config), load_schema(config)
    limits = limit_passes(method, config.em.max_passes, config.em.tol)
    with timed() as seconds:
        entry = store.build(
            "crowd",
            inputs={"dataset": dataset},
            options={
                "schema": schema.digest,
                "method": method,
                "rule": asdict(RULES[method]),
                "limits": limits,
            },
            version=VERSION,
            write=lambda folder, work: _write(
                config, store, dataset, method, limits, address, folder, work
            ),
        )
        publish_facts(entry, seconds())
    return entry.reference


@stage(name="publish labels")
def publish_labels(config: PipelineConfig, dataset: Reference, labels: Reference) -> dict[str, Any]:
    """Record where the labels of a pipeline are, and what was found.

    Parameters
    ----------
    config
        The pipeline.
    dataset, labels
        What `ingest` and `aggregate` returned.

    Returns
    -------
    Facts for people: where labels and workers are, what was found, rows read and set aside.
    """
    store = open_store(config)
    entry, rows = store.find(labels.identity), store.find(dataset.identity)
    facts: dict[str, Any] = {"config": config.digest, "digest": labels.digest}
    facts |= {} if entry is None else entry.summary
    facts["rows"] = {} if rows is None else rows.summary
    stages = {"dataset": dataset, "labels": labels}
    write_run(store, name_labelling(config.name), stages, facts)
    # not recorded: a store may be moved
    facts["path"] = str(store.locate(labels))
    if facts["rows"].get("rows_quarantined"):
        facts["quarantine"] = str(store.locate(dataset) / QUARANTINE)
    return facts


def _write(
    config: PipelineConfig,
    store: Store,
    dataset: Reference,
    method: str,
    limits: tuple[int, float],
    address: str,
    folder: Path,
    work: Path,
) -> Mapping[str, Any]:
    """Make the passes, from where a killed run stood, label every partition, and write what is known of the workers."""
    schema = load_schema(config)
    classes = schema[0].levels
    if any(variable.levels != classes for variable in schema):
        raise SchemaError("the workers have different labels; let `pmf crowd` write the schema")
    sizes = schema.n_variables, len(classes)
    blocks = list_dataset_blocks(store, dataset, range(config.store.folds))
    with open_workers(config, address) as (client, limit):
        plan = plan_em(sizes[0] * sizes[1], sizes[1], count_threads(client))
        plan.check(limit)
        fit = run_passes(
            _evaluate_on(client, blocks, sizes, (limit - plan.needed) // 2),
            sizes[0],
            RULES[method],
            n_classes=sizes[1],
            start=load_fit(work / STATE, RULES[method]),
            max_passes=limits[0],
            tol=limits[1],
            on_pass=partial(_keep_and_tell, work / STATE, limits[0]),
        )
        report("aggregate", len(fit.moved), len(fit.moved))
        n_answers = _label(client, store, dataset, classes, fit, folder)
    table = make_worker_table(schema.names, fit.annotators, n_answers, classes)
    pq.write_table(table, folder / WORKERS, compression="zstd")
    return {
        "method": method,
        "tasks": sum(block.n_rows for block in blocks),
        "answers": int(n_answers.sum()),
        "workers": sizes[0],
        "classes": list(classes),
        "prior": fit.annotators.prior.tolist(),
        "strength": fit.annotators.strength,
        "passes": len(fit.moved),
        "converged": fit.converged,
    }


def _evaluate_on(
    client: Client, blocks: Sequence[BlockReference], sizes: tuple[int, int], spare: int
) -> Evaluate:
    """Statistics of all tasks as a map over groups of blocks, kept in the workers' memory where they fit."""
    groups = group_blocks(blocks)
    # the stratum of every task, and at worst a tally of its votes
    beside = (4 + 8 * sizes[1]) * sum(block.n_rows for block in blocks)
    fits = beside + sum(block.nbytes for block in blocks) <= spare
    load = partial(load_voted, n_workers=sizes[0], n_classes=sizes[1])
    items = keep_loaded(client, load, groups) if fits else groups

    def evaluate(log_prior: FloatArray, weights: FloatArray, gains: FloatArray) -> EMStatistics:
        if not items:
            return EMStatistics.zero(len(weights), log_prior.size)
        return run_blocks(
            client, evaluate_group, items, EMStatistics.merge, log_prior, weights, gains
        )

    return evaluate


def _keep_and_tell(path: Path, max_passes: int, fit: CrowdFit) -> None:
    save_fit(path, fit)
    report("aggregate", len(fit.moved), max_passes, f"{fit.moved[-1]:.2g} of the answers moved")


def _label(
    client: Client,
    store: Store,
    dataset: Reference,
    classes: Sequence[str],
    fit: CrowdFit,
    folder: Path,
) -> Any:
    """Write the labels of every partition; answers of each worker."""
    (folder / LABELS).mkdir()
    parts = [str(store.locate(part) / SAMPLES) for part in read_partitions(store, dataset)]
    items = [
        (path, str(folder / LABELS / f"part-{place:05}.parquet"))
        for place, path in enumerate(parts)
    ]
    n_workers = len(fit.annotators.mass)
    counted = map_items(
        client,
        label_partition,
        items,
        tuple(classes),
        *weigh_levels(fit.annotators),
        on_result=lambda done: report("label", done, len(items)),
    )
    return sum(counted, np.zeros(n_workers, np.int64))
