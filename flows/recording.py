"""The record that every run leaves in the history of its pipeline, however it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.errors import PmfError, QualityError, StoreError
from pmflib.ingest.source_urls import mask_secrets
from pmflib.store.artefacts import Reference
from pmflib.store.run_records import (
    Action,
    Outcome,
    RunRecord,
    append_record,
    describe_environment,
    find_live,
    name_labelling,
    now,
)
from tasks.stage import open_store


@dataclass
class RunDraft:
    """What is known of a run under way; it becomes a `RunRecord` when the run ends.

    Parameters
    ----------
    action
        What is being done.
    live
        Model that is live; the run replaces it if its own is promoted.
    outcome, reason
        How the run ends: "failed" until it has decided about its model.
    stages, inputs, facts
        As in `RunRecord`; stages are added as they are reached.
    """

    action: Action
    live: Reference | None
    outcome: Outcome = "failed"
    reason: str = ""
    stages: dict[str, Reference] = field(default_factory=dict)
    inputs: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


@contextmanager
def record_run(config: PipelineConfig, action: Action = "run") -> Iterator[RunDraft]:
    """Write the record of a run when it ends: also where it fails, is held back or interrupted.

    Parameters
    ----------
    config
        The pipeline.
    action
        What is being done.

    Yields
    ------
    The draft, for the run to fill in.
    """
    store, started = open_store(config), now()
    name = name_labelling(config.name) if action == "labels" else config.name
    draft = RunDraft(action, find_live(store, name))

    def write() -> None:
        append_record(
            store,
            name,
            RunRecord(
                action=action,
                outcome=draft.outcome,
                reason=draft.reason,
                started=started,
                ended=now(),
                config=config.digest,
                stages=draft.stages,
                live=draft.live,
                inputs=draft.inputs,
                facts=draft.facts,
                environment=describe_environment(),
            ),
        )

    try:
        yield draft
    except BaseException as error:
        draft.outcome = "interrupted"
        if isinstance(error, Exception):
            draft.outcome = "held back" if isinstance(error, QualityError) else "failed"
        known = isinstance(error, PmfError)
        draft.reason = mask_secrets(str(error) if known else f"{type(error).__name__}: {error}")
        # the error of the run says more than that its record could not be written either
        with suppress(StoreError):
            write()
        raise
    write()
