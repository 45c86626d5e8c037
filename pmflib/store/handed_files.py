"""Files that workers write for the stage that started them, on machines that may have no disk in common.

Where the store is on a disk, they write into the folder of the stage. Where it is in a bucket, the folder is one of the
stage's own mirror: a worker writes into the same place of its mirror, uploads the file when it is whole, and the stage
fetches what it has not got.
"""

from __future__ import annotations

from pathlib import Path

from pmflib.objects.private_files import make_folder
from pmflib.store.mirrors import Mirror, find_mirror, find_place


def find_out(name: str) -> Path:
    """Path on this machine of a file that `name_for_workers` named, in a folder that is there."""
    path = find_place(name)
    make_folder(path.parent)
    return path


def was_handed_in(path: Path) -> bool:
    """Whether a file is whole already, by this worker or, of a store in a bucket, by another; it is here then."""
    mirror = _find_mirror(path)
    if path.exists() or mirror is None:
        return path.exists()
    return bool(mirror.fetch_loose([mirror.place(path)]))


def hand_in(path: Path) -> None:
    """Give a file that is whole to the stage that asked for it."""
    if (mirror := _find_mirror(path)) is not None:
        mirror.objects.put_file(mirror.place(path), path)


def gather_in(folder: Path) -> Path:
    """Fetch what workers have handed in that is not here; the folder."""
    if (mirror := _find_mirror(folder)) is not None:
        found = mirror.objects.list_objects(mirror.place(folder))
        mirror.fetch_loose([each.name for each in found if not (mirror.root / each.name).is_file()])
    return folder


def drop_handed(folder: Path) -> None:
    """Delete what workers have handed in, once it is elsewhere; files on this machine stay."""
    if (mirror := _find_mirror(folder)) is not None:
        found = mirror.objects.list_objects(mirror.place(folder))
        mirror.objects.delete([each.name for each in found])


def _find_mirror(path: Path) -> Mirror | None:
    return next(
        (mirror for folder in path.parents if (mirror := find_mirror(folder)) is not None), None
    )
