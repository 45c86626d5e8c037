"""History of a pipeline: a record of every run, which model it left live, and its page."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pmflib.core.errors import PmfError, StoreError
from pmflib.core.json_records import from_json
from pmflib.store.artefacts import Reference, Store, refuse_unwritable
from pmflib.store.erasures import read_erasures
from pmflib.store.file_digests import seal, unseal
from pmflib.store.leases import hold_lease
from pmflib.store.objects.addresses import call_in_parallel

Action = Literal["run", "labels", "promote", "rollback", "erase", "gc"]
"""What a record is of: a run of a pipeline, of one for label logs, or a command that changed what is live or kept."""

RUNS = ("run", "labels")
"""Actions that read data and make a model."""

Outcome = Literal["promoted", "kept", "unchanged", "held back", "failed", "interrupted", "done"]
"""How a run ended. Promoted: its model is live. Kept: the model before it stays live. Unchanged: nothing was new. Held
back: by a guard of quality. Done: a command without a model of its own."""

COLLECTIONS = "@gc"
"""Name of the history of what `pmf gc` took out of a store; no pipeline can be called so."""

RECORDS = "runs"
"""Folder of a store with a folder of records for each pipeline."""

HISTORIES = "histories"
"""Folder of a store with a file for each pipeline: the number of a record that was the last when it was written. It may
lag behind, and is a number to start from: a number is taken when its record is there, and not when this says so. That
records up to it are there is what `pmf verify` checks: a history that was deleted is missed."""

KNOWN = "known"
"""Object beside the records of a pipeline in a bucket: what its last run has read and written, for the next one, which
saves as many requests. It is needed for nothing, and what it says of objects that have changed since is not used."""

PACKAGES = ("pmflib", "numpy", "scipy", "numba", "zarr", "pyarrow", "dask", "prefect")
"""Packages whose versions a record holds."""


@dataclass(frozen=True)
class InputFile:
    """A raw file that a run has read.

    Parameters
    ----------
    name
        Name of the file, as its source gives it.
    digest
        SHA-256 of its bytes.
    bytes
        Its size; None where the store does not know it any more.
    rows
        Rows read from it; None where that is not known.
    """

    name: str
    digest: str
    bytes: int | None = None
    rows: int | None = None

    def to_json(self) -> dict[str, str | int]:
        """Plain JSON types; what is not known has no key."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class RunRecord:
    """One run of a pipeline, or one command that changed what is live.

    Parameters
    ----------
    action, outcome
        What was done, and how it ended.
    reason
        One sentence for a person: why the model was promoted or not, or what failed.
    started, ended
        Times in UTC, ISO 8601.
    config
        Digest of the configuration.
    stages
        Artefact of each stage that was reached: dataset, counts, start, model, scores, ...
    live
        Model that answers questions after this run; None if there is none yet.
    inputs
        Raw files.
    facts
        Sections in plain JSON types by name, each written and read by what it is about: "rows" by
        `pmflib.ingest.dataset.accounts.DatasetAccount`, "quality" by `pmflib_tasks.guards.findings.Finding`, "refit" by
        `pmflib_tasks.refit.Refit`, "gate" by `pmflib_tasks.gate_decision.GateNumbers`; "model", "scores",
        "live_scores" and "rank" are summaries of artefacts, as the manifest has them. Labels, erasures and collections
        have sections of their own.
    environment
        Host, Python, versions of ``PACKAGES``, and the commit of pmflib where it runs from a checkout.
    options
        The configuration, resolved: every option of every section, secrets in URLs masked.
    number
        Position in the history of the pipeline, from 1; 0 before it is written.
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
        """Whether the run reached its end and decided about its model."""
        return self.outcome in ("promoted", "kept", "unchanged", "done")

    @property
    def model(self) -> Reference | None:
        """Model that the run made: of the data of a pipeline, or of the workers of a label log."""
        return self.stages.get("model") or self.stages.get("worker_model")

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds that each stage took, in order: section "timings" of the facts."""
        timings: Any = self.facts.get("timings", ())
        return {each["stage"]: each["seconds"] for each in timings}

    @property
    def scores(self) -> dict[str, float]:
        """Means over hidden cells by measure, of the model that the run made: section "scores", but for the target."""
        return self._read_means("scores")

    @property
    def live_scores(self) -> dict[str, float]:
        """The same of the model that was live; empty where there was none, or it could not be compared."""
        return self._read_means("live_scores")

    def _read_means(self, section: str) -> dict[str, float]:
        found: Any = self.facts.get(section) or {}
        return {name: each for name, each in found.items() if isinstance(each, int | float)}

    @property
    def before(self) -> str | None:
        """Digest of the model that a command replaced by another; None where there was none, or of another action."""
        found = self.facts.get("before")
        return found if isinstance(found, str) else None

    @property
    def erasure(self) -> int | None:
        """Number of the erasure; None of another action."""
        found = self.facts.get("erasure")
        return found if isinstance(found, int) else None

    @property
    def samples_erased(self) -> int:
        """Samples that an erasure found in the store; 0 of another action."""
        found = self.facts.get("samples_found")
        return found if isinstance(found, int) else 0

    def to_json(self) -> dict[str, object]:
        """Plain JSON types: what is stored."""
        return {**asdict(self), "inputs": [each.to_json() for each in self.inputs]}


