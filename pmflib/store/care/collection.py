"""Garbage collection: delete artefacts that no kept run or live model needs and nothing has used of late."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pmflib.base.json_records import to_json
from pmflib.store.artefacts import NO_KINDS, Entry, Store, refuse_unwritable
from pmflib.store.checkpoints import KIND_FILE
from pmflib.store.erasures import ERASURES, keep_erasures_out, stay_alone
from pmflib.store.file_digests import FOLDER_DIGITS
from pmflib.store.leases import hold_lease, read_store_clock
from pmflib.store.lineage import (
    BY_AGE,
    OF_LAST_RUNS,
    KeptRuns,
    choose_kept_runs,
    order_by_need,
    reach,
)
from pmflib.store.objects.interface import DROPPED_FILE, Location, call_in_parallel
from pmflib.store.objects.local_folder import mark_draft, replace_file
from pmflib.store.run_environment import describe_environment
from pmflib.store.run_pages import drop_pages
from pmflib.store.run_records import (
    COLLECTIONS,
    RECORDS,
    RunRecord,
    append_record,
    find_last_run,
    list_histories,
    now,
)

GRACE_HOURS = 24.0
"""Age below which nothing is collected by default, hours: longer than a run takes, for runs under way are known by
nothing else. What a run uses or publishes is touched."""

_FOLDER = re.compile(rf"[0-9a-f]{{{FOLDER_DIGITS}}}")


@dataclass
class Amount:
    """Number of artefacts, folders or files, and their total size in bytes."""

    number: int = 0
    bytes: int = 0

    def add(self, n_bytes: int) -> None:
        """Count one more."""
        self.number += 1
        self.bytes += n_bytes


@dataclass
class Collection:
    """Result of a collection: deleted (or, in a dry run, deletable) and kept artefacts.

    Parameters
    ----------
    artefacts
        Deleted artefacts by kind.
    leftovers
        Other deleted data: "orphans", folders without a manifest entry; "work", abandoned checkpoints; and "rows",
        files of kept artefacts that only the last runs need.
    kept
        Kept artefacts by kind.
    runs
        Kept runs.
    """

    runs: KeptRuns
    artefacts: dict[str, Amount] = field(default_factory=dict)
    leftovers: dict[str, Amount] = field(default_factory=dict)
    kept: dict[str, Amount] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Total deleted bytes."""
        return sum(each.bytes for each in (*self.artefacts.values(), *self.leftovers.values()))

    def to_json(self) -> dict[str, object]:
        """Amounts as plain JSON types."""
        by_kind = {"artefacts": self.artefacts, "leftovers": self.leftovers, "kept": self.kept}
        amounts = {name: to_json(dict(sorted(each.items()))) for name, each in by_kind.items()}
        return {"bytes": self.bytes, **amounts, **self.runs.to_json()}


@dataclass(frozen=True)
class _StoredEntry:
    """A manifest entry, the time of its last touch, ns, and its size, bytes."""

    entry: Entry
    touched: int
    bytes: int


def collect(
    store: Store, keep_runs: int, *, older_than: float = GRACE_HOURS, dry_run: bool = False
) -> Collection:
    """Delete the artefacts that nothing needs, and count them.

    Artefacts are needed if they can be reached from the last runs of any pipeline, from models that are or were live
    after them, or from artefacts that were used within the last hours: runs touch the manifest entries they use. Each
    entry is first taken out of the manifest, and put back if it was touched meanwhile. Entries are deleted before their
    inputs and before their content: a killed collection leaves only orphans, which the next one deletes. Of artefacts
    that only earlier runs need, some files go as well: see ``OF_LAST_RUNS``.

    In a bucket, entries are neither touched nor put back, so a collection needs exclusive access; artefacts are kept
    whole there, as small files are packed together.

    Parameters
    ----------
    store
        The store.
    keep_runs
        Number of runs to keep, at least 1: see `choose_kept_runs`.
    older_than
        Age of what may be deleted, hours, by the clock of the store: more than the longest run takes.
    dry_run
        Whether only to count.

    Returns
    -------
    Deleted and kept artefacts by kind.

    Raises
    ------
    StoreError
        If a manifest entry or a record is damaged, as it may refer to anything; if the store cannot be written; or if
        it is in a bucket and in use. Nothing is deleted then.
    """
    if store.is_bucket and not dry_run:
        with stay_alone(store), hold_lease(store.objects, "gc"):
            return _collect(store, keep_runs, older_than, dry_run=False)
    return _collect(store, keep_runs, older_than, dry_run=dry_run)


