"""Folders of checkpoints: one run at a time has that of an artefact, and a second one a folder of its own."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pmflib.objects.drafts import mark_draft
from pmflib.objects.private_files import make_folder

KIND_FILE = ".kind"
"""File beside checkpoints that names the kind of artefact they are of; its age is that of the work."""


@contextmanager
def claim_work(root: Path, identity: str, kind: str, resume: Callable[[], None]) -> Iterator[Path]:
    """Have the folder of checkpoints of an artefact for oneself: it is gone when the work is done, and stays if not.

    Runs that do the same work at once would take each other's checkpoints for their own, and who is done first would
    take them away. So the second has a folder that ends with its work, whatever becomes of it. It does not wait: the
    first may have stopped. The lock ends with the process; on file systems without locks, all have the same folder.

    Parameters
    ----------
    root
        Folder of the store, or of its mirror.
    identity, kind
        The artefact that is made.
    resume
        Fetches the checkpoints that are elsewhere into the folder, once it is this work's own.

    Yields
    ------
    The folder.
    """
    folder = root / "work" / identity
    descriptor = _lock(folder)
    if descriptor is None:
        folder = root / "tmp" / mark_draft(f"{kind}-work")
        make_folder(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        resume()
        if not (folder / KIND_FILE).exists():
            (folder / KIND_FILE).write_text(kind, "utf-8")
        yield folder
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """Make a folder and lock it: descriptor, to be closed; None if another holds the lock."""
    while True:
        with suppress(FileNotFoundError):
            make_folder(folder)
            descriptor, kept = os.open(folder, os.O_RDONLY), False
            try:
                if not _try_lock(descriptor):
                    return None
                # who is done removes the folder before the lock ends: this one may have been removed meanwhile
                kept = os.path.samestat(os.fstat(descriptor), folder.stat())
                if kept:
                    return descriptor
            finally:
                if not kept:
                    os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock a folder unless another has locked it; where there are no locks, it is as if it were locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
