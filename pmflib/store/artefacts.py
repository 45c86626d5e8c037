"""Artefacts: identity known before the work, published atomically, never changed after."""

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

from pmflib.core.errors import PmfError, StoreError
from pmflib.core.json_records import from_json
from pmflib.store.caches import LIST_FILE, StoreCache, open_cache
from pmflib.store.checkpoints import KIND_FILE, claim_work
from pmflib.store.file_digests import FOLDER_DIGITS, Digest, find_changes, seal, unseal, write_list
from pmflib.store.leases import drop_leases, find_own_lease, hold_lease, list_leases
from pmflib.store.objects.addresses import call_in_parallel, is_bucket, open_objects
from pmflib.store.objects.interface import Objects
from pmflib.store.objects.local_folder import (
    close_tree,
    find_holder,
    make_folder,
    make_root,
    mark_draft,
    sync_file,
)

SOURCE = "source"
"""Kind of a raw file, which is in the manifest and not in the store."""
Kind: TypeAlias = Annotated[str, re.compile(r"[a-z][a-z-]*")]
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
}


@contextmanager
def refuse_unwritable(folder: str | Path) -> Iterator[None]:
    """Raise a `StoreError` for a full disk or a missing permission: to run the stage again would not help."""
    try:
        yield
    except OSError as error:
        # a source that may not be read is another error: it is neither in the store nor above it
        here, path = Path(folder), Path(error.filename or folder)
        related = path.is_relative_to(here) or here.is_relative_to(path)
        if error.errno not in _UNWRITABLE or not related:
            raise
        if os.path.lexists(folder) and not _may_read(folder):
            raise StoreError(
                f"store {str(folder)!r} cannot be read ({error}): it is another user's, or its permissions are wrong; "
                "ask its owner for access (`chmod -R g+rX`), or run this as its owner"
            ) from error
        raise StoreError(
            f"store {str(folder)!r} cannot be written ({error}); make room or correct its permissions there, "
            "or set store.path to another location, then run again"
        ) from error


def _may_read(folder: str | Path) -> bool:
    by_effective_user = os.access in os.supports_effective_ids
    return os.access(folder, os.R_OK | os.X_OK, effective_ids=by_effective_user)


@dataclass(frozen=True)
class Reference:
    """Name of an artefact, which stages pass to each other in place of its content.

    Parameters
    ----------
    kind
        Kind of artefact: "source", "samples", "counts", "model", ...
    identity
        SHA-256 of (kind, digests of the inputs, options, version): known before the work.
    digest
        SHA-256 of the content.
    """

    kind: Kind
    identity: Digest
    digest: Digest

    @property
    def path(self) -> str:
        """Path relative to the store; empty for a raw source, which stays where it is.

        It follows from kind and digest, and is read from no file: what a manifest says cannot lead out of the store.
        """
        return "" if self.kind == SOURCE else f"{self.kind}/{self.digest[:FOLDER_DIGITS]}"


@dataclass(frozen=True)
class Entry:
    """One manifest entry: an artefact, what it was made from, and how.

    Parameters
    ----------
    reference
        The artefact.
    inputs
        Role and reference of everything it was made from: the edges of the lineage graph.
    options
        The options that matter for the content.
    version
        Version of the algorithm.
    summary
        What a user reads of it: row counts, log-likelihood, ...
    """

    reference: Reference
    inputs: dict[str, Reference]
    options: dict[str, Any]
    version: int
    summary: dict[str, Any] = field(default_factory=dict)

    def identify(self) -> str:
        """Identity that follows from kind, inputs, options and version."""
        options = self.options
        if self.reference.kind == SOURCE:
            options = {**options, "digest": self.reference.digest}
        return identify(self.reference.kind, self.inputs, options, self.version)


