"""Packing of an artefact's small files with its digest list in one object of a bucket, to save requests.

The object is the list as stored on disk, a zero byte, the sizes of the packed files by name as JSON, a zero byte, and
their contents end to end; with no packed files it is the list alone. Packing changes no digest: the list names every
file of the artefact, packed or not, and every file is checked against it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pmflib.store.objects.interface import is_inner

PACK_BYTES = 1 << 20
"""Limit on the packed bytes of one artefact, which are read together with its list. For larger files, the cost of a
request is negligible."""
OPEN = ".zarr/"
"""Part of the names of files below a folder that other programs open as a Zarr group: objects of their own."""
_BETWEEN = b"\0"


def choose_packed(sizes: Mapping[str, int]) -> list[str]:
    """Choose the files of an artefact to pack: the smallest, up to ``PACK_BYTES`` in total, none of ``OPEN`` groups.

    Parameters
    ----------
    sizes
        Size of each file by name, bytes.
    """
    chosen, total = [], 0
    for name in sorted(
        (name for name in sizes if OPEN not in name), key=lambda name: (sizes[name], name)
    ):
        total += sizes[name]
        if total > PACK_BYTES:
            break
        chosen.append(name)
    return sorted(chosen)


def pack(listing: bytes, folder: Path, names: list[str]) -> bytes:
    """Append files to the list of an artefact.

    Parameters
    ----------
    listing
        Content of the list.
    folder
        Folder of the files.
    names
        Names of the files relative to the folder.
    """
    if not names:
        return listing
    parts = [(folder / name).read_bytes() for name in names]
    sizes = {name: len(part) for name, part in zip(names, parts, strict=True)}
    index = json.dumps(sizes, ensure_ascii=False).encode()
    return _BETWEEN.join((listing, index, b"".join(parts)))


def unpack(content: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Split an object into the list and the packed files by name.

    Nothing is checked: in a damaged object, files may be missing or differ.
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
