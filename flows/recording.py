"""The record that every run leaves in the history of its pipeline, however it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from flows.run_lineage import emit_events
from flows.run_log import log_run
from pmflib.config import PipelineConfig
from pmflib.errors import PmfError, QualityError, StoreError
from pmflib.open_lineage.run_events import RunEvents
from pmflib.store.artefacts import Reference, Store
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

    def write() -> RunRecord:
        if rows := _find_rows(store, draft):
            draft.facts.setdefault("rows", rows)
        record = RunRecord(
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
        )
        try:
            record = append_record(store, name, record)
        finally:
            log_run(name, record)
        return record

    with emit_events(config, name) as events:
        try:
            yield draft
        except BaseException as error:
            draft.outcome = "interrupted"
            if isinstance(error, Exception):
                draft.outcome = "held back" if isinstance(error, QualityError) else "failed"
            known = isinstance(error, PmfError)
            draft.reason = str(error) if known else f"{type(error).__name__}: {error}"
            number = 0
            # the error of the run says more than that its record could not be written either
            with suppress(StoreError):
                number = write().number
            _end(events, draft, number, error)
            raise
        _end(events, draft, write().number)


def _find_rows(store: Store, draft: RunDraft) -> dict[str, Any]:
    """Account of rows of the dataset that a run has reached."""
    dataset = draft.stages.get("dataset")
    entry = None if dataset is None else store.find(dataset.identity)
    return {} if entry is None else entry.summary


def _end(
    events: RunEvents, draft: RunDraft, number: int, error: BaseException | None = None
) -> None:
    """Say how a run has ended."""
    events.end_run(
        draft.outcome,
        reason=draft.reason,
        error=error,
        live=draft.live,
        inputs=draft.inputs,
        facts=draft.facts,
        number=number,
    )
