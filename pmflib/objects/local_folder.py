"""Objects that are files of a folder: written beside their place, then linked or renamed there."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pmflib.objects.drafts import find_holder, mark_draft
from pmflib.objects.interface import ObjectChangedError, ObjectFacts, Objects
from pmflib.objects.private_files import make_folder, write_file


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
        """Write a file beside its place, and link it there: a link, unlike a rename, never replaces another's file."""
        path = self.root / name
        make_folder(path.parent)
        draft = path.with_name(mark_draft(f".{path.name}"))
        try:
            write_file(draft, content)
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
            write_file(path, content)

    def delete(self, names: Sequence[str]) -> None:
        """Delete files."""
        for name in names:
            (self.root / name).unlink(missing_ok=True)

    def list_objects(self, prefix: str) -> list[ObjectFacts]:
        """Files below a folder; one that vanishes meanwhile is left out."""
        found = []
        for folder, _, names in os.walk(self.root / prefix):
            for name in names:
                path = Path(folder, name)
                if find_holder(name) is None:
                    with suppress(FileNotFoundError):
                        state = path.stat()
                        place = path.relative_to(self.root).as_posix()
                        found.append(ObjectFacts(place, state.st_size, state.st_mtime))
        return sorted(found, key=lambda facts: facts.name)

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
            write_file(draft, b"")
            shutil.copyfile(path, draft)
            sync_file(draft)
            os.replace(draft, target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        sync_file(target.parent)

    def fetch_file(self, name: str, path: Path) -> str:
        """Copy a file to another place."""
        write_file(path, b"")
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
        write_file(tmp, content)
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
