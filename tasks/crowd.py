"""Stages of label logs: who answers and what, and the true labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from pmflib.config import PipelineConfig
from pmflib.crowd.aggregation import RULES, limit_passes
from pmflib.crowd.likeliest_start import begin_passes
from pmflib.crowd.passes import CrowdFit, Evaluate, run_passes, weigh_answers
from pmflib.crowd.pipeline.annotator_files import load_annotators
from pmflib.crowd.pipeline.block_groups import label_partition, make_worker_table
from pmflib.crowd.pipeline.census import CENSUS, Census, make_label_schema, take_census
from pmflib.crowd.pipeline.checkpoint import load_fit, save_fit
from pmflib.crowd.pipeline.mapped import evaluate_stored
from pmflib.crowd.pipeline.memory import plan_label_passes
from pmflib.ingest import Source, digest_source, find_sources
from pmflib.running.clients import Client, check_workers_see, count_threads
from pmflib.running.maps import map_items
from pmflib.schema import Schema
from pmflib.solvers.crowd.annotator_model import Annotators, Rule
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import QUARANTINE, SAMPLES, read_partitions
from pmflib.store.run_records import name_labelling, write_run
from tasks.annotators import ANNOTATORS, group_answers, load_label_schema
from tasks.progress import report
from tasks.stage import build_artefact, open_store, open_workers, stage

CENSUS_VERSION = 1
VERSION = 8
LABELS = "labels"
WORKERS = "workers.parquet"
STATE = "state.npz"
"""Where the passes stand, in the folder of work under way."""
STARTS = "start-{}.npz"
"""Where the first passes from each of several starts stand."""


@stage(name="census")
def census(config: PipelineConfig, address: str = "") -> dict[str, Reference]:
    """List the workers and labels of all sources, and write the schema that makes of them.

    Parameters
    ----------
    config
        The pipeline; its source is laid out long: a sample is a task, a variable a worker, a value a label.
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
    schema = make_label_schema(Census.merge(taken), config.source, config.crowd.classes)
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
    config: PipelineConfig,
    dataset: Reference,
    annotators: Reference | None = None,
    address: str = "",
) -> Reference:
    """Find the true labels of all tasks, and how good the workers are.

    Parameters
    ----------
    config
        The pipeline; its method and tolerance count, and its EM section limits the number of passes.
    dataset
        What `ingest` returned.
    annotators
        What `tasks.annotators.annotators` returned, where the method begins with pairs of workers.
    address
        Dask scheduler of the run; empty starts workers for this stage.

    Returns
    -------
    Reference to a folder with ``labels``, a Parquet file per partition, and ``workers.parquet``.

    Raises
    ------
    MemoryPlanError
        If the parameters and statistics would not fit.
    """
    store, schema, method = open_store(config), load_label_schema(config), config.crowd.method
    options: dict[str, Any] = {"schema": schema.digest, "method": method}
    limits = limit_passes(method, config.em.max_passes, config.crowd.tol)
    inputs = {"dataset": dataset}
    if annotators is None:
        options |= {"rule": asdict(RULES[method]), "limits": limits}
    else:
        inputs["annotators"] = annotators
        options["em"] = config.crowd.em
        options |= {"limits": limits} if config.crowd.em else {}
    entry = build_artefact(
        store,
        "crowd",
        inputs=inputs,
        options=options,
        version=VERSION,
        write=lambda folder, work: _write(
            config, store, schema, dataset, annotators, address, folder, work
        ),
    )
    return entry.reference


