"""Garbage collection: what no kept run, live model or run under way needs is deleted, and counted."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pmflib.objects.drafts import mark_draft
from pmflib.store.artefacts import (
    Entry,
    Store,
    refuse_bucket,
    refuse_unwritable,
)
from pmflib.store.erasures import ERASURES, keep_erasures_out
from pmflib.store.file_digests import PLACE_DIGITS
from pmflib.store.leases import hold_lease, list_leases
from pmflib.store.report_pages import drop_pages
from pmflib.store.retention import (
    BY_AGE,
    KeptRuns,
    choose_kept_runs,
    order_by_need,
    reach,
)
from pmflib.store.run_records import (
    COLLECTIONS,
    RunRecord,
    append_record,
    describe_environment,
    find_last_run,
    list_histories,
    locate_record,
    now,
)
from pmflib.store.verification import NO_KINDS

ROUNDING_SECONDS = 2.0
"""Taken off the start of a lease before file times are compared with it: the coarsest file systems round to two
seconds."""
_PLACE = re.compile(rf"[0-9a-f]{{{PLACE_DIGITS}}}")


@dataclass
class Amount:
    """Number of artefacts, folders or files, and their bytes."""

    number: int = 0
    bytes: int = 0

    def add(self, n_bytes: int) -> None:
        """Count one more."""
        self.number += 1
        self.bytes += n_bytes


@dataclass
class Collection:
    """What a collection deletes, or would delete.

    Parameters
    ----------
    artefacts
        Artefacts by kind.
    leftovers
        What is no artefact: "orphans" (folders without an entry of the manifest), "work" (checkpoints that no run goes
        on from).
    kept
        Artefacts that stay, by kind.
    runs
        Kept runs.
    """

    runs: KeptRuns
    artefacts: dict[str, Amount] = field(default_factory=dict)
    leftovers: dict[str, Amount] = field(default_factory=dict)
    kept: dict[str, Amount] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes of all that is deleted."""
        return sum(each.bytes for each in (*self.artefacts.values(), *self.leftovers.values()))

    def to_json(self) -> dict[str, Any]:
        """Amounts as plain JSON types."""
        return {
            "bytes": self.bytes,
            "artefacts": {kind: asdict(each) for kind, each in sorted(self.artefacts.items())},
            "leftovers": {kind: asdict(each) for kind, each in sorted(self.leftovers.items())},
            "kept": {kind: asdict(each) for kind, each in sorted(self.kept.items())},
            "kept_runs": self.runs.numbers,
            "last_runs": self.runs.last,
        }


@dataclass(frozen=True)
class _Held:
    """An entry of the manifest, and when its file was last touched, ns."""

    entry: Entry
    touched: int


def collect(store: Store, keep_runs: int, *, dry_run: bool = False) -> Collection:
    """Delete the artefacts that nothing needs, and count them; runs may be under way meanwhile.

    Needed is what can be reached from the last runs of every pipeline, from the models that are or were live after
    them, and from what a run under way has used. A run that uses an entry of the manifest touches it; each entry is
    taken out of the manifest first, and put back if it has been touched since this began. Entries go before what they
    need, and before their folders: a collection that is killed leaves orphans, which the next one deletes.

    Parameters
    ----------
    store
        The store.
    keep_runs
        Number of runs to keep, at least 1: see `choose_kept_runs`.
    dry_run
        Whether to count only, and to delete nothing.

    Returns
    -------
    What was deleted and what is kept, by kind.

    Raises
    ------
    StoreError
        If an entry of the manifest or a record is damaged, for it may refer to what would be deleted; or if the store
        cannot be written. Nothing is deleted then.
    """
    refuse_bucket(store, "collected")
    # first: what is used from here on is touched
    oldest_lease = _find_oldest_lease(store)
    runs = choose_kept_runs(store, keep_runs)
    places = list_places(store)
    held = _read_manifest(store)
    entries = {identity: each.entry for identity, each in held.items()}
    since = _find_oldest_record(store, runs)
    used = {
        identity
        for identity, each in held.items()
        if (oldest_lease is not None and each.touched >= oldest_lease)
        or (each.entry.reference.kind in BY_AGE and each.touched >= since)
    }
    kept = reach(entries, {*runs.roots, *used})
    found = Collection(runs)
    dropped = order_by_need(entries, entries.keys() - kept)
    orphans = list_orphans(store, places, entries.values(), oldest_lease)
    work = [] if oldest_lease is not None else _list_abandoned_work(store)
    if dry_run:
        _count(store, [entries[identity] for identity in sorted(kept)], found.kept)
        _count(store, [entries[identity] for identity in dropped], found.artefacts)
        for name, folders in (("orphans", orphans), ("work", work)):
            _count_folders(folders, found.leftovers.setdefault(name, Amount()))
        return found
    # the lease keeps others from what is on its way out, and perhaps back
    with keep_erasures_out(store), refuse_unwritable(store.root), hold_lease(store, "gc"):
        if dropped:
            _record(store, keep_runs, runs)
        _drop_entries(store, held, dropped, kept, dict(places), found.artefacts)
        for name, folders in (("orphans", orphans), ("work", work)):
            amount = found.leftovers.setdefault(name, Amount())
            for folder in folders:
                drop_folder(store, folder, amount)
        drop_pages(store, runs.numbers)
        store.drop_leftovers()
        _count(store, [entries[identity] for identity in sorted(kept)], found.kept)
    return found


