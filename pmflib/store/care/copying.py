"""Incremental, verified copies of stores, during which the target is valid at every moment."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pmflib.base.display.progress import working
from pmflib.base.errors import ConfigError, StoreError
from pmflib.store.artefacts import NO_KINDS, Entry, Reference, Store, refuse_unwritable
from pmflib.store.care.collection import Amount, drop_unfinished
from pmflib.store.care.exports import EXPORTS
from pmflib.store.erasures import (
    ERASURES,
    ErasureList,
    keep_erasures_out,
    read_erasures,
    stay_alone,
)
from pmflib.store.file_digests import parse_list
from pmflib.store.leases import hold_lease
from pmflib.store.lineage import list_collected_runs, list_needed, order_by_need, reach
from pmflib.store.objects.interface import LIST_FILE, call_in_parallel
from pmflib.store.objects.local_folder import make_folder, mark_draft, write_object
from pmflib.store.run_records import (
    COLLECTIONS,
    HISTORIES,
    RECORDS,
    REPORTS,
    append_record,
    list_histories,
    list_pages,
    list_stored,
    name_labelling,
    read_last_number,
    read_record,
)

LINEAGE = "lineage"
"""Folder of a store with lineage events, one per line."""
EVENTS = f"{LINEAGE}/events.jsonl"
"""File that all runs of a local store append to; in a bucket, each run has its own object."""
THREADS = 8
"""Number of artefacts that are copied in parallel, as copying mostly waits for disks or servers."""
_COPIED = re.compile(r"(?!(tmp|work|leases|fingerprints)$)[a-z][a-z-]*|erasures\.json")
"""What is copied of the contents of a store; of work under way, the target has its own."""
MOST_BYTES = 256 << 20
"""Largest object that is read whole, as all but the files of artefacts are: the events of 50,000 runs take 100 MB."""


@dataclass
class StoreCopy:
    """Result of a copy, or of a dry run.

    Parameters
    ----------
    artefacts
        Copied artefacts by kind.
    present
        Number of artefacts by kind that the target already had.
    removed
        Artefacts by kind that are deleted from the target because samples were erased from the source.
    entries, records, pages
        Numbers of written manifest entries, records (of runs and collections) and report pages.
    n_ahead
        Number of records that only the target has.
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
        """Total size of the copied artefacts, bytes."""
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
    """Copy everything that the target lacks: artefacts, manifest, records, erasures, report pages and lineage events.

    Artefacts are copied first, each with its digest list, then their manifest entries, then the records that refer to
    them. The target is therefore valid at every moment, and an interrupted copy can be continued.

    If samples were erased from the source, its list of erasures is copied, and artefacts and report pages that the
    source does not have are deleted from the target.

    Parameters
    ----------
    source, target
        The stores; with ``dry_run``, the target may be None if it does not exist yet.
    pipeline
        Name of the pipeline whose records, and the artefacts they need, are copied; None copies all.
    verify
        Whether to read the artefacts that the target already has, and copy damaged ones again.
    dry_run
        Whether only to count.

    Returns
    -------
    Numbers of copied objects.

    Raises
    ------
    ConfigError
        If the stores are the same, or the pipeline is unknown.
    StoreError
        If the source is damaged, the target cannot be written or is in use, the histories have diverged, or samples
        erased from the target are still in the source. The target stays valid and keeps what was copied.
    """
    if target is not None and source.address == target.address:
        raise ConfigError(f"store {source.name!r} is given twice; name another store to copy to")
    with ExitStack() as stack:
        stack.enter_context(keep_erasures_out(source))
        # a read-only store needs no lease, as nothing can be erased from it
        with suppress(OSError, StoreError):
            stack.enter_context(hold_lease(source.objects, "copy"))
        copy = _Copy(source, target, pipeline, verify, dry_run or target is None)
        if target is not None and not dry_run:
            stack.enter_context(refuse_unwritable(target.root))
            stack.enter_context((stay_alone if copy.follows else keep_erasures_out)(target))
            stack.enter_context(hold_lease(target.objects, "copy"))
        copy.run()
    return copy.found


