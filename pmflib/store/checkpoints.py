"""Checkpoints of work under way, and files that workers write for a stage.

With a local store, workers write into the folder of the stage. With a bucket, workers may share no disk: a worker
writes to the same path of its own cache and uploads each complete file, and the stage fetches the files it lacks.
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

from pmflib.store.objects.local_files import find_cache, find_local_path
from pmflib.store.objects.local_folder import lock_folder, make_folder, mark_draft, replace_file

KIND_FILE = ".kind"
"""File in a checkpoint folder with the kind of the artefact; its age is that of the work."""


@contextmanager
def claim_work(root: Path, identity: str, kind: str, resume: Callable[[], None]) -> Iterator[Path]:
    """Lock the checkpoint folder of an artefact; it is removed when the work is done, and kept if the work fails.

    Concurrent runs of the same work must not share checkpoints. A second run gets a temporary folder of its own instead
    of waiting, as the first may have hung. The lock ends with the process; on file systems without locks, all runs
    share the folder.

    Parameters
    ----------
    root
        Folder of the store, or of its cache.
    identity, kind
        Identity and kind of the artefact.
    resume
        Called once the folder is locked, to fetch checkpoints from elsewhere into it.

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
    """Write arrays to one file, replacing it atomically."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    save_bytes(path, buffer.getvalue())


def save_bytes(path: Path, content: bytes) -> None:
    """Write a checkpoint atomically, creating its folder if necessary, and upload it if the store is in a bucket."""
    while True:
        # another run of the same work may finish first and remove the folder at any time
        make_folder(path.parent)
        try:
            replace_file(path, content)
        except FileNotFoundError:
            continue
        break
    if (cache := find_cache(path)) is not None:
        cache.keep_checkpoint(path, KIND_FILE)


def load_arrays(path: Path) -> dict[str, npt.NDArray[Any]] | None:
    """Read all arrays of a checkpoint; None if it does not exist or is damaged."""
    try:
        # np.load would leave a damaged file open
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        # a checkpoint only saves time: without one, the work is repeated
        return None


def find_out(name: str) -> Path:
    """Local path of a file named by `name_for_workers`; its folder is created."""
    path = find_local_path(name)
    make_folder(path.parent)
    return path


def has_arrived(path: Path) -> bool:
    """Whether a file is complete, here or in the bucket, from which it is fetched."""
    cache = find_cache(path)
    if path.exists() or cache is None:
        return path.exists()
    return bool(cache.fetch_loose([cache.name_objects(path)]))


def hand_in(path: Path) -> None:
    """Upload a complete file for the stage that needs it, if the store is in a bucket."""
    if (cache := find_cache(path)) is not None:
        cache.objects.put_file(cache.name_objects(path), path)


def gather_in(folder: Path) -> Path:
    """Fetch the files that workers have written into a folder; return the folder."""
    if (cache := find_cache(folder)) is not None:
        found = cache.objects.list_objects(cache.name_objects(folder))
        cache.fetch_loose([each.name for each in found if not (cache.root / each.name).is_file()])
    return folder


def drop_arrived(folder: Path) -> None:
    """Delete the uploaded files of workers; local files stay."""
    if (cache := find_cache(folder)) is not None:
        found = cache.objects.list_objects(cache.name_objects(folder))
        cache.objects.delete([each.name for each in found])
