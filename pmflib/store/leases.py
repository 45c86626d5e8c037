"""Leases: objects that processes keep touching while they work in a store.

They keep an erasure, and a collection in a bucket, from starting meanwhile, however long the work takes, and tell
drafts of processes that were killed from those of others.
"""

from __future__ import annotations

import json
import os
import platform
import re
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pmflib.base.errors import PmfError, StoreWarning
from pmflib.base.texts import list_some
from pmflib.store.objects.interface import ObjectMetadata, Objects, call_in_parallel
from pmflib.store.objects.local_folder import find_own_holder

LEASE_SECONDS = 15 * 60.0
"""Time after the last touch at which a lease expires, seconds. It allows for processes that are suspended or wait for a
network file system."""
HEARTBEAT_SECONDS = 30.0
"""Time between touches, seconds."""
_LEASE = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}")
FOLDER = "leases"
"""Folder of a store for leases."""


@dataclass(frozen=True)
class Lease:
    """Claim of a process that it works in a store.

    Parameters
    ----------
    name
        File name of the lease.
    purpose
        Description for people; "" if the lease cannot be read.
    host, process
        Host name and process id, for people.
    age
        Seconds since the last touch, by the same clock.
    has_ended
        Whether its process is known to have ended: it ran on this host and in this container, or a power failure has
        emptied the lease.
    """

    name: str
    purpose: str
    host: str
    process: int
    age: float
    has_ended: bool = False

    @property
    def holder(self) -> str:
        """Random name of the process, which also marks its drafts."""
        return self.name.partition("-")[0]

    @property
    def is_alive(self) -> bool:
        """Whether the process may still be at work."""
        return self.age < LEASE_SECONDS and not self.has_ended

    def __str__(self) -> str:
        return f"{self.purpose or 'unknown work'}, process {self.process} on {self.host or 'an unknown host'}"


@contextmanager
def hold_lease(objects: Objects, purpose: str) -> Iterator[None]:
    """Hold a lease on a store inside the context; a thread touches it every ``HEARTBEAT_SECONDS``.

    Parameters
    ----------
    objects
        Object store.
    purpose
        Description for people.
    """
    name = _renewal.start(objects, purpose)
    try:
        yield
    finally:
        _renewal.stop(objects, name)


def find_own_lease(objects: Objects) -> str | None:
    """Name of a lease that this process holds in a store; None if it holds none."""
    return _renewal.find(objects)


@contextmanager
def keep_touched(objects: Objects, name: str, content: bytes) -> Iterator[None]:
    """Keep touching an existing object like a lease, and delete it afterwards."""
    _renewal.hold(objects, name, content)
    try:
        yield
    finally:
        _renewal.stop(objects, name)


def list_leases(objects: Objects) -> list[Lease]:
    """List the leases of a store, oldest touch first, including expired ones that were not deleted yet."""
    # ages are by the clock of the file system or server, whichever hosts touch the leases
    known = [
        metadata
        for metadata in objects.list_objects(FOLDER)
        if is_lease(metadata.name.rpartition("/")[2])
    ]
    # the ages of our own leases do not matter, and in a bucket the clock costs requests
    others = [metadata for metadata in known if not _renewal.read(objects, metadata.name)]
    newest = max((metadata.touched for metadata in known), default=0.0)
    now = read_store_clock(objects, known) if others else newest
    found = call_in_parallel(lambda metadata: _read_lease(objects, metadata, now), known)
    return sorted((lease for lease in found if lease), key=lambda lease: -lease.age)


def read_store_clock(objects: Objects, known: Sequence[ObjectMetadata] = ()) -> float:
    """Time by the clock of a store; if it is read-only, the time of its newest known object."""
    newest = max((metadata.touched for metadata in known), default=0.0)
    try:
        return max(newest, objects.read_clock())
    except (PmfError, OSError):
        if not known:
            raise
        # in a read-only store, a lower bound
        return newest


def drop_leases(objects: Objects, leases: Sequence[Lease]) -> None:
    """Delete expired leases; a `StoreWarning` names processes that were killed."""
    over = [lease for lease in leases if not lease.is_alive]
    objects.delete([f"{FOLDER}/{lease.name}" for lease in over])
    if ended := [str(lease) for lease in over if lease.has_ended]:
        warnings.warn(
            f"leases of work that was killed are dropped: {list_some(ended, between='; ')}",
            StoreWarning,
            stacklevel=2,
        )


def is_lease(name: str) -> bool:
    """Whether a file name is the name of a lease."""
    return _LEASE.fullmatch(name) is not None


