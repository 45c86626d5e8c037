"""History of a pipeline: a record of every run, with the model that was live after it, and report pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pmflib.base.errors import PmfError, StoreError
from pmflib.base.json_records import Form, JsonRecord, from_json
from pmflib.store.artefacts import Reference, Store, refuse_unwritable
from pmflib.store.erasures import read_erasures
from pmflib.store.file_digests import seal, unseal
from pmflib.store.leases import hold_lease
from pmflib.store.objects.interface import call_in_parallel

Action = Literal["run", "labels", "promote", "rollback", "erase", "gc"]
"""Kind of a record: a run, a run on label logs, or a command that changed the live model or the stored data."""

RUNS = ("run", "labels")
"""Actions that read data and fit a model."""

Outcome = Literal["promoted", "kept", "unchanged", "held back", "failed", "interrupted", "done"]
"""Outcome of a run. Promoted: its model is live. Kept: the previous model stays live. Unchanged: no data were new.
Held back: stopped by a quality guard. Done: a command that fits no model."""

COLLECTIONS = "@gc"
"""Name of the history of `pmf gc`; no pipeline can have this name."""

RECORDS = "runs"
"""Folder of a store with a folder of records for each pipeline."""

HISTORIES = "histories"
"""Folder of a store with a file for each pipeline that holds the number of its last record. The number may lag behind:
it only starts the search for the last record, and lets `pmf verify` detect deleted records."""

KNOWN = "known"
"""Object beside the records of a pipeline in a bucket with everything that its last run read and wrote, which saves
requests in the next run. It is optional, and its outdated parts are ignored."""


@dataclass(frozen=True)
class InputFile(JsonRecord):
    """A raw file read by a run.

    Parameters
    ----------
    name
        Name of the source.
    digest
        SHA-256 of its bytes.
    bytes
        Size; None if unknown.
    rows
        Number of rows read; None if unknown.
    """

    name: str
    digest: str
    bytes: Annotated[int | None, Form.GIVEN] = None
    rows: Annotated[int | None, Form.GIVEN] = None


@dataclass(frozen=True)
class StageTiming:
    """What a stage of a run took, in section "timings" of its facts.

    Parameters
    ----------
    stage
        Name of the stage.
    seconds, processor_seconds
        Duration, and processor time of all processes.
    client_memory, worker_memory
        Largest memory of the client and of a worker, bytes; 0 or None if unknown.
    read_bytes, written_bytes
        Bytes read and written by all processes.
    """

    stage: str
    seconds: float
    processor_seconds: float = 0.0
    client_memory: int | None = None
    worker_memory: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


@dataclass(frozen=True)
class RunNotice:
    """Something that happened around a run, such as a lost worker, in section "notices" of its facts.

    Parameters
    ----------
    time
        Time in UTC, ISO 8601.
    text
        A sentence, in which secrets are masked.
    """

    time: str
    text: str


@dataclass(frozen=True)
class RunRecord(JsonRecord):
    """One run of a pipeline, or one command that changed its live model or data.

    Parameters
    ----------
    action, outcome
        Kind and outcome.
    reason
        One sentence for people: why the model was promoted or not, or what failed.
    started, ended
        Times in UTC, ISO 8601.
    config
        Digest of the configuration.
    stages
        Artefacts by stage reached: dataset, counts, start, model, scores, ...
    live
        Model that is live after this run; None if there is none yet.
    inputs
        Raw files.
    facts
        Sections in plain JSON types by name, each written and read by its own module: "rows" by
        `pmflib.ingest.dataset.accounts.DatasetAccount`, "quality" by `pmflib_tasks.guards.findings.Finding`, "refit" by
        `pmflib_tasks.gate.refit.Refit`, "gate" by `pmflib_tasks.gate.gate_decision.GateNumbers`; "model", "scores",
        "live_scores" and "rank" are summaries from the manifest. Labels, erasures and collections have their own
        sections.
    environment
        Host, Python, versions of ``PACKAGES`` and, in a checkout, the commit of pmflib.
    options
        Resolved configuration with every option; secrets in URLs are masked.
    number
        Position in the history, from 1; 0 before the record is written.
    """

    action: Action
    outcome: Outcome
    reason: str
    started: str
    ended: str
    config: str
    stages: dict[str, Reference]
    live: Reference | None = None
    inputs: list[InputFile] = field(default_factory=list)
    facts: Mapping[str, object] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)
    number: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether the run completed and decided about its model."""
        return self.outcome in ("promoted", "kept", "unchanged", "done")

    @property
    def model(self) -> Reference | None:
        """Model that the run fitted, to data or to the workers of a label log."""
        return self.stages.get("model") or self.stages.get("worker_model")

    @property
    def seconds(self) -> dict[str, float]:
        """Duration of each stage, seconds, in order."""
        return {each.stage: each.seconds for each in self.timings}

    @property
    def timings(self) -> list[StageTiming]:
        """What each stage took, in order (section "timings")."""
        return from_json(list[StageTiming], self.facts.get("timings", []))

    @property
    def notices(self) -> list[RunNotice]:
        """What happened around the run (section "notices")."""
        return from_json(list[RunNotice], self.facts.get("notices", []))

    @property
    def scores(self) -> dict[str, float]:
        """Mean scores of the fitted model on hidden cells, by measure (section "scores")."""
        return self._read_means("scores")

    @property
    def live_scores(self) -> dict[str, float]:
        """Mean scores of the model that was live; empty if there was none or it could not be compared."""
        return self._read_means("live_scores")

    def _read_means(self, section: str) -> dict[str, float]:
        found: Any = self.facts.get(section) or {}
        return {name: each for name, each in found.items() if isinstance(each, int | float)}

    @property
    def before(self) -> str | None:
        """Digest of the live model that a command replaced; None if there was none."""
        found = self.facts.get("before")
        return found if isinstance(found, str) else None

    @property
    def erasure(self) -> int | None:
        """Number of the erasure; None for other actions."""
        found = self.facts.get("erasure")
        return found if isinstance(found, int) else None

    @property
    def samples_erased(self) -> int:
        """Number of samples that an erasure found in the store; 0 for other actions."""
        found = self.facts.get("samples_found")
        return found if isinstance(found, int) else 0


