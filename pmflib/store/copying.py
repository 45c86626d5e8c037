"""Copy of a store into another: verified by digests, what is there already left out, valid at every moment."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TypeVar

from pmflib.core.errors import ConfigError, StoreError
from pmflib.display.progress import working
from pmflib.store.artefacts import Entry, Reference, Store, refuse_unwritable
from pmflib.store.caches import LIST_FILE
from pmflib.store.collection import drop_unfinished
from pmflib.store.copy_plans import CopyPlan, plan_copy, read_or_none
from pmflib.store.erasures import ERASURES, keep_erasures_out, stay_alone
from pmflib.store.exports import EXPORTS
from pmflib.store.file_digests import digest_list
from pmflib.store.leases import hold_lease
from pmflib.store.locations import Amount, digest_location, drop_location, measure_bytes
from pmflib.store.objects.local_folder import make_folder, mark_draft
from pmflib.store.packs import is_inner, unpack
from pmflib.store.run_records import (
    COLLECTIONS,
    HISTORIES,
    append_record,
    list_histories,
    list_stored,
    read_last_number,
)


def copy_artefact(source: Store, target: Store, reference: Reference, verify: bool) -> int | None:
    """Copy the files of an artefact, and publish them; bytes of them, or None where they are there.

    Parameters
    ----------
    source, target
        The stores.
    reference
        The artefact; one of a raw source has no files.
    verify
        Whether every byte of an artefact that is there is read, and a damaged one copied again.

    Raises
    ------
    StoreError
        If the artefact is damaged or gone: nothing of it is published then.
    """
    if not reference.path or is_there(target, reference, verify):
        return None
    ours = source.objects
    digests, packed = _read_list(source, reference)
    draft = target.root / "tmp" / mark_draft(reference.kind)
    make_folder(draft)
    try:
        total = 0
        for name, digest in digests.items():
            path = draft / name
            make_folder(path.parent)
            if name in packed:
                path.write_bytes(packed[name])
                read = hashlib.sha256(packed[name]).hexdigest()
            else:
                try:
                    read = ours.fetch_file(f"{reference.path}/{name}", path)
                except FileNotFoundError:
                    raise report_vanished(source, reference) from None
            if read != digest:
                raise StoreError(
                    f"file {name!r} of {reference.path} in store {source.name!r} is not what was published, and "
                    "is not copied; `pmf verify` lists all that is damaged there, and what to do. What was copied "
                    "before it stays"
                )
            total += path.stat().st_size
        text = json.dumps(digests, indent=0, sort_keys=True, ensure_ascii=False)
        (draft / LIST_FILE).write_text(text, "utf-8")
        target.publish(draft, reference)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return total


def is_there(target: Store, reference: Reference, verify: bool) -> bool:
    """Whether a store has an artefact: its list of digests, or also every byte."""
    content = read_or_none(target, f"{reference.path}/{LIST_FILE}")
    try:
        digests = json.loads(unpack(content or b"{}")[0])
        if content is None or digest_list(digests) != reference.digest:
            return False
    except (ValueError, AttributeError, TypeError):
        return False
    return not verify or digest_location(target, reference.path) == digests


def _read_list(source: Store, reference: Reference) -> tuple[dict[str, str], Mapping[str, bytes]]:
    """List of an artefact's files, authenticated by the entry, and the files that are packed with it."""
    content = read_or_none(source, f"{reference.path}/{LIST_FILE}")
    if content is None:
        raise report_vanished(source, reference)
    listing, packed = unpack(content)
    try:
        digests = {str(name): str(digest) for name, digest in json.loads(listing).items()}
        if digest_list(digests) == reference.digest and all(map(is_inner, digests)):
            return digests, packed
        problem = "it is not the one that was published"
    except (ValueError, AttributeError) as error:
        problem = str(error)
    raise StoreError(
        f"list of digests of {reference.path} in store {source.name!r} is damaged ({problem}); `pmf verify` "
        "lists all that is damaged there, and what to do"
    )


def report_vanished(source: Store, reference: Reference) -> StoreError:
    """Error for an artefact that a copy was to take, and that is not there any more."""
    return StoreError(
        f"{reference.kind} {reference.digest[:12]} is not in store {source.name!r}: `pmf gc` took it away just "
        "now, and the same command goes on without it, or it is lost, and `pmf verify` says what to do there"
    )


R = TypeVar("R")

LINEAGE = "lineage"
"""Folder of a store with events of lineage, a line each."""
EVENTS = f"{LINEAGE}/events.jsonl"
"""File that all runs of a store on a disk append to; in a bucket each run has an object of its own."""
THREADS = 8
"""Artefacts that are copied at a time: most of the time of one is waiting for a disk or a server."""


