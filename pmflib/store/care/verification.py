"""Verification of a store: everything that its manifest and history refer to must exist and be unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pmflib.base.errors import RefusedStoreError, StoreError, UnreachableStoreError
from pmflib.base.json_files import parse_json
from pmflib.base.machine import count_processors
from pmflib.store.artefacts import NO_KINDS, Entry, Reference, Store
from pmflib.store.care.collection import GRACE_HOURS, find_end_of_grace
from pmflib.store.care.exports import EXPORTS, read_export
from pmflib.store.erasures import LOCK
from pmflib.store.file_digests import (
    CHECKSUM,
    FINGERPRINTS,
    FOLDER_DIGITS,
    compare_files,
    digest_list,
    read_fingerprint,
)
from pmflib.store.leases import is_lease
from pmflib.store.objects.interface import LIST_FILE, call_in_parallel
from pmflib.store.objects.local_folder import find_holder
from pmflib.store.run_records import (
    HISTORIES,
    KNOWN,
    RECORDS,
    list_stored,
    read_last_number,
    read_record,
)

Problem = Literal[
    "damaged content",
    "missing folder",
    "missing entry",
    "edited entry",
    "damaged record",
    "missing record",
    "damaged fingerprint",
    "damaged events",
    "damaged export",
    "damaged count",
    "orphan folder",
    "foreign file",
]
"""Kind of damage to a location of a store."""

REMEDIES: dict[Problem, str] = {
    "damaged content": "delete these folders; the command that made them rebuilds them",
    "missing folder": "run the command that made them again, or restore them from a copy of the store",
    "missing entry": "run the pipeline again, which rewrites its entries, or restore them from a copy",
    "edited entry": "delete these files; the command that wrote them rewrites them",
    "damaged record": "restore these files from a copy; without one, rename them from .json to .lost, and the history "
    "will list these runs as lost",
    "missing record": "restore these files from a copy; without one, create empty files that end in .lost instead of "
    ".json, and the history will list these runs as lost",
    "damaged fingerprint": "delete these files; the next run reads the raw files again",
    "damaged events": "restore these files from a copy; without one, move them out of the store, and the next run "
    "starts new ones",
    "damaged export": "restore these files from a copy; without one, delete them: certificates of erasure will not "
    "list these exports",
    "damaged count": "delete these files once no record is missing; the next run rewrites them",
    "orphan folder": "nothing refers to these folders; delete them, or run `pmf gc`",
    "foreign file": "pmf did not write these; move them out of the store",
}
"""Remedy for each problem."""

OTHERS = frozenset({".prefect", "erasures.json", "erasures"})
"""Other contents of a store: erasures, and Prefect's database of earlier versions."""
LINEAGE = "lineage"
"""Folder of a store with lineage events, one per line."""
_FOLDER = re.compile(rf"[0-9a-f]{{{FOLDER_DIGITS}}}")
_IDENTITY = re.compile(r"[0-9a-f]{64}")
_KIND = re.compile(r"[a-z][a-z-]*")

_EXPECTED: dict[str, Callable[[Path], bool]] = {
    "manifest": lambda path: path.suffix == ".json" and _is_identity(path.stem),
    "tmp": lambda path: False,
    "work": lambda path: _is_identity(path.name),
    "runs": lambda path: True,
    "leases": lambda path: is_lease(path.name),
    FINGERPRINTS: lambda path: path.suffix == ".json" and _is_identity(path.stem),
    LINEAGE: lambda path: path.suffix == ".jsonl",
    "reports": lambda path: True,
    EXPORTS: lambda path: path.suffix == ".json" and _is_identity(path.stem),
    HISTORIES: lambda path: True,
}
"""Test for the direct children of each folder of a store that does not hold artefacts."""

_FILES = frozenset({"manifest", "leases", FINGERPRINTS, LINEAGE, EXPORTS, HISTORIES})
"""Folders of a store that contain only files."""

_NO_DAMAGE = (RefusedStoreError, UnreachableStoreError)
"""Errors of a bucket that say nothing about its content."""

Collected = Mapping[str, set[int]]
"""Numbers of the runs whose artefacts were collected, by history."""


