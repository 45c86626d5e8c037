"""Stores of artefacts: immutable results, identified by their inputs before they exist, published atomically."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pmflib.base.errors import PmfError, StoreError
from pmflib.base.json_records import from_json
from pmflib.store.checkpoints import KIND_FILE, claim_work
from pmflib.store.file_digests import (
    FOLDER_DIGITS,
    Digest,
    find_changes,
    list_dropped,
    seal,
    unseal,
    write_list,
)
from pmflib.store.leases import drop_leases, find_own_lease, hold_lease, list_leases
from pmflib.store.objects.addresses import open_objects
from pmflib.store.objects.interface import LIST_FILE, Objects, call_in_parallel
from pmflib.store.objects.local_files import open_cache
from pmflib.store.objects.local_folder import (
    close_tree,
    find_holder,
    make_folder,
    make_root,
    mark_draft,
    sync_file,
)

SOURCE = "source"
"""Kind of a raw file, which has an entry in the manifest but no content in the store."""
NO_KINDS = frozenset(
    {
        *("manifest", "tmp", "work", "runs", "histories", "leases"),
        *("fingerprints", "lineage", "reports", "exports"),
    }
)
"""Folders of a store that hold no artefacts."""
Kind: TypeAlias = Annotated[str, re.compile(rf"(?!({'|'.join(sorted(NO_KINDS))})$)[a-z][a-z-]*")]
"""Kind of an artefact, which names its folder."""
_UNWRITABLE = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EISDIR,
    # a file system without links, by which records are created at most once
    errno.ENOTSUP,
    errno.ENOSYS,
}


@contextmanager
def refuse_unwritable(folder: str | Path) -> Iterator[None]:
    """Raise a `StoreError` for a full disk or a missing permission, where a retry cannot help."""
    try:
        yield
    except OSError as error:
        # errors of other files, such as sources, are not about the store
        here, path = Path(folder), Path(error.filename or folder)
        related = path.is_relative_to(here) or here.is_relative_to(path)
        if error.errno not in _UNWRITABLE or not related:
            raise
        if os.path.lexists(folder) and not _may_read(folder):
            raise StoreError(
                f"store {str(folder)!r} cannot be read ({error}); ask its owner for access "
                "(`chmod -R g+rX`), or run as its owner"
            ) from error
        raise StoreError(
            f"store {str(folder)!r} cannot be written ({error}); free disk space, correct the permissions, "
            "or set store.path to another location, then run again"
        ) from error


def _may_read(folder: str | Path) -> bool:
    by_effective_user = os.access in os.supports_effective_ids
    return os.access(folder, os.R_OK | os.X_OK, effective_ids=by_effective_user)


@dataclass(frozen=True)
class Reference:
    """Reference to an artefact, which stages pass to each other instead of its content.

    Parameters
    ----------
    kind
        Kind of artefact: "source", "samples", "counts", "model", ...
    identity
        SHA-256 of (kind, digests of the inputs, options, version), known before the artefact exists.
    digest
        SHA-256 of the content.
    """

    kind: Kind
    identity: Digest
    digest: Digest

    @property
    def path(self) -> str:
        """Path relative to the store; empty for a raw source, which is not stored.

        It follows from kind and digest and is never read from a file, so no manifest can lead out of the store.
        """
        return "" if self.kind == SOURCE else f"{self.kind}/{self.digest[:FOLDER_DIGITS]}"


@dataclass(frozen=True)
class Entry:
    """Manifest entry of an artefact: its inputs, options, version and summary.

    Parameters
    ----------
    reference
        The artefact.
    inputs
        Artefacts it was made from, by role: the edges of the lineage graph.
    options
        Options that affect the content.
    version
        Version of the algorithm.
    summary
        Figures for users: row counts, log-likelihood, ...
    """

    reference: Reference
    inputs: dict[str, Reference]
    options: dict[str, Any]
    version: int
    summary: dict[str, Any] = field(default_factory=dict)

    def identify(self) -> str:
        """Compute the identity from kind, inputs, options and version."""
        options = self.options
        if self.reference.kind == SOURCE:
            options = {**options, "digest": self.reference.digest}
        return identify(self.reference.kind, self.inputs, options, self.version)


class Store:
    """Artefacts and their manifest, in a folder or below a prefix in a bucket.

    Layout: ``manifest/<identity>.json``, one entry per artefact, replaced atomically, whose time is that of its last
    use (in a bucket, of its writing); ``<kind>/<digest>/``, the content; ``work/<identity>/``, checkpoints; ``tmp/``,
    drafts; ``leases/``, processes at work. Names are the same in a bucket, where nothing is ever renamed: an artefact
    exists as soon as its digest list does, which is written last. Files of a bucket are read and written through a
    cache on this machine.

    Parameters
    ----------
    root
        The folder, which is created if necessary; or ``s3://bucket/prefix``, which is not contacted before the first
        read.

    Attributes
    ----------
    root
        The folder; for a bucket, this machine's cache, which may lack files.
    objects
        Object store for everything except artefacts.
    name
        Name for people: the folder as given, or the URL.
    address
        Name for workers: the absolute path of the folder, or the URL.

    Raises
    ------
    ConfigError
        If the URL is invalid.
    StoreError
        If the folder cannot be created. Methods raise it if the store cannot be written; nothing is ever published in
        part.
    """

    def __init__(self, root: str | Path) -> None:
        self.objects: Objects = open_objects(root)
        self.address = self.objects.address
        self._cache = open_cache(self.objects)
        if self._cache is not None:
            self.name = self.address
            self.root = self._cache.root
            return
        self.root = Path(root)
        self.name = str(self.root)
        with refuse_unwritable(self.root):
            if (self.root / "runs").is_dir() and not (self.root / "manifest").is_dir():
                # an empty manifest would hide everything that the records refer to
                raise StoreError(
                    f"store {self.name!r} has records of runs, but has lost its folder 'manifest'; restore it from a "
                    "copy of the store. Without a copy, create the folder: the next run rebuilds the artefacts and "
                    "their entries, and until then no question can be answered"
                )
            make_root(self.root)
            for name in ("manifest", "tmp", "work", "leases"):
                make_folder(self.root / name)

    @property
    def is_bucket(self) -> bool:
        """Whether the store is in a bucket, so that its folder is a cache."""
        return self._cache is not None

    def name_artefact(self, reference: Reference, *parts: str) -> str:
        """Path or URL of an artefact or one of its files, for people; `find_local_path` resolves it."""
        return "/".join((self.name, reference.path, *parts))

    def address_artefact(self, reference: Reference) -> str:
        """Address of an artefact for workers, which `find_local_path` resolves; in a bucket, it may not exist.

        Raises
        ------
        StoreError
            If it is not in a local store.
        """
        return (
            f"{self.address}/{reference.path}"
            if self.is_bucket
            else str(self.locate(reference).resolve())
        )

    def locate(self, reference: Reference) -> Path:
        """Folder of an artefact; for a bucket, in the cache, where files may have to be fetched: see `fetch_all`.

        Raises
        ------
        StoreError
            If it is not in the store.
        """
        path = self.root / reference.path
        if not reference.path or not self._holds(path):
            raise StoreError(
                f"{reference.kind} {reference.digest[:12]} is not in store {self.name!r}; run the pipeline again"
            )
        return path

    def locate_all(self, references: Sequence[Reference]) -> list[Path]:
        """Folders of many artefacts (see `locate`), which are requested from a bucket in parallel."""
        if self.is_bucket:
            return call_in_parallel(self.locate, references)
        return [self.locate(reference) for reference in references]

    def _holds(self, path: Path) -> bool:
        return path.exists() if self._cache is None else self._cache.fetch_list(path)

    def find(self, identity: str) -> Entry | None:
        """Find the entry of an identity and mark it as used; None if it was never published, or its content is gone.

        Raises
        ------
        StoreError
            If the entry is damaged or was edited.
        """
        if self._cache is None:
            # for garbage collection; a read-only store needs none
            with suppress(OSError):
                os.utime(self.root / "manifest" / f"{identity}.json")
        return self._find(identity)

    def find_before(self, identity: str) -> Entry | None:
        """Find an entry before building its artefact (see `find`), which is built again if files of it were dropped.

        In a bucket, an artefact that another machine has published within the last half minute may be missed and built
        again.
        """
        entry = None if self.objects.lacks(f"manifest/{identity}.json") else self.find(identity)
        return None if entry is None or self.lacks_files(entry.reference) else entry

    def lacks_files(self, reference: Reference) -> bool:
        """Whether a collection has dropped files of an artefact: see `list_dropped`."""
        return bool(reference.path and list_dropped(self.root / reference.path))

    def read_entry(self, identity: str) -> Entry | None:
        """Read the manifest entry of an identity, whether its content exists or not, without marking it as used.

        Raises
        ------
        StoreError
            If it is damaged or was edited, or its identity does not follow from its kind, inputs, options and version.
        """
        name = f"manifest/{identity}.json"
        try:
            entry = from_json(Entry, unseal(self.objects.read(name)[0]))
            if not identity == entry.reference.identity == entry.identify():
                raise ValueError(
                    "its identity does not match its kind, inputs, options and version"
                )
        except FileNotFoundError:
            return None
        except PmfError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                f"manifest entry {identity[:12]} is damaged ({error}); delete {name} to rebuild it"
            ) from error
        return entry

    def _find(self, identity: str) -> Entry | None:
        entry = self.read_entry(identity)
        if entry is None or not entry.reference.path:
            return entry
        # even if it is cached: a user may have deleted it to have it rebuilt
        return entry if self.objects.exists(f"{entry.reference.path}/{LIST_FILE}") else None

    def list_identities(self) -> list[str]:
        """Identities of all entries, sorted, including damaged ones."""
        names = (Path(metadata.name) for metadata in self.objects.list_objects("manifest"))
        return sorted(name.stem for name in names if name.suffix == ".json")

    def entries(self) -> Iterator[Entry]:
        """All entries whose content exists, sorted by identity."""
        for entry in call_in_parallel(self._find, self.list_identities()):
            if entry is not None:
                yield entry

    def build(
        self,
        kind: str,
        *,
        inputs: Mapping[str, Reference],
        options: Mapping[str, Any],
        version: int,
        write: Callable[[Path, Path], Mapping[str, Any]],
    ) -> Entry:
        """Return the artefact of an identity, building it only if the manifest does not have it.

        Parameters
        ----------
        kind
            Kind of the artefact, which also names its folder.
        inputs
            Artefacts it is made from, by role.
        options
            Exactly the options that affect the content; plain JSON types.
        version
            Version of the algorithm; increase it when the same inputs give other bytes.
        write
            Called with an empty folder to fill and a folder for checkpoints, which survives a killed run and is removed
            once the artefact is published; concurrent runs get different folders. It returns the summary, and must be
            deterministic: equal identities give equal bytes, with or without checkpoints.

        Returns
        -------
        The manifest entry.
        """
        identity = identify(kind, inputs, options, version)
        if (found := self.find_before(identity)) is not None:
            return found

        def resume() -> None:
            if self._cache is not None:
                self._cache.resume_work(identity, KIND_FILE)

        with refuse_unwritable(self.root), hold_lease(self.objects, f"build of {kind}"):
            if self._cache is not None:
                self._cache.make()
            tmp = self.root / "tmp" / mark_draft(kind)
            with claim_work(self.root, identity, kind, resume) as work:
                make_folder(tmp)
                try:
                    summary = dict(write(tmp, work))
                    digest = write_list(tmp)
                    reference = Reference(kind, identity, digest)
                    self.publish(tmp, reference)
                finally:
                    shutil.rmtree(tmp, ignore_errors=True)
                entry = Entry(reference, dict(inputs), dict(options), version, summary)
                self._record(entry)
                if self._cache is not None:
                    self._cache.drop_work(work)
        return entry

    def enter_again(self, entry: Entry) -> Entry:
        """Add an entry for an artefact under the identity that other inputs or options give to the same content.

        Parameters
        ----------
        entry
            Entry with the new inputs and options; its identity is recomputed.
        """
        old = entry.reference
        reference = Reference(old.kind, entry.identify(), old.digest)
        if (found := self.find(reference.identity)) is not None:
            return found
        entered = replace(entry, reference=reference)
        with refuse_unwritable(self.root), hold_lease(self.objects, f"entry of {old.kind}"):
            self._record(entered)
        return entered

    def record_source(self, name: str, digest: str, summary: Mapping[str, Any]) -> Entry:
        """Add a raw file to the manifest by its digest; its content is not copied."""
        identity = identify(SOURCE, {}, {"name": name, "digest": digest}, 1)
        entry = Entry(Reference(SOURCE, identity, digest), {}, {"name": name}, 1, dict(summary))
        with refuse_unwritable(self.root), hold_lease(self.objects, f"record of {SOURCE}"):
            self._record(entry)
        return entry

    def drop_leftovers(self) -> int:
        """Delete drafts of processes without a valid lease, and checkpoints of published artefacts.

        Returns
        -------
        Number of deleted drafts.
        """
        drafts = [
            *(self.root / "tmp").iterdir(),
            *(self.root / "manifest").glob(".*"),
            *(self.root / "runs").glob("*/.*"),
            *(self.root / "leases").glob(".*"),
        ]
        # files that workers have written for a stage
        looks_there = self.is_bucket and not self.objects.lacks("tmp")
        received = self.objects.list_folders("tmp") if looks_there else []
        if (
            not drafts
            and not received
            and self.objects.lacks("leases", find_own_lease(self.objects))
        ):
            return 0
        # list leases after drafts: a lease exists before its drafts and until they are gone
        leases = list_leases(self.objects)
        alive = {lease.holder for lease in leases if lease.is_alive}
        dropped = 0
        for path in drafts:
            if _is_left(path.name, alive):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
                dropped += 1
        for name in received:
            if _is_left(name, alive):
                found = self.objects.list_objects(f"tmp/{name}")
                self.objects.delete([metadata.name for metadata in found])
        for identity in sorted(path.name for path in (self.root / "work").iterdir()):
            # left by a run that was killed right after it wrote the manifest entry
            with suppress(StoreError):
                if self._find(identity) is not None:
                    if self._cache is not None:
                        self._cache.drop_work(self.root / "work" / identity)
                    shutil.rmtree(self.root / "work" / identity, ignore_errors=True)
        drop_leases(self.objects, leases)
        return dropped

    def publish(self, tmp: Path, reference: Reference) -> None:
        """Publish a complete folder of ``tmp``, including its digest list, as an artefact."""
        target = self.root / reference.path
        if self._cache is not None:
            self._cache.publish(tmp, target)
            return
        make_folder(target.parent)
        close_tree(tmp, self.root.stat().st_mode)
        for path in (tmp, *tmp.rglob("*")):
            sync_file(path)
        while True:
            try:
                os.rename(tmp, target)
                break
            except OSError:
                if not target.is_dir():
                    raise
            # another run published the same content first; it may have been damaged, or collected just now
            with suppress(FileNotFoundError):
                os.utime(target)
                if _is_whole(target):
                    break
                damaged = tmp.with_name(mark_draft("damaged"))
                os.rename(target, damaged)
                os.rename(tmp, target)
                shutil.rmtree(damaged, ignore_errors=True)
                break
        sync_file(target.parent)

    def drop(self, name: str, touched: int | None = None) -> int | None:
        """Delete a location, also from this machine's cache: see `Objects.drop`."""
        if self._cache is not None:
            draft = self.root / "tmp" / mark_draft("collected")
            with suppress(FileNotFoundError):
                os.rename(self.root / name, draft)
                shutil.rmtree(draft, ignore_errors=True)
        return self.objects.drop(name, touched)

    def _record(self, entry: Entry) -> None:
        self.objects.put(f"manifest/{entry.reference.identity}.json", seal(asdict(entry)))


def _is_left(draft: str, alive: set[str]) -> bool:
    """Whether a name is that of a draft whose process holds no lease."""
    holder = find_holder(draft)
    return holder is not None and holder not in alive


def identify(
    kind: str, inputs: Mapping[str, Reference], options: Mapping[str, Any], version: int
) -> str:
    """Identity of an artefact: SHA-256 of its kind, the digests of its inputs, its options and version."""
    digests = {role: reference.digest for role, reference in inputs.items()}
    text = json.dumps([kind, digests, options, version], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def number_inputs(role: str, references: Sequence[Reference]) -> dict[str, Reference]:
    """Number several inputs of one role, for `identify`."""
    return {f"{role} {index:05}": reference for index, reference in enumerate(references)}


def _is_whole(folder: Path) -> bool:
    """Whether an artefact is unchanged since it was published."""
    try:
        return not find_changes(folder) and not list_dropped(folder)
    except StoreError:
        return False
