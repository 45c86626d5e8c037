"""Leases: files that say which processes work in a store, kept young for as long as they do."""

from __future__ import annotations

import json
import os
import platform
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pmflib.store.private_files import make_folder, write_file

if TYPE_CHECKING:
    from pmflib.store.artefacts import Store

LEASE_SECONDS = 15 * 60.0
"""Age from which a lease is over, seconds since it was last touched: a process that sleeps or waits for a network file
system for less is not taken for a dead one."""
HEARTBEAT_SECONDS = 30.0
"""Time between touches, seconds."""
_LEASE = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}")
_DRAFT = re.compile(r".+-([0-9a-f]{32})-[0-9a-f]{8}")


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
        When it was taken, seconds since 1970 by the clock of the store's file system, as the times of its files are.
    age
        Seconds since it was last touched, by the same clock.
    """

    name: str
    purpose: str
    host: str
    process: int
    started: float
    age: float

    @property
    def holder(self) -> str:
        """Random name of the process, which its drafts carry: process ids mean nothing in another container or host."""
        return self.name.partition("-")[0]

    @property
    def is_alive(self) -> bool:
        """Whether its process still works in the store, for all that is known."""
        return self.age < LEASE_SECONDS


@contextmanager
def hold_lease(store: Store, purpose: str) -> Iterator[None]:
    """Hold a lease on a store: it is touched every ``HEARTBEAT_SECONDS`` by a thread, and gone afterwards.

    Parameters
    ----------
    store
        The store that is worked in.
    purpose
        What is being done, for people.
    """
    path = _heart.start(store.root.resolve() / "leases", purpose)
    try:
        yield
    finally:
        _heart.stop(path)


def list_leases(store: Store) -> list[Lease]:
    """All leases of a store, in order of their start; those that are over are listed until leftovers are dropped."""
    folder = store.root / "leases"
    # ages by one clock, whichever hosts touch the leases: that of the file system, which sets this time; in a store
    # that may only be read they are at least so old
    with suppress(OSError):
        os.utime(folder)
    now = folder.stat().st_mtime
    found = []
    for path in folder.iterdir():
        if is_lease(path.name):
            # one that is gone by now is over
            with suppress(FileNotFoundError):
                found.append(_read_lease(path, now))
    return sorted(found, key=lambda lease: lease.started)


def drop_leases(store: Store) -> None:
    """Delete the leases that are over."""
    for lease in list_leases(store):
        if not lease.is_alive:
            (store.root / "leases" / lease.name).unlink(missing_ok=True)


def mark_draft(name: str) -> str:
    """Name of a draft, which holds the name of its process and a random part."""
    return f"{name}-{_heart.holder}-{uuid.uuid4().hex[:8]}"


def find_holder(draft: str) -> str | None:
    """Name of the process whose draft has a name; None for what is no draft."""
    parts = _DRAFT.fullmatch(draft)
    return None if parts is None else parts[1]


def is_lease(name: str) -> bool:
    """Whether a file name is that of a lease."""
    return _LEASE.fullmatch(name) is not None


def _read_lease(path: Path, now: float) -> Lease:
    touched = path.stat().st_mtime
    try:
        content = json.loads(path.read_bytes())
        return Lease(
            path.name,
            str(content["purpose"]),
            str(content["host"]),
            int(content["process"]),
            float(content["started"]),
            now - touched,
        )
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        # it is being written, or was changed by hand: its age counts all the same
        return Lease(path.name, "", "", 0, touched, now - touched)


class _Heart:
    """Touches the leases of this process."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._held: dict[Path, bytes] = {}
        self._thread: threading.Thread | None = None
        self.holder = uuid.uuid4().hex

    def start(self, folder: Path, purpose: str) -> Path:
        make_folder(folder)
        path = folder / f"{self.holder}-{uuid.uuid4().hex[:8]}"
        write_file(path, b"")
        facts = {
            "purpose": purpose,
            "host": platform.node(),
            "process": os.getpid(),
            "started": path.stat().st_mtime,
        }
        content = json.dumps(facts, sort_keys=True, ensure_ascii=False).encode()
        path.write_bytes(content)
        with self._condition:
            self._held[path] = content
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="pmf-leases", daemon=True)
                self._thread.start()
        return path

    def stop(self, path: Path) -> None:
        with self._condition:
            self._held.pop(path, None)
            self._condition.notify()
        with suppress(OSError):
            path.unlink(missing_ok=True)

    def _beat(self) -> None:
        with self._condition:
            while self._held:
                self._condition.wait(HEARTBEAT_SECONDS)
                for path, content in self._held.items():
                    # a disk that is full, or gone for a while, is for the work itself to report
                    with suppress(OSError):
                        if path.exists():
                            os.utime(path)
                        else:
                            write_file(path, content)
            self._thread = None


_heart = _Heart()


def _renew() -> None:
    """Give a forked process a name of its own; its parent touches the leases that were held before."""
    global _heart
    _heart = _Heart()


os.register_at_fork(after_in_child=_renew)
