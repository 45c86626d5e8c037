"""Locations of artefacts: folders of a disk, or objects of a bucket below a name; listed, measured, deleted."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pmflib.store.artefacts import Store
from pmflib.store.caches import LIST_FILE
from pmflib.store.file_digests import FOLDER_DIGITS, digest_files
from pmflib.store.objects.addresses import call_in_parallel
from pmflib.store.objects.local_folder import mark_draft
from pmflib.store.packs import unpack

NO_KINDS = frozenset(
    {
        *("manifest", "tmp", "work", "runs", "histories", "leases"),
        *("fingerprints", "lineage", "reports", "exports"),
    }
)
"""Folders of a store that hold no artefacts."""
_FOLDER = re.compile(rf"[0-9a-f]{{{FOLDER_DIGITS}}}")


@dataclass
class Amount:
    """Number of artefacts, folders or files, and their bytes."""

    number: int = 0
    bytes: int = 0

    def add(self, n_bytes: int) -> None:
        """Count one more."""
        self.number += 1
        self.bytes += n_bytes


@dataclass(frozen=True)
class Location:
    """A folder of a store, or what is below a name in a bucket.

    Parameters
    ----------
    name
        Its name, relative to the store.
    touched
        When it was last changed, ns since 1970 by the clock of the file system or server; of a bucket, the last object.
    bytes
        Bytes of what is below it, of a bucket; None where they are yet to be counted.
    """

    name: str
    touched: int
    bytes: int | None = None


def list_locations(store: Store) -> list[Location]:
    """Locations that may be of artefacts, in order of name."""
    kinds = store.objects.list_folders("")
    return [
        location
        for kind in kinds
        if kind not in NO_KINDS and not kind.startswith(".")
        for location in list_inner(store, kind)
        if _FOLDER.fullmatch(location.name.rpartition("/")[2])
    ]


def list_inner(store: Store, name: str) -> list[Location]:
    """Locations just below one, in order of name."""
    return list(_list_objects(store, name) if store.is_bucket else _list_folders(store, name))


def _list_folders(store: Store, name: str) -> Iterator[Location]:
    for folder in sorted((store.root / name).glob("*")):
        if folder.is_dir() and not folder.is_symlink():
            with suppress(FileNotFoundError):
                yield Location(f"{name}/{folder.name}", folder.stat().st_mtime_ns)


def _list_objects(store: Store, name: str) -> Iterator[Location]:
    times: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for metadata in store.objects.list_objects(name):
        location = "/".join(metadata.name.split("/")[: name.count("/") + 2])
        times[location] = max(times.get(location, 0.0), metadata.touched)
        sizes[location] = sizes.get(location, 0) + metadata.size
    for location, touched in times.items():
        yield Location(location, int(touched * 1e9), sizes[location])


def measure_bytes(store: Store, name: str) -> int:
    """Bytes of all that is below a name; 0 if there is nothing."""
    if store.is_bucket:
        return sum(metadata.size for metadata in store.objects.list_objects(name))
    total = 0
    # unlike a glob, a walk passes over folders that vanish before it
    for inner, _, names in os.walk(store.root / name):
        for each in names:
            with suppress(FileNotFoundError):
                total += Path(inner, each).lstat().st_size
    return total


def drop_location(store: Store, name: str, amount: Amount, touched: int | None = None) -> None:
    """Delete a location, and count it: an artefact is there, or not, and never in part.

    A folder gets another name first. In a bucket the list of digests goes first, without which there is no artefact;
    the cache of this machine loses it too.

    Parameters
    ----------
    store
        The store; of one in a bucket, nobody else may be at work in it.
    name
        Name of the location; nothing is done where there is none.
    amount
        Is added to.
    touched
        When it was last touched, ns: a folder that has been touched since stays, for another run has come to the same
        content, and relies on it.
    """
    draft = store.root / "tmp" / mark_draft("collected")
    if store.is_bucket:
        metadata = store.objects.list_objects(name)
        with suppress(FileNotFoundError):
            os.rename(store.root / name, draft)
            shutil.rmtree(draft, ignore_errors=True)
        if metadata:
            store.objects.delete(
                [each.name for each in metadata if each.name == f"{name}/{LIST_FILE}"]
            )
            store.objects.delete(
                [each.name for each in metadata if each.name != f"{name}/{LIST_FILE}"]
            )
            amount.add(sum(each.size for each in metadata))
        return
    folder = store.root / name
    try:
        os.rename(folder, draft)
    except FileNotFoundError:
        return
    if touched is not None and draft.stat().st_mtime_ns != touched:
        os.rename(draft, folder)
        return
    amount.add(measure_bytes(store, draft.relative_to(store.root).as_posix()))
    shutil.rmtree(draft)


def digest_location(store: Store, name: str) -> dict[str, str]:
    """SHA-256 of every file of an artefact but its list, by relative name, as the store itself has it.

    Of a bucket every byte is read from there, whatever the cache has.
    """
    if not store.is_bucket:
        return digest_files(store.root / name)

    def digest(each: str) -> tuple[str, str]:
        draft = store.root / "tmp" / mark_draft("digested")
        try:
            return each.removeprefix(f"{name}/"), store.objects.fetch_file(each, draft)
        finally:
            draft.unlink(missing_ok=True)

    listed = f"{name}/{LIST_FILE}"
    names = {metadata.name for metadata in store.objects.list_objects(name)}
    packed = unpack(store.objects.read(listed)[0])[1] if listed in names else {}
    elsewhere = {listed, *(f"{name}/{each}" for each in packed)}
    digests = dict(call_in_parallel(digest, sorted(names - elsewhere)))
    return digests | {each: hashlib.sha256(part).hexdigest() for each, part in packed.items()}