@dataclass
class StoreCopy:
    """What a copy has done, or would do.

    Parameters
    ----------
    artefacts
        Artefacts that are copied, by kind.
    present
        Number of artefacts that are there already, by kind.
    removed
        Artefacts that are deleted from the target, by kind, because samples were erased from the source.
    entries, records, pages
        Numbers of manifest entries, records of runs and of collections, and report pages that are written.
    n_ahead
        Records that the target alone has.
    """

    artefacts: dict[str, Amount] = field(default_factory=dict)
    present: dict[str, int] = field(default_factory=dict)
    removed: dict[str, Amount] = field(default_factory=dict)
    entries: int = 0
    records: int = 0
    pages: int = 0
    n_ahead: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the artefacts that are copied."""
        return sum(each.bytes for each in self.artefacts.values())

    def to_json(self) -> dict[str, object]:
        """Amounts as plain JSON types."""
        return {"bytes": self.bytes, **asdict(self)}


def copy_store(
    source: Store,
    target: Store | None,
    *,
    pipeline: str | None = None,
    verify: bool = False,
    dry_run: bool = False,
) -> StoreCopy:
    """Copy what a store has, and another lacks: artefacts, manifest, records, erasures, report pages and lineage.

    Artefacts go first, each with its list of digests, then their entries, then the records that refer to them: the
    target is a valid store at every moment, and a copy that was stopped is gone on with by the next one. Every file is
    compared with its digest while it is read.

    Where samples were erased from the source, the target follows it: the list of erased samples is carried over, and
    every artefact and report page that the source does not have is deleted from the target.

    Parameters
    ----------
    source, target
        The stores; the target may be None with `dry_run`, if it is not there yet.
    pipeline
        Name of a pipeline: only its records, and what they need. None copies all.
    verify
        Whether the artefacts that the target has are read as well; damaged ones are copied again.
    dry_run
        Whether to count only, and to write nothing.

    Returns
    -------
    What was copied.

    Raises
    ------
    ConfigError
        If the stores are the same, or there is no such pipeline.
    StoreError
        If the source is damaged, the target cannot be written or is in use, or it cannot follow the source: see
        `plan_copy`. The target is valid then, and what was copied stays.
    """
    if target is not None and source.address == target.address:
        raise ConfigError(f"store {source.name!r} is given twice; name another store to copy to")
    with ExitStack() as stack:
        # nobody erases meanwhile; a copy that can only be read needs no lease, for nobody can erase from it
        stack.enter_context(keep_erasures_out(source))
        with suppress(OSError, StoreError):
            stack.enter_context(hold_lease(source.objects, "copy"))
        plan = plan_copy(source, target, pipeline)
        found = StoreCopy(n_ahead=plan.n_ahead)
        if dry_run or target is None:
            _count(source, target, plan, verify, found)
            return found
        stack.enter_context(refuse_unwritable(target.root))
        alone = stay_alone if plan.follows_erasures else keep_erasures_out
        stack.enter_context(alone(target))
        stack.enter_context(hold_lease(target.objects, "copy"))
        _copy_entries(source, target, plan, verify, found)
        for record in plan.collections:
            append_record(target, COLLECTIONS, record)
            found.records += 1
        _copy_events(source, target)
        _copy_objects(source, target, [each.name for each in source.objects.list_objects(EXPORTS)])
        if plan.follows_erasures:
            _follow_erasures(source, target, plan, found)
        _copy_records(source, target, plan, found)
        found.pages = _copy_objects(source, target, plan.pages)
    return found


def _copy_entries(
    source: Store, target: Store, plan: CopyPlan, verify: bool, found: StoreCopy
) -> None:
    """Copy artefacts, several at a time, and after each its entry: the entries stay in order."""
    theirs = target.objects

    def copy(entry: Entry) -> tuple[int | None, bytes | None]:
        size = copy_artefact(source, target, entry.reference, verify)
        name = f"manifest/{entry.reference.identity}.json"
        if (content := read_or_none(source, name)) is None:
            raise report_vanished(source, entry.reference)
        there = read_or_none(target, name)
        if there is not None and there != content and plan.n_ahead:
            _refuse_other_content(source, target, entry)
        return size, None if there == content else content

    with working("copy", len(plan.entries)) as report, ThreadPoolExecutor(THREADS) as pool:
        results = _map_ahead(pool, copy, plan.entries)
        for number, (entry, (size, content)) in enumerate(results, 1):
            kind = entry.reference.kind
            if size is not None:
                found.artefacts.setdefault(kind, Amount()).add(size)
            elif entry.reference.path:
                found.present[kind] = found.present.get(kind, 0) + 1
            if content is not None:
                theirs.put(f"manifest/{entry.reference.identity}.json", content)
                found.entries += 1
            if report is not None:
                report(number, len(plan.entries), f"{found.bytes:,} bytes")


def _refuse_other_content(source: Store, target: Store, entry: Entry) -> None:
    """Refuse where runs of the target alone may rely on what is of the same identity, and other content."""
    there = target.read_entry(entry.reference.identity)
    if there is not None and there.reference != entry.reference:
        raise StoreError(
            f"{entry.reference.kind} {entry.reference.identity[:12]} has other content in store "
            f"{source.name!r} than in {target.name!r}, which has runs of its own: copy to an empty store"
        )


def _map_ahead(
    pool: ThreadPoolExecutor, work: Callable[[Entry], R], entries: Iterable[Entry]
) -> Iterator[tuple[Entry, R]]:
    """Results of work in order, some calls ahead: what one that fails leaves behind is little."""
    waiting: list[tuple[Entry, Future[R]]] = []
    rest = iter(entries)
    try:
        while True:
            waiting += [
                (each, pool.submit(work, each)) for each in islice(rest, 1 if waiting else THREADS)
            ]
            if not waiting:
                return
            entry, future = waiting.pop(0)
            yield entry, future.result()
    finally:
        for _, future in waiting:
            future.cancel()


def _follow_erasures(source: Store, target: Store, plan: CopyPlan, found: StoreCopy) -> None:
    """Carry the list of erased samples over, and delete what may hold them."""
    # what was left unfinished may hold them too; before the list, which says that this was done
    drop_unfinished(target)
    theirs = target.objects
    if (content := read_or_none(source, ERASURES)) is not None:
        theirs.put(ERASURES, content)
    entries = {identity: target.read_entry(identity) for identity in plan.foreign}
    for identity in plan.foreign:
        theirs.delete([f"manifest/{identity}.json"])
    used = {entry.reference.path for entry in target.entries()}
    for entry in entries.values():
        if entry is None:
            continue
        amount = found.removed.setdefault(entry.reference.kind, Amount())
        amount.number += 1
        if entry.reference.path and entry.reference.path not in used:
            used.add(entry.reference.path)
            freed = Amount()
            drop_location(target, entry.reference.path, freed)
            amount.bytes += freed.bytes


def _copy_records(source: Store, target: Store, plan: CopyPlan, found: StoreCopy) -> None:
    theirs = target.objects
    for name in plan.records:
        content = read_or_none(source, name)
        if content is None:
            raise StoreError(f"record {name} of store {source.name!r} is gone; run this again")
        try:
            theirs.create(name, content)
        except FileExistsError:
            if read_or_none(target, name) != content:
                raise StoreError(
                    f"store {target.name!r} has got another {name} meanwhile: the histories have diverged; stop "
                    "the runs in it while it is copied to, and copy to an empty store"
                ) from None
        found.records += 1
    # also of records that a copy before this one has written, and was stopped
    for each in list_histories(target):
        numbers = [*list_stored(target, each, ".json"), *list_stored(target, each, ".lost")]
        if (last := max(numbers, default=0)) > (read_last_number(target, each) or 0):
            theirs.put(f"{HISTORIES}/{each}", str(last).encode())


def _copy_objects(source: Store, target: Store, names: Iterable[str]) -> int:
    theirs = target.objects
    n_written = 0
    for name in names:
        content = read_or_none(source, name)
        if content is not None and read_or_none(target, name) != content:
            theirs.put(name, content)
            n_written += 1
    return n_written


def _copy_events(source: Store, target: Store) -> None:
    """Carry the events of lineage over; to the file of a folder, the lines that the target alone has are added."""
    for metadata in source.objects.list_objects(LINEAGE):
        ours, theirs = (read_or_none(store, metadata.name) or b"" for store in (source, target))
        lines = ours.splitlines(keepends=True)
        if metadata.name == EVENTS:
            known = {*lines}
            lines += [line for line in theirs.splitlines(keepends=True) if line not in known]
        content = b"".join(lines)
        if content != theirs:
            target.objects.put(metadata.name, content)


def _count(
    source: Store, target: Store | None, plan: CopyPlan, verify: bool, found: StoreCopy
) -> None:
    """Count what a copy would do."""
    for entry in plan.entries:
        reference = entry.reference
        if reference.path:
            if target is not None and is_there(target, reference, verify):
                found.present[reference.kind] = found.present.get(reference.kind, 0) + 1
            else:
                size = measure_bytes(source, reference.path)
                found.artefacts.setdefault(reference.kind, Amount()).add(size)
        name = f"manifest/{reference.identity}.json"
        found.entries += read_or_none(target, name) != read_or_none(source, name)
    found.records = len(plan.records) + len(plan.collections)
    found.pages = sum(read_or_none(target, n) != read_or_none(source, n) for n in plan.pages)
    for identity in plan.foreign:
        foreign = None if target is None else target.read_entry(identity)
        if target is not None and foreign is not None:
            size = measure_bytes(target, foreign.reference.path)
            found.removed.setdefault(foreign.reference.kind, Amount()).add(size)
