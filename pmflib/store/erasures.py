"""What was erased from a store: digests of identifiers, never the identifiers, and what took the place of artefacts."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from pmflib.core.errors import PmfError, StoreError
from pmflib.core.json_records import from_json
from pmflib.core.texts import list_some
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
"""File of a store with its erasures; a store from which nothing was erased has none."""
SALT_BYTES = 32
"""Bytes of the salt of a store: nobody has tables of digests for it."""
LOCK = "leases/lock"
"""Object of a store in a bucket that is there while one process is to be alone in it."""
PURPOSE = "erase"
"""Purpose of the lease of an erasure."""

Erased: TypeAlias = Literal["samples", "workers"]
"""What an identifier is of: a sample, which is a task of a label log, or a worker of one."""


@dataclass(frozen=True)
class Replacement:
    """One artefact that an erasure took out of a store, or out of use.

    Parameters
    ----------
    old
        What there was.
    new
        What the history refers to from now on; None where there is nothing in its place.
    rows
        Rows of erased samples that the old one held.
    deleted
        Whether the old one is deleted: it held erased samples, or would reveal them beside the new one.
    """

    old: Reference
    new: Reference | None
    rows: int
    deleted: bool


@dataclass
class Erasure:
    """One erasure, under way or done.

    Parameters
    ----------
    number
        Its number, from 1.
    started, ended
        Times in UTC, ISO 8601; the second is empty until it is done.
    samples, found
        Salted digests of the identifiers that it was asked to erase, and of those that the store held.
    replaced
        What it has replaced and deleted, and is yet to delete.
    """

    number: int
    started: str
    ended: str = ""
    samples: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    replaced: list[Replacement] = field(default_factory=list)


@dataclass
class ErasureList:
    """All erasures of a store.

    Parameters
    ----------
    salt
        Salt of the digests, hexadecimal.
    samples
        For each erased identifier its salted digest, and its 64-bit hash combined with the salt by exclusive or, both
        hexadecimal.
    erasures
        In order.
    workers
        The same as ``samples`` for erased workers of label logs.
    """

    salt: str
    samples: dict[str, str] = field(default_factory=dict)
    erasures: list[Erasure] = field(default_factory=list)
    workers: dict[str, str] = field(default_factory=dict)

    @property
    def unfinished(self) -> list[Erasure]:
        """Erasures that were not done to their end."""
        return [erasure for erasure in self.erasures if not erasure.ended]

    @property
    def mask(self) -> int:
        """What hashes are combined with, so that lists of different stores have nothing in common."""
        return int(self.salt[:16], 16)

    def choose(self, what: Erased) -> dict[str, str]:
        """Erased samples, or erased workers: what there is of each identifier."""
        return self.samples if what == "samples" else self.workers

    def add(self, digests: Iterable[str], hashes: Iterable[int], what: Erased = "samples") -> None:
        """Add samples or workers: the salted digests of their identifiers, and the hashes of these."""
        for digest, value in zip(digests, hashes, strict=True):
            self.choose(what)[digest] = f"{value ^ self.mask:016x}"

    def list_hashes(self, what: Erased = "samples") -> list[int]:
        """64-bit hashes of the erased identifiers."""
        return [int(value, 16) ^ self.mask for value in self.choose(what).values()]

    def forward(self) -> dict[str, Reference]:
        """What took the place of each artefact, by identity, through all erasures."""
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
        """Identities of the artefacts that erasures deleted."""
        replaced = (each for erasure in self.erasures for each in erasure.replaced)
        return {each.old.identity for each in replaced if each.deleted}


def read_erasures(store: Store) -> ErasureList | None:
    """Read the erasures of a store; None if there never was one.

    Raises
    ------
    StoreError
        If the list is damaged: without it, raw files would bring back whom they still hold.
    """
    if store.objects.lacks(ERASURES):
        return None
    try:
        found = from_json(ErasureList, unseal(store.objects.read(ERASURES)[0]))
        if len(bytes.fromhex(found.salt)) != SALT_BYTES:
            raise ValueError("its salt was cut short")
        found.list_hashes()
        found.list_hashes("workers")
    except FileNotFoundError:
        return None
    except PmfError:
        raise
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{ERASURES} of store {store.name!r} is damaged ({error}); take it from a copy of the store: without "
            "it, raw files would bring back the samples that were erased"
        ) from error
    return found


def new_list() -> ErasureList:
    """Make an empty list with a salt of its own."""
    return ErasureList(secrets.token_hex(SALT_BYTES))


def write_erasures(store: Store, erasures: ErasureList) -> None:
    """Replace the list of a store; it survives a loss of power from then on."""
    with refuse_unwritable(store.root):
        store.objects.put(ERASURES, seal(asdict(erasures)))


def list_erased(store: Store) -> set[str]:
    """Identities of the artefacts that erasures deleted: what refers to them is not broken."""
    erasures = read_erasures(store)
    return set() if erasures is None else erasures.list_deleted()


@contextmanager
def stay_alone(store: Store) -> Iterator[None]:
    """Keep runs, collections and other erasures out of a store while the context lasts.

    Raises
    ------
    StoreError
        If one of them is under way.
    """
    with _lock(store, fcntl.LOCK_EX, "something else is under way in it"):
        own = find_own_holder()
        drop_leases(store.objects, list_leases(store.objects))
        leases = [lease for lease in list_leases(store.objects) if lease.holder != own]
        # an erasure that was killed leaves leases behind; this one is alone, and goes on with it
        killed = {lease.holder for lease in leases if lease.purpose == PURPOSE}
        if at_work := [lease for lease in leases if lease.holder not in killed]:
            raise StoreError(_describe(store, at_work))
        store.objects.delete([f"leases/{lease.name}" for lease in leases])
        yield


@contextmanager
def keep_erasures_out(store: Store, known: str = "") -> Iterator[None]:
    """Let no erasure begin in a store while the context lasts.

    Parameters
    ----------
    store
        The store.
    known
        Object of a bucket that has what an earlier run knew of it, for one that begins now: see `Objects.remember`.

    Raises
    ------
    StoreError
        If one is under way.
    """
    with _lock(store, fcntl.LOCK_SH, "samples are being erased from it", known):
        yield


@contextmanager
def _lock(store: Store, kind: int, problem: str, known: str = "") -> Iterator[None]:
    """Hold a lock on the manifest, which ends with the process; on file systems without locks, leases must do."""
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
    """Hold the lock of a bucket: an object that one process creates, or takes over from one that has ended.

    Whoever works in the store puts a lease there before it looks for this object, and whoever is to be alone looks for
    leases after it has made it: of two that begin at once, at least one sees the other.
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
    """Hold a lease, and see that nobody holds the lock of a bucket."""
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
    """Tag of the lock of a bucket, and its age, seconds; None if nobody holds it."""
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
        f"store {store.name!r} is in use: {list_some(named, between='; ')}; wait until it is done. Of processes that "
        "have ended, on other hosts or in other containers, delete the leases, then run this again"
    )
