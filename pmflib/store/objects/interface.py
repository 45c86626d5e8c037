"""Interface of object stores: objects with atomic writes, conditional creation and conditional replacement.

Names are relative paths with "/" between their parts. Reads are atomic, and a completed write is visible to every
later read on any machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

DROPPED_FILE = ".dropped"
"""Name of the list of files of an artefact that a collection has dropped, one per line."""
LIST_FILE = ".digests"
"""List of an artefact's files in its folder: JSON, relative name to SHA-256 in hexadecimal. It is no part of the
content: the digest of the content is a digest of this list."""
LONGEST_NAME, LONGEST_PART = 1024, 255
"""Maximum bytes of the name of a file below an artefact, and of each part of it, on every file system."""
PARALLEL_REQUESTS = 16
"""Requests that a process makes at a time."""


class ObjectChangedError(Exception):
    """Another process replaced or deleted an object since it was read."""


@dataclass(frozen=True)
class ObjectMetadata:
    """Metadata of one object in a listing.

    Parameters
    ----------
    name
        Name of the object.
    size
        Size, bytes.
    touched
        Time of the last write or touch, seconds since 1970 by the clock of the server or file system. Compare it only
        with `Objects.read_clock`.
    """

    name: str
    size: int
    touched: float


@dataclass(frozen=True)
class Location:
    """A folder of a store, or the objects below a name in a bucket.

    Parameters
    ----------
    name
        Its name, relative to the store.
    touched
        Time of the last change, ns since 1970 by the clock of the file system or server; in a bucket, the time of the
        newest object.
    bytes
        Total size, bytes; None for a local folder, which `Objects.measure` measures.
    """

    name: str
    touched: int
    bytes: int | None = None


class Objects(ABC):
    """All objects of one store.

    Every method raises `RefusedStoreError` if access is refused or the location does not exist, `UnreachableStoreError`
    if the server does not answer, and `OSError` if the disk fails.

    Attributes
    ----------
    address
        Absolute path or URL, by which other processes open the same objects.
    lists_cheaply
        Whether listing is as fast and as consistent as reading. Listings of a bucket are used only for clean-up and
        verification, never to find the current state.
    """

    address: str
    lists_cheaply: bool

    @abstractmethod
    def read(self, name: str) -> tuple[bytes, str]:
        """Read the content of an object and its version tag; raise `FileNotFoundError` if it does not exist."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether an object exists."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> None:
        """Create an object; raise `FileExistsError` if it exists. Of concurrent calls, exactly one succeeds."""

    def lacks(self, name: str, but: str | None = None) -> bool:
        """Whether a recent listing (see `remember`) shows neither this name nor any object below it except ``but``."""
        return False

    @contextmanager
    def remember(self, known: str) -> Iterator[None]:
        """Take one listing and answer from it inside the context, instead of one request per name.

        The caller must hold a lease.

        Parameters
        ----------
        known
            Name of the object in which one context saves what it read and wrote, for the next one.
        """
        yield

    @abstractmethod
    def put(self, name: str, content: bytes) -> None:
        """Write an object, replacing any existing one."""

    @abstractmethod
    def replace(self, name: str, content: bytes, tag: str) -> None:
        """Replace an object if its tag is unchanged; raise `ObjectChangedError` otherwise."""

    @abstractmethod
    def touch(self, name: str, content: bytes) -> None:
        """Set the time of an object to now, writing it again if necessary."""

    @abstractmethod
    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; names that do not exist are ignored."""

    @abstractmethod
    def list_objects(self, prefix: str) -> list[ObjectMetadata]:
        """List all objects below a prefix of whole parts, sorted by name, without drafts."""

    @abstractmethod
    def list_folders(self, prefix: str) -> list[str]:
        """List the names of the folders directly below a prefix, sorted."""

    @abstractmethod
    def read_clock(self) -> float:
        """Current time, seconds since 1970, by the clock that dates the objects."""

    @abstractmethod
    def put_file(self, name: str, path: Path) -> None:
        """Upload a file of any size."""

    @abstractmethod
    def fetch_file(self, name: str, path: Path) -> str:
        """Download an object to a new file; return its hexadecimal SHA-256, or raise `FileNotFoundError`."""

    @abstractmethod
    def list_locations(self, prefix: str) -> list[Location]:
        """List the locations directly below a prefix, sorted by name."""

    @abstractmethod
    def measure(self, prefix: str) -> int:
        """Total size of everything below a prefix, bytes; 0 if it does not exist."""

    @abstractmethod
    def drop(self, name: str, touched: int | None = None) -> int | None:
        """Delete a location atomically: an artefact never exists in part.

        Parameters
        ----------
        name
            Name of the location.
        touched
            Expected time of its last change, ns. A local folder that was touched since then is kept, because another
            run has produced the same content. In a bucket, no other process may be at work.

        Returns
        -------
        Number of deleted bytes; None if nothing was deleted.
        """

    @abstractmethod
    def read_list(self, folder: str) -> tuple[bytes, Mapping[str, bytes]]:
        """Read the digest list of an artefact and the files packed with it; raise `FileNotFoundError` without one."""

    @abstractmethod
    def digest_files(self, folder: str) -> dict[str, str]:
        """SHA-256 of every file of an artefact except its list, by relative name; every byte is read from the store."""

    @abstractmethod
    def check(self) -> None:
        """Raise a `PmfError` if the location does not exist, or cannot be used by this process."""

    @abstractmethod
    def find_root(self) -> Path:
        """Folder of this machine for the files of the store, which need not exist: the store, or its cache."""

    def open_cache(self) -> FileCache | None:
        """Open this machine's cache of a store that is elsewhere; None for a folder, which needs none."""
        return None


