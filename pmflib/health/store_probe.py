"""The place of a store tried out: whether it can be written, what others see, what its file system does."""

from __future__ import annotations

import errno
import os
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pmflib.health.bucket_probe import (
    find_lacking_conditions,
    read_object,
    remove_object,
    write_object,
)
from pmflib.objects.addresses import is_bucket
from pmflib.store.mirrors import find_root

PREFIX = ".pmf-probe-"
"""First characters of the names of probe files: hidden, and no name of the store's own."""


@dataclass(frozen=True)
class FolderFacts:
    """A folder as one process sees it.

    Parameters
    ----------
    path
        The folder that is meant; or the address of a place in a bucket.
    there
        The folder itself, or the nearest one above it that is there; or that address.
    file_system
        Type of the file system of ``there``, as the system calls it: ext4, nfs4, tmpfs; empty where it does not say.
    free
        Bytes free there for this user; 0 for a bucket, which has no end.
    """

    path: str
    there: str
    file_system: str
    free: int

    @property
    def exists(self) -> bool:
        """Whether the folder is there."""
        return self.there == self.path

    @property
    def is_bucket(self) -> bool:
        """Whether it is a place in a bucket."""
        return is_bucket(self.path)


@dataclass(frozen=True)
class StoreFacts:
    """A store as this process sees it.

    Parameters
    ----------
    folder
        Its folder.
    unwritten
        Why no file can be written there; empty where one can.
    lacking
        What does not work there that publication needs.
    skew
        How far the clock of its file system is ahead of that of this process, seconds; None where nothing was written.
    mirror
        The folder in which this machine keeps what it has read of a store in a bucket; None for a store in a folder,
        and where it may not be looked at.
    """

    folder: FolderFacts
    unwritten: str
    lacking: tuple[str, ...]
    skew: float | None
    mirror: FolderFacts | None = None


def look_at_store(path: str) -> StoreFacts:
    """Look at a store, and write, publish and remove probe files in its folder, or in the nearest one above it.

    Raises
    ------
    OSError
        If the folder above it may not be looked at.
    """
    folder, name = look_at_folder(path), name_probe()
    mirror = None
    if folder.is_bucket:
        with suppress(OSError):
            mirror = look_at_folder(str(find_root(path)))
    try:
        skew = write_probe(folder.there, name)
        if folder.is_bucket:
            lacking = find_lacking_conditions(folder.there, name)
        else:
            lacking = find_lacking_operations(folder.there)
    except OSError as error:
        return StoreFacts(folder, error.strerror or str(error), (), None, mirror)
    finally:
        remove_probe(folder.there, name)
    return StoreFacts(folder, "", tuple(lacking), skew, mirror)


def look_at_folder(path: str) -> FolderFacts:
    """Look at a folder, or at the nearest one above it that is there.

    Raises
    ------
    OSError
        If what is there is no folder, or may not be looked at.
    """
    if is_bucket(path):
        return FolderFacts(path, path, "", 0)
    import psutil

    there = Path(find_there(path))
    return FolderFacts(
        path=str(Path(path).absolute()),
        there=str(there),
        file_system=_find_file_system(there.resolve()),
        free=psutil.disk_usage(str(there)).free,
    )


def find_there(path: str) -> str:
    """Find a folder, or the nearest one above it that is there; absolute. A place in a bucket needs no folder.

    Raises
    ------
    OSError
        If what is there is no folder.
    """
    if is_bucket(path):
        return path
    there = Path(path).absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
    return str(there)


def name_probe() -> str:
    """Name of a new probe file, unlike any other."""
    return f"{PREFIX}{uuid.uuid4().hex}"


def write_probe(folder: str, name: str) -> float:
    """Write a probe file, which holds its own name; whoever writes it removes it by `remove_probe`.

    Returns
    -------
    How far the clock of the file system is ahead of that of this process, seconds.

    Raises
    ------
    OSError
        If it cannot be written, or there is one of that name.
    """
    if is_bucket(folder):
        return write_object(folder, name)
    path = Path(folder) / name
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with open(descriptor, "wb") as stream:
        before = time.time()
        stream.write(name.encode())
        stream.flush()
        os.fsync(descriptor)
        after = time.time()
    return path.stat().st_mtime - (before + after) / 2


def read_probe(folder: str, name: str) -> str:
    """Read a probe file that another process has written; say why it cannot be read, or "" where it can."""
    if is_bucket(folder):
        return read_object(folder, name)
    try:
        content = (Path(folder) / name).read_bytes()
    except FileNotFoundError:
        return "it is not there: this is another folder under the same path, or files arrive late"
    except OSError as error:
        return error.strerror or str(error)
    return "" if content == name.encode() else "it has another content"


def remove_probe(folder: str, name: str) -> None:
    """Remove a probe file, if it is there and can be removed."""
    if is_bucket(folder):
        remove_object(folder, name)
        return
    with suppress(OSError):
        os.unlink(Path(folder) / name)


def find_lacking_operations(folder: str) -> list[str]:
    """Try what the publication of artefacts and records rests on.

    Parameters
    ----------
    folder
        A folder that can be written.

    Returns
    -------
    What the file system does not do as it must; nothing where all is well.

    Raises
    ------
    OSError
        If no file can be written at all.
    """
    old, new, linked = (name_probe() for _ in range(3))
    lacking = []
    try:
        for name in (old, new):
            write_probe(folder, name)
        place = Path(folder)
        try:
            os.link(place / old, place / linked)
            try:
                os.link(place / new, place / linked)
                lacking.append("a hard link replaces a file that is there")
            except FileExistsError:
                pass
        except OSError as error:
            lacking.append(f"no hard links ({error.strerror})")
        try:
            os.replace(place / new, place / old)
            if read_probe(folder, new) == "" or (place / old).read_bytes() != new.encode():
                lacking.append("a file that is renamed does not replace another")
        except OSError as error:
            lacking.append(f"no file replaces another ({error.strerror})")
        try:
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            lacking.append(f"a folder cannot be synced ({error.strerror})")
    finally:
        for name in (old, new, linked):
            remove_probe(folder, name)
    return lacking


def _find_file_system(folder: Path) -> str:
    import psutil

    best, found = -1, ""
    for each in psutil.disk_partitions(all=True):
        depth = len(Path(each.mountpoint).parts)
        # of two that are mounted on one folder the later one is seen
        if depth >= best and folder.is_relative_to(each.mountpoint):
            best, found = depth, each.fstype
    return found
