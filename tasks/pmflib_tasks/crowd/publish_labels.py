"""Stage: the summary of the labels for the record of the run."""

from __future__ import annotations

from collections.abc import Mapping

from pmflib.store.artefacts import Reference, Store
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import open_store, stage

IDENTIFYING = ("ask_again", "suspicious_workers")
"""Keys that name tasks and workers; they are left out of records, which are never changed."""


@stage(name="publish labels")
def publish_labels(config: PipelineConfig, stages: Mapping[str, Reference]) -> dict[str, object]:
    """Summarise the labels for the record of the run.

    Parameters
    ----------
    config
        The pipeline.
    stages
        Artefact of each stage: "dataset", "labels", "worker_model"; "pairs" and "crowd_model" if the method starts from
        them; "known" if some labels are known.

    Returns
    -------
    Facts: the summary of the labels, and the account of rows. They name no task or worker: see `name_for_people`.
    """
    store, dataset, labels = open_store(config), stages["dataset"], stages["labels"]
    entry, rows = store.find(labels.identity), store.find(dataset.identity)
    facts: dict[str, object] = {"digest": labels.digest}
    if entry is not None:
        facts |= {key: each for key, each in entry.summary.items() if key not in IDENTIFYING}
    facts["rows"] = {} if rows is None else rows.summary
    known = store.find(stages["known"].identity) if "known" in stages else None
    if known is not None:
        facts["known_labels"] = known.summary
    return facts


def name_for_people(store: Store, stages: Mapping[str, Reference]) -> dict[str, object]:
    """Collect what no record holds: path of the labels, tasks to ask again and suspicious workers.

    A store may be moved, and a named worker may ask to be erased.
    """
    labels = stages["labels"]
    entry = store.find(labels.identity)
    summary = {} if entry is None else entry.summary
    named = {key: summary[key] for key in IDENTIFYING if key in summary}
    return {"path": store.name_artefact(labels), **named}