class FileCache(ABC):
    """Local files of a store that is elsewhere, in a folder with the layout of a local store.

    Files of artefacts are fetched when they are first read. What is written is uploaded once it is complete.

    Attributes
    ----------
    address
        Address of the store.
    root
        Folder of the cache.
    """

    address: str
    root: Path

    @property
    @abstractmethod
    def objects(self) -> Objects:
        """Object store that it is a cache of."""

    def name_objects(self, path: Path) -> str:
        """Name of the objects that a file or folder of the cache is a copy of."""
        return path.relative_to(self.root).as_posix()

    @abstractmethod
    def make(self) -> None:
        """Create the folders of the cache if they do not exist or were deleted."""

    @abstractmethod
    def fetch_list(self, folder: Path) -> bool:
        """Fetch the digest list of an artefact unless it is cached; return whether the artefact exists."""

    @abstractmethod
    def fetch_files(self, folder: Path, digests: Mapping[str, str], names: Iterable[str]) -> None:
        """Fetch the missing files of an artefact in parallel, and compare them with their digests.

        Parameters
        ----------
        folder
            Folder of the artefact in the cache.
        digests
            SHA-256 of each of its files.
        names
            Files to fetch; names that the artefact does not have are ignored.

        Raises
        ------
        StoreError
            If a file is lost or damaged in the store.
        """

    @abstractmethod
    def publish(self, draft: Path, folder: Path) -> None:
        """Upload the files of a complete artefact, its digest list last, and keep them in the cache."""

    @abstractmethod
    def resume_work(self, identity: str, kind_file: str) -> None:
        """Fetch the checkpoints of interrupted work."""

    @abstractmethod
    def keep_checkpoint(self, path: Path, kind_file: str) -> None:
        """Upload a checkpoint, so that another machine can continue; other files are ignored."""

    @abstractmethod
    def drop_work(self, folder: Path) -> None:
        """Delete the uploaded checkpoints of a local folder of finished work; local files stay."""

    @abstractmethod
    def fetch_loose(self, names: Sequence[str]) -> list[str]:
        """Fetch objects outside artefacts in parallel, replacing cached copies; return the names that exist."""


def is_inner(name: str) -> bool:
    """Whether a file can have this relative name, which stays inside its folder."""
    parts = name.split("/")
    lengths = [len(part.encode()) for part in parts]
    fits = max(lengths) <= LONGEST_PART and sum(lengths) + len(parts) <= LONGEST_NAME
    return fits and "\0" not in name and {"", ".", ".."}.isdisjoint(parts)


def call_in_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Apply a function to each item in parallel threads, for work that waits for the network; raise the first error."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), PARALLEL_REQUESTS), "pmf-objects") as pool:
        return list(pool.map(work, items))