Finish: TypeAlias = Callable[[RunRecord, Reference | None], RunRecord]
"""Function that completes a record before it is written, given the record and the model live just before it."""


def name_labelling(name: str) -> str:
    """Name of the history of a pipeline's label runs; no pipeline can have this name."""
    return f"{name}@labels"


def list_histories(store: Store) -> list[str]:
    """Names of the histories in a store: of pipelines and of their label runs, not of collections."""
    return [name for name in store.objects.list_folders(RECORDS) if name != COLLECTIONS]


def append_record(
    store: Store, name: str, record: RunRecord, finish: Finish | None = None
) -> RunRecord:
    """Write a record under the next free number of its pipeline.

    Parameters
    ----------
    store
        The store.
    name
        Name of the pipeline.
    record
        The record; its number is replaced.
    finish
        Called with the record and the model that is live before it; returns the record to write. Record numbers are
        unique, so that this model is known for certain.

    Returns
    -------
    The record with its number; concurrent runs get different numbers.
    """
    with refuse_unwritable(store.root), hold_lease(store.objects, f"record of {name}"):
        number = _find_last(store, name)
        while True:
            number += 1
            if finish is not None:
                before = next(_read_backwards(store, name, number), None)
                record = finish(record, None if before is None else before.live)
            numbered = replace(record, number=number)
            # only one run creates the record of a number
            with suppress(FileExistsError):
                store.objects.create(_name_record(name, number), seal(numbered.to_json()))
                break
        store.objects.put(f"{HISTORIES}/{name}", str(number).encode())
        return numbered


def list_records(store: Store, name: str) -> list[RunRecord]:
    """All records of a pipeline in order, with stages replaced by erasures forwarded to their replacements.

    Raises
    ------
    StoreError
        If a record is damaged.
    """
    forward, numbers = _read_forward(store), list_numbers(store, name)
    records = call_in_parallel(lambda number: _read_kept(store, name, number), numbers)
    return [_forward(record, forward) for record in records if record is not None]


def find_record(store: Store, name: str, number: int) -> RunRecord:
    """Record of one run.

    Raises
    ------
    StoreError
        If there is no such run, or its record is damaged.
    """
    numbers = list_numbers(store, name)
    record = _read_kept(store, name, number) if number in numbers else None
    if record is None:
        known = f"there are {numbers[0]} to {numbers[-1]}" if numbers else "it has never run"
        raise StoreError(
            f"run {number} of pipeline {name!r} is not in its history: {known}; `pmf history` lists them"
        )
    return _forward(record, _read_forward(store))


def find_live(store: Store, name: str) -> Reference | None:
    """Live model of a pipeline; None if it has none yet.

    Raises
    ------
    StoreError
        If a record is damaged.
    """
    # the newest record names the live model
    last = find_newest(store, name)
    return None if last is None else last.live


def find_newest(store: Store, name: str) -> RunRecord | None:
    """Newest record of a pipeline, however the run ended; None if it has never run.

    Raises
    ------
    StoreError
        If the record is damaged.
    """
    return next(_read_backwards(store, name), None)


def find_last_run(store: Store, name: str) -> RunRecord | None:
    """Last completed run of a pipeline; None if there is none.

    Raises
    ------
    StoreError
        If a record is damaged.
    """
    for record in _read_backwards(store, name):
        if record.action in RUNS and record.is_complete:
            return _forward(record, _read_forward(store))
    return None