class Store:
    """A folder of artefacts and their manifest, or a prefix in a bucket.

    Layout: ``manifest/<identity>.json`` one entry each, replaced atomically, its time that of its last use, or in a
    bucket of its writing; ``<kind>/<digest>/`` the content; ``work/<identity>/`` checkpoints of work under way;
    ``tmp/`` what is being written; ``leases/`` who is at work. In a bucket the names are the same, below its prefix; an
    artefact is there as soon as its list of digests is, which is written last, and nothing is ever renamed. What is
    read, and what is being written, is in a cache on this machine.

    Parameters
    ----------
    root
        The folder, made if absent; or ``s3://bucket/prefix``, which answers when something is first read.

    Attributes
    ----------
    root
        The folder; of a store in a bucket, this machine's cache, in which a file may not be there yet.
    objects
        What is kept besides artefacts.
    name
        For people: the folder as it was given, or the URL.
    address
        For workers: the folder, absolute, or the URL.

    Raises
    ------
    ConfigError
        If the URL is none of a store.
    StoreError
        If it cannot be made; its methods raise one if it cannot be written, with nothing half-published.
    """

    def __init__(self, root: str | Path) -> None:
        self.objects: Objects = open_objects(root)
        self.address = self.objects.address
        self._cache: StoreCache | None = None
        if is_bucket(root):
            self.name = self.address
            self._cache = open_cache(self.address)
            self.root = self._cache.root
            return
        self.root = Path(root)
        self.name = str(self.root)
        with refuse_unwritable(self.root):
            if (self.root / "runs").is_dir() and not (self.root / "manifest").is_dir():
                # an empty one would answer as if nothing were known of what the records name
                raise StoreError(
                    f"store {self.name!r} has records of runs, and has lost its folder 'manifest'; take it from a "
                    "copy of the store. Without one, make the folder, empty: the next run writes the entries of what "
                    "it makes anew, and until then no question is answered"
                )
            make_root(self.root)
            for name in ("manifest", "tmp", "work", "leases"):
                make_folder(self.root / name)

    @property
    def is_bucket(self) -> bool:
        """Whether the store is in a bucket, and its folder a cache."""
        return self._cache is not None

    def name_artefact(self, reference: Reference, *parts: str) -> str:
        """Path or URL of an artefact, or of a file of it, for people; `find_local_path` finds it."""
        return "/".join((self.name, reference.path, *parts))

    def address_artefact(self, reference: Reference) -> str:
        """Address of an artefact for workers, which `find_local_path` finds there; in a bucket it is not asked for.

        Raises
        ------
        StoreError
            If it is not in the store, of a store on a disk.
        """
        return (
            f"{self.address}/{reference.path}"
            if self.is_bucket
            else str(self.locate(reference).resolve())
        )

    def locate(self, reference: Reference) -> Path:
        """Folder of an artefact; of a store in a bucket, one of the cache: see `fetch_all` and its neighbours.

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
        """Folders of many artefacts: see `locate`; a bucket is asked for them side by side."""
        if self.is_bucket:
            return call_in_parallel(self.locate, references)
        return [self.locate(reference) for reference in references]

    def _holds(self, path: Path) -> bool:
        return path.exists() if self._cache is None else self._cache.fetch_list(path)

    def find(self, identity: str) -> Entry | None:
        """Entry of an identity, which is used now; None if it was never published, or its content is gone.

        Raises
        ------
        StoreError
            If the entry does not read, or has been edited.
        """
        if self._cache is None:
            # who clears up sees when it was last used; a store that may only be read needs no such note
            with suppress(OSError):
                os.utime(self.root / "manifest" / f"{identity}.json")
        return self._find(identity)

    def find_before(self, identity: str) -> Entry | None:
        """Find an entry before the work that would make it: see `find`.

        In a bucket, what another machine has published in the last half minute may be missed: it is made once more.
        """
        return None if self.objects.lacks(f"manifest/{identity}.json") else self.find(identity)

    def read_entry(self, identity: str) -> Entry | None:
        """Entry of an identity as the manifest has it, whether its content is there or not; it is not used by that.

        Raises
        ------
        StoreError
            If it does not read, or is not what was written: one that was edited, or whose identity does not follow from
            its kind, inputs, options and version.
        """
        name = f"manifest/{identity}.json"
        try:
            entry = from_json(Entry, unseal(self.objects.read(name)[0]))
            if not identity == entry.reference.identity == entry.identify():
                raise ValueError("its identity is not that of its kind, inputs, options, version")
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
        # also where the cache has it: a person may have deleted it to have it built again
        return entry if self.objects.exists(f"{entry.reference.path}/{LIST_FILE}") else None

    def list_identities(self) -> list[str]:
        """Identities of all entries, in order, whether they read or not."""
        names = (Path(metadata.name) for metadata in self.objects.list_objects("manifest"))
        return sorted(name.stem for name in names if name.suffix == ".json")

    def entries(self) -> Iterator[Entry]:
        """All entries, in order of identity."""
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
        """Return the artefact of an identity; do the work only if the manifest does not have it.

        Parameters
        ----------
        kind
            Kind of artefact; also the folder it goes to.
        inputs
            Artefacts that it is made from, by role.
        options
            Plain JSON types: every option that changes the content, and no other.
        version
            Version of the algorithm; raise it when the same inputs give other bits.
        write
            Called with an empty folder to fill, and a folder for checkpoints that outlives a killed run and is gone
            once the artefact is published; of runs that build it at once, each has its own. Returns the summary. It
            must be deterministic: equal identity, equal bytes, with checkpoints or without.

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
        """Enter an artefact that is in the store under the identity that other inputs or options give its content.

        Parameters
        ----------
        entry
            The entry, with the new inputs and options; its identity is replaced.
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
        """Enter a raw file in the manifest: it stays where it is, its bytes are named by their digest."""
        identity = identify(SOURCE, {}, {"name": name, "digest": digest}, 1)
        entry = Entry(Reference(SOURCE, identity, digest), {}, {"name": name}, 1, dict(summary))
        with refuse_unwritable(self.root), hold_lease(self.objects, f"record of {SOURCE}"):
            self._record(entry)
        return entry

    def drop_leftovers(self) -> int:
        """Delete drafts whose lease is over or gone, for their processes have ended, and checkpoints of published work.

        Returns
        -------
        The number of drafts.
        """
        drafts = [
            *(self.root / "tmp").iterdir(),
            *(self.root / "manifest").glob(".*"),
            *(self.root / "runs").glob("*/.*"),
        ]
        # what workers have written for a stage
        looks_there = self.is_bucket and not self.objects.lacks("tmp")
        received = self.objects.list_folders("tmp") if looks_there else []
        if (
            not drafts
            and not received
            and self.objects.lacks("leases", find_own_lease(self.objects))
        ):
            return 0
        # after the drafts: a lease is there before its drafts and until they are gone
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
            # a run that was killed between the manifest entry and its last line left them
            with suppress(StoreError):
                if self._find(identity) is not None:
                    if self._cache is not None:
                        self._cache.drop_work(self.root / "work" / identity)
                    shutil.rmtree(self.root / "work" / identity, ignore_errors=True)
        drop_leases(self.objects, leases)
        return dropped

    def publish(self, tmp: Path, reference: Reference) -> None:
        """Publish a folder of ``tmp`` that is complete, its list of digests included, as an artefact."""
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
            # another run published the same content first: names are digests, so this is the same, unless damaged
            # since. Who clears up sees that it is used again, or has taken it away just now
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

    def _record(self, entry: Entry) -> None:
        self.objects.put(f"manifest/{entry.reference.identity}.json", seal(asdict(entry)))


def _is_left(draft: str, alive: set[str]) -> bool:
    """Whether something is a draft, and of no process that holds a lease."""
    holder = find_holder(draft)
    return holder is not None and holder not in alive


def identify(
    kind: str, inputs: Mapping[str, Reference], options: Mapping[str, Any], version: int
) -> str:
    """Identity of an artefact that is yet to be made: SHA-256 over its kind, inputs' digests, options and version."""
    digests = {role: reference.digest for role, reference in inputs.items()}
    text = json.dumps([kind, digests, options, version], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def number_inputs(role: str, references: Sequence[Reference]) -> dict[str, Reference]:
    """Inputs of one role by role and index, as `identify` takes them."""
    return {f"{role} {index:05}": reference for index, reference in enumerate(references)}


def _is_whole(folder: Path) -> bool:
    """Whether an artefact still holds what it was published with."""
    try:
        return not find_changes(folder)
    except StoreError:
        return False
