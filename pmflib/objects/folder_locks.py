"""Locks on folders, which end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from pmflib.objects.private_files import make_folder


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
