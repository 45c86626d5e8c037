"""Objects of a store by its address: a folder, or a prefix in a bucket."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pmflib.base.errors import ConfigError, PmfError, UnreachableStoreError
from pmflib.store.objects.interface import Objects
from pmflib.store.objects.local_folder import LocalFolder

REMOTE = {"s3": "pmflib.store.bucket.bucket:Bucket"}
"""Stores that are elsewhere: for each scheme of a URL, the class of its `Objects`, made of a checked address. It is
imported when such an address is first opened, and a scheme whose package is not there is not supported."""
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_PREFIX = re.compile(r"[^\x00-\x1f\x7f?#%\\]+")
_COLLAPSED = re.compile(r"[a-z][a-z0-9+]+:/[^/]")
_opened: dict[tuple[str, int, int], Objects] = {}
_lock = threading.Lock()


def is_bucket(address: str | Path) -> bool:
    """Whether an address is a URL rather than a local folder."""
    return "://" in str(address)


def check_address(address: str) -> str:
    """Check the address of a store, a folder or a URL such as ``s3://bucket/prefix``, and remove a trailing "/".

    Raises
    ------
    ConfigError
        If it is another kind of URL, lacks a prefix or contains a password.
    """
    if not is_bucket(address):
        return address
    scheme, _, location = address.partition("://")
    works = "pass a folder" + "".join(f", or {each}://bucket/prefix" for each in list_schemes())
    if "@" in location.partition("/")[0] or "?" in location or "#" in location:
        raise ConfigError(
            f"store.path {scheme + '://***'!r}: the URL contains a user, a password or options, which would be "
            f"shown and recorded; {works}, and put credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if scheme.lower() not in list_schemes():
        raise ConfigError(
            f"store.path {address!r}: {scheme}:// is not supported for stores; {works}"
        )
    bucket, _, prefix = location.strip("/").partition("/")
    parts = prefix.split("/")
    if not _BUCKET.fullmatch(bucket) or not _PREFIX.fullmatch(prefix) or {"", ".", ".."} & {*parts}:
        raise ConfigError(f"store.path {address!r} is not a location in a bucket; {works}")
    return f"{scheme.lower()}://{bucket}/{prefix}"


def list_schemes() -> list[str]:
    """Schemes of the URLs that this installation can open."""
    found = []
    for scheme, place in REMOTE.items():
        with suppress(ModuleNotFoundError):
            if importlib.util.find_spec(place.partition(":")[0]) is not None:
                found.append(scheme)
    return found


def open_objects(address: str | Path) -> Objects:
    """Open the objects of a store. A bucket is opened once per process and AWS environment.

    Raises
    ------
    ConfigError
        If the address is invalid or the package that it needs is not installed.
    """
    if not is_bucket(address):
        if _COLLAPSED.match(str(address)):
            raise ConfigError(
                f"store {str(address)!r} looks like a URL converted to a path; give URLs as strings with both slashes"
            )
        return LocalFolder(Path(address))
    address = check_address(str(address))
    state = frozenset(item for item in os.environ.items() if item[0].startswith("AWS_"))
    # a hash, so that no credentials are kept
    key = address, os.getpid(), hash(state)
    with _lock:
        if key not in _opened:
            module, _, name = REMOTE[address.partition("://")[0]].partition(":")
            _opened[key] = getattr(importlib.import_module(module), name)(address)
        return _opened[key]


@dataclass(frozen=True)
class StoreAccess:
    """Check that every worker can access the location of a store.

    Parameters
    ----------
    address
        Absolute path or URL of the store.
    """

    address: str

    def find_obstacle(self) -> PmfError | None:
        """Return the error that keeps this process from using the location; None if there is none."""
        try:
            open_objects(self.address).check()
        except PmfError as error:
            return error
        return None

    def refuse_unable(self, found: Mapping[str, PmfError | None]) -> None:
        """Raise an error if a worker cannot use the location.

        Parameters
        ----------
        found
            Result of `find_obstacle` on each worker, by its address.

        Raises
        ------
        UnreachableStoreError
            If the only problem is a server that does not answer, so that a retry may help.
        ConfigError
            If a worker cannot use it for another reason.
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
