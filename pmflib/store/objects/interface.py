"""What a folder and a bucket have in common: named objects, each of which can be created once, and replaced knowingly.

Names are relative, of parts with "/" between them. An object is read whole as it was written, or not at all; a write
that has returned is seen by all that read afterwards, from every machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class ObjectChangedError(Exception):
    """An object is not any more what was read: somebody else has replaced or deleted it."""


@dataclass(frozen=True)
class ObjectMetadata:
    """An object, as a listing has it.

    Parameters
    ----------
    name
        Its name.
    size
        Bytes.
    touched
        When it was last written, or touched: seconds since 1970 by the clock of the server or the file system; compare
        it with `Objects.read_clock` and with no other clock.
    """

    name: str
    size: int
    touched: float


class Objects(ABC):
    """Objects of one location.

    Every method raises `RefusedStoreError` where the location is refused or is not there, `UnreachableStoreError` where
    it does not answer, and `OSError` where a disk does not do what it should.

    Attributes
    ----------
    address
        Folder, absolute, or URL: what another process opens to find the same objects.
    lists_cheaply
        Whether a listing takes no longer than to read an object, and is as good as one: in a bucket a listing is used
        to clear up and to verify, never to find what is current.
    """

    address: str
    lists_cheaply: bool

    @abstractmethod
    def read(self, name: str) -> tuple[bytes, str]:
        """Read an object: its content, and a tag that changes whenever it does; `FileNotFoundError` without one."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is an object of a name."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> None:
        """Write a new object; `FileExistsError` if there is one already: of several that create it, one does."""

    def lacks(self, name: str, but: str | None = None) -> bool:
        """Whether all names were looked at a moment ago, and nothing was there of this one, nor below it but one."""
        return False

    @contextmanager
    def remember(self, known: str) -> Iterator[None]:
        """Answer from one listing, as long as the context lasts, what is there; whoever does so holds a lease.

        Parameters
        ----------
        known
            Name of an object that has what the last such context has read and written, for this one.
        """
        yield

    @abstractmethod
    def put(self, name: str, content: bytes) -> None:
        """Write an object, in place of the one that may be there."""

    @abstractmethod
    def replace(self, name: str, content: bytes, tag: str) -> None:
        """Write an object in place of the one that was read with a tag; `ObjectChangedError` if it is another now."""

    @abstractmethod
    def touch(self, name: str, content: bytes) -> None:
        """Set the time of an object to now; write it again if it is gone, or if that is how to do it."""

    @abstractmethod
    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; names without one are passed over."""

    @abstractmethod
    def list_objects(self, prefix: str) -> list[ObjectMetadata]:
        """All objects below a prefix, a whole number of parts, in order of name; no drafts."""

    @abstractmethod
    def list_folders(self, prefix: str) -> list[str]:
        """Names of the folders just below a prefix, in order."""

    @abstractmethod
    def read_clock(self) -> float:
        """Time now, seconds since 1970, by the clock that the times of objects are taken from."""

    @abstractmethod
    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """Read bytes [start, stop) of an object, for each range; `FileNotFoundError` if there is none."""

    @abstractmethod
    def put_file(self, name: str, path: Path) -> None:
        """Write an object from a file, of any size."""

    @abstractmethod
    def fetch_file(self, name: str, path: Path) -> str:
        """Write an object to a new file; SHA-256 of its content, in hexadecimal; `FileNotFoundError` without one."""
