"""The live model of the workers: whether passes may go on from it, and whether it may be compared with another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pmflib.core.errors import StoreError
from pmflib.crowd.pipeline.worker_models import MODEL, WorkerModel
from pmflib.store.artefacts import Reference, Store
from pmflib.store.erasures import list_erased
from pmflib.store.run_records import find_live, name_labelling
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import load_schema, open_store

COMPARABLE = ("method", "em", "annotator_model", "limits", "held_out")
"""Options of a model of workers that a person chooses: one that was made with others is compared with nothing."""


def find_warm_start(config: PipelineConfig) -> Reference | None:
    """Live model that passes may go on from: where that is wanted, and its classes are today's; else None."""
    store = open_store(config)
    live = find_live(store, name_labelling(config.name)) if config.crowd.warm else None
    entry = None if live is None else store.find(live.identity)
    if entry is None or entry.inputs["dataset"].identity in list_erased(store):
        return None
    same = tuple(entry.summary["classes"]) == load_schema(config)[0].levels
    return live if same and entry.options.get("method") == config.crowd.method else None


def find_changes(store: Store, new: Reference, live: Reference) -> str:
    """What a person, or a new label, has changed since the live model was made, as a clause; "" for nothing."""
    made, before = store.find(new.identity), store.find(live.identity)
    if made is None or before is None:
        return "that one is not in the store any more"
    if before.inputs["dataset"].identity in list_erased(store):
        return "an erasure has taken out of the store what that one was made from"
    try:
        WorkerModel.load(store.locate(live) / MODEL)
    except StoreError as error:
        return f"that one cannot be read ({error})"
    if made.summary["classes"] != before.summary["classes"]:
        return "the classes are others"
    other = [key for key in COMPARABLE if _read(made.options, key) != _read(before.options, key)]
    if other or ("known" in made.inputs) != ("known" in before.inputs):
        return "[crowd] or [em] has been changed"
    return ""


def _read(options: Mapping[str, Any], key: str) -> str:
    """Option as text: tuples become lists in a manifest."""
    return json.dumps(options.get(key))
