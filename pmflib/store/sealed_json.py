"""Sealed JSON: a file that holds a checksum of its own content, so that an edit is seen when it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pmflib.json_files import parse_json

CHECKSUM = "checksum"
"""Key of the checksum: SHA-256 of the other keys and values in their one canonical form."""


def seal(content: Mapping[str, Any]) -> bytes:
    """Write an object of plain JSON types with its checksum, for people and programs to read."""
    # once there and back: tuples are lists then, and keys are text
    plain = json.loads(json.dumps(content))
    sealed = {**plain, CHECKSUM: _sum(plain)}
    return json.dumps(sealed, indent=1, sort_keys=True, ensure_ascii=False).encode()


def unseal(text: bytes) -> dict[str, Any]:
    """Read what `seal` wrote, without the checksum.

    Raises
    ------
    ValueError
        If it does not read, or has been edited since.
    """
    content = parse_json(text)
    if not isinstance(content, dict) or CHECKSUM not in content:
        raise ValueError("it is no object with a checksum")
    checksum = content.pop(CHECKSUM)
    if checksum != _sum(content):
        raise ValueError("it has been edited")
    return content


def _sum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
