"""Checkpoints: arrays in one file, replaced atomically, in a folder per run; files that workers write.

Workers may have no disk in common. Where the store is on a disk, they write into the folder of the stage. Where it is
in a bucket, the folder is one of the stage's own cache: a worker writes to the same path of its cache, uploads the file
when it is whole, and the stage fetches what it has not got.
"""

from __future__ import annotations

import io
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pmflib.store.caches import find_cache_above, find_cache_of_work, find_local_path
from pmflib.store.objects.local_folder import lock_folder, make_folder, mark_draft, replace_file

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
        Folder of the store, or of its cache.
    identity, kind
        The artefact that is made.
    resume
        Fetches the checkpoints that are elsewhere into the folder, once it is this work's own.

    Yields
    ------
    The folder.
    """
    folder = root / "work" / identity
    descriptor = lock_folder(folder)
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


def save_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays into one file, in place of the one before."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    save_bytes(path, buffer.getvalue())


def save_bytes(path: Path, content: bytes) -> None:
    """Write a file in place of the one before, in a folder that is made if need be; that of a bucket has it too."""
    while True:
        # another run of the same work removes the folder when it is done first, be it between these two lines
        make_folder(path.parent)
        try:
            replace_file(path, content)
        except FileNotFoundError:
            continue
        break
    if (cache := find_cache_of_work(path)) is not None:
        cache.keep_checkpoint(path, KIND_FILE)


def load_arrays(path: Path) -> dict[str, npt.NDArray[Any]] | None:
    """Read all arrays of a checkpoint; None if there is none, or none that can be used."""
    try:
        # opened here: np.load leaves a damaged file open
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        # a checkpoint only saves time: without it, or with a damaged one, the work is done again
        return None


def find_out(name: str) -> Path:
    """Path on this machine of a file that `name_for_workers` named, in a folder that is there."""
    path = find_local_path(name)
    make_folder(path.parent)
    return path


def has_arrived(path: Path) -> bool:
    """Whether a file is whole already, by this worker or, of a store in a bucket, by another; it is here then."""
    cache = find_cache_above(path)
    if path.exists() or cache is None:
        return path.exists()
    return bool(cache.fetch_loose([cache.name_objects(path)]))


def hand_in(path: Path) -> None:
    """Give a file that is whole to the stage that asked for it."""
    if (cache := find_cache_above(path)) is not None:
        cache.objects.put_file(cache.name_objects(path), path)


def gather_in(folder: Path) -> Path:
    """Fetch what workers have written that is not here; the folder."""
    if (cache := find_cache_above(folder)) is not None:
        found = cache.objects.list_objects(cache.name_objects(folder))
        cache.fetch_loose([each.name for each in found if not (cache.root / each.name).is_file()])
    return folder


def drop_arrived(folder: Path) -> None:
    """Delete what workers have written, once it is elsewhere; files on this machine stay."""
    if (cache := find_cache_above(folder)) is not None:
        found = cache.objects.list_objects(cache.name_objects(folder))
        cache.objects.delete([each.name for each in found])
