"""History of a pipeline: a record of every run, never changed after, and which model each left live."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pmflib.errors import StoreError
from pmflib.store.artefacts import (
    Reference,
    Store,
    refuse_unwritable,
    sync_file,
)
from pmflib.store.erasures import read_erasures
from pmflib.store.leases import hold_lease, mark_draft
from pmflib.store.private_files import make_folder, write_file
from pmflib.store.sealed_json import seal, unseal

Action = Literal["run", "labels", "promote", "rollback", "erase", "gc"]
"""What a record is of: a run of a pipeline, of one for label logs, or a command that changed what is live or kept."""

Outcome = Literal["promoted", "kept", "unchanged", "held back", "failed", "interrupted", "done"]
"""How a run ended. Promoted: its model is live. Kept: the model before it stays live. Unchanged: nothing was new. Held
back: by a guard of quality. Done: a command without a model of its own."""

COLLECTIONS = "@gc"
"""Name of the history of what `pmf gc` took out of a store; no pipeline can be called so."""

RECORDS = "runs"
"""Folder of a store with a folder of records for each pipeline."""

PACKAGES = ("pmflib", "numpy", "scipy", "numba", "zarr", "pyarrow", "dask", "prefect")
"""Packages whose versions a record holds."""


_TYPES = {
    **dict.fromkeys(("action", "outcome", "reason", "started", "ended", "config"), str),
    **dict.fromkeys(("stages", "facts", "environment"), dict),
    "inputs": list,
    "number": int,
}


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
        Raw files: name, digest and bytes of each.
    facts
        Plain JSON types: rows, scores of the new and of the live model, findings about quality, ...
    environment
        Host, Python, versions of ``PACKAGES``, and the commit of pmflib where it runs from a checkout.
    options
        The configuration, resolved: every option of every section, secrets in URLs masked.
    number
        Place in the history of the pipeline, from 1; 0 before it is written.
    """

    action: Action
    outcome: Outcome
    reason: str
    started: str
    ended: str
    config: str
    stages: dict[str, Reference]
    live: Reference | None = None
    inputs: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    number: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether the run reached its end and decided about its model."""
        return self.outcome in ("promoted", "kept", "unchanged", "done")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunRecord:
        """Build a record from what `asdict` gives.

        Raises
        ------
        ValueError
            If a field is of another type.
        """
        fields = dict(data)
        for name, kind in _TYPES.items():
            if name in fields and type(fields[name]) is not kind:
                raise ValueError(f"{name} is no {kind.__name__}")
        fields["stages"] = {
            stage: Reference.from_json(each) for stage, each in data["stages"].items()
        }
        fields["live"] = None if data["live"] is None else Reference.from_json(data["live"])
        return cls(**fields)


Settle: TypeAlias = Callable[[RunRecord, Reference | None], RunRecord]
"""Last look at a record before it is written: given it and the model that is live just before it."""


def name_labelling(name: str) -> str:
    """Name of the history of the true labels that a pipeline found; no pipeline can be called so."""
    return f"{name}@labels"


def list_histories(store: Store) -> list[str]:
    """Names under which a store holds records of runs: of pipelines, and of their labels; not of collections."""
    folder = store.root / RECORDS
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [name for name in names if name != COLLECTIONS and (folder / name).is_dir()]


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
    folder = store.root / RECORDS / name
    with refuse_unwritable(store.root), hold_lease(store, f"record of {name}"):
        make_folder(folder)
        number = max([*list_numbers(folder), *list_lost(folder)], default=0)
        while True:
            number += 1
            if settle is not None:
                live = read_record(folder, number - 1).live if number > 1 else None
                record = settle(record, live)
            numbered = RunRecord(**{**vars(record), "number": number})
            text = seal(asdict(numbered))
            draft = folder / mark_draft(".record")
            try:
                write_file(draft, text)
                sync_file(draft)
                # a link, unlike a rename, never replaces the record of another run
                os.link(draft, folder / _file_name(number))
            except FileExistsError:
                continue
            finally:
                draft.unlink(missing_ok=True)
            sync_file(folder)
            return numbered


def list_records(store: Store, name: str) -> list[RunRecord]:
    """All records of a pipeline, in order; none if it has never run. Stages that an erasure replaced are the new ones.

    Raises
    ------
    StoreError
        If a record is damaged.
    """
    folder, forward = store.root / RECORDS / name, _read_forward(store)
    records = [read_record(folder, number) for number in sorted(list_numbers(folder))]
    return [_forward(record, forward) for record in records]


def locate_record(store: Store, name: str, number: int) -> Path:
    """File of a record."""
    return store.root / RECORDS / name / _file_name(number)


def find_record(store: Store, name: str, number: int) -> RunRecord:
    """Record of one run.

    Raises
    ------
    StoreError
        If there is no such run, or its record is damaged.
    """
    folder = store.root / RECORDS / name
    numbers = sorted(list_numbers(folder))
    if number not in numbers:
        known = f"there are {numbers[0]} to {numbers[-1]}" if numbers else "it has never run"
        raise StoreError(
            f"run {number} of pipeline {name!r} is not in its history: {known}; `pmf history` lists them"
        )
    return _forward(read_record(folder, number), _read_forward(store))


def find_live(store: Store, name: str) -> Reference | None:
    """Model that answers the questions of a pipeline; None if it has none yet.

    Raises
    ------
    StoreError
        If a record is damaged.
    """
    # newest first: the last record says what is live
    folder = store.root / RECORDS / name
    last = max(list_numbers(folder), default=0)
    return read_record(folder, last).live if last else None


def find_last_run(store: Store, name: str) -> RunRecord | None:
    """Last run of a pipeline that reached its end; None if none has.

    Raises
    ------
    StoreError
        If a record is damaged.
    """
    folder = store.root / RECORDS / name
    for number in sorted(list_numbers(folder), reverse=True):
        record = read_record(folder, number)
        if record.action in ("run", "labels") and record.is_complete:
            return _forward(record, _read_forward(store))
    return None


def find_run_of(store: Store, name: str, model: Reference) -> RunRecord | None:
    """Last run of a pipeline that made a model: its dataset and counts are those that the model has seen.

    Raises
    ------
    StoreError
        If a record is damaged.
    """
    folder = store.root / RECORDS / name
    for number in sorted(list_numbers(folder), reverse=True):
        record = read_record(folder, number)
        if record.action == "run" and record.stages.get("model") == model:
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


def _file_name(number: int) -> str:
    return f"{number:06}.json"


def list_numbers(folder: Path) -> Sequence[int]:
    """Numbers of the records in the folder of a pipeline, in no order."""
    return _list_stems(folder, ".json")


def list_lost(folder: Path) -> Sequence[int]:
    """Numbers of the records of a pipeline that somebody has declared lost, by a file that ends in .lost."""
    return _list_stems(folder, ".lost")


def _list_stems(folder: Path, suffix: str) -> list[int]:
    if not folder.is_dir():
        return []
    return [int(path.stem) for path in folder.glob(f"*{suffix}") if path.stem.isdecimal()]


def read_record(folder: Path, number: int) -> RunRecord:
    """Read a record in the folder of a pipeline.

    Raises
    ------
    StoreError
        If it does not read, or has been edited.
    """
    path = folder / _file_name(number)
    try:
        record = RunRecord.from_json(unseal(path.read_bytes()))
        if record.number != number:
            raise ValueError(f"it is the record of run {record.number}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        place = f"{RECORDS}/{folder.name}/{path.name}"
        raise StoreError(
            f"record {place} is damaged ({error}); restore it from a copy, or rename it to {path.stem}.lost: the "
            "history then lacks that run"
        ) from error
    return record
