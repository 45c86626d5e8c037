"""Stage: what was found in a label log."""

from __future__ import annotations

from collections.abc import Mapping

from pmflib.config import PipelineConfig
from pmflib.store.artefacts import Reference, Store
from pmflib_tasks.stage import open_store, stage


@stage(name="publish labels")
def publish_labels(config: PipelineConfig, stages: Mapping[str, Reference]) -> dict[str, object]:
    """Sum up what was found, for the record of the run.

    Parameters
    ----------
    config
        The pipeline.
    stages
        Artefact of each stage: "dataset", "labels", "pairs" and "crowd_model" where the method begins with them, and
        "known" where the labels of some tasks are known.

    Returns
    -------
    Facts for people: what was found, rows read and set aside.
    """
    store, dataset, labels = open_store(config), stages["dataset"], stages["labels"]
    entry, rows = store.find(labels.identity), store.find(dataset.identity)
    facts: dict[str, object] = {"digest": labels.digest}
    facts |= {} if entry is None else entry.summary
    facts["rows"] = {} if rows is None else rows.summary
    known = store.find(stages["known"].identity) if "known" in stages else None
    if known is not None:
        facts["known_labels"] = known.summary
    return facts


def locate_labels(store: Store, stages: Mapping[str, Reference]) -> dict[str, str]:
    """Path of the labels; no record holds it, for a store may be moved."""
    return {"path": store.name_artefact(stages["labels"])}