class _Copy:
    """Plan and steps of a copy; for the parameters, see `copy_store`.

    Runs may be under way in the source: records are listed first, as everything that they refer to is older.
    """

    def __init__(
        self, source: Store, target: Store | None, pipeline: str | None, verify: bool, counts: bool
    ) -> None:
        _check_files(source)
        self.source, self.target, self.verify = source, target, verify
        # None to count only
        self.into = None if counts else target
        self.found = StoreCopy()
        self.names = self._choose_histories(pipeline)
        self.files = {name: _list_files(source, name) for name in self.names}
        self.erasures = read_erasures(source)
        self._compare_erasures()
        self.entries = _read_entries(source)
        ahead = self._compare_histories()
        self.found.n_ahead = sum(ahead.values())
        # after the manifest: entries collected meanwhile are named in the record of that collection
        roots = self._check_records()
        self.chosen = set(self.entries) if pipeline is None else reach(self.entries, roots)
        self.pages = [
            each
            for each in list_pages(source)
            if each.removeprefix(f"{REPORTS}/").split("/")[0] in self.names
        ]
        self.theirs: dict[str, Entry] = {}
        self.foreign: list[str] = []
        self.follows = self.erasures is not None and self._must_follow(ahead)
        self._check_inputs()

    def run(self) -> None:
        """Copy (or count) in an order in which nothing refers to missing objects."""
        self._copy_artefacts()
        self._copy_collections()
        if self.into is not None:
            self._copy_events()
            self._copy_objects([each.name for each in self.source.objects.list_objects(EXPORTS)])
        self._drop_foreign()
        self._copy_records()
        self.found.pages = self._copy_objects(self.pages)

    def _choose_histories(self, pipeline: str | None) -> list[str]:
        known = list_histories(self.source)
        if pipeline is None:
            return known
        chosen = [name for name in (pipeline, name_labelling(pipeline)) if name in known]
        if not chosen:
            raise ConfigError(
                f"--pipeline {pipeline!r} has no run in store {self.source.name!r}; there are {known}, and without "
                "--pipeline all are copied"
            )
        return chosen

    def _compare_erasures(self) -> None:
        """Check that nothing was erased from the target that the source may contain."""
        ours, source = self.erasures, self.source
        if ours is not None and ours.unfinished:
            raise StoreError(
                f"an erasure from store {source.name!r} is unfinished; finish it with `pmf erase CONFIG` for "
                "one of its pipelines, then copy again"
            )
        theirs = None if self.target is None else read_erasures(self.target)
        if self.target is not None and theirs is not None and not _includes(ours, theirs):
            raise StoreError(
                f"samples were erased from store {self.target.name!r} that store {source.name!r} may still "
                "contain; erase them from the source, then copy to an empty store"
            )

    def _compare_histories(self) -> dict[str, int]:
        """Check that common records are equal; return the number of records that only the target has, by history."""
        ahead: dict[str, int] = {}
        for name in [] if self.target is None else list_histories(self.target):
            mine, theirs = ({*list_stored(each, name, ".json")} for each in self._stores())
            for number in sorted(mine & theirs if name in self.names else ()):
                one, other = (read_record(store, name, number) for store in self._stores())
                if one != other:
                    raise StoreError(
                        f"the histories of stores {self.source.name!r} and {self._name_target()!r} have diverged: run "
                        f"{number} of {name!r} started at {one.started} there, and at {other.started} here; copy to "
                        "an empty store, or delete the store whose runs are not needed"
                    )
            if theirs - mine:
                ahead[name] = len(theirs - mine)
        return ahead

    def _must_follow(self, ahead: Mapping[str, int]) -> bool:
        """Whether erasures of the source must be applied to the target; sets ``foreign``, what to delete."""
        if self.target is None:
            return True
        self.theirs = _read_entries(self.target)
        self.foreign = order_by_need(self.theirs, self.theirs.keys() - self.entries.keys())
        if self.foreign and ahead:
            raise StoreError(
                f"samples were erased from store {self.source.name!r}, and store {self.target.name!r} has runs of its "
                f"own ({dict(ahead)}) whose artefacts may hold them; run `pmf erase` with the same samples there, or "
                "copy to an empty store"
            )
        pages = {*list_pages(self.target)} - {*list_pages(self.source)}
        return bool(self.foreign or pages or self._differs(ERASURES))

    def _check_records(self) -> set[str]:
        """Check that everything the records refer to exists; return the identities."""
        collected, roots = list_collected_runs(self.source), set()
        for name in self.names:
            numbers = list_stored(self.source, name, ".json")
            for number in numbers:
                record = read_record(self.source, name, number)
                gone = number in collected.get(name, ())
                references = [] if gone else list(record.stages.values())
                if record.live is not None and (not gone or number == numbers[-1]):
                    references.append(record.live)
                for reference in references:
                    self._check(reference, f"run {number} of {name}")
                    roots.add(reference.identity)
        forward = {} if self.erasures is None else self.erasures.forward()
        return roots | {forward[identity].identity for identity in roots & forward.keys()}

    def _check_inputs(self) -> None:
        """Check that the inputs of all entries exist; add entries written since the manifest was listed."""
        waiting = sorted(self.chosen)
        while waiting:
            entry = self.entries[waiting.pop()]
            for reference in list_needed(entry):
                if reference.identity not in self.entries:
                    late = self.source.read_entry(reference.identity)
                    if late is not None:
                        self.entries[reference.identity] = late
                        self.chosen.add(reference.identity)
                        waiting.append(reference.identity)
                self._check(reference, f"{entry.reference.kind} {entry.reference.digest[:12]}")

    def _check(self, reference: Reference, user: str) -> None:
        erased = set() if self.erasures is None else self.erasures.list_deleted()
        if reference.identity not in self.entries and reference.identity not in erased:
            raise StoreError(
                f"{reference.kind} {reference.digest[:12]} of {user} is not in the manifest of store "
                f"{self.source.name!r}; `pmf verify` lists everything missing there, with remedies"
            )

    def _copy_artefacts(self) -> None:
        """Copy artefacts in parallel, and the entries after them in order."""
        ordered = [
            self.entries[each] for each in reversed(order_by_need(self.entries, self.chosen))
        ]
        number = 0
        with working("copy", len(ordered)) as report, ThreadPoolExecutor(THREADS) as pool:
            # in batches, so that a failure leaves few artefacts without entries
            for start in range(0, len(ordered), THREADS):
                batch = ordered[start : start + THREADS]
                for entry, (size, content) in zip(
                    batch, pool.map(self._copy_entry, batch), strict=True
                ):
                    kind = entry.reference.kind
                    if size is not None:
                        self.found.artefacts.setdefault(kind, Amount()).add(size)
                    elif entry.reference.path:
                        self.found.present[kind] = self.found.present.get(kind, 0) + 1
                    if content is not None:
                        self.found.entries += 1
                        if self.into is not None:
                            name = f"manifest/{entry.reference.identity}.json"
                            self.into.objects.put(name, content)
                    number += 1
                    if report is not None:
                        report(number, len(ordered), f"{self.found.bytes:,} bytes")

    def _copy_entry(self, entry: Entry) -> tuple[int | None, bytes | None]:
        """Copy an artefact; return its size and the content of its entry, each None if the target has it already."""
        reference = entry.reference
        size = self._copy_artefact(reference)
        name = f"manifest/{reference.identity}.json"
        if (content := _read_or_none(self.source, name)) is None:
            raise self._report_vanished(reference)
        known = _read_or_none(self.target, name)
        if known == content:
            return size, None
        if known is not None and self.target is not None and self.found.n_ahead:
            there = self.target.read_entry(reference.identity)
            if there is not None and there.reference != reference:
                raise StoreError(
                    f"{reference.kind} {reference.identity[:12]} has other content in store {self.source.name!r} than "
                    f"in {self.target.name!r}, which has runs of its own: copy to an empty store"
                )
        return size, content

    def _copy_artefact(self, reference: Reference) -> int | None:
        """Copy and publish the files of an artefact; return their size, or None if the target has them already."""
        if not reference.path or self._is_there(reference):
            return None
        if self.into is None:
            return self.source.objects.measure(reference.path)
        digests, packed = self._read_list(reference)
        draft = self.into.root / "tmp" / mark_draft(reference.kind)
        make_folder(draft)
        try:
            for name, digest in digests.items():
                path = draft / name
                if self._fetch(f"{reference.path}/{name}", path, packed.get(name)) != digest:
                    raise StoreError(
                        f"file {name!r} of {reference.path} in store {self.source.name!r} is not what was "
                        "published, or lost, and is not copied; `pmf verify` lists all damage there, with remedies. "
                        "Artefacts copied before stay"
                    )
            total = sum((draft / name).stat().st_size for name in digests)
            text = json.dumps(digests, indent=0, sort_keys=True, ensure_ascii=False)
            (draft / LIST_FILE).write_text(text, "utf-8")
            self.into.publish(draft, reference)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return total

    def _fetch(self, name: str, path: Path, packed: bytes | None) -> str:
        """Write a file of an artefact; return its SHA-256, or "" if it is lost."""
        try:
            make_folder(path.parent)
            if packed is not None:
                write_object(path, packed)
                return hashlib.sha256(packed).hexdigest()
            with suppress(FileNotFoundError):
                return self.source.objects.fetch_file(name, path)
        except (FileExistsError, NotADirectoryError) as error:
            raise StoreError(
                f"file {name} of store {self.source.name!r} has the place of another one in {self._name_target()!r}; "
                "if their names differ by case alone, copy to a file system that tells them apart"
            ) from error
        return ""

    def _is_there(self, reference: Reference) -> bool:
        """Whether the target has an artefact: its digest list and, with ``verify``, every byte."""
        if self.target is None:
            return False
        objects = self.target.objects
        try:
            digests = parse_list(objects.read_list(reference.path)[0], reference.digest)
        except (FileNotFoundError, ValueError):
            return False
        return not self.verify or objects.digest_files(reference.path) == digests

    def _read_list(self, reference: Reference) -> tuple[dict[str, str], Mapping[str, bytes]]:
        """Read the digest list of an artefact, authenticated by its entry, and the files packed with it."""
        try:
            listing, packed = self.source.objects.read_list(reference.path)
        except FileNotFoundError:
            raise self._report_vanished(reference) from None
        try:
            return parse_list(listing, reference.digest), packed
        except ValueError as error:
            raise StoreError(
                f"list of digests of {reference.path} in store {self.source.name!r} is damaged ({error}); "
                "`pmf verify` lists all damage there, with remedies"
            ) from error

    def _report_vanished(self, reference: Reference) -> StoreError:
        return StoreError(
            f"{reference.kind} {reference.digest[:12]} is not in store {self.source.name!r}. If `pmf gc` has just "
            "deleted it, run this again; otherwise it is lost, and `pmf verify` names the remedy"
        )

    def _copy_collections(self) -> None:
        """Copy the records of `pmf gc`, which each store numbers independently."""
        ours, theirs = (
            [read_record(each, COLLECTIONS, n) for n in list_stored(each, COLLECTIONS, ".json")]
            for each in (self.source, self.target or self.source)
        )
        known = (
            set() if self.target is None else {(each.started, str(each.facts)) for each in theirs}
        )
        for record in ours:
            if (record.started, str(record.facts)) not in known:
                self.found.records += 1
                if self.into is not None:
                    append_record(self.into, COLLECTIONS, record)

    def _copy_events(self) -> None:
        """Copy lineage events; lines that only the target has are kept."""
        for metadata in self.source.objects.list_objects(LINEAGE):
            ours, theirs = (_read_or_none(each, metadata.name) or b"" for each in self._stores())
            lines = ours.splitlines(keepends=True)
            if metadata.name == EVENTS:
                known = {*lines}
                lines += [line for line in theirs.splitlines(keepends=True) if line not in known]
            if self.into is not None and b"".join(lines) != theirs:
                self.into.objects.put(metadata.name, b"".join(lines))

    def _drop_foreign(self) -> None:
        """Copy the list of erasures, and delete artefacts from the target that may contain erased samples."""
        kept = {each.reference.path for i, each in self.theirs.items() if i not in self.foreign}
        if self.into is not None and self.follows:
            # unfinished work may contain them, too; the list is written last, as it says that this is done
            drop_unfinished(self.into)
            self._copy_objects([ERASURES])
            self.into.objects.delete([f"manifest/{identity}.json" for identity in self.foreign])
            kept = {entry.reference.path for entry in self.into.entries()}
        for identity in self.foreign:
            reference = self.theirs[identity].reference
            amount = self.found.removed.setdefault(reference.kind, Amount())
            amount.number += 1
            if not reference.path or reference.path in kept or self.target is None:
                continue
            kept.add(reference.path)
            if self.into is None:
                amount.bytes += self.target.objects.measure(reference.path)
            else:
                amount.bytes += self.into.drop(reference.path) or 0

    def _copy_records(self) -> None:
        for name in self.names:
            there = {*_list_files(self.target, name)} if self.target is not None else set()
            for file in self._order_records(name, [f for f in self.files[name] if f not in there]):
                self.found.records += 1
                if self.into is not None:
                    self._create_record(self.into, file)
        # also for records written by an earlier copy that was interrupted
        for name in [] if self.into is None else list_histories(self.into):
            assert self.into is not None
            files = _list_files(self.into, name)
            last = max((int(Path(file).stem) for file in files), default=0)
            if last > (read_last_number(self.into, name) or 0):
                self.into.objects.put(f"{HISTORIES}/{name}", str(last).encode())

    def _create_record(self, target: Store, name: str) -> None:
        content = _read_or_none(self.source, name)
        if content is None:
            raise StoreError(
                f"record {name} of store {self.source.name!r} was deleted meanwhile; run this again"
            )
        try:
            target.objects.create(name, content)
        except FileExistsError:
            if _read_or_none(target, name) != content:
                raise StoreError(
                    f"store {target.name!r} has another {name} now, so the histories have diverged; stop "
                    "runs in the target while copying, and copy to an empty store"
                ) from None

    def _order_records(self, name: str, files: list[str]) -> list[str]:
        """Order new records so that the newest one present never names a live model that was collected."""
        ordered: list[str] = []
        waiting: list[str] = []
        for file in files:
            waiting.append(file)
            path = Path(file)
            if path.suffix == ".json":
                live = read_record(self.source, name, int(path.stem)).live
                if live is None or live.identity in self.chosen:
                    ordered += reversed(waiting)
                    waiting = []
        return ordered + waiting[::-1]

    def _copy_objects(self, names: Iterable[str]) -> int:
        """Copy objects that are missing or different in the target; return their number."""
        n_written = 0
        for name in filter(self._differs, names):
            n_written += 1
            if self.into is not None:
                content = _read_or_none(self.source, name)
                assert content is not None
                self.into.objects.put(name, content)
        return n_written

    def _differs(self, name: str) -> bool:
        content = _read_or_none(self.source, name)
        return content is not None and content != _read_or_none(self.target, name)

    def _stores(self) -> tuple[Store, Store]:
        assert self.target is not None
        return self.source, self.target

    def _name_target(self) -> str:
        return "" if self.target is None else self.target.name


