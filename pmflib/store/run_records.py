"""The record of a pipeline's last run, and which of its models is live, or of the labels it last found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pmflib.errors import StoreError
from pmflib.store.artefacts import Reference, Store, refuse_unwritable, replace_file


def name_labelling(name: str) -> str:
    """Name of the record of the true labels that a pipeline found; no pipeline can be called so."""
    return f"{name}@labels"


def write_run(
    store: Store, name: str, stages: Mapping[str, Reference], facts: Mapping[str, Any]
) -> None:
    """Replace the record of a pipeline.

    Parameters
    ----------
    store
        Store that holds the artefacts.
    name
        Name of the pipeline.
    stages
        Artefact of each stage; "live" is the model that answers questions.
    facts
        Plain JSON types: digest of the configuration, scores, ...
    """
    content = {
        "stages": {stage: asdict(reference) for stage, reference in stages.items()},
        "facts": dict(facts),
    }
    folder = store.root / "runs"
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False)
    with refuse_unwritable(store.root):
        folder.mkdir(exist_ok=True)
        replace_file(folder / f"{name}.json", text.encode())


def read_run(store: Store, name: str) -> tuple[dict[str, Reference], dict[str, Any]] | None:
    """Stages and facts of a pipeline's last run; None if it has never finished.

    Raises
    ------
    StoreError
        If the record is damaged.
    """
    path = store.root / "runs" / f"{name}.json"
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
        return {k: Reference(**v) for k, v in content["stages"].items()}, content["facts"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"record runs/{name}.json is damaged ({error}); run the pipeline again"
        ) from error
