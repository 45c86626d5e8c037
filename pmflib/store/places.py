"""Places of artefacts: folders of a store on a disk, or objects of a bucket below a name; listed, measured, deleted."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pmflib.objects.bucket import call_in_parallel
from pmflib.objects.drafts import mark_draft
from pmflib.store.artefacts import Store
from pmflib.store.file_digests import PLACE_DIGITS, digest_files
from pmflib.store.mirrors import LIST_FILE

NO_KINDS = frozenset(
    {"manifest", "tmp", "work", "runs", "leases", "fingerprints", "lineage", "reports"}
)
"""Folders of a store that hold no artefacts."""
_PLACE = re.compile(rf"[0-9a-f]{{{PLACE_DIGITS}}}")


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
class Place:
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


def list_places(store: Store) -> list[Place]:
    """Places that may be of artefacts, in order of name."""
    kinds = store.objects.list_folders("")
    return [
        place
        for kind in kinds
        if kind not in NO_KINDS and not kind.startswith(".")
        for place in list_inner(store, kind)
        if _PLACE.fullmatch(place.name.rpartition("/")[2])
    ]


def list_inner(store: Store, name: str) -> list[Place]:
    """Places just below one, in order of name."""
    return list(_list_objects(store, name) if store.is_bucket else _list_folders(store, name))


def _list_folders(store: Store, name: str) -> Iterator[Place]:
    for folder in sorted((store.root / name).glob("*")):
        if folder.is_dir() and not folder.is_symlink():
            with suppress(FileNotFoundError):
                yield Place(f"{name}/{folder.name}", folder.stat().st_mtime_ns)


def _list_objects(store: Store, name: str) -> Iterator[Place]:
    times: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for facts in store.objects.list_objects(name):
        place = "/".join(facts.name.split("/")[: name.count("/") + 2])
        times[place] = max(times.get(place, 0.0), facts.touched)
        sizes[place] = sizes.get(place, 0) + facts.size
    for place, touched in times.items():
        yield Place(place, int(touched * 1e9), sizes[place])


def measure(store: Store, name: str) -> int:
    """Bytes of all that is below a name; 0 if there is nothing."""
    if store.is_bucket:
        return sum(facts.size for facts in store.objects.list_objects(name))
    total = 0
    # unlike a glob, a walk passes over folders that vanish before it
    for inner, _, names in os.walk(store.root / name):
        for each in names:
            with suppress(FileNotFoundError):
                total += Path(inner, each).lstat().st_size
    return total


def drop_place(store: Store, name: str, amount: Amount, touched: int | None = None) -> None:
    """Delete a place, and count it: an artefact is there, or not, and never in part.

    A folder gets another name first. In a bucket the list of digests goes first, without which there is no artefact;
    the mirror of this machine loses it too.

    Parameters
    ----------
    store
        The store; of one in a bucket, nobody else may be at work in it.
    name
        Name of the place; nothing is done where there is none.
    amount
        Is added to.
    touched
        When it was last touched, ns: a folder that has been touched since stays, for another run has come to the same
        content, and relies on it.
    """
    draft = store.root / "tmp" / mark_draft("collected")
    if store.is_bucket:
        facts = store.objects.list_objects(name)
        with suppress(FileNotFoundError):
            os.rename(store.root / name, draft)
            shutil.rmtree(draft, ignore_errors=True)
        if facts:
            store.objects.delete(
                [each.name for each in facts if each.name == f"{name}/{LIST_FILE}"]
            )
            store.objects.delete(
                [each.name for each in facts if each.name != f"{name}/{LIST_FILE}"]
            )
            amount.add(sum(each.size for each in facts))
        return
    folder = store.root / name
    try:
        os.rename(folder, draft)
    except FileNotFoundError:
        return
    if touched is not None and draft.stat().st_mtime_ns != touched:
        os.rename(draft, folder)
        return
    amount.add(measure(store, draft.relative_to(store.root).as_posix()))
    shutil.rmtree(draft)


def digest_place(store: Store, name: str) -> dict[str, str]:
    """SHA-256 of every file of an artefact but its list, by relative name, as the store itself has it.

    Of a bucket every byte is read from there, whatever the mirror has.
    """
    if not store.is_bucket:
        return digest_files(store.root / name)

    def digest(each: str) -> tuple[str, str]:
        draft = store.root / "tmp" / mark_draft("digested")
        try:
            return each.removeprefix(f"{name}/"), store.objects.fetch_file(each, draft)
        finally:
            draft.unlink(missing_ok=True)

    names = [facts.name for facts in store.objects.list_objects(name)]
    return dict(call_in_parallel(digest, [each for each in names if each != f"{name}/{LIST_FILE}"]))