Settle: TypeAlias = Callable[[RunRecord, Reference | None], RunRecord]
"""Last look at a record before it is written: given it and the model that is live just before it."""


def name_labelling(name: str) -> str:
    """Name of the history of the true labels that a pipeline found; no pipeline can be called so."""
    return f"{name}@labels"


def list_histories(store: Store) -> list[str]:
    """Names under which a store holds records of runs: of pipelines, and of their labels; not of collections."""
    return [name for name in store.objects.list_folders(RECORDS) if name != COLLECTIONS]


def append_record(
    store: Store, name: str, record: RunRecord, settle: Settle | None = None
) -> RunRecord:
    """Write a record under the next free number of its pipeline.

    Parameters
    ----------
    store
        Store that holds the artefacts.
    name
        Name of the pipeline.
    record
        What was done; its number is replaced.
    settle
        Called with the record and the model that the record before it left live; gives the record to write. What has
        become live since the run decided is known here for certain, for a number is taken only once.

    Returns
    -------
    The record with its number. Of two runs that end together, each has a number of its own.
    """
    with refuse_unwritable(store.root), hold_lease(store.objects, f"record of {name}"):
        number = _find_last(store, name)
        while True:
            number += 1
            if settle is not None:
                before = next(_read_backwards(store, name, number), None)
                record = settle(record, None if before is None else before.live)
            numbered = replace(record, number=number)
            # only one run creates the record of a number
            with suppress(FileExistsError):
                store.objects.create(_name_record(name, number), seal(numbered.to_json()))
                break
        store.objects.put(f"{HISTORIES}/{name}", str(number).encode())
        return numbered


def list_records(store: Store, name: str) -> list[RunRecord]:
    """All records of a pipeline, in order; none if it has never run. Stages that an erasure replaced are the new ones.

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
    """Model that answers the questions of a pipeline; None if it has none yet.

    Raises
    ------
    StoreError
        If a record is damaged.
    """
    # newest first: the last record says what is live
    last = next(_read_backwards(store, name), None)
    return None if last is None else last.live


def find_last_run(store: Store, name: str) -> RunRecord | None:
    """Last run of a pipeline that reached its end; None if none has.

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
    """Last run of a pipeline that made a model: its dataset and counts are those that the model has seen.

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
    """What erasures put in the place of artefacts that records refer to, by identity."""
    erasures = read_erasures(store)
    return {} if erasures is None else erasures.forward()


def _forward(record: RunRecord, forward: Mapping[str, Reference]) -> RunRecord:
    """Record whose stages are those that there are after all erasures."""
    stages = {
        stage: forward.get(reference.identity, reference)
        for stage, reference in record.stages.items()
    }
    return record if stages == record.stages else replace(record, stages=stages)


def describe_environment() -> dict[str, str]:
    """Host, Python, versions of the packages that results depend on, and the commit of a checkout."""
    commit = _find_commit()
    return {
        "host": platform.node(),
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
        **({"commit": commit} if commit else {}),
    }


def _find_commit() -> str:
    """Commit of the checkout that pmflib runs from, "-dirty" after it where files were changed; "" without one."""
    root = Path(__file__).parents[2]
    # an installed package may lie inside the checkout of somebody else's project
    if not (root / ".git").exists():
        return ""
    words = [
        "git",
        "-C",
        str(root),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--exclude=*",
    ]
    try:
        found = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        # without git, or in a checkout that is another user's: the version says the rest
        return ""
    return found.stdout.strip()


def now() -> str:
    """Time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _name_record(name: str, number: int, suffix: str = ".json") -> str:
    return f"{RECORDS}/{name}/{number:06}{suffix}"


