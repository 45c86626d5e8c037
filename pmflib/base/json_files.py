"""Reading JSON files that may be damaged or hostile."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path
from typing import Any

MAX_DEPTH = 64
"""Maximum nesting depth; our files have at most a dozen levels, and deeper ones would exhaust Python's stack."""
MOST_VALUES = 4_000_000
"""Maximum number of commas and brackets, as values take a hundred times the memory of "[],": a manifest entry of 50,000
files has 600,000."""


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Returns
    -------
    Plain JSON types, nested at most `MAX_DEPTH` deep, in which every text can be encoded as UTF-8.

    Raises
    ------
    OSError
        If the file cannot be read or is not a regular file.
    ValueError
        If it is not JSON in UTF-8, has too many values or levels, or contains half of a surrogate pair.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return parse_json(path.read_bytes())


def parse_json(content: bytes) -> Any:
    """Parse JSON from the bytes of a file; see `read_json`.

    Raises
    ------
    ValueError
        If it is not JSON in UTF-8, has too many values or levels, or contains half of a surrogate pair.
    """
    if sum(map(content.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")
    try:
        value = json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep") from None
    _check(value)
    return value


def _check(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif isinstance(item, str) and not item.isascii():
                # raises UnicodeEncodeError, which is a ValueError
                item.encode("utf-8")
        level = below
