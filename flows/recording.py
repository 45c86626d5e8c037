"""The record that every run leaves in the history of its pipeline, however it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from flows.run_lineage import emit_events
from flows.run_log import log_run
from flows.run_report import publish_report
from pmflib.config import PipelineConfig
from pmflib.errors import PmfError, QualityError, StoreError
from pmflib.ingest.source_urls import mask_secrets
from pmflib.open_lineage.run_events import RunEvents
from pmflib.store.artefacts import Reference, Store, refuse_unwritable
from pmflib.store.dataset import list_sources
from pmflib.store.erasures import keep_erasures_out
from pmflib.store.leases import hold_lease
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
    before
        Model that was live when the run decided about its own.
    outcome, reason
        How the run ends: "failed" until it has decided about its model.
    stages, inputs, facts
        As in `RunRecord`; stages are added as they are reached.
    number
        Number of the record, once it is written.
    """

    action: Action
    live: Reference | None
    before: Reference | None
    outcome: Outcome = "failed"
    reason: str = ""
    stages: dict[str, Reference] = field(default_factory=dict)
    inputs: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    number: int = 0

    def settle(self, record: RunRecord, live: Reference | None) -> RunRecord:
        """Record of a run whose pipeline has this live model by now: what became live meanwhile is not undone."""
        if self.live == self.before:
            return replace(record, live=live)
        if live in (self.before, self.live):
            return record
        now_live = "no model" if live is None else f"model {live.digest[:12]}"
        reason = f"kept the live model: {now_live} became live while this was decided; run again to compare with it"
        return replace(record, live=live, outcome="kept", reason=reason)


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
    The draft, for the run to fill in; once the record is written, with its outcome, reason, live model and number.
    """
    store, started = open_store(config), now()
    name = name_labelling(config.name) if action == "labels" else config.name
    live = find_live(store, name)
    draft = RunDraft(action, live, live)

    def write(events: RunEvents) -> None:
        draft.facts["timings"] = events.list_seconds()
        dataset = draft.stages.get("dataset")
        draft.inputs = draft.inputs or _mask(list_sources(store, dataset))
        if rows := _find_rows(store, dataset):
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
            options=_mask(config.model_dump(mode="json", by_alias=True, exclude={"base"})),
        )
        try:
            record = append_record(store, name, record, draft.settle)
        finally:
            log_run(name, record)
        publish_report(store, name, record)
        draft.outcome, draft.reason = record.outcome, record.reason
        draft.live, draft.number = record.live, record.number

    # to the end: what the run has made is anybody's to clear up until the record says that it is needed
    with (
        keep_erasures_out(store),
        hold_lease(store, f"{action} of pipeline {config.name}"),
        emit_events(config, name) as events,
    ):
        try:
            with refuse_unwritable(store.root):
                yield draft
        except BaseException as error:
            draft.outcome, draft.live = "interrupted", draft.before
            if isinstance(error, Exception):
                draft.outcome = "held back" if isinstance(error, QualityError) else "failed"
            known = isinstance(error, PmfError)
            draft.reason = mask_secrets(str(error) if known else f"{type(error).__name__}: {error}")
            # the error of the run says more than that its record could not be written either
            with suppress(StoreError):
                write(events)
            _end(events, draft, error)
            raise
        write(events)
        _end(events, draft)


def _mask(value: Any) -> Any:
    """Plain JSON types without the secrets that URLs in them may hold."""
    if isinstance(value, dict):
        return {key: _mask(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask(item) for item in value]
    return mask_secrets(value) if isinstance(value, str) else value


def _find_rows(store: Store, dataset: Reference | None) -> dict[str, Any]:
    """Account of rows of the dataset that a run has reached."""
    entry = None if dataset is None else store.find(dataset.identity)
    return {} if entry is None else entry.summary


def _end(events: RunEvents, draft: RunDraft, error: BaseException | None = None) -> None:
    """Say how a run has ended."""
    events.end_run(
        draft.outcome,
        reason=draft.reason,
        error=error,
        live=draft.live,
        inputs=draft.inputs,
        facts=draft.facts,
        number=draft.number,
    )
