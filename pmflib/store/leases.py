"""Leases: files that say which processes work in a store, kept young for as long as they do."""

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

from pmflib.core.errors import PmfError, StoreWarning
from pmflib.core.texts import list_some
from pmflib.store.objects.addresses import call_in_parallel
from pmflib.store.objects.interface import ObjectMetadata, Objects
from pmflib.store.objects.local_folder import find_own_holder

LEASE_SECONDS = 15 * 60.0
"""Age from which a lease is over, seconds since it was last touched: a process that sleeps or waits for a network file
system for less is not taken for a dead one."""
HEARTBEAT_SECONDS = 30.0
"""Time between touches, seconds."""
_LEASE = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}")
FOLDER = "leases"
"""Folder of a store with an object for each lease."""


@dataclass(frozen=True)
class Lease:
    """What a process does in a store.

    Parameters
    ----------
    name
        Name of its file.
    purpose
        What is being done, for people; "" where the lease was written only in part.
    host, process
        Name of the machine and process id, for people.
    started
        When it was taken, seconds since 1970 by the clock of the store's file system or server, as the times of its
        files are.
    age
        Seconds since it was last touched, by the same clock.
    has_ended
        Whether its process ran on this host, in this container, and is gone: it was killed.
    """

    name: str
    purpose: str
    host: str
    process: int
    started: float
    age: float
    has_ended: bool = False

    @property
    def holder(self) -> str:
        """Random name of the process, which its drafts carry: process ids mean nothing in another container or host."""
        return self.name.partition("-")[0]

    @property
    def is_alive(self) -> bool:
        """Whether its process still works in the store, for all that is known."""
        return self.age < LEASE_SECONDS and not self.has_ended

    def __str__(self) -> str:
        return f"{self.purpose or 'unknown work'}, process {self.process} on {self.host or 'an unknown host'}"


@contextmanager
def hold_lease(objects: Objects, purpose: str) -> Iterator[None]:
    """Hold a lease on a store: it is touched every ``HEARTBEAT_SECONDS`` by a thread, and gone afterwards.

    Parameters
    ----------
    objects
        Objects of the store that is worked in.
    purpose
        What is being done, for people.
    """
    name = _heart.start(objects, purpose)
    try:
        yield
    finally:
        _heart.stop(objects, name)


def find_own_lease(objects: Objects) -> str | None:
    """Name of a lease that this process holds in a store; None without one."""
    return _heart.find(objects)


@contextmanager
def keep_touched(objects: Objects, name: str, content: bytes) -> Iterator[None]:
    """Touch an object that is there as leases are, and delete it afterwards."""
    _heart.hold(objects, name, content)
    try:
        yield
    finally:
        _heart.stop(objects, name)


def list_leases(objects: Objects) -> list[Lease]:
    """All leases of a store, in order of their start; those that are over are listed until leftovers are dropped."""
    # ages by one clock, whichever hosts touch the leases: that of the file system or server, which sets their times
    known = [
        metadata
        for metadata in objects.list_objects(FOLDER)
        if is_lease(metadata.name.rpartition("/")[2])
    ]
    # nobody asks how old those of this process are: in a bucket, the clock costs requests
    others = [metadata for metadata in known if not _heart.read(objects, metadata.name)]
    newest = max((metadata.touched for metadata in known), default=0.0)
    now = read_store_clock(objects, known) if others else newest
    found = call_in_parallel(lambda metadata: _read_lease(objects, metadata, now), known)
    return sorted((lease for lease in found if lease), key=lambda lease: lease.started)


def read_store_clock(objects: Objects, known: Sequence[ObjectMetadata] = ()) -> float:
    """Time by the clock of a store; where nothing may be written, no earlier than the newest of some objects."""
    newest = max((metadata.touched for metadata in known), default=0.0)
    try:
        return max(newest, objects.read_clock())
    except (PmfError, OSError):
        if not known:
            raise
        # in a store that may only be read they are at least so old
        return newest