def _collect(store: Store, keep_runs: int, older_than: float, *, dry_run: bool) -> Collection:
    # first, as entries used from here on are touched
    before = find_end_of_grace(store, older_than)
    runs = choose_kept_runs(store, keep_runs)
    locations = _list_locations(store)
    stored = _read_manifest(store)
    entries = {identity: each.entry for identity, each in stored.items()}
    since = _find_oldest_record(store, runs)
    used = {
        identity
        for identity, each in stored.items()
        if each.touched >= before or (each.entry.reference.kind in BY_AGE and each.touched >= since)
    }
    kept = reach(entries, {*runs.roots, *used})
    found = Collection(runs)
    dropped = order_by_need(entries, entries.keys() - kept)
    last = reach(entries, {*choose_kept_runs(store, 1).roots, *used})
    # several entries may share content
    whole = {entries[identity].reference.path for identity in last}
    past = [
        each
        for identity, each in sorted(stored.items())
        if each.entry.reference.kind in OF_LAST_RUNS
        and identity in kept
        and each.entry.reference.path not in whole
        and not store.is_bucket
    ]
    orphans = list_orphans(locations, entries.values(), before)
    work = _list_abandoned_work(store, before)
    by_name = {location.name: location for location in locations}
    if dry_run:
        _count(store, [stored[identity] for identity in sorted(kept)], by_name, found.kept)
        _count(store, [stored[identity] for identity in dropped], by_name, found.artefacts)
        for name, leftovers in (("orphans", orphans), ("work", work)):
            amount = found.leftovers.setdefault(name, Amount())
            for location in leftovers:
                amount.add(_weigh(store, location))
        _drop_rows(store, past, found.leftovers, dry_run=True)
        return found
    with ExitStack() as stack:
        stack.enter_context(refuse_unwritable(store.root))
        if not store.is_bucket:
            # the lease protects entries that are being deleted or put back
            stack.enter_context(keep_erasures_out(store))
            stack.enter_context(hold_lease(store.objects, "gc"))
        if dropped:
            _record(store, keep_runs, runs)
        _drop_entries(store, stored, dropped, kept, by_name, found.artefacts)
        for name, leftovers in (("orphans", orphans), ("work", work)):
            amount = found.leftovers.setdefault(name, Amount())
            for location in leftovers:
                if (n_bytes := store.drop(location.name)) is not None:
                    amount.add(n_bytes)
        _drop_rows(store, past, found.leftovers)
        drop_pages(store, runs.numbers)
        store.drop_leftovers()
        _count(store, [stored[identity] for identity in sorted(kept)], by_name, found.kept)
    return found


def _list_locations(store: Store) -> list[Location]:
    """List all locations that may be artefacts, sorted by name."""
    return [
        location
        for kind in store.objects.list_folders("")
        if kind not in NO_KINDS and not kind.startswith(".")
        for location in store.objects.list_locations(kind)
        if _FOLDER.fullmatch(location.name.rpartition("/")[2])
    ]


def find_end_of_grace(store: Store, hours: float = GRACE_HOURS) -> int:
    """Time before which something has no longer been used for some hours, ns by the clock of the store.

    With none, anything is, whatever the resolution of the clock.
    """
    if not hours:
        return sys.maxsize
    listed = store.objects.list_objects("manifest") if store.objects.lists_cheaply else []
    return _to_ns(read_store_clock(store.objects, listed) - hours * 3600)


