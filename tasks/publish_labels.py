"""Stage: the record of a pipeline's true labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.store.artefacts import Reference
from pmflib.store.dataset import QUARANTINE
from pmflib.store.run_records import name_labelling, write_run
from tasks.stage import open_store, stage


@stage(name="publish labels")
def publish_labels(config: PipelineConfig, stages: Mapping[str, Reference]) -> dict[str, Any]:
    """Record where the labels of a pipeline are, and what was found.

    Parameters
    ----------
    config
        The pipeline.
    stages
        Artefact of each stage: "dataset", "labels", and "pairs" and "crowd_model" where the method begins with them.

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
