"""Stage: what a classifier says of the tasks of a label log."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.crowd.classifiers import refuse_strange_tasks
from pmflib.crowd.pipeline.classifier_files import PREDICTIONS, read_class_probabilities
from pmflib.crowd.pipeline.stored_labels import StoredLabels
from pmflib.display.progress import report_progress
from pmflib.ingest.dataset.log_names import check_label_schema
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.known import record_file
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

VERSION = 1


@stage(name="classifier")
def find_predictions(config: PipelineConfig, dataset: Reference, address: str = "") -> Reference:
    """Find the tasks of which the file ``crowd.classifier`` says something.

    Parameters
    ----------
    config
        The pipeline. The file has the column that its source has for tasks, and one for each class.
    dataset
        What `ingest` returned.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.

    Returns
    -------
    Reference to the class probabilities, by fold and task.

    Raises
    ------
    ConfigError
        If no file is named, or several.
    SourceError, SchemaError
        If the file cannot be read, a row of it is no probabilities, or none is of a task of the log.
    """
    store, schema = open_store(config), check_label_schema(load_schema(config))
    source, raw = record_file(
        config, store, "crowd.classifier", config.crowd.classifier, "class probabilities"
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
        version=VERSION,
        write=write,
    ).reference