def _is_lease_name(name: str) -> bool:
    return is_lease(name.rpartition("/")[2])


def _read_lease(objects: Objects, metadata: ObjectMetadata, now: float) -> Lease | None:
    name, touched = metadata.name.rpartition("/")[2], metadata.touched
    written = b""
    try:
        written = _renewal.read(objects, metadata.name) or objects.read(metadata.name)[0]
        content = json.loads(written)
        return Lease(
            name,
            str(content["purpose"]),
            str(content["host"]),
            int(content["process"]),
            now - touched,
            _has_ended(content),
        )
    except FileNotFoundError:
        # it has just been deleted
        return None
    except PmfError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        # it was edited: only its age counts; or a power failure has emptied it, and with it ended its process
        return Lease(name, "", "", 0, now - touched, not written.strip(b"\0"))


def _has_ended(content: Mapping[str, object]) -> bool:
    """Whether the process of a lease ran on this host and in this container, and is gone; False if unknown."""
    space = find_process_space()
    if not space or content.get("space") != space:
        return False
    return _find_birth(str(content["process"])) != content.get("birth")


def find_process_space() -> str:
    """Name of the boot and the container that process ids belong to; "" if it cannot be determined."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            # the container sees the processes of its host
            return ""
        start = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{start} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _find_birth(process: str) -> str:
    """Start time of a process in clock ticks, which tells processes with the same id apart; "" if it is gone."""
    try:
        # its name, in brackets, may contain anything
        after = Path(f"/proc/{int(process)}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    # zombies have ended
    return "" if after[0] in (b"Z", b"X") else after[19].decode()


@dataclass
class _OwnLease:
    """A lease of this process, with its content and number of users."""

    objects: Objects
    content: bytes
    users: int = 1


class _LeaseRenewal:
    """Touches the leases of this process.

    In a bucket, concurrent work of a process shares one lease, with the purpose of the first.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._leases: dict[tuple[str, str], _OwnLease] = {}
        self._thread: threading.Thread | None = None

    def start(self, objects: Objects, purpose: str) -> str:
        with self._condition:
            for (address, name), lease in self._leases.items():
                shares = not objects.lists_cheaply and _is_lease_name(name)
                if address == objects.address and shares:
                    lease.users += 1
                    return name
        name = f"{FOLDER}/{find_own_holder()}-{uuid.uuid4().hex[:8]}"
        written = {
            "purpose": purpose,
            "host": platform.node(),
            "process": os.getpid(),
            "birth": _find_birth(str(os.getpid())),
            "space": find_process_space(),
        }
        content = json.dumps(written, sort_keys=True, ensure_ascii=False).encode()
        objects.touch(name, content)
        self.hold(objects, name, content)
        return name

    def hold(self, objects: Objects, name: str, content: bytes) -> None:
        with self._condition:
            self._leases[objects.address, name] = _OwnLease(objects, content)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._touch_all, name="pmf-leases", daemon=True
                )
                self._thread.start()

    def find(self, objects: Objects) -> str | None:
        with self._condition:
            names = [name for address, name in self._leases if address == objects.address]
        return next(filter(_is_lease_name, names), None)

    def read(self, objects: Objects, name: str) -> bytes:
        """Content of a lease of this process in a bucket; b"" for any other lease."""
        if objects.lists_cheaply:
            return b""
        with self._condition:
            lease = self._leases.get((objects.address, name))
        return b"" if lease is None else lease.content

    def stop(self, objects: Objects, name: str) -> None:
        with self._condition:
            lease = self._leases.get((objects.address, name))
            if lease is not None:
                lease.users -= 1
                if lease.users:
                    return
            self._leases.pop((objects.address, name), None)
            self._condition.notify()
        with suppress(OSError, PmfError):
            objects.delete([name])

    def _touch_all(self) -> None:
        with self._condition:
            due = time.monotonic() + HEARTBEAT_SECONDS
            while self._leases:
                self._condition.wait(max(0.0, due - time.monotonic()))
                if time.monotonic() < due:
                    # a lease was released: the others are not due yet
                    continue
                due = time.monotonic() + HEARTBEAT_SECONDS
                for (_, name), lease in self._leases.items():
                    # a full disk or a lost connection is reported by the work itself
                    with suppress(OSError, PmfError):
                        lease.objects.touch(name, lease.content)
            self._thread = None


_renewal = _LeaseRenewal()


def _renew() -> None:
    """Give a forked process its own leases; its parent keeps touching the others."""
    global _renewal
    _renewal = _LeaseRenewal()


os.register_at_fork(after_in_child=_renew)
