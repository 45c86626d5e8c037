"""Folders of checkpoints: one run at a time has that of an artefact, and a second one a folder of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pmflib.objects.drafts import mark_draft
from pmflib.objects.folder_locks import lock_folder
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