def list_numbers(store: Store, name: str) -> Sequence[int]:
    """Numbers of the records of a pipeline, in order; in a bucket, also of those that were declared lost."""
    if store.objects.lists_cheaply:
        return list_stored(store, name, ".json")
    return range(1, _find_last(store, name) + 1)


def list_stored(store: Store, name: str, suffix: str) -> list[int]:
    """Numbers of the files of a pipeline that end in .json, its records, or in .lost: those somebody declared lost.

    A folder that has the name of a record is one that does not read, and not a run that never was.
    """
    folder = f"{RECORDS}/{name}"
    names = [metadata.name for metadata in store.objects.list_objects(folder)]
    names += [f"{folder}/{each}" for each in store.objects.list_folders(folder)]
    paths = (Path(each) for each in names if each.count("/") == folder.count("/") + 1)
    found = (path.stem for path in paths if path.suffix == suffix)
    return sorted(int(stem) for stem in found if stem.isdecimal())


def _find_last(store: Store, name: str) -> int:
    """Last number that is taken, by a record, one that is declared lost, or one that was deleted; 0 if none is."""
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
    """Number of the last record, as ``HISTORIES`` has it; None where that says nothing, or does not read."""
    path = f"{HISTORIES}/{name}"
    try:
        text = b"" if store.objects.lacks(path) else store.objects.read(path)[0]
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return int(text) if text.isdigit() and len(text) <= 9 else None


def describe_loss(store: Store, name: str) -> str:
    """Say that the newest records of a pipeline were deleted; empty where they were not."""
    last = read_last_number(store, name)
    found = [_name_record(name, last or 0, suffix) for suffix in (".json", ".lost")]
    if not last or any(map(store.objects.exists, found)):
        return ""
    return (
        f"record {last} of {name!r} was the last, and is gone: which model is live is read from older records, or from "
        "none; `pmf verify` names what is missing, and `pmf copy` brings it back from a copy of the store"
    )


def _read_backwards(store: Store, name: str, before: int | None = None) -> Iterator[RunRecord]:
    """Records of a pipeline, the newest first; of those before a number, where one is given."""
    for number in sorted(list_numbers(store, name), reverse=True):
        if before is None or number < before:
            record = _read_kept(store, name, number)
            if record is not None:
                yield record


def _read_kept(store: Store, name: str, number: int) -> RunRecord | None:
    """Record of a pipeline; None for one that is declared lost."""
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
        If it does not read, or has been edited.
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
            f"record {location} is damaged ({error}); restore it from a copy, or rename it to {number:06}.lost: the "
            "history then lacks that run"
        ) from error
    return record


REPORTS = "reports"
"""Folder of a store with a folder of pages for each pipeline."""


def keep_page(store: Store, name: str, number: int, content: bytes) -> str:
    """Write the page of a run into a store; one that is there is replaced.

    Parameters
    ----------
    store
        The store.
    name, number
        Name of the pipeline, and number of the run.
    content
        The page.

    Returns
    -------
    The location of the page: a path, absolute, or a URL.

    Raises
    ------
    StoreError
        If the store cannot be written.
    """
    location = f"{REPORTS}/{name}/{number:06}.html"
    with refuse_unwritable(store.root):
        store.objects.put(location, content)
    return f"{store.address}/{location}"


def list_pages(store: Store) -> list[str]:
    """Names of the report pages of a store."""
    names = (metadata.name for metadata in store.objects.list_objects(REPORTS))
    return [name for name in names if name.endswith(".html")]


def drop_pages(store: Store, kept: Mapping[str, Collection[int]] | None = None) -> int:
    """Delete pages: of all runs, for they may show rows of samples that are erased; or of all runs but those kept.

    Parameters
    ----------
    store
        The store.
    kept
        Numbers of the runs to keep, by pipeline; None keeps none.

    Returns
    -------
    Number of pages.
    """
    pages = [Path(metadata.name) for metadata in store.objects.list_objects(REPORTS)]
    gone = [
        page
        for page in pages
        if kept is None
        or not page.stem.isdecimal()
        or int(page.stem) not in kept.get(page.parent.name, ())
    ]
    store.objects.delete([page.as_posix() for page in gone])
    if kept is None and not store.is_bucket:
        # drafts go with them
        with suppress(FileNotFoundError):
            shutil.rmtree(store.root / REPORTS)
    return len(gone)
