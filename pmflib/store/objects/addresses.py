"""Objects of stores by their address, a folder or a prefix in a bucket, and requests for many of them side by side."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pmflib.core.errors import ConfigError, PmfError, UnreachableStoreError
from pmflib.store.objects.bucket import Bucket
from pmflib.store.objects.interface import Objects
from pmflib.store.objects.local_folder import LocalFolder

T = TypeVar("T")
R = TypeVar("R")

SCHEME = "s3"
"""Scheme of the addresses of buckets."""
PARALLEL_REQUESTS = 16
"""Requests of a process at a time, for one thing that it waits for."""
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_PREFIX = re.compile(r"[^\x00-\x1f\x7f?#%\\]+")
_COLLAPSED = re.compile(r"[a-z][a-z0-9+]+:/[^/]")
_opened: dict[tuple[str, int, int], Bucket] = {}
_lock = threading.Lock()


def is_bucket(address: str | Path) -> bool:
    """Whether an address is no folder of this machine."""
    return "://" in str(address)


def check_address(address: str) -> str:
    """Check the address of a store: a folder, or ``s3://bucket/prefix``; a "/" at its end is dropped.

    Raises
    ------
    ConfigError
        If it is another URL, one without a prefix, or holds a password.
    """
    if not is_bucket(address):
        return address
    scheme, _, location = address.partition("://")
    works = f"give a folder, or {SCHEME}://bucket/prefix"
    if "@" in location.partition("/")[0] or "?" in location or "#" in location:
        raise ConfigError(
            f"store.path {scheme + '://***'!r}: the URL holds a user, a password or options, which would be shown and "
            f"recorded; {works}, and credentials in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
        )
    if scheme.lower() != SCHEME:
        raise ConfigError(f"store.path {address!r}: no store can be at {scheme}://; {works}")
    bucket, _, prefix = location.strip("/").partition("/")
    parts = prefix.split("/")
    if not _BUCKET.fullmatch(bucket) or not _PREFIX.fullmatch(prefix) or {"", ".", ".."} & {*parts}:
        raise ConfigError(f"store.path {address!r} names no location in a bucket; {works}")
    return f"{SCHEME}://{bucket}/{prefix}"


def open_objects(address: str | Path) -> Objects:
    """Open the objects of a store; a bucket is opened once per process, and again when its environment is another.

    Raises
    ------
    ConfigError
        If the address is none, or the package for it is not installed.
    """
    if not is_bucket(address):
        if _COLLAPSED.match(str(address)):
            raise ConfigError(
                f"store {str(address)!r} looks like a URL that was made a path; give URLs as text, with both slashes"
            )
        return LocalFolder(Path(address))
    address = check_address(str(address))
    state = frozenset(item for item in os.environ.items() if item[0].startswith("AWS_"))
    # of the environment, no more than what distinguishes it is kept
    key = address, os.getpid(), hash(state)
    with _lock:
        if key not in _opened:
            _opened[key] = Bucket(address)
        return _opened[key]


def call_in_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Results of work on each item, by threads that wait for the network side by side; the first error is raised."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), PARALLEL_REQUESTS), "pmf-objects") as pool:
        return list(pool.map(work, items))


@dataclass(frozen=True)
class StoreAccess:
    """What each worker has to be able to do: use the location of a store.

    Parameters
    ----------
    address
        Folder of the store, absolute, or its URL.
    """

    address: str

    def find_obstacle(self) -> PmfError | None:
        """Find why this process cannot use the location; None if it can."""
        if not is_bucket(self.address):
            return None if Path(self.address).is_dir() else PmfError("no such folder there")
        try:
            opened = open_objects(self.address)
            assert isinstance(opened, Bucket)
            opened.check()
        except PmfError as error:
            return error
        return None

    def refuse_unable(self, found: Mapping[str, PmfError | None]) -> None:
        """Refuse workers that cannot use the location.

        Parameters
        ----------
        found
            What `find_obstacle` gave on each worker, by its address.

        Raises
        ------
        UnreachableStoreError
            If one cannot, and nothing but an answer is missing: to try again may help.
        ConfigError
            If one cannot for another reason.
        """
        blind = {worker: why for worker, why in sorted(found.items()) if why is not None}
        if not blind:
            return
        if all(isinstance(why, UnreachableStoreError) for why in blind.values()):
            raise UnreachableStoreError(f"on workers {list(blind)}: {next(iter(blind.values()))}")
        remedy = (
            "each worker needs the credentials in its own environment"
            if is_bucket(self.address)
            else "put it on storage that all of them share"
        )
        raise ConfigError(
            f"store {self.address!r} is not seen by workers {list(blind)} ({next(iter(blind.values()))}); {remedy}"
        )
