"""Files and folders that are no more open to others than the store they are in."""

from __future__ import annotations

import os
from pathlib import Path

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
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(path.parent.stat().st_mode & 0o777, exist_ok=True)


def write_file(path: Path, content: bytes) -> None:
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