def _find_oldest_lease(store: Store) -> int | None:
    """When the oldest lease that is alive was taken, ns; None without one."""
    starts = [lease.started for lease in list_leases(store) if lease.is_alive]
    return int((min(starts) - ROUNDING_SECONDS) * 1e9) if starts else None


def _drop_entries(
    store: Store,
    held: dict[str, _Held],
    dropped: Iterable[str],
    kept: set[str],
    places: Mapping[Path, int],
    amounts: dict[str, Amount],
) -> None:
    entries = {identity: each.entry for identity, each in held.items()}
    in_use: dict[str, int] = {}
    for entry in entries.values():
        in_use[entry.reference.path] = in_use.get(entry.reference.path, 0) + 1
    for identity in dropped:
        entry = entries[identity]
        if identity in kept:
            continue
        size = _take_entry(store, identity, held[identity].touched)
        if size is None:
            # a run has come to use it since: it stays, with all that it needs
            kept |= reach(entries, [identity])
            continue
        amount = amounts.setdefault(entry.reference.kind, Amount())
        amount.add(size)
        in_use[entry.reference.path] -= 1
        if entry.reference.path and not in_use[entry.reference.path]:
            freed, folder = Amount(), store.root / entry.reference.path
            drop_folder(store, folder, freed, places.get(folder))
            amount.bytes += freed.bytes


def _take_entry(store: Store, identity: str, touched: int) -> int | None:
    """Take an entry out of the manifest; its bytes, or None if it was touched and stays, or is gone."""
    path = store.root / "manifest" / f"{identity}.json"
    draft = store.root / "tmp" / mark_draft("entry")
    try:
        os.rename(path, draft)
    except FileNotFoundError:
        return None
    # a touch came before the rename, and shows here, or comes after it, and finds nothing
    state = draft.stat()
    if state.st_mtime_ns != touched:
        os.rename(draft, path)
        return None
    draft.unlink()
    return state.st_size


def drop_folder(store: Store, folder: Path, amount: Amount, touched: int | None = None) -> None:
    """Delete a folder, and count it: under another name first, so that it is never there in part.

    Where the time is given at which it was last touched, ns, a folder that has been touched since stays: another run
    has come to the same content, and relies on it.
    """
    draft = store.root / "tmp" / mark_draft("collected")
    try:
        os.rename(folder, draft)
    except FileNotFoundError:
        return
    if touched is not None and draft.stat().st_mtime_ns != touched:
        os.rename(draft, folder)
        return
    amount.add(measure_folder(draft))
    shutil.rmtree(draft)


def measure_folder(folder: Path) -> int:
    """Bytes of all files below a folder; 0 if there is none."""
    total = 0
    # unlike a glob, a walk passes over folders that vanish before it
    for inner, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(inner, name).lstat().st_size
    return total