@dataclass(frozen=True)
class Damage:
    """One damage to a store.

    Parameters
    ----------
    problem
        Kind of damage.
    location
        Path relative to the store, with control characters escaped.
    detail
        Details for people.
    """

    problem: Problem
    location: str
    detail: str


@dataclass(frozen=True)
class Verification:
    """Result of a verification.

    Parameters
    ----------
    n_whole
        Number of unchanged artefacts.
    damages
        All damages, sorted by problem (in the order of ``REMEDIES``) and location.
    torn
        Events files whose last line was cut off by a crash. This is no damage: the next event replaces the line.
    """

    n_whole: int
    damages: tuple[Damage, ...]
    torn: tuple[str, ...] = ()


def verify_store(
    store: Store,
    collected: Collected | None = None,
    is_needed: Callable[[Entry, Reference], bool] = lambda entry, reference: True,
    erased: Collection[str] = (),
    read_event: Callable[[bytes], object] = parse_json,
    older_than: float = GRACE_HOURS,
) -> Verification:
    """Check every entry, record, folder and file of a store, reading every byte of its artefacts.

    Parameters
    ----------
    store
        The store; raw sources are not part of it and are not read.
    collected
        Runs whose artefacts may have been deleted by `pmf gc`.
    is_needed
        Whether an input of an entry must exist; others may have been collected.
    erased
        Identities of artefacts deleted by erasures; references to them are no damage.
    read_event
        Parses one line of lineage events; raises ValueError if it was edited.
    older_than
        Age of a folder that nothing refers to, hours, from which it is an orphan: see `collect`.

    Returns
    -------
    Damages and number of unchanged artefacts.
    """
    entries, damages = _read_entries(store)
    files = set(entries) | {Path(each.location).stem for each in damages}
    locations: dict[str, list[Reference]] = {}
    for entry in entries.values():
        if entry.reference.path:
            locations.setdefault(entry.reference.path, []).append(entry.reference)
        for role, reference in entry.inputs.items():
            if is_needed(entry, reference):
                user = f"{role} of {entry.reference.kind} {entry.reference.digest[:12]}"
                damages += _check_reference(reference, user, entries, files | {*erased})
    damages += _check_records(store, collected or {}, entries, files | {*erased})
    torn: list[str] = []
    damages += [*_check_fingerprints(store), *_check_events(store, read_event, torn)]
    damages += _check_exports(store)
    with ThreadPoolExecutor(count_processors()) as pool:
        contents = list(
            pool.map(
                lambda location: _check_content(store, location, locations[location]),
                sorted(locations),
            )
        )
    found = [damage for damage in contents if damage is not None]
    damages += [*found, *_list_unknown_files(store, locations, older_than)]
    # one damage, however many references to a missing object
    unique = {(each.problem, each.location): each for each in reversed(damages)}
    order = list(REMEDIES)
    ordered = sorted(unique, key=lambda key: (order.index(key[0]), key[1]))
    return Verification(
        len(locations) - len(found), tuple(unique[key] for key in ordered), tuple(torn)
    )


def _read_entries(store: Store) -> tuple[dict[str, Entry], list[Damage]]:
    """Entries by identity, and damages of those that cannot be parsed or were edited."""
    entries: dict[str, Entry] = {}
    damages: list[Damage] = []

    def read(identity: str) -> Entry | Damage | None:
        try:
            return store.read_entry(identity)
        except _NO_DAMAGE:
            raise
        except StoreError as error:
            return Damage("edited entry", f"manifest/{identity}.json", str(error.__cause__))

    identities = [each for each in store.list_identities() if _is_identity(each)]
    for identity, found in zip(identities, call_in_parallel(read, identities), strict=True):
        if isinstance(found, Damage):
            damages.append(found)
        elif found is not None:
            entries[identity] = found
    return entries, damages


def _check_reference(
    reference: Reference, user: str, entries: Mapping[str, Entry], files: set[str]
) -> Iterator[Damage]:
    """Check that a reference matches the manifest."""
    location = f"manifest/{reference.identity}.json"
    name = f"{reference.kind} {reference.digest[:12]}, {user}"
    if reference.identity not in files:
        yield Damage("missing entry", location, name)
    elif reference.identity in entries:
        found = entries[reference.identity].reference
        if found != reference:
            problem = f"it names {found.kind} {found.digest[:12]}, not {name}"
            yield Damage("edited entry", location, problem)


