"""Local files of stores that may be elsewhere, by path here and by address on other machines."""

from __future__ import annotations

import re
from pathlib import Path

from pmflib.base.errors import StoreError
from pmflib.store.objects.addresses import is_bucket, open_objects
from pmflib.store.objects.interface import FileCache, Objects

_OBJECTS = re.compile(
    r"(?P<store>.+?://.+?)/"
    r"(?P<objects>[a-z][a-z-]*/[0-9a-f]{24}|work/[0-9a-f]{64}|tmp/[a-z-]+-[0-9a-f]{32}-[0-9a-f]{8})"
    r"(?:/(?P<rest>.*))?"
)
_caches: dict[Path, FileCache] = {}


def open_cache(objects: Objects) -> FileCache | None:
    """Open this machine's cache of a store, so that paths in it are known; None for a folder, which needs none."""
    cache = objects.open_cache()
    if cache is not None:
        _caches[cache.root] = cache
    return cache


def find_cache(path: Path) -> FileCache | None:
    """Cache that contains a file or folder; None for those of local stores, and for others."""
    for folder in (path, *path.parents) if _caches else ():
        if folder in _caches:
            return _caches[folder]
    return None


def name_for_workers(path: Path) -> str:
    """Name of an artefact's file or folder for other machines: its address in the store, or its local path."""
    cache = find_cache(path)
    return str(path) if cache is None else f"{cache.address}/{cache.name_objects(path)}"


def find_local_path(name: str | Path) -> Path:
    """Local path of a name from `name_for_workers`: in this machine's cache, or the name itself.

    Raises
    ------
    StoreError
        If it is a URL that does not name an artefact of a store.
    """
    if isinstance(name, Path) or not is_bucket(name):
        return Path(name)
    parts = _OBJECTS.fullmatch(name)
    if parts is None:
        raise StoreError(
            f"{name!r} is not a location of a store in a bucket; give s3://bucket/prefix/kind/digest, as pmf prints it"
        )
    objects = open_objects(parts["store"])
    open_cache(objects)
    return objects.find_root() / parts["objects"] / (parts["rest"] or "")
