"""Object store in a local folder, whose file modes never exceed the store's; drafts; locks on folders."""

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

from pmflib.base.errors import PmfError
from pmflib.store.objects.interface import (
    LIST_FILE,
    Location,
    ObjectChangedError,
    ObjectMetadata,
    Objects,
)

PRIVATE = 0o700
"""Mode of a new store: accessible to its owner only. New files and folders get at most the mode of their parent, so a
store that its owner has shared remains shared."""


def make_root(path: Path) -> None:
    """Create the folder of a store for its owner only; an existing folder is left unchanged."""
    if path.is_dir():
        return
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        sync_file(path.parent.parent)
    path.mkdir(PRIVATE, exist_ok=True)
    sync_file(path.parent)


def make_folder(path: Path) -> None:
    """Create a folder and its parents durably, with the mode of the folder they are in; existing ones are unchanged."""
    while not path.is_dir():
        make_folder(path.parent)
        try:
            path.mkdir(path.parent.stat().st_mode & 0o777)
        except FileExistsError:
            # another process may have created it, and removed it since: only a file is an obstacle
            with suppress(FileNotFoundError):
                if not stat.S_ISDIR(path.lstat().st_mode):
                    raise
        else:
            with suppress(FileNotFoundError):
                sync_file(path.parent)


def write_object(path: Path, content: bytes) -> None:
    """Write a new file with at most the permissions of its folder.

    Raises
    ------
    FileExistsError
        If the file exists.
    """
    mode = path.parent.stat().st_mode & 0o666
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as stream:
        stream.write(content)


def close_tree(folder: Path, mode: int) -> None:
    """Restrict a folder and everything in it to the permissions of a mode."""
    for path in (folder, *folder.rglob("*")):
        found = path.stat().st_mode & 0o777
        if found & ~mode:
            path.chmod(found & mode)


_DRAFT = re.compile(r".+-([0-9a-f]{32})-[0-9a-f]{8}")
_holder = uuid.uuid4().hex


def find_own_holder() -> str:
    """Random name of this process; process ids are not unique across containers and hosts."""
    return _holder


def mark_draft(name: str) -> str:
    """Unique name for a draft, which includes the name of this process."""
    return f"{name}-{_holder}-{uuid.uuid4().hex[:8]}"


def find_holder(draft: str) -> str | None:
    """Name of the process that made a draft; None if the name is not that of a draft."""
    parts = _DRAFT.fullmatch(draft)
    return None if parts is None else parts[1]


def _renew() -> None:
    """Give a forked process its own name."""
    global _holder
    _holder = uuid.uuid4().hex


os.register_at_fork(after_in_child=_renew)


