"""Small files of an artefact in one object of a bucket, after the list of its digests: each object costs a request.

The object is the list as it is on a disk, a zero byte, the sizes of the packed files by name as JSON, a zero byte, and
their bytes one after the other. Without anything packed it is the list alone. What is packed changes no digest: the
list names every file of the artefact, and each is checked by it, wherever it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

PACK_BYTES = 1 << 20
"""Most bytes of packed files of an artefact: whoever needs one of its files, or its list alone, reads them all. For
larger files a request is a small part of what they take."""
_BETWEEN = b"\0"


def choose_packed(sizes: Mapping[str, int]) -> list[str]:
    """Choose the files of an artefact that are packed: the smallest ones, as many as there is room for, by name.

    Parameters
    ----------
    sizes
        Bytes of each file, by name.
    """
    chosen, total = [], 0
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        total += sizes[name]
        if total > PACK_BYTES:
            break
        chosen.append(name)
    return sorted(chosen)


def pack(listing: bytes, folder: Path, names: list[str]) -> bytes:
    """Put files behind the list of an artefact.

    Parameters
    ----------
    listing
        The list.
    folder
        Folder of the files.
    names
        Their names, relative to it.
    """
    if not names:
        return listing
    parts = [(folder / name).read_bytes() for name in names]
    sizes = {name: len(part) for name, part in zip(names, parts, strict=True)}
    index = json.dumps(sizes, ensure_ascii=False).encode()
    return _BETWEEN.join((listing, index, b"".join(parts)))


def unpack(content: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Take an object apart: the list, and the packed files by name.

    Nothing is checked: of an object that was damaged, files are missing or have other bytes.
    """
    listing, _, packed = content.partition(_BETWEEN)
    index, _, rest = packed.partition(_BETWEEN)
    files, start = {}, 0
    try:
        for name, size in json.loads(index or b"{}").items():
            if is_inner(name):
                files[name] = rest[start : start + int(size)]
            start += int(size)
    except (ValueError, TypeError, AttributeError, RecursionError):
        files.clear()
    return listing, files


def is_inner(name: str) -> bool:
    """Whether the name of a file stays in its folder, as every published one does."""
    return not os.path.isabs(name) and ".." not in name.split("/")
