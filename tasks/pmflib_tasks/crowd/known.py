"""Stages: files beside a label log, with known labels or class probabilities of a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.apps.crowd.classifiers import refuse_strange_tasks
from pmflib.apps.crowd.stored.classifier_files import PREDICTIONS, read_class_probabilities
from pmflib.apps.crowd.stored.known_files import read_known_rows, write_known
from pmflib.apps.crowd.stored.log_names import check_label_schema
from pmflib.apps.crowd.stored.stored_labels import StoredLabels
from pmflib.base.display.progress import report_progress
from pmflib.base.errors import ConfigError
from pmflib.ingest.sources import Source, find_sources, identify_source
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_layers
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.crowd.section import CrowdConfig
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

VERSION = 1


@stage(name="known labels", makes="known-labels")
def find_known_labels(config: PipelineConfig, dataset: Reference, address: str = "") -> Reference:
    """Find the tasks whose true label is in the file ``crowd.known``.

    Parameters
    ----------
    config
        The pipeline. The file has the columns of its source for tasks and labels, and is read with the same options.
    dataset
        Reference from `ingest`.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.

    Returns
    -------
    Reference to the known labels, and to the rows of the file that cannot be used, with reasons.

    Raises
    ------
    ConfigError
        If no file is named, or several.
    SourceError, SchemaError
        If the file cannot be read, or none of its rows can be used.
    """
    store, schema = open_store(config), check_label_schema(load_schema(config))
    source, raw = record_file(
        config, store, "crowd.known", config.section(CrowdConfig).known, "known labels"
    )

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        rows = read_known_rows(source, config.source, schema[0])
        with open_workers(config, address) as (client, _):
            layers = list_layers(store, dataset)
            summary = write_known(
                client,
                layers,
                rows,
                source.name,
                schema[0].levels,
                folder,
                partial(report_progress, "known labels"),
            )
        return asdict(summary)

    entry = build_artefact(
        store,
        "known-labels",
        inputs={"dataset": dataset, "source": raw},
        options={"schema": schema.digest, "source": config.source.reading},
        version=VERSION,
        write=write,
    )
    return entry.reference


def record_file(
    config: PipelineConfig, store: Store, option: str, given: str | None, holds: str
) -> tuple[Source, Reference]:
    """Find the file that an option names, and record it as an input.

    Raises
    ------
    ConfigError
        If no file is named, or several.
    """
    if given is None:
        raise ConfigError(f"{option} is not set; name the file of {holds}")
    found = find_sources(config.resolve_source(given), config.source.suffixes)
    if len(found) > 1:
        raise ConfigError(
            f"{option} = {given!r} names {len(found)} files; name one, with a row per task"
        )
    source = identify_source(found[0], store.address)
    return source, store.record_source(source.name, source.digest, {"bytes": source.size}).reference


CLASSIFIER_VERSION = 1


@stage(name="classifier", makes="classifier")
def find_predictions(config: PipelineConfig, dataset: Reference, address: str = "") -> Reference:
    """Find the tasks with class probabilities in the file ``crowd.classifier``.

    Parameters
    ----------
    config
        The pipeline. The file has the column of its source for tasks, and a column per class.
    dataset
        Reference from `ingest`.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.

    Returns
    -------
    Reference to the class probabilities, by fold and task.

    Raises
    ------
    ConfigError
        If no file is named, or several.
    SourceError, SchemaError
        If the file cannot be read, a row holds no probabilities, or no row belongs to a task of the log.
    """
    store, schema = open_store(config), check_label_schema(load_schema(config))
    source, raw = record_file(
        config,
        store,
        "crowd.classifier",
        config.section(CrowdConfig).classifier,
        "class probabilities",
    )

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        table = read_class_probabilities(source, config.source, schema[0].levels)
        (folder / PREDICTIONS).mkdir()
        with open_workers(config, address) as (client, memory):
            labels = StoredLabels(client, store, dataset, schema, memory=memory)
            n_predicted = labels.predict(
                table, folder / PREDICTIONS, partial(report_progress, "classifier")
            )
            if not n_predicted:
                refuse_strange_tasks(source.name, table.tasks.to_pylist())
        return {"rows": len(table.tasks), "tasks": n_predicted}

    return build_artefact(
        store,
        "classifier",
        inputs={"dataset": dataset, "source": raw},
        options={"schema": schema.digest, "source": config.source.reading},
        version=CLASSIFIER_VERSION,
        write=write,
    ).reference
