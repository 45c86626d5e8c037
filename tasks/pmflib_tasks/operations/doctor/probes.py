"""The folder of a store tried out: whether it can be written, what others see, what its file system does."""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pmflib.core.errors import PmfError
from pmflib.store.caches import find_root
from pmflib.store.objects.addresses import is_bucket, open_objects
from pmflib.store.objects.interface import ObjectChangedError, Objects

PREFIX = ".pmf-probe-"
"""First characters of the names of probe files: hidden, and no name of the store's own."""


@dataclass(frozen=True)
class FolderState:
    """A folder as one process sees it.

    Parameters
    ----------
    path
        The folder that is meant; or the address of a prefix in a bucket.
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
        """Whether it is a prefix in a bucket."""
        return is_bucket(self.path)


@dataclass(frozen=True)
class StoreState:
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
    cache
        The folder in which this machine keeps what it has read of a store in a bucket; None for a store in a folder,
        and where it may not be looked at.
    """

    folder: FolderState
    unwritten: str
    lacking: tuple[str, ...]
    skew: float | None
    cache: FolderState | None = None


def look_at_store(path: str) -> StoreState:
    """Look at a store, and write, publish and remove probe files in its folder, or in the nearest one above it.

    Raises
    ------
    OSError
        If the folder above it may not be looked at.
    """
    folder, name = look_at_folder(path), name_probe()
    cache = None
    if folder.is_bucket:
        with suppress(OSError):
            cache = look_at_folder(str(find_root(path)))
    try:
        skew = write_probe(folder.there, name)
        if folder.is_bucket:
            lacking = find_lacking_conditions(folder.there, name)
        else:
            lacking = find_lacking_operations(folder.there)
    except OSError as error:
        return StoreState(folder, error.strerror or str(error), (), None, cache)
    finally:
        remove_probe(folder.there, name)
    return StoreState(folder, "", tuple(lacking), skew, cache)


def look_at_folder(path: str) -> FolderState:
    """Look at a folder, or at the nearest one above it that is there.

    Raises
    ------
    OSError
        If what is there is no folder, or may not be looked at.
    """
    if is_bucket(path):
        return FolderState(path, path, "", 0)
    import psutil

    there = Path(find_there(path))
    return FolderState(
        path=str(Path(path).absolute()),
        there=str(there),
        file_system=_find_file_system(there.resolve()),
        free=psutil.disk_usage(str(there)).free,
    )


def find_there(path: str) -> str:
    """Find a folder, or the nearest one above it that is there; absolute. A prefix in a bucket needs no folder.

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
        return write_probe_object(folder, name)
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
        return read_probe_object(folder, name)
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
        remove_probe_object(folder, name)
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
        root = Path(folder)
        try:
            os.link(root / old, root / linked)
            try:
                os.link(root / new, root / linked)
                lacking.append("a hard link replaces a file that is there")
            except FileExistsError:
                pass
        except OSError as error:
            lacking.append(f"no hard links ({error.strerror})")
        try:
            os.replace(root / new, root / old)
            if read_probe(folder, new) == "" or (root / old).read_bytes() != new.encode():
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


def write_probe_object(address: str, name: str) -> float:
    """Create a probe object, which holds its own name.

    Returns
    -------
    How far the clock of the server is ahead of that of this process, seconds.

    Raises
    ------
    OSError
        If it cannot be created, or there is one of that name.
    """
    with _use(address) as objects:
        objects.create(name, name.encode())
        before = time.time()
        clock = objects.read_clock()
        return clock - (before + time.time()) / 2


def read_probe_object(address: str, name: str) -> str:
    """Read a probe object that another process has created; say why it cannot be read, or "" where it can."""
    try:
        with _use(address) as objects:
            content, _ = objects.read(name)
    except FileNotFoundError:
        return "it is not there: this is another bucket under the same address"
    except OSError as error:
        return error.strerror or str(error)
    return "" if content == name.encode() else "it has another content"


def remove_probe_object(address: str, name: str) -> None:
    """Delete a probe object, if it is there and can be deleted."""
    with suppress(OSError), _use(address) as objects:
        objects.delete([name])


def find_lacking_conditions(address: str, name: str) -> list[str]:
    """Try what publication rests on in a bucket: an object is created once, and replaced only by who knows it.

    Parameters
    ----------
    address
        Address of the store.
    name
        Name of a probe object that is there.

    Returns
    -------
    What the server does not do as it must; nothing where all is well.

    Raises
    ------
    OSError
        If the server does not answer, or refuses.
    """
    lacking = []
    with _use(address) as objects:
        try:
            objects.create(name, b"second")
            lacking.append("an object is created over one that is there (If-None-Match)")
        except FileExistsError:
            pass
        _, tag = objects.read(name)
        objects.replace(name, b"new", tag)
        try:
            objects.replace(name, b"newer", tag)
            lacking.append("an object that has changed is replaced all the same (If-Match)")
        except ObjectChangedError:
            pass
    return lacking


@contextmanager
def _use(address: str) -> Iterator[Objects]:
    """Open a bucket; what it refuses is an error of the system, as for a folder."""
    try:
        yield open_objects(address)
    except PmfError as error:
        raise OSError(str(error)) from None
