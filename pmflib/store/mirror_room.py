"""Room that a mirror takes on its disk: how much it may be, and what goes first."""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

from pmflib.errors import ConfigError
from pmflib.objects.drafts import mark_draft

IN_USE_SECONDS = 15 * 60.0
"""An artefact that was used by any process of this machine within this time is not dropped, seconds."""
SHARE = 0.5
"""Part of the room that a disk has left, when a process first opens a mirror on it, that the mirror may take at most;
what the mirror holds already counts as room."""


def find_limit(root: Path) -> int:
    """Bytes that a mirror may take: PMF_MIRROR_BYTES, or a ``SHARE`` of the room that the disk has for it.

    Raises
    ------
    ConfigError
        If the variable is no positive whole number.
    """
    text = os.environ.get("PMF_MIRROR_BYTES", "")
    if text:
        if not text.isascii() or not text.isdecimal() or not int(text):
            raise ConfigError(
                f"PMF_MIRROR_BYTES = {text!r} is no number of bytes above 0; correct or unset it"
            )
        return int(text)
    return int(SHARE * (shutil.disk_usage(root).free + sum(size for *_, size in _measure(root))))


def drop_unused(root: Path, limit: int) -> int:
    """Drop artefacts of a mirror, those not used for longest first, until it takes no more than a limit, bytes.

    Those used within ``IN_USE_SECONDS`` stay. Whoever reads what is dropped finds it gone, and fetches it again.

    Returns
    -------
    Bytes that were dropped.
    """
    places = sorted(_measure(root))
    excess = sum(size for *_, size in places) - limit
    dropped = 0
    for used, folder, size in places:
        if dropped >= excess or time.time() - used < IN_USE_SECONDS:
            break
        draft = root / "tmp" / mark_draft("dropped")
        with suppress(OSError):
            os.rename(folder, draft)
            shutil.rmtree(draft, ignore_errors=True)
            dropped += size
    return dropped


def _measure(root: Path) -> list[tuple[float, Path, int]]:
    """When each artefact of a mirror was last used, its folder and its bytes."""
    found = []
    for folder in root.glob("*/*"):
        if re.fullmatch("[0-9a-f]{24}", folder.name):
            with suppress(OSError):
                sizes = [path.stat().st_size for path in folder.rglob("*")]
                found.append((folder.stat().st_mtime, folder, sum(sizes)))
    return found