def _check_records(
    store: Store, collected: Collected, entries: Mapping[str, Entry], files: set[str]
) -> Iterator[Damage]:
    """Check that the records of all runs exist, and everything they refer to."""
    counted = {Path(each.name).name for each in store.objects.list_objects(HISTORIES)}
    for name in sorted({*store.objects.list_folders(RECORDS), *counted}):
        numbers, lost = (set(list_stored(store, name, suffix)) for suffix in (".json", ".lost"))
        known = read_last_number(store, name)
        count = f"{HISTORIES}/{_show(name)}"
        if known is None and name in counted:
            yield Damage("damaged count", count, "it is not a record number")
        last = max({known or 0, *numbers, *lost})
        for number in range(1, last + 1):
            location = f"{RECORDS}/{_show(name)}/{number:06}.json"
            if number not in numbers:
                if number not in lost:
                    problem = f"there were records up to {last}, according to later ones or {count}"
                    yield Damage("missing record", location, problem)
                continue
            try:
                record = read_record(store, name, number)
            except _NO_DAMAGE:
                raise
            except StoreError as error:
                yield Damage("damaged record", location, str(error.__cause__))
                continue
            gone = number in collected.get(name, ())
            references = {} if gone else dict(record.stages)
            if record.live is not None and (not gone or number == max(numbers)):
                references["live"] = record.live
            for role, reference in references.items():
                user = f"{role} of run {number} of {_show(name)}"
                yield from _check_reference(reference, user, entries, files)


def _check_fingerprints(store: Store) -> Iterator[Damage]:
    """Check the fingerprints of raw files: a wrong digest would fail every run that reads the file."""
    for metadata in store.objects.list_objects(FINGERPRINTS):
        name = Path(metadata.name).stem
        if _is_identity(name):
            try:
                # fingerprints of earlier versions have no checksum and are never used
                if CHECKSUM in parse_json(store.objects.read(metadata.name)[0]):
                    read_fingerprint(store.objects, name)
            except (OSError, ValueError, TypeError) as error:
                yield Damage("damaged fingerprint", metadata.name, str(error))


def _check_events(
    store: Store, read_event: Callable[[bytes], object], torn: list[str]
) -> Iterator[Damage]:
    """Check every line of the lineage events; ``torn`` gets the files whose last line a crash has cut off."""
    for metadata in store.objects.list_objects(LINEAGE):
        problems = []
        try:
            content = store.objects.read(metadata.name)[0]
        except OSError as error:
            yield Damage("damaged events", _show(metadata.name), error.strerror or "unreadable")
            continue
        whole, _, last = content.rpartition(b"\n")
        if last and not store.is_bucket and not _is_json(last):
            # events are appended to the file of a local store; in a bucket, objects are written whole
            torn.append(_show(metadata.name))
            content = whole
        for number, line in enumerate(content.splitlines(), 1):
            try:
                read_event(line)
            except ValueError as error:
                problems.append(f"line {number}: {error}")
        if problems:
            more = f" and {len(problems) - 1} more" if problems[1:] else ""
            yield Damage("damaged events", _show(metadata.name), problems[0] + more)


def _check_exports(store: Store) -> Iterator[Damage]:
    """Check the records of exports, which certificates of erasure list."""
    for metadata in store.objects.list_objects(EXPORTS):
        try:
            read_export(store, metadata.name)
        except (OSError, ValueError) as error:
            yield Damage("damaged export", _show(metadata.name), str(error))