def _drop_entries(
    store: Store,
    stored: dict[str, _StoredEntry],
    dropped: Iterable[str],
    kept: set[str],
    locations: Mapping[str, Location],
    amounts: dict[str, Amount],
) -> None:
    entries = {identity: each.entry for identity, each in stored.items()}
    in_use: dict[str, int] = {}
    for entry in entries.values():
        in_use[entry.reference.path] = in_use.get(entry.reference.path, 0) + 1
    for identity in dropped:
        entry = entries[identity]
        if identity in kept:
            continue
        size = _take_entry(store, identity, stored[identity])
        if size is None:
            # a run has used it meanwhile: keep it and its inputs
            kept |= reach(entries, [identity])
            continue
        amount = amounts.setdefault(entry.reference.kind, Amount())
        amount.add(size)
        in_use[entry.reference.path] -= 1
        if entry.reference.path and not in_use[entry.reference.path]:
            location = locations.get(entry.reference.path)
            touched = None if location is None else location.touched
            amount.bytes += store.drop(entry.reference.path, touched) or 0


def _take_entry(store: Store, identity: str, stored: _StoredEntry) -> int | None:
    """Take an entry out of the manifest; return its size, or None if it was touched and stays, or is gone."""
    if store.is_bucket:
        store.objects.delete([f"manifest/{identity}.json"])
        return stored.bytes
    path = store.root / "manifest" / f"{identity}.json"
    draft = store.root / "tmp" / mark_draft("entry")
    try:
        os.rename(path, draft)
    except FileNotFoundError:
        return None
    # a touch before the rename shows here; one after it finds nothing
    state = draft.stat()
    if _to_ns(state.st_mtime) != stored.touched:
        os.rename(draft, path)
        return None
    draft.unlink()
    return state.st_size


def _drop_rows(
    store: Store, past: Iterable[_StoredEntry], amounts: dict[str, Amount], *, dry_run: bool = False
) -> None:
    """Drop the files ``OF_LAST_RUNS`` of artefacts that only earlier runs need."""
    for stored in past:
        reference = stored.entry.reference
        folder = store.root / reference.path
        paths = sorted(folder.glob(OF_LAST_RUNS[reference.kind]))
        if not paths:
            continue
        n_bytes = sum(path.stat().st_size for path in paths)
        if not dry_run:
            # a run that builds the artefact again exchanges the folder, and keeps its own files
            opened = os.open(folder, os.O_RDONLY)
            try:
                # from here on, the artefact is no longer found by who needs it whole; who did before has touched it
                replace_file(folder / DROPPED_FILE, "\n".join(p.name for p in paths).encode())
                if _find_touch(store, reference.identity) != stored.touched:
                    (folder / DROPPED_FILE).unlink()
                    continue
                for path in paths:
                    os.unlink(path.name, dir_fd=opened)
            finally:
                os.close(opened)
        amounts.setdefault("rows", Amount()).add(n_bytes)


def _find_touch(store: Store, identity: str) -> int:
    return _to_ns((store.root / "manifest" / f"{identity}.json").stat().st_mtime)


def _read_manifest(store: Store) -> dict[str, _StoredEntry]:
    """Entries by identity, including those whose content is gone."""
    listed = store.objects.list_objects("manifest")
    states = {Path(each.name).stem: each for each in listed if each.name.endswith(".json")}
    # read entries after the states, so that a touch in between is noticed
    entries = call_in_parallel(store.read_entry, [*states])
    return {
        identity: _StoredEntry(entry, _to_ns(state.touched), state.size)
        for (identity, state), entry in zip(states.items(), entries, strict=True)
        if entry is not None
    }


def _to_ns(seconds: float) -> int:
    return int(seconds * 1e9)


def list_orphans(
    locations: Iterable[Location],
    entries: Iterable[Entry],
    before: int,
) -> list[Location]:
    """Locations that no entry names, unless a running process may have published them, after a time, ns."""
    named = {entry.reference.path for entry in entries}
    return [
        location
        for location in locations
        if location.name not in named and location.touched < before
    ]


