"""Erasures of a store: salted digests of erased identifiers, and the artefacts that were replaced."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from pmflib.base.errors import PmfError, StoreError
from pmflib.base.json_records import from_json
from pmflib.base.texts import list_some
from pmflib.store.artefacts import Reference, Store, refuse_unwritable
from pmflib.store.file_digests import seal, unseal
from pmflib.store.leases import (
    LEASE_SECONDS,
    Lease,
    drop_leases,
    hold_lease,
    keep_touched,
    list_leases,
    read_store_clock,
)
from pmflib.store.objects.interface import ObjectChangedError
from pmflib.store.objects.local_folder import find_own_holder

ERASURES = "erasures.json"
"""File of a store with its erasures, if there are any."""
SALT_BYTES = 32
"""Length of the salt of a store, bytes."""
LOCK = "leases/lock"
"""Object in a bucket that exists while one process has exclusive access to the store."""
PURPOSE = "erase"
"""Purpose of the lease of an erasure."""

Erased: TypeAlias = Literal["samples", "workers"]
"""Kind of an erased identifier: a sample (in label logs, a task) or a worker."""


@dataclass(frozen=True)
class Replacement:
    """One artefact that an erasure replaced or deleted.

    Parameters
    ----------
    old
        The former artefact.
    new
        Its replacement, to which the history refers from now on; None if it has none.
    rows
        Number of rows of erased samples in the old artefact.
    deleted
        Whether the old artefact is deleted: it contained erased samples, or would reveal them in comparison with the
        new one.
    """

    old: Reference
    new: Reference | None
    rows: int
    deleted: bool


@dataclass
class Erasure:
    """One erasure, in progress or finished.

    Parameters
    ----------
    number
        Number of the erasure, from 1.
    started, ended
        Times in UTC, ISO 8601; ``ended`` is empty until it is finished.
    samples, found
        Salted digests of the requested identifiers, and of those found in the store.
    replaced
        Artefacts that it has replaced or deleted, or is about to delete.
    """

    number: int
    started: str
    ended: str = ""
    samples: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    replaced: list[Replacement] = field(default_factory=list)


@dataclass
class ErasureList:
    """List of all erasures of a store.

    Parameters
    ----------
    salt
        Salt of the digests, hexadecimal.
    samples
        Erased samples: for each salted digest of an identifier, its 64-bit hash XORed with the salt, both hexadecimal.
    erasures
        Erasures in order.
    workers
        Erased workers of label logs, as ``samples``.
    """

    salt: str
    samples: dict[str, str] = field(default_factory=dict)
    erasures: list[Erasure] = field(default_factory=list)
    workers: dict[str, str] = field(default_factory=dict)

    @property
    def unfinished(self) -> list[Erasure]:
        """Erasures that are not finished."""
        return [erasure for erasure in self.erasures if not erasure.ended]

    @property
    def mask(self) -> int:
        """Mask for hashes, so that the lists of different stores cannot be linked."""
        return int(self.salt[:16], 16)

    def choose(self, what: Erased) -> dict[str, str]:
        """Erased samples or erased workers."""
        return self.samples if what == "samples" else self.workers

    def add(self, digests: Iterable[str], hashes: Iterable[int], what: Erased = "samples") -> None:
        """Add samples or workers by the salted digests and the hashes of their identifiers."""
        for digest, value in zip(digests, hashes, strict=True):
            self.choose(what)[digest] = f"{value ^ self.mask:016x}"

    def list_hashes(self, what: Erased = "samples") -> list[int]:
        """64-bit hashes of the erased identifiers."""
        return [int(value, 16) ^ self.mask for value in self.choose(what).values()]

    def forward(self) -> dict[str, Reference]:
        """Final replacement of each replaced artefact, by identity."""
        steps = {
            each.old.identity: each.new
            for erasure in self.erasures
            for each in erasure.replaced
            if each.new is not None
        }
        ends = {}
        for identity, reference in steps.items():
            while reference.identity in steps and reference.identity != identity:
                reference = steps[reference.identity]
            ends[identity] = reference
        return ends

    def list_deleted(self) -> set[str]:
        """Identities of deleted artefacts."""
        replaced = (each for erasure in self.erasures for each in erasure.replaced)
        return {each.old.identity for each in replaced if each.deleted}


def read_erasures(store: Store) -> ErasureList | None:
    """Read the erasures of a store; None if there are none.

    Raises
    ------
    StoreError
        If the list is damaged: without it, the raw files would bring erased samples back.
    """
    if store.objects.lacks(ERASURES):
        return None
    try:
        found = from_json(ErasureList, unseal(store.objects.read(ERASURES)[0]))
        if len(bytes.fromhex(found.salt)) != SALT_BYTES:
            raise ValueError("its salt is incomplete")
        found.list_hashes()
        found.list_hashes("workers")
    except FileNotFoundError:
        return None
    except PmfError:
        raise
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{ERASURES} of store {store.name!r} is damaged ({error}); restore it from a copy of the store: "
            "without it, the raw files would bring erased samples back"
        ) from error
    return found


def new_list() -> ErasureList:
    """Make an empty list with a new salt."""
    return ErasureList(secrets.token_hex(SALT_BYTES))


def write_erasures(store: Store, erasures: ErasureList) -> None:
    """Write the list of a store durably."""
    with refuse_unwritable(store.root):
        store.objects.put(ERASURES, seal(asdict(erasures)))


def list_erased(store: Store) -> set[str]:
    """Identities of artefacts deleted by erasures; references to them are not damage."""
    erasures = read_erasures(store)
    return set() if erasures is None else erasures.list_deleted()


@contextmanager
def stay_alone(store: Store) -> Iterator[None]:
    """Hold exclusive access to a store inside the context.

    Raises
    ------
    StoreError
        If a run, a collection or another erasure is under way.
    """
    with _lock(store, fcntl.LOCK_EX, "something else is under way in it"):
        own = find_own_holder()
        drop_leases(store.objects, list_leases(store.objects))
        leases = [lease for lease in list_leases(store.objects) if lease.holder != own]
        # a killed erasure leaves its leases behind; this one continues it
        killed = {lease.holder for lease in leases if lease.purpose == PURPOSE}
        if at_work := [lease for lease in leases if lease.holder not in killed]:
            raise StoreError(_describe(store, at_work))
        store.objects.delete([f"leases/{lease.name}" for lease in leases])
        yield


@contextmanager
def keep_erasures_out(store: Store, known: str = "") -> Iterator[None]:
    """Keep erasures from starting in a store inside the context.

    Parameters
    ----------
    store
        The store.
    known
        Object of a bucket in which an earlier run saved what it read: see `Objects.remember`.

    Raises
    ------
    StoreError
        If an erasure is under way.
    """
    with _lock(store, fcntl.LOCK_SH, "samples are being erased from it", known):
        yield


@contextmanager
def _lock(store: Store, kind: int, problem: str, known: str = "") -> Iterator[None]:
    """Hold a lock on the manifest until the process ends; on file systems without locks, leases must suffice."""
    if store.is_bucket:
        with (
            _hold_alone(store, problem)
            if kind == fcntl.LOCK_EX
            else _hold_together(store, problem, known)
        ):
            yield
        return
    descriptor = os.open(store.root / "manifest", os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(
                f"store {store.name!r} is busy: {problem}; wait until it is done, then run this again"
            ) from error
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _hold_alone(store: Store, problem: str) -> Iterator[None]:
    """Hold the exclusive lock of a bucket: an object that one process creates, or takes over from one that has ended.

    Processes write a lease before they look for the lock, and the lock is written before its holder looks for leases:
    of two that start at once, at least one sees the other.
    """
    content = find_own_holder().encode()
    busy = StoreError(
        f"store {store.name!r} is busy: {problem}; wait until it is done, then run this again"
    )
    try:
        store.objects.create(LOCK, content)
    except FileExistsError:
        found = _read_lock(store)
        if found is not None and found[1] < LEASE_SECONDS:
            raise busy from None
        try:
            if found is None:
                store.objects.create(LOCK, content)
            else:
                store.objects.replace(LOCK, content, found[0])
        except (FileExistsError, ObjectChangedError, FileNotFoundError):
            raise busy from None
    with keep_touched(store.objects, LOCK, content):
        yield


@contextmanager
def _hold_together(store: Store, problem: str, known: str) -> Iterator[None]:
    """Hold a lease after checking that no process holds the exclusive lock of a bucket."""
    with (
        hold_lease(store.objects, "work"),
        store.objects.remember(known) if known else nullcontext(),
    ):
        found = None if store.objects.lacks(LOCK) else _read_lock(store)
        if found is not None and found[1] < LEASE_SECONDS:
            raise StoreError(
                f"store {store.name!r} is busy: {problem}; wait until it is done, then run this again"
            )
        yield


def _read_lock(store: Store) -> tuple[str, float] | None:
    """Tag and age, seconds, of the exclusive lock of a bucket; None if no process holds it."""
    try:
        _, tag = store.objects.read(LOCK)
    except FileNotFoundError:
        return None
    metadata = [each for each in store.objects.list_objects("leases") if each.name == LOCK]
    return (
        (tag, read_store_clock(store.objects, metadata) - metadata[0].touched) if metadata else None
    )


def _describe(store: Store, leases: Sequence[Lease]) -> str:
    named = [
        f"{lease}, last seen {lease.age:.0f} seconds ago (leases/{lease.name})" for lease in leases
    ]
    return (
        f"store {store.name!r} is in use: {list_some(named, between='; ')}; wait until it is done. If a process on "
        "another host or in another container has ended, delete its lease, then run this again"
    )
