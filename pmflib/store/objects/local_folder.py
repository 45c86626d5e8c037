"""Objects that are files of a folder, no more open to others than their store; drafts, and locks on folders."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pmflib.store.objects.interface import ObjectChangedError, ObjectMetadata, Objects

PRIVATE = 0o700
"""Mode of a new store: its owner's alone. What is made in a folder is at most as open as the folder, so that a store
whose owner has opened it to others stays so."""


def make_root(path: Path) -> None:
    """Make the folder of a store, for its owner alone; one that is there stays as it is."""
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(PRIVATE, exist_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, at most as open as the one they are in; one that is there stays as it is."""
    while not path.is_dir():
        make_folder(path.parent)
        try:
            path.mkdir(path.parent.stat().st_mode & 0o777)
        except FileExistsError:
            # another may have made it, and removed it again since then: only what is there and no folder is in the way
            with suppress(FileNotFoundError):
                if not stat.S_ISDIR(path.lstat().st_mode):
                    raise


def write_object(path: Path, content: bytes) -> None:
    """Write a new file, at most as open as its folder.

    Raises
    ------
    FileExistsError
        If there is one already.
    """
    mode = path.parent.stat().st_mode & 0o666
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as stream:
        stream.write(content)


def close_tree(folder: Path, mode: int) -> None:
    """Take from a folder, and from all that is in it, what a mode does not give to others."""
    for path in (folder, *folder.rglob("*")):
        found = path.stat().st_mode & 0o777
        if found & ~mode:
            path.chmod(found & mode)


_DRAFT = re.compile(r".+-([0-9a-f]{32})-[0-9a-f]{8}")
_holder = uuid.uuid4().hex


def find_own_holder() -> str:
    """Random name of this process: process ids mean nothing in another container or host."""
    return _holder


def mark_draft(name: str) -> str:
    """Name of a draft, which holds the name of its process and a random part."""
    return f"{name}-{_holder}-{uuid.uuid4().hex[:8]}"


def find_holder(draft: str) -> str | None:
    """Name of the process whose draft has a name; None for what is no draft."""
    parts = _DRAFT.fullmatch(draft)
    return None if parts is None else parts[1]


def _renew() -> None:
    """Give a forked process a name of its own."""
    global _holder
    _holder = uuid.uuid4().hex


os.register_at_fork(after_in_child=_renew)


class LocalFolder(Objects):
    """Objects below a folder.

    Parameters
    ----------
    root
        The folder.
    """

    lists_cheaply = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self.address = str(root.resolve())

    def read(self, name: str) -> tuple[bytes, str]:
        """Read a file; its tag is the digest of its content."""
        content = (self.root / name).read_bytes()
        return content, hashlib.sha256(content).hexdigest()

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return (self.root / name).exists()

    def create(self, name: str, content: bytes) -> None:
        """Write a draft, and link it to the file's name: a link, unlike a rename, never replaces another's file."""
        path = self.root / name
        make_folder(path.parent)
        draft = path.with_name(mark_draft(f".{path.name}"))
        try:
            write_object(draft, content)
            sync_file(draft)
            os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        sync_file(path.parent)

    def put(self, name: str, content: bytes) -> None:
        """Write a file: see `replace_file`."""
        path = self.root / name
        make_folder(path.parent)
        replace_file(path, content)

    def replace(self, name: str, content: bytes, tag: str) -> None:
        """Write a file in place of one that was read; who replaces it must hold a lock on the folder."""
        with suppress(FileNotFoundError):
            if self.read(name)[1] == tag:
                self.put(name, content)
                return
        raise ObjectChangedError(name)

    def touch(self, name: str, content: bytes) -> None:
        """Set the time of a file; write it if it is gone."""
        path = self.root / name
        if path.exists():
            os.utime(path)
        else:
            make_folder(path.parent)
            write_object(path, content)

    def delete(self, names: Sequence[str]) -> None:
        """Delete files."""
        for name in names:
            (self.root / name).unlink(missing_ok=True)

    def list_objects(self, prefix: str) -> list[ObjectMetadata]:
        """Files below a folder; one that vanishes meanwhile is left out."""
        found = []
        for folder, _, names in os.walk(self.root / prefix):
            for name in names:
                path = Path(folder, name)
                if find_holder(name) is None:
                    with suppress(FileNotFoundError):
                        # a link that leads nowhere is there, and does not read
                        state = path.stat() if path.exists() else path.lstat()
                        relative = path.relative_to(self.root).as_posix()
                        found.append(ObjectMetadata(relative, state.st_size, state.st_mtime))
        return sorted(found, key=lambda metadata: metadata.name)

    def list_folders(self, prefix: str) -> list[str]:
        """Folders just below a folder."""
        folder = self.root / prefix
        if not folder.is_dir():
            return []
        return sorted(path.name for path in folder.iterdir() if path.is_dir())

    def read_clock(self) -> float:
        """Time by the file system, which sets it; of a folder that may only be read, the time of its last change."""
        with suppress(OSError):
            os.utime(self.root)
        return self.root.stat().st_mtime

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """Read parts of a file."""
        return read_file_ranges(self.root / name, ranges)

    def put_file(self, name: str, path: Path) -> None:
        """Copy a file."""
        target = self.root / name
        make_folder(target.parent)
        draft = target.with_name(mark_draft(f".{target.name}"))
        try:
            write_object(draft, b"")
            shutil.copyfile(path, draft)
            sync_file(draft)
            os.replace(draft, target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        sync_file(target.parent)

    def fetch_file(self, name: str, path: Path) -> str:
        """Copy a file to another path."""
        write_object(path, b"")
        shutil.copyfile(self.root / name, path)
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


def read_file_ranges(path: Path, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Read bytes [start, stop) of a file, for each range."""
    parts = []
    with path.open("rb") as file:
        for start, stop in ranges:
            file.seek(start)
            parts.append(file.read(stop - start))
    return parts


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or the new, never a part, whenever the power fails."""
    tmp = path.with_name(mark_draft(f".{path.name}"))
    try:
        write_object(tmp, content)
        sync_file(tmp)
        os.replace(tmp, path)
    except BaseException:
        tmp.unlink(missing_ok=True)
        raise
    sync_file(path.parent)


def sync_file(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_folder(folder: Path) -> int | None:
    """Make a folder and lock it for as long as this process lives, or its descriptor is open.

    Parameters
    ----------
    folder
        The folder. Who removes it does so before the lock ends.

    Returns
    -------
    The descriptor, to be closed; None if another holds the lock. Where a file system has no locks, it is as if it were
    locked.
    """
    while True:
        with suppress(FileNotFoundError):
            make_folder(folder)
            descriptor, kept = os.open(folder, os.O_RDONLY), False
            try:
                if not _try_lock(descriptor):
                    return None
                # the one before may have removed this folder, and another have made the one that is there now
                kept = os.path.samestat(os.fstat(descriptor), folder.stat())
                if kept:
                    return descriptor
            finally:
                if not kept:
                    os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock a folder; whether that was possible, or there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
