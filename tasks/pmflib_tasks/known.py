"""Stage: the tasks of a label log whose true label is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.core.errors import ConfigError
from pmflib.crowd.pipeline.known_files import read_known_rows, write_known
from pmflib.display.progress import report_progress
from pmflib.ingest.dataset.log_names import check_label_schema
from pmflib.ingest.sources import Source, find_sources, identify_source
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_layers
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

VERSION = 1


@stage(name="known labels")
def find_known_labels(config: PipelineConfig, dataset: Reference, address: str = "") -> Reference:
    """Find the tasks whose true label the file ``crowd.known`` gives.

    Parameters
    ----------
    config
        The pipeline. The file has the columns that its source has for tasks and labels, and is read as the source is.
    dataset
        What `ingest` returned.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.

    Returns
    -------
    Reference to the known labels, and to the rows of the file that are of no use, with the reason.

    Raises
    ------
    ConfigError
        If no file is named, or several.
    SourceError, SchemaError
        If the file cannot be read, or none of its rows is of use.
    """
    store, schema = open_store(config), check_label_schema(load_schema(config))
    source, raw = record_file(config, store, "crowd.known", config.crowd.known, "known labels")

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
    """Find the one file that an option names, and record it as an input.

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