def drop_unfinished(store: Store) -> None:
    """Delete leftovers of killed runs and erasures, and report pages, as they may contain samples to be erased.

    The caller must have exclusive access. For a bucket, the cache of this machine is cleared as well.
    """
    drafts = [
        *(store.root / "tmp").glob("*"),
        *(store.root / "work").glob("*"),
        *(store.root / "manifest").glob(".*"),
        *(store.root / "runs").glob("*/.*"),
        *store.root.glob(f".{ERASURES}-*"),
    ]
    for path in drafts:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    if store.is_bucket:
        for name in ("work", "tmp"):
            store.objects.delete([metadata.name for metadata in store.objects.list_objects(name)])
    for location in list_orphans(_list_locations(store), store.entries(), sys.maxsize):
        store.drop(location.name)
    # pages show quarantined rows
    drop_pages(store)


def _list_abandoned_work(store: Store, before: int) -> list[Location]:
    """Checkpoint folders older than a time, ns, and than the last complete run of every pipeline."""
    ends = []
    for name in list_histories(store):
        last = find_last_run(store, name)
        ends.append(0 if last is None else _find_time(store, name, last.number))
    before = min([before, *ends]) if ends else 0
    found = []
    for location in store.objects.list_locations("work"):
        inner = [] if store.is_bucket else [*(store.root / location.name).rglob("*")]
        with suppress(FileNotFoundError):
            if max([location.touched, *(path.stat().st_mtime_ns for path in inner)]) < before:
                found.append(location)
    return found


def _find_oldest_record(store: Store, runs: KeptRuns) -> int:
    """Time when the record of the oldest kept run was written, ns."""
    times = [
        _find_time(store, name, number)
        for name, numbers in runs.numbers.items()
        for number in numbers
    ]
    return min(times, default=0)


def _find_time(store: Store, name: str, number: int) -> int:
    """Time when a record was written, ns."""
    listed = store.objects.list_objects(f"{RECORDS}/{name}")
    times = {Path(each.name).name: each.touched for each in listed}
    return _to_ns(times[f"{number:06}.json"])


def _count(
    store: Store,
    entries: Iterable[_StoredEntry],
    locations: Mapping[str, Location],
    amounts: dict[str, Amount],
) -> None:
    """Count artefacts by kind; content shared by several is counted once."""
    seen: set[str] = set()
    for stored in entries:
        reference, n_bytes = stored.entry.reference, stored.bytes
        if reference.path and reference.path not in seen:
            seen.add(reference.path)
            if (location := locations.get(reference.path)) is not None:
                n_bytes += _weigh(store, location)
        amounts.setdefault(reference.kind, Amount()).add(n_bytes)


def _weigh(store: Store, location: Location) -> int:
    return store.objects.measure(location.name) if location.bytes is None else location.bytes


def _record(store: Store, keep_runs: int, runs: KeptRuns) -> None:
    """Record which runs are kept before anything is deleted: `list_collected_runs` reads it."""
    time = now()
    text = f"kept the last {keep_runs} runs of every pipeline, and what they need"
    facts = {**runs.to_json(), "keep_runs": keep_runs}
    append_record(
        store,
        COLLECTIONS,
        RunRecord(
            "gc", "done", text, time, time, "", {}, facts=facts, environment=describe_environment()
        ),
    )


@dataclass(frozen=True)
class UnfinishedWork:
    """An unfinished artefact, whose checkpoints the next run continues from.

    Parameters
    ----------
    kind
        Kind of the artefact; "" if unknown.
    identity
        Identity of the artefact.
    since
        When the work was started, UTC, ISO 8601; "" if unknown.
    """

    kind: str
    identity: str
    since: str


def list_unfinished(store: Store) -> list[UnfinishedWork]:
    """List the unfinished work of a store, oldest first."""
    found = []
    marks = {metadata.name: metadata for metadata in store.objects.list_objects("work")}
    # in a local store, also folders without checkpoints
    for identity in {name.split("/")[1] for name in marks} | {*store.objects.list_folders("work")}:
        mark = f"work/{identity}/{KIND_FILE}"
        try:
            kind = store.objects.read(mark)[0].decode("utf-8")
            began = datetime.fromtimestamp(marks[mark].touched, UTC)
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, KeyError):
            found.append(UnfinishedWork("", identity, ""))
            continue
        found.append(UnfinishedWork(kind, identity, began.isoformat(timespec="seconds")))
    return sorted(found, key=lambda work: (work.since, work.identity))