def _read_manifest(store: Store) -> dict[str, _Held]:
    """Entries by identity, also those whose content is gone."""
    held = {}
    for path in sorted((store.root / "manifest").glob("*.json")):
        with suppress(FileNotFoundError):
            # before it is read: a touch in between must show later
            touched = path.stat().st_mtime_ns
            entry = store.read_entry(path.stem)
            if entry is not None:
                held[path.stem] = _Held(entry, touched)
    return held


def list_places(store: Store) -> list[tuple[Path, int]]:
    """Folders that may be artefacts, and when each was last changed, ns."""
    places = []
    for kind in sorted(store.root.iterdir()):
        if kind.name in NO_KINDS or kind.name.startswith(".") or not kind.is_dir():
            continue
        for folder in sorted(kind.iterdir()):
            if _PLACE.fullmatch(folder.name) and not folder.is_symlink():
                with suppress(FileNotFoundError):
                    places.append((folder, folder.stat().st_mtime_ns))
    return places


def list_orphans(
    store: Store,
    places: Iterable[tuple[Path, int]],
    entries: Iterable[Entry],
    oldest_lease: int | None,
) -> list[Path]:
    """Folders that no entry names, and that no run under way can have published just now."""
    named = {store.root / entry.reference.path for entry in entries}
    return [
        folder
        for folder, changed in places
        if folder not in named and (oldest_lease is None or changed < oldest_lease)
    ]


def drop_unfinished(store: Store) -> None:
    """Delete what runs and erasures that were killed have left, and report pages: they may hold samples to be erased.

    Nothing may be under way in the store.
    """
    drafts = [
        *(store.root / "tmp").iterdir(),
        *(store.root / "work").iterdir(),
        *(store.root / "manifest").glob(".*"),
        *(store.root / "runs").glob("*/.*"),
        *store.root.glob(f".{ERASURES}-*"),
    ]
    for path in drafts:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for folder in list_orphans(store, list_places(store), store.entries(), None):
        drop_folder(store, folder, Amount())
    # pages show rows that did not fit
    drop_pages(store)


def _list_abandoned_work(store: Store) -> list[Path]:
    """Folders of checkpoints that were left before the last run of every pipeline that reached its end."""
    ends = []
    for name in list_histories(store):
        last = find_last_run(store, name)
        ends.append(
            0 if last is None else locate_record(store, name, last.number).stat().st_mtime_ns
        )
    before = min(ends, default=0)
    found = []
    for folder in sorted((store.root / "work").iterdir()):
        with suppress(FileNotFoundError):
            if max(path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))) < before:
                found.append(folder)
    return found


def _find_oldest_record(store: Store, runs: KeptRuns) -> int:
    """When the record of the oldest kept run was written, ns."""
    times = [
        locate_record(store, name, number).stat().st_mtime_ns
        for name, numbers in runs.numbers.items()
        for number in numbers
    ]
    return min(times, default=0)


def _count(store: Store, entries: Iterable[Entry], amounts: dict[str, Amount]) -> None:
    """Count artefacts by kind; of several with the same content the first has the bytes."""
    seen: set[str] = set()
    for entry in entries:
        reference = entry.reference
        n_bytes = 0
        with suppress(FileNotFoundError):
            n_bytes = (store.root / "manifest" / f"{reference.identity}.json").stat().st_size
        if reference.path and reference.path not in seen:
            seen.add(reference.path)
            n_bytes += measure_folder(store.root / reference.path)
        amounts.setdefault(reference.kind, Amount()).add(n_bytes)


def _count_folders(folders: Iterable[Path], amount: Amount) -> None:
    for folder in folders:
        amount.add(measure_folder(folder))


def _record(store: Store, keep_runs: int, runs: KeptRuns) -> None:
    """Say what may be missing from now on, before anything is: `list_collected_runs` reads it."""
    time = now()
    text = f"kept the last {keep_runs} runs of every pipeline, and what they need"
    facts = {"kept_runs": runs.numbers, "last_runs": runs.last, "keep_runs": keep_runs}
    append_record(
        store,
        COLLECTIONS,
        RunRecord(
            "gc", "done", text, time, time, "", {}, facts=facts, environment=describe_environment()
        ),
    )