def _check_content(store: Store, location: str, references: list[Reference]) -> Damage | None:
    """Check that an artefact in the store itself, not in a cache, is as it was published."""
    folder, name = store.root / location, f"{references[0].kind} {references[0].digest[:12]}"
    if not store.is_bucket:
        if not folder.is_dir():
            return Damage("missing folder", location, name)
        if folder.is_symlink():
            return Damage("damaged content", location, f"{name}: a link stands in its place")
    changes = [LIST_FILE]
    try:
        published = json.loads(store.objects.read_list(location)[0])
        if {reference.digest for reference in references} == {digest_list(published)}:
            found = store.objects.digest_files(location)
            changes = [*compare_files(folder, published, found)]
            if not store.is_bucket:
                links = (path for path in folder.rglob("*") if path.is_symlink())
                changes += [path.relative_to(folder).as_posix() for path in links]
    except FileNotFoundError:
        if store.is_bucket:
            return Damage("missing folder", location, name)
    except _NO_DAMAGE:
        raise
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        return Damage("damaged content", location, f"{name}: {_first_sentence(error)}")
    if not changes:
        return None
    shown = ", ".join(map(_show, sorted({*changes})[:5]))
    more = "" if len(changes) <= 5 else f" and {len(changes) - 5} more"
    return Damage("damaged content", location, f"{name}: {shown}{more}")


def _list_unknown_files(
    store: Store, locations: Mapping[str, object], older_than: float
) -> Iterator[Damage]:
    """List orphan folders and files that pmf did not write."""
    # artefacts have no entry in the moment after they are published, or copied
    before = find_end_of_grace(store, older_than) / 1e9
    if store.is_bucket:
        yield from _list_unknown_objects(store, locations, before)
        return
    for top in sorted(store.root.iterdir()):
        name = top.name
        if name in OTHERS:
            continue
        if not top.is_dir() or top.is_symlink() or not (name in NO_KINDS or _KIND.fullmatch(name)):
            yield Damage("foreign file", _show(name), "it is not a folder of a store")
            continue
        for path in sorted(top.iterdir()):
            location = f"{name}/{path.name}"
            if find_holder(path.name) is not None or location in locations:
                continue
            if name in NO_KINDS:
                right = path.is_file() if name in _FILES else path.is_dir()
                if path.is_symlink() or not right or not _EXPECTED[name](path):
                    yield Damage("foreign file", _show(location), f"it does not belong in {name}")
            elif not _FOLDER.fullmatch(path.name):
                yield Damage("foreign file", _show(location), "it is not the folder of an artefact")
            elif path.lstat().st_ctime < before:
                yield Damage("orphan folder", location, "no entry of the manifest names it")
    for folder in sorted((store.root / RECORDS).glob("*/")):
        for path in sorted(folder.iterdir()):
            known = path.suffix in (".json", ".lost") and path.stem.isdecimal()
            location = _show(f"{RECORDS}/{folder.name}/{path.name}")
            if known and path.is_symlink():
                yield Damage("damaged record", location, "a link stands in its place")
            elif not known and find_holder(path.name) is None:
                yield Damage("foreign file", location, "it is not the record of a run")


def _list_unknown_objects(
    store: Store, locations: Mapping[str, object], before: float
) -> Iterator[Damage]:
    """List orphans and foreign objects of a bucket in one pass over all names."""
    orphans: dict[str, float] = {}
    for metadata in store.objects.list_objects(""):
        top, _, rest = metadata.name.partition("/")
        path = Path(metadata.name)
        if top in OTHERS or (top in NO_KINDS and top not in _EXPECTED) or metadata.name == LOCK:
            continue
        location = f"{top}/{rest.partition('/')[0]}"
        if top in NO_KINDS:
            inner = Path(location)
            if top == RECORDS:
                known = path.suffix in (".json", ".lost") and path.stem.isdecimal()
                known = len(path.parts) == 3 and (known or path.name == KNOWN)
            else:
                known = find_holder(path.name) is not None or _EXPECTED[top](inner)
            if not known:
                yield Damage("foreign file", _show(metadata.name), f"it does not belong in {top}")
        elif not rest or not _KIND.fullmatch(top) or not _FOLDER.fullmatch(Path(location).name):
            yield Damage("foreign file", _show(metadata.name), "it belongs to no artefact")
        elif location not in locations:
            orphans[location] = max(orphans.get(location, 0.0), metadata.touched)
    for location, touched in orphans.items():
        if touched < before:
            yield Damage("orphan folder", location, "no entry of the manifest names it")


def _is_identity(name: str) -> bool:
    return _IDENTITY.fullmatch(name) is not None


def _is_json(line: bytes) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return False
    return True


def _first_sentence(error: Exception) -> str:
    return str(error).partition("; ")[0]


def _show(name: str) -> str:
    """Escape control characters and undecodable bytes of a name."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in name
    )