def find_run_of(store: Store, name: str, model: Reference) -> RunRecord | None:
    """Last run of a pipeline that fitted a given model, with the dataset and counts of that model.

    Raises
    ------
    StoreError
        If a record is damaged.
    """
    for record in _read_backwards(store, name):
        if record.action in RUNS and record.model == model:
            return _forward(record, _read_forward(store))
    return None


def _read_forward(store: Store) -> dict[str, Reference]:
    """Replacements of artefacts by erasures, by identity."""
    erasures = read_erasures(store)
    return {} if erasures is None else erasures.forward()


def _forward(record: RunRecord, forward: Mapping[str, Reference]) -> RunRecord:
    """Replace the stages of a record that erasures have replaced."""
    stages = {
        stage: forward.get(reference.identity, reference)
        for stage, reference in record.stages.items()
    }
    return record if stages == record.stages else replace(record, stages=stages)


def now() -> str:
    """Time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _name_record(name: str, number: int, suffix: str = ".json") -> str:
    return f"{RECORDS}/{name}/{number:06}{suffix}"


def list_numbers(store: Store, name: str) -> Sequence[int]:
    """Numbers of the records of a pipeline, sorted; in a bucket, including those declared lost."""
    if store.objects.lists_cheaply:
        return list_stored(store, name, ".json")
    return range(1, _find_last(store, name) + 1)


def list_stored(store: Store, name: str, suffix: str) -> list[int]:
    """Numbers of the records of a pipeline (suffix .json), or of records declared lost (suffix .lost).

    A folder with the name of a record counts as a damaged record.
    """
    folder = f"{RECORDS}/{name}"
    names = [metadata.name for metadata in store.objects.list_objects(folder)]
    names += [f"{folder}/{each}" for each in store.objects.list_folders(folder)]
    paths = (Path(each) for each in names if each.count("/") == folder.count("/") + 1)
    found = (path.stem for path in paths if path.suffix == suffix)
    return sorted(int(stem) for stem in found if stem.isdecimal())


def _find_last(store: Store, name: str) -> int:
    """Last used record number, including lost and deleted records; 0 if there is none."""
    number = read_last_number(store, name) or 0
    if store.objects.lists_cheaply:
        return max(number, *list_numbers(store, name), *list_stored(store, name, ".lost"), 0)
    while True:
        after = [_name_record(name, number + 1, suffix) for suffix in (".json", ".lost")]
        after = [each for each in after if not store.objects.lacks(each)]
        if not any(call_in_parallel(store.objects.exists, after)):
            return number
        number += 1


def read_last_number(store: Store, name: str) -> int | None:
    """Number of the last record according to ``HISTORIES``; None if it is missing or damaged."""
    path = f"{HISTORIES}/{name}"
    try:
        text = b"" if store.objects.lacks(path) else store.objects.read(path)[0]
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return int(text) if text.isdigit() and len(text) <= 9 else None


def describe_loss(store: Store, name: str) -> str:
    """Describe the loss of the newest records of a pipeline; "" if none were deleted."""
    last = read_last_number(store, name)
    found = [_name_record(name, last or 0, suffix) for suffix in (".json", ".lost")]
    if not last or any(map(store.objects.exists, found)):
        return ""
    return (
        f"record {last} of {name!r}, the newest, is gone: the live model is taken from older records, if any; "
        "`pmf verify` names what is missing; restore it from a copy of the store"
    )


def _read_backwards(store: Store, name: str, before: int | None = None) -> Iterator[RunRecord]:
    """Records of a pipeline, newest first, optionally only those before a number."""
    for number in sorted(list_numbers(store, name), reverse=True):
        if before is None or number < before:
            record = _read_kept(store, name, number)
            if record is not None:
                yield record


def _read_kept(store: Store, name: str, number: int) -> RunRecord | None:
    """Record of a pipeline; None if it is declared lost."""
    try:
        return read_record(store, name, number)
    except StoreError as error:
        is_gone = isinstance(error.__cause__, FileNotFoundError)
        if is_gone and store.objects.exists(_name_record(name, number, ".lost")):
            return None
        raise


def read_record(store: Store, name: str, number: int) -> RunRecord:
    """Read a record of a pipeline.

    Raises
    ------
    StoreError
        If it is damaged or was edited.
    """
    location = _name_record(name, number)
    try:
        record = from_json(RunRecord, unseal(store.objects.read(location)[0]))
        if record.number != number:
            raise ValueError(f"it is the record of run {record.number}")
    except PmfError:
        raise
    except (OSError, ValueError) as error:
        raise StoreError(
            f"record {location} is damaged ({error}); restore it from a copy, or rename it to {number:06}.lost to "
            "list that run as lost"
        ) from error
    return record
