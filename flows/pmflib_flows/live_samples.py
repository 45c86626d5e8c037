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
    if made is None or store.find(made.stages[needed].identity) is None:
        raise StoreError(
            f"the store no longer has the {needed} of the run that made the live model of {checked.name!r}; `pmf run` "
            "makes both"
        )
    given = live, made.stages[needed], *own, made.number
    return run_on_samples(task, checked, choose_samples(store, last, made), given, data, columns)


def run_on_samples(
    task: Callable[..., Reference],
    config: PipelineConfig,
    samples: Reference | None,
    given: tuple[Any, ...],
    data: str,
    columns: tuple[str, ...],
) -> Reference:
    """Run a stage on stored samples, on new ones, or on rows of wide files without identifiers."""
    with follow_run(config), share_workers(config.cluster, alone=is_small(config)) as address:
        config = name_data(config, data)
        if config.source.layout == "wide" and config.source.sample is None:
            samples = None
        elif data:
            samples = ingest_data(config, address)
        return task(config, samples, *given, columns, address, bool(data) and samples is not None)


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