def drop_leases(objects: Objects, leases: Sequence[Lease]) -> None:
    """Delete those of some leases that are over; a `StoreWarning` names processes that ended and did not do so."""
    over = [lease for lease in leases if not lease.is_alive]
    objects.delete([f"{FOLDER}/{lease.name}" for lease in over])
    if ended := [str(lease) for lease in over if lease.has_ended]:
        warnings.warn(
            f"leases of work that was killed are dropped: {list_some(ended, between='; ')}",
            StoreWarning,
            stacklevel=2,
        )


def is_lease(name: str) -> bool:
    """Whether a file name is that of a lease."""
    return _LEASE.fullmatch(name) is not None


def _is_lease_name(name: str) -> bool:
    return is_lease(name.rpartition("/")[2])


def _read_lease(objects: Objects, metadata: ObjectMetadata, now: float) -> Lease | None:
    name, touched = metadata.name.rpartition("/")[2], metadata.touched
    try:
        own = _heart.read(objects, metadata.name)
        content = json.loads(own or objects.read(metadata.name)[0])
        return Lease(
            name,
            str(content["purpose"]),
            str(content["host"]),
            int(content["process"]),
            float(content.get("started", touched)),
            now - touched,
            _has_ended(content),
        )
    except FileNotFoundError:
        # one that is gone by now is over
        return None
    except PmfError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        # it is being written, or was changed by hand: its age counts all the same
        return Lease(name, "", "", 0, touched, now - touched)


def _has_ended(content: Mapping[str, object]) -> bool:
    """Whether the process of a lease ran beside this one, and is gone; what cannot be known is not taken for so."""
    space = find_process_space()
    if not space or content.get("space") != space:
        return False
    return _find_birth(str(content["process"])) != content.get("birth")


def find_process_space() -> str:
    """Name of what process ids belong to: this start of this machine, and container; "" where it has no such name."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            # a container that sees the processes of its host
            return ""
        start = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{start} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _find_birth(process: str) -> str:
    """When a process was born, in the ticks of Linux, so that another of its number is not taken for it; "" if gone."""
    try:
        # its name, in brackets, may hold anything
        after = Path(f"/proc/{int(process)}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    # a zombie has ended: nobody has asked yet how
    return "" if after[0] in (b"Z", b"X") else after[19].decode()


@dataclass
class _OwnLease:
    """A lease of this process: where it is, what it says, and how many hold it."""

    objects: Objects
    content: bytes
    held: float
    users: int = 1

    def touch(self, name: str) -> None:
        """Set its time; from the first time on it says when it was taken, which its own time was until then."""
        if _is_lease_name(name) and b'"started"' not in self.content:
            started = self.objects.read_clock() - (time.monotonic() - self.held)
            written = {**json.loads(self.content), "started": started}
            self.content = json.dumps(written, sort_keys=True, ensure_ascii=False).encode()
        self.objects.touch(name, self.content)


class _Heart:
    """Touches the leases of this process.

    In a bucket, whatever a process does side by side shares one lease, which has the purpose of the first.
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
        written: dict[str, object] = {
            "purpose": purpose,
            "host": platform.node(),
            "process": os.getpid(),
            "birth": _find_birth(str(os.getpid())),
            "space": find_process_space(),
        }
        if objects.lists_cheaply:
            written["started"] = objects.read_clock()
        content = json.dumps(written, sort_keys=True, ensure_ascii=False).encode()
        objects.touch(name, content)
        self.hold(objects, name, content)
        return name

    def hold(self, objects: Objects, name: str, content: bytes) -> None:
        with self._condition:
            self._leases[objects.address, name] = _OwnLease(objects, content, time.monotonic())
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
        """What a lease of this process says; b"" of another, and where it costs nothing to look."""
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
                    # a lease has ended: the others are young enough
                    continue
                due = time.monotonic() + HEARTBEAT_SECONDS
                for (_, name), lease in self._leases.items():
                    # a disk that is full, or gone for a while, is for the work itself to report
                    with suppress(OSError, PmfError):
                        lease.touch(name)
            self._thread = None


_heart = _Heart()


def _renew() -> None:
    """Give a forked process leases of its own; its parent touches those that it had before."""
    global _heart
    _heart = _Heart()


os.register_at_fork(after_in_child=_renew)
