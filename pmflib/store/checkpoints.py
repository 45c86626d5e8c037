"""Checkpoints: arrays in one file, replaced atomically; work that was killed continues from them."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pmflib.objects.local_folder import replace_file
from pmflib.objects.private_files import make_folder
from pmflib.store.mirrors import find_mirror_of_work
from pmflib.store.work_folders import KIND_FILE


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
    if (mirror := find_mirror_of_work(path)) is not None:
        mirror.keep_checkpoint(path, KIND_FILE)


def load_arrays(path: Path) -> dict[str, npt.NDArray[Any]] | None:
    """Read all arrays of a checkpoint; None if there is none, or none that can be used."""
    try:
        # opened here: np.load leaves a damaged file open
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        # a checkpoint only saves time: without it, or with a damaged one, the work is done again
        return None
