"""Recording of runs, however they end: a record in the history of the pipeline, and what features make of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pmflib.base.errors import ConfigError, PmfError, QualityError, StoreError
from pmflib.base.events import Notice, listen, send_event
from pmflib.base.process_usage import ProcessUsage
from pmflib.base.texts import mask_secrets
from pmflib.store.artefacts import Reference, Store, refuse_unwritable
from pmflib.store.care.collection import GRACE_HOURS
from pmflib.store.dataset import list_sources
from pmflib.store.erasures import keep_erasures_out
from pmflib.store.leases import hold_lease
from pmflib.store.run_environment import describe_environment
from pmflib.store.run_records import (
    KNOWN,
    RECORDS,
    Action,
    InputFile,
    Outcome,
    RunNotice,
    RunRecord,
    StageTiming,
    append_record,
    describe_loss,
    find_newest,
    name_labelling,
    now,
)
from pmflib_flows.run_log import log_run
from pmflib_tasks.config import PipelineConfig, load_config
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.features import list_offers
from pmflib_tasks.stage import StageRun, open_store

MAX_NOTICES = 200
"""Maximum number of notices, such as lost workers, in the record of a run."""


CONFIGURATION = "configuration"
"""Key of the path of the configuration file in the environment of a run."""


@dataclass
class RunDraft:
    """Information on a current run, which becomes a `RunRecord` when the run ends.

    Parameters
    ----------
    action
        Action performed by the run.
    live
        Live model; replaced if the run promotes its own.
    before
        Model that was live when the run decided about its own.
    outcome, reason
        Outcome of the run: "failed" until it has decided about its model.
    stages, inputs, facts
        As in `RunRecord`; stages are added as they are reached.
    number
        Number of the record, once written.
    """

    action: Action
    live: Reference | None
    before: Reference | None
    outcome: Outcome = "failed"
    reason: str = ""
    stages: dict[str, Reference] = field(default_factory=dict)
    inputs: list[InputFile] = field(default_factory=list)
    facts: RunFacts = field(default_factory=RunFacts)
    number: int = 0

    def finish(self, record: RunRecord, live: Reference | None) -> RunRecord:
        """Return the record of a run, given the current live model: a model that became live meanwhile is kept."""
        if self.live == self.before:
            return replace(record, live=live)
        if live in (self.before, self.live):
            return record
        now_live = "no model" if live is None else f"model {live.digest[:12]}"
        reason = f"kept the live model: {now_live} became live while this was decided; run again to compare with it"
        return replace(record, live=live, outcome="kept", reason=reason)


class StageUsage:
    """Resources used so far by the stages of a run; a listener to `StageRun`."""

    def __init__(self) -> None:
        self._started: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._client: dict[str, list[ProcessUsage]] = {}
        self._workers: dict[str, list[ProcessUsage]] = {}

    def note(self, run: StageRun) -> None:
        """Note the start of a run of a stage, or add a finished one."""
        if not run.is_over:
            self._started[run.run_id] = time.monotonic()
            return
        took = time.monotonic() - self._started.pop(run.run_id)
        self._seconds[run.stage] = self._seconds.get(run.stage, 0.0) + took
        self._client.setdefault(run.stage, []).append(run.client)
        self._workers.setdefault(run.stage, []).extend(run.workers)

    def list_timings(self) -> list[StageTiming]:
        """List what each stage took, summed over attempts, in the order in which they first ended."""
        found = []
        for stage, took in self._seconds.items():
            client, workers = (
                ProcessUsage.add(each.get(stage, ())) for each in (self._client, self._workers)
            )
            found.append(
                StageTiming(
                    stage,
                    round(took, 3),
                    round(client.seconds + workers.seconds, 3),
                    client.peak_bytes,
                    workers.peak_bytes,
                    client.read_bytes + workers.read_bytes,
                    client.written_bytes + workers.written_bytes,
                )
            )
        return found


@contextmanager
def record_run(
    config: PipelineConfig, action: Action = "run", name: str = ""
) -> Iterator[RunDraft]:
    """Write the record of a run when it ends, including failures, quality stops and interruptions.

    Parameters
    ----------
    config
        The pipeline.
    action
        Action performed by the run.
    name
        Name of the history, if it differs from that of the pipeline or of its labels.

    Yields
    ------
    The draft, to be filled in by the run; after the record is written, it has outcome, reason, live model and number.
    """
    store, started, began = open_store(config), now(), time.monotonic()
    name = name or (name_labelling(config.name) if action == "labels" else config.name)
    draft = RunDraft(action, None, None)
    usage = StageUsage()
    notices: list[Notice] = []

    def keep(notice: Notice) -> None:
        if not notice.is_waiting and len(notices) < MAX_NOTICES:
            notices.append(notice)

    def write() -> None:
        if (hours := (time.monotonic() - began) / 3600) > GRACE_HOURS:
            send_event(
                Notice(
                    f"the run took {hours:.0f} hours, and `pmf gc` may delete what it used more than "
                    f"{GRACE_HOURS:.0f} hours before; give --older-than {2 * hours:.0f} where both may run at a time"
                )
            )
        draft.facts.note(timings=usage.list_timings())
        if notices:
            happened = [RunNotice(each.time, mask_secrets(each.text)) for each in notices]
            draft.facts.note(notices=happened)
        _append(config, store, name, draft, started)

    # held to the end: until the record is written, nothing shows that the results of the run are needed
    with (
        keep_erasures_out(store, f"{RECORDS}/{name}/{KNOWN}"),
        hold_lease(store.objects, f"{action} of pipeline {config.name}"),
        let_follow(config, name) as end,
        listen(keep, Notice),
        listen(usage.note, StageRun),
    ):
        last = find_newest(store, name)
        _check_name(config, last)
        draft.live = draft.before = None if last is None else last.live
        if loss := describe_loss(store, name):
            send_event(Notice(loss))
        try:
            with refuse_unwritable(store.root):
                yield draft
        except BaseException as error:
            draft.outcome, draft.live = "interrupted", draft.before
            if isinstance(error, Exception):
                draft.outcome = "held back" if isinstance(error, QualityError) else "failed"
            known = isinstance(error, PmfError)
            draft.reason = mask_secrets(str(error) if known else f"{type(error).__name__}: {error}")
            # the error of the run is more informative than the failure to write its record
            with suppress(StoreError):
                write()
            _end(end, draft, error)
            raise
        write()
        _end(end, draft)


def _append(config: PipelineConfig, store: Store, name: str, draft: RunDraft, started: str) -> None:
    """Append the record of a run to its history, and tell the draft what it says."""
    dataset = draft.stages.get("dataset")
    draft.inputs = draft.inputs or [
        replace(file, name=mask_secrets(file.name)) for file in list_sources(store, dataset)
    ]
    # row counts of the dataset that the run has reached
    entry = None if dataset is None else store.find(dataset.identity)
    if entry is not None and entry.summary and "rows" not in draft.facts:
        draft.facts.note(rows=entry.summary)
    record = RunRecord(
        action=draft.action,
        outcome=draft.outcome,
        reason=draft.reason,
        started=started,
        ended=now(),
        config=config.digest,
        stages=draft.stages,
        live=draft.live,
        inputs=draft.inputs,
        facts=dict(draft.facts),
        environment={
            **describe_environment(),
            **({CONFIGURATION: config.file} if config.file else {}),
        },
        options=_mask(config.model_dump(mode="json", by_alias=True, exclude={"base", "file"})),
    )
    try:
        record = append_record(store, name, record, draft.finish)
    finally:
        log_run(name, record)
    for follow in list_offers("after_run"):
        follow(config, store, name, record)
    draft.outcome, draft.reason = record.outcome, record.reason
    draft.live, draft.number = record.live, record.number


def _check_name(config: PipelineConfig, last: RunRecord | None) -> None:
    """Refuse a run under the name of another pipeline of the store.

    Raises
    ------
    ConfigError
        If the newest run of this name was made by another configuration file, which is still there, has this name, and
        would give other results.
    """
    other = Path("" if last is None else last.environment.get(CONFIGURATION, ""))
    if not config.file or not other.is_file() or other.samefile(config.file):
        return
    try:
        found = load_config(other)
    except ConfigError:
        return
    first, second = (os.path.realpath(each.resolve(each.store.path)) for each in (config, found))
    if found.name == config.name and found.digest != config.digest and first == second:
        raise ConfigError(
            f"name = {config.name!r} of {config.file!r} is that of {str(other)!r}, which runs in the same store "
            f"{mask_secrets(config.store.path)!r}: they would share history and live model; give one another name"
        )


def _mask(value: Any) -> Any:
    """Return plain JSON types in which secrets in URLs are masked."""
    if isinstance(value, dict):
        return {key: _mask(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask(item) for item in value]
    return mask_secrets(value) if isinstance(value, str) else value


def _end(end: Callable[..., None], draft: RunDraft, error: BaseException | None = None) -> None:
    """Tell the features that follow a run how it ended."""
    end(
        draft.outcome,
        reason=draft.reason,
        error=error,
        live=draft.live,
        inputs=draft.inputs,
        facts=draft.facts,
        number=draft.number,
    )


@contextmanager
def let_follow(config: PipelineConfig, name: str) -> Iterator[Callable[..., None]]:
    """Let features follow a run within the context, by `Feature.follow_run`.

    Parameters
    ----------
    config
        The pipeline.
    name
        Name of the history of the run: that of the pipeline, or of another command.

    Yields
    ------
    Function that tells them how the run ended.
    """
    with ExitStack() as stack:
        ends = [stack.enter_context(follow(config, name)) for follow in list_offers("follow_run")]

        def end(outcome: str, **known: Any) -> None:
            for each in ends:
                each(outcome, **known)

        yield end


@contextmanager
def follow_run(config: PipelineConfig) -> Iterator[None]:
    """Let features follow a run that makes no decision about a model and leaves no record."""
    with keep_erasures_out(open_store(config)), let_follow(config, config.name) as end:
        try:
            yield
        except BaseException as error:
            end("failed" if isinstance(error, Exception) else "interrupted", error=error)
            raise
        end("done")
