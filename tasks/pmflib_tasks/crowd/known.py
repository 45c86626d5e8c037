"""Stages: files beside a label log, with known labels or class probabilities of a classifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from pmflib.ingest.chunks import find_columns
from pmflib.ingest.readers import read_columns
from pmflib.ingest.sources import Source, find_sources, identify_source
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_layers
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.crowd.section import CrowdConfig
from pmflib_tasks.health import Check, HealthLine
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

VERSION = 1
FILES = {"known": "known labels", "classifier": "class probabilities"}
"""What the files hold that options of section ``crowd`` name."""


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
    source, raw = record_file(config, store, "known")

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


def find_file(config: PipelineConfig, option: str) -> Source:
    """Find the file that an option of section ``crowd`` names.

    Raises
    ------
    ConfigError
        If no file is named, or several.
    """
    given, name = getattr(config.section(CrowdConfig), option), f"crowd.{option}"
    if given is None:
        raise ConfigError(f"{name} is not set; name the file of {FILES[option]}")
    found = find_sources(config.resolve_source(given), config.source.suffixes)
    if len(found) > 1:
        raise ConfigError(
            f"{name} = {given!r} names {len(found)} files; name one, with a row per task"
        )
    return found[0]


def record_file(config: PipelineConfig, store: Store, option: str) -> tuple[Source, Reference]:
    """Find the file that an option of section ``crowd`` names, and record it as an input: see `find_file`."""
    source = identify_source(find_file(config, option), store.address)
    return source, store.record_source(source.name, source.digest, {"bytes": source.size}).reference


def list_checks(config: PipelineConfig) -> Iterator[Check]:
    """Yield a check for each file that section ``crowd`` names: that it can be read, and says which tasks it is of."""

    def check(option: str) -> HealthLine:
        source, options = find_file(config, option), config.source
        if option == "classifier" or options.columns is None:
            assert options.sample is not None
            named = options.model_copy(update={"columns": None})
            find_columns(source, read_columns(source, named), [options.sample])
        return HealthLine("ok", FILES[option], source.name)

    for option, what in FILES.items():
        if getattr(config.section(CrowdConfig), option) is not None:
            yield Check(
                what, "source", f"correct crowd.{option}, or the file", partial(check, option)
            )


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
    source, raw = record_file(config, store, "classifier")

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