@stage(name="publish labels")
def publish_labels(config: PipelineConfig, stages: Mapping[str, Reference]) -> dict[str, Any]:
    """Record where the labels of a pipeline are, and what was found.

    Parameters
    ----------
    config
        The pipeline.
    stages
        Artefact of each stage: "dataset", "labels", and "pairs" and "annotators" where the method begins with them.

    Returns
    -------
    Facts for people: where labels and workers are, what was found, rows read and set aside.
    """
    store, dataset, labels = open_store(config), stages["dataset"], stages["labels"]
    entry, rows = store.find(labels.identity), store.find(dataset.identity)
    facts: dict[str, Any] = {"config": config.digest, "digest": labels.digest}
    facts |= {} if entry is None else entry.summary
    facts["rows"] = {} if rows is None else rows.summary
    write_run(store, name_labelling(config.name), stages, facts)
    # not recorded: a store may be moved
    facts["path"] = str(store.locate(labels))
    if facts["rows"].get("rows_quarantined"):
        facts["quarantine"] = str(store.locate(dataset) / QUARANTINE)
    return facts


def _write(
    config: PipelineConfig,
    store: Store,
    schema: Schema,
    dataset: Reference,
    annotators: Reference | None,
    address: str,
    folder: Path,
    work: Path,
) -> Mapping[str, Any]:
    """Make the passes, from where a killed run stood, label every partition, and write what is known of the workers."""
    sizes, classes = (schema.n_variables, schema[0].cardinality), schema[0].levels
    groups = group_answers(config, store, dataset)
    found = None if annotators is None else load_annotators(store.locate(annotators) / ANNOTATORS)
    rule = RULES[config.crowd.method] if found is None else found[0].rule
    with open_workers(config, address) as (client, limit):
        plan = plan_label_passes(groups, *sizes, count_threads(client), n_kinds=rule.kinds)
        plan.check(limit)
        if found is None or config.crowd.em:
            evaluate = evaluate_stored(client, groups, *sizes, (limit - plan.needed) // 2)
            fit = _pass_over(evaluate, config, rule, sizes, found, work)
        else:
            start = found[0]
            fit = CrowdFit(start, start.mass.reshape(-1, start.states.size), (), (), True)
        n_answers = _label(client, store, dataset, classes, fit, folder)
    table = make_worker_table(schema.names, fit.annotators, n_answers, classes)
    pq.write_table(table, folder / WORKERS, compression="zstd")
    return {
        "method": config.crowd.method,
        **({} if found is None else {"em": config.crowd.em}),
        "tasks": sum(block.n_rows for group in groups for block in group),
        "answers": int(n_answers.sum()),
        "workers": sizes[0],
        "classes": list(classes),
        "prior": fit.annotators.prior.tolist(),
        "strength": fit.annotators.strength,
        "passes": len(fit.moved),
        "converged": fit.converged,
    }


def _pass_over(
    evaluate: Evaluate,
    config: PipelineConfig,
    rule: Rule,
    sizes: tuple[int, int],
    found: tuple[Annotators, np.random.Generator] | None,
    work: Path,
) -> CrowdFit:
    """Estimate annotators by passes: from the votes, or after what pairs of workers gave."""
    max_passes, tol = limit_passes(config.crowd.method, config.em.max_passes, config.crowd.tol)
    begun: Annotators | CrowdFit | None = load_fit(work / STATE, rule)
    if begun is None and found is not None:
        begun = begin_passes(
            evaluate,
            *found,
            max_passes=max_passes,
            tol=tol,
            keep=lambda number, fit: _keep_and_tell(work / STARTS.format(number), 0, fit),
            recall=lambda number: load_fit(work / STARTS.format(number), rule),
        )
    fit = run_passes(
        evaluate,
        sizes[0],
        rule,
        n_classes=sizes[1],
        start=begun,
        max_passes=max_passes,
        tol=tol,
        on_pass=partial(_keep_and_tell, work / STATE, max_passes),
    )
    report("aggregate", len(fit.moved), len(fit.moved))
    return fit


def _keep_and_tell(path: Path, max_passes: int, fit: CrowdFit) -> None:
    save_fit(path, fit)
    # first passes from several starts: it is not known how many they are
    done, total = (len(fit.moved), max_passes) if max_passes else (0, 1)
    report("aggregate", done, total, f"{fit.moved[-1]:.2g} of the answers moved")


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
        *weigh_answers(fit.annotators),
        on_result=lambda done: report("label", done, len(items)),
    )
    return sum(counted, np.zeros(n_workers, np.int64))