def _check_files(source: Store) -> None:
    """Check before anything is read that a store on a disk holds regular files only, and none too large to be read.

    A link would copy a file of this machine to the target, and a pipe would never end.

    Raises
    ------
    StoreError
        If there is a link, a pipe, a device, or a file of more than ``MOST_BYTES`` that is read whole.
    """
    waiting = [] if source.is_bucket else [source.root]
    while waiting:
        folder = waiting.pop()
        with os.scandir(folder) as files:
            for file in files:
                path = Path(file.path)
                parts = path.relative_to(source.root).parts
                if not _COPIED.fullmatch(parts[0]):
                    continue
                if file.is_dir(follow_symlinks=False):
                    waiting.append(path)
                    continue
                is_whole = parts[0] in {*NO_KINDS, ERASURES} or path.name == LIST_FILE
                if not file.is_file(follow_symlinks=False) or (
                    is_whole and file.stat().st_size > MOST_BYTES
                ):
                    raise StoreError(
                        f"{str(path)!r} is a link, a pipe, a device or an object of more than {MOST_BYTES:,} bytes, "
                        "and pmf writes none of them; ask whoever made the store, or delete it"
                    )


def _includes(ours: ErasureList | None, theirs: ErasureList) -> bool:
    """Whether a list of erasures equals or continues another."""
    if ours is None:
        return False
    return ours.salt == theirs.salt and len(ours.erasures) >= len(theirs.erasures)


def _list_files(store: Store, name: str) -> list[str]:
    """Names of the files of a history in order of number, including lost records."""
    numbers, lost = (set(list_stored(store, name, suffix)) for suffix in (".json", ".lost"))
    return [
        f"{RECORDS}/{name}/{number:06}.{'json' if number in numbers else 'lost'}"
        for number in sorted(numbers | lost)
    ]


def _read_entries(store: Store) -> dict[str, Entry]:
    """Manifest entries by identity, including those whose content is gone."""
    found = call_in_parallel(store.read_entry, store.list_identities())
    return {entry.reference.identity: entry for entry in found if entry is not None}


def _read_or_none(store: Store | None, name: str) -> bytes | None:
    """Content of an object of a store; None if the object or the store does not exist."""
    with suppress(FileNotFoundError):
        return None if store is None else store.objects.read(name)[0]
    return None