class LocalFolder(Objects):
    """Object store in a local folder.

    Parameters
    ----------
    root
        Path of the folder.
    """

    lists_cheaply = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self.address = str(root.resolve())

    def read(self, name: str) -> tuple[bytes, str]:
        """Read a file; the tag is the digest of its content."""
        content = (self.root / name).read_bytes()
        return content, hashlib.sha256(content).hexdigest()

    def exists(self, name: str) -> bool:
        """Whether the file exists."""
        return (self.root / name).exists()

    def create(self, name: str, content: bytes) -> None:
        """Write a draft and link it to the final name: unlike renaming, linking never replaces an existing file."""
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
        """Write a file atomically."""
        path = self.root / name
        make_folder(path.parent)
        replace_file(path, content)

    def replace(self, name: str, content: bytes, tag: str) -> None:
        """Replace a file if its content is unchanged; the caller must hold a lock on the folder."""
        with suppress(FileNotFoundError):
            if self.read(name)[1] == tag:
                self.put(name, content)
                return
        raise ObjectChangedError(name)

    def touch(self, name: str, content: bytes) -> None:
        """Update the time of a file, or write it atomically if it does not exist."""
        path = self.root / name
        if path.exists():
            os.utime(path)
        else:
            self.put(name, content)

    def delete(self, names: Sequence[str]) -> None:
        """Delete files."""
        for name in names:
            (self.root / name).unlink(missing_ok=True)

    def list_objects(self, prefix: str) -> list[ObjectMetadata]:
        """List files below a folder; files that disappear meanwhile are left out."""
        found = []
        for folder, _, names in os.walk(self.root / prefix):
            for name in names:
                path = Path(folder, name)
                if find_holder(name) is None:
                    with suppress(FileNotFoundError):
                        # a broken link exists but cannot be read
                        state = path.stat() if path.exists() else path.lstat()
                        relative = path.relative_to(self.root).as_posix()
                        found.append(ObjectMetadata(relative, state.st_size, state.st_mtime))
        return sorted(found, key=lambda metadata: metadata.name)

    def list_folders(self, prefix: str) -> list[str]:
        """List the folders directly below a folder."""
        folder = self.root / prefix
        if not folder.is_dir():
            return []
        return sorted(path.name for path in folder.iterdir() if path.is_dir())

    def read_clock(self) -> float:
        """Time by the clock of the file system; for a read-only folder, the time of its last change."""
        with suppress(OSError):
            os.utime(self.root)
        return self.root.stat().st_mtime

    def put_file(self, name: str, path: Path) -> None:
        """Copy a file into the store."""
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
        """Copy a file out of the store."""
        write_object(path, b"")
        shutil.copyfile(self.root / name, path)
        return digest_file(path)

    def list_locations(self, prefix: str) -> list[Location]:
        """List the folders directly below a folder, except links."""
        found = []
        for folder in sorted((self.root / prefix).glob("*")):
            if folder.is_dir() and not folder.is_symlink():
                with suppress(FileNotFoundError):
                    found.append(Location(f"{prefix}/{folder.name}", folder.stat().st_mtime_ns))
        return found

    def measure(self, prefix: str) -> int:
        """Total size of all files below a folder, bytes."""
        total = 0
        # unlike a glob, a walk tolerates folders that disappear
        for inner, _, names in os.walk(self.root / prefix):
            for each in names:
                with suppress(FileNotFoundError):
                    total += Path(inner, each).lstat().st_size
        return total

    def drop(self, name: str, touched: int | None = None) -> int | None:
        """Rename a folder, then delete it; rename it back if it was touched meanwhile."""
        folder, draft = self.root / name, self.root / "tmp" / mark_draft("collected")
        try:
            os.rename(folder, draft)
        except FileNotFoundError:
            return None
        if touched is not None and draft.stat().st_mtime_ns != touched:
            os.rename(draft, folder)
            return None
        n_bytes = self.measure(draft.relative_to(self.root).as_posix())
        shutil.rmtree(draft)
        return n_bytes

    def read_list(self, folder: str) -> tuple[bytes, dict[str, bytes]]:
        """Read the digest list of an artefact; local stores pack no files with it."""
        return (self.root / folder / LIST_FILE).read_bytes(), {}

    def digest_files(self, folder: str) -> dict[str, str]:
        """SHA-256 of every file of an artefact."""
        return digest_files(self.root / folder)

    def check(self) -> None:
        """Check that the folder exists."""
        if not self.root.is_dir():
            raise PmfError("the folder does not exist there")

    def find_root(self) -> Path:
        """Folder of the store."""
        return self.root


def digest_files(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a folder except its digest list, by relative name."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        name: digest_file(path)
        for path in files
        if (name := path.relative_to(folder).as_posix()) != LIST_FILE
    }


def digest_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically and durably: readers see the old or the new content, even after a power failure."""
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
    """Flush a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_folder(folder: Path) -> int | None:
    """Create a folder and lock it until the descriptor is closed or this process ends.

    Parameters
    ----------
    folder
        The folder. To remove it, remove it before releasing the lock.

    Returns
    -------
    The descriptor, which the caller closes; None if another process holds the lock. On file systems without locks,
    locking always succeeds.
    """
    while True:
        with suppress(FileNotFoundError):
            make_folder(folder)
            descriptor, kept = os.open(folder, os.O_RDONLY), False
            try:
                if not _try_lock(descriptor):
                    return None
                # the previous holder may have removed this folder, and another process created it again
                kept = os.path.samestat(os.fstat(descriptor), folder.stat())
                if kept:
                    return descriptor
            finally:
                if not kept:
                    os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Try to lock a folder; True also on file systems without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
