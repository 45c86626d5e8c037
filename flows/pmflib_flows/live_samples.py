"""Parts that flows share which apply the live model to samples: which model, which samples, and the run of a stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pmflib.answering.sample_tables.parts import soften_policy
from pmflib.base.errors import StoreError
from pmflib.cluster.workers import share_workers
from pmflib.ingest.options import DESIGN_OPTIONS
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import RunRecord, find_last_run, find_live, find_run_of
from pmflib_flows.recording import follow_run
from pmflib_tasks.config import PipelineConfig, load_config
from pmflib_tasks.small_runs import is_small
from pmflib_tasks.stage import open_store
from pmflib_tasks.stages.ingest import ingest


def run_on_live(
    task: Callable[..., Reference],
    needed: str,
    config: str,
    own: tuple[Any, ...],
    data: str,
    columns: tuple[str, ...],
) -> Reference:
    """Run a stage that needs samples, the live model, and an artefact of the run that made it."""
    checked = load_config(config)
    store = open_store(checked)
    last, live, made = find_live_run(store, checked.name)
    if needed == "counts" and made is not None and "pooled" in made.stages:
        needed = "pooled"
    if made is None or store.find(made.stages[needed].identity) is None:
        raise StoreError(
            f"the store no longer has the {needed} of the run that made the live model of {checked.name!r}; `pmf run` "
            "makes both"
        )
    dataset: Reference | None = choose_samples(store, last, made)
    with follow_run(checked), share_workers(checked.cluster, alone=is_small(checked)) as address:
        checked = name_data(checked, data)
        if checked.source.layout == "wide" and checked.source.sample is None:
            dataset = None
        elif data:
            dataset = ingest_data(checked, address)
        rest = made.number, columns, address, bool(data) and dataset is not None
        return task(checked, dataset, live, made.stages[needed], *own, *rest)


def find_live_run(store: Store, name: str) -> tuple[RunRecord, Reference, RunRecord | None]:
    """Return the last run of a pipeline, its live model, and the run that made the model, if known."""
    last, live = find_last_run(store, name), find_live(store, name)
    if last is None or live is None:
        raise StoreError(f"pipeline {name!r} has no live model; `pmf run` makes one")
    return last, live, find_run_of(store, name, live)


def name_data(config: PipelineConfig, data: str) -> PipelineConfig:
    """Return the configuration with new files as its source, whose weights are not needed, if any are given."""
    if not data:
        return config
    unread = dict.fromkeys(DESIGN_OPTIONS)
    source = config.source.model_copy(update={"path": data, **unread})
    return config.model_copy(update={"source": source})


def ingest_data(config: PipelineConfig, address: str) -> Reference:
    """Ingest samples from new files, in which a row with an unknown level is not rejected."""
    policy = soften_policy(config.schema_)
    return ingest(config.model_copy(update={"schema_": policy}), address)


def choose_samples(store: Store, last: RunRecord, made: RunRecord | None) -> Reference:
    """Return the samples of the last run, or those of the live model if the schema has changed since."""
    datasets = [run.stages["dataset"] for run in (last, made) if run is not None]
    entries = [store.find(dataset.identity) for dataset in datasets]
    schemas = {entry.options.get("schema") for entry in entries if entry is not None}
    return datasets[0 if len(schemas) == 1 else -1]
