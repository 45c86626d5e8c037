"""Checks of storage: the store and the raw files, as the client and every worker see them; disks and their types."""

from __future__ import annotations

from collections.abc import Mapping

from pmflib.health.health_line import HealthLine, fail, list_some, note, warn
from pmflib.health.store_probe import FolderFacts, StoreFacts
from pmflib.health.worker_view import SourceFacts, WorkerView
from pmflib.running.memory_plan import format_bytes

LEAST_FREE = 100 << 20
"""Bytes below which a disk counts as full."""
LITTLE_FREE = 1 << 30
"""Bytes below which a disk is nearly full, whatever the sources take."""

NETWORK = (
    "nfs",
    "nfs4",
    "cifs",
    "smb",
    "smb2",
    "smb3",
    "9p",
    "virtiofs",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "glusterfs",
    "afs",
)
"""File systems of other machines that keep files as a disk does, but for what is held back for some seconds."""
TRANSLATED = (
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse.rclone",
    "fuse.gcsfuse",
    "fuse.goofys",
    "fuse.mount-s3",
    "fuse.davfs",
    "davfs",
)
"""File systems that only look like one: neither links nor renames are what publication needs."""
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
"""File systems whose files are gone with the machine's next start, and count as memory until then."""


def check_folder(store: StoreFacts | BaseException) -> HealthLine:
    """Check the folder of a store as the client sees it.

    Parameters
    ----------
    store
        What was found; or why it cannot be looked at.
    """
    if isinstance(store, BaseException):
        said, remedy = f"it cannot be looked at: {store}", "correct its permissions"
    elif store.unwritten:
        said = f"{store.folder.there} cannot be written: {store.unwritten}"
        remedy = "correct its credentials" if store.folder.is_bucket else "correct its permissions"
    elif store.lacking:
        said = (
            f"{store.folder.there} does not do what publication needs: {'; '.join(store.lacking)}"
        )
        remedy = "put the store on a local disk, on NFS, or in a bucket"
    elif store.folder.is_bucket:
        said = "an object is created once, replaced by who knows it, and deleted"
        return note("store", f"{store.folder.path}: {said}")
    elif store.folder.exists:
        return note("store", f"{store.folder.path} can be read, written and published to")
    else:
        return note(
            "store",
            f"{store.folder.path} is not there yet; the first run makes it, for {store.folder.there} can be written",
        )
    return fail("store", said, f"{remedy}, or set store.path to another place", "store")


def check_file_system(folder: FolderFacts) -> HealthLine:
    """Check the type of the file system of a store."""
    name = folder.file_system
    if name in TRANSLATED:
        return warn(
            "file system",
            f"{name}: it translates files into something else; a run that is killed may leave half of one",
            "use the bucket itself (store.path = 's3://...'), or a disk",
        )
    if name in NETWORK:
        return warn(
            "file system",
            f"{name}: a network file system; what one machine writes, others may see some seconds later",
            "mount it with hard (not soft), and with no longer attribute cache than some seconds (actimeo=3)",
        )
    if name in IN_MEMORY:
        return warn(
            "file system",
            f"{name}: in memory, gone with the next start, and on the account of memory",
            "set store.path to a disk",
        )
    if name == "overlay":
        return warn(
            "file system",
            "overlay: the layer of a container, gone with it",
            "set store.path to a volume that is mounted",
        )
    return note("file system", name or "the system does not say")


GC_REMEDY = "make room; `pmf gc` deletes what no kept run needs"
MIRROR_REMEDY = "make room, or set PMF_MIRROR to a folder on another disk"


def check_disk(what: str, folder: FolderFacts, needed: int, remedy: str = GC_REMEDY) -> HealthLine:
    """Check the free space of a disk.

    Parameters
    ----------
    what
        What is on it: "store disk", "mirror disk", "temporary files".
    folder
        The folder.
    needed
        Bytes that will be written there, about.
    remedy
        What to do where there is too little.
    """
    free, where = format_bytes(folder.free), folder.there
    if folder.free < LEAST_FREE:
        return fail(
            what,
            f"{free} free at {where}: full",
            remedy,
            "store",
        )
    if folder.free < max(LITTLE_FREE, needed):
        return warn(
            what,
            f"{free} free at {where}; about {format_bytes(max(LITTLE_FREE, needed))} may be written",
            remedy,
        )
    return note(what, f"{free} free at {where}")


def check_sources(sources: SourceFacts) -> HealthLine:
    """Check that the client sees the raw files."""
    if sources.error:
        return fail("sources", sources.error, "correct source.path, or bring the files", "source")
    return note(
        "sources",
        f"{sources.n_files:,} file{'' if sources.n_files == 1 else 's'}, {format_bytes(sources.n_bytes)}",
    )


def check_worker_places(
    views: Mapping[str, WorkerView],
    unseen: Mapping[str, str],
    ours: SourceFacts,
    unwritten: str = "",
) -> list[HealthLine]:
    """Check that all workers see the store and the raw files as the client does.

    Parameters
    ----------
    views
        What workers see, by address.
    unseen
        Why the client could not read what a worker wrote, by address; empty where it could.
    ours
        The raw files as the client sees them.
    unwritten
        Why the client could write no probe file; what workers read says nothing then.
    """
    if not views:
        return []
    n, problems = len(views), []
    if not unwritten:
        problems += _group(
            {name: view.unread for name, view in views.items()},
            "cannot read what the client writes",
        )
    problems += _group({name: view.unwritten for name, view in views.items()}, "cannot write")
    problems += _group(unseen, "write what the client cannot read")
    lines = [
        fail(
            "worker store",
            f"{said}",
            "mount one folder under one path everywhere, for one user; of a bucket, give all the same credentials",
            "store",
        )
        for said in problems
    ]
    if not lines:
        said = "read and write" if not unwritten else "write"
        lines = [
            note(
                "worker store",
                f"{n} of {n} workers {said} it, and the client reads what they write",
            )
        ]
    return [*lines, *_check_worker_sources(views, ours), *_check_scratch(views)]


def _check_worker_sources(views: Mapping[str, WorkerView], ours: SourceFacts) -> list[HealthLine]:
    if ours.error:
        return []
    remedy = "bring the files to the same path everywhere; credentials of buckets must be in the workers' environment"
    broken = _group({name: view.sources.error for name, view in views.items()}, "do not see them")
    other = [
        f"{name} ({view.sources.n_files:,} files, {format_bytes(view.sources.n_bytes)})"
        for name, view in views.items()
        if not view.sources.error and view.sources.digest != ours.digest
    ]
    lines = [fail("worker sources", said, remedy, "source") for said in broken]
    if other:
        here = f"{ours.n_files:,} files, {format_bytes(ours.n_bytes)}"
        said = f"other files than here ({here}) at {list_some(other)}"
        lines.append(fail("worker sources", said, remedy, "source"))
    return lines or [
        note("worker sources", f"{len(views)} of {len(views)} workers see the same files")
    ]


def _check_scratch(views: Mapping[str, WorkerView]) -> list[HealthLine]:
    least = min(views, key=lambda name: views[name].scratch.free)
    line = check_disk("worker scratch", views[least].scratch, 0)
    in_memory = [name for name, view in views.items() if view.scratch.file_system in IN_MEMORY]
    if in_memory and line.state == "ok":
        line = warn(
            "worker scratch",
            f"temporary files are in memory at {list_some(in_memory)}, and count against its limit",
            "set TMPDIR, and dask worker --local-directory, to a disk",
        )
    return [line]


def _group(said: Mapping[str, str], what: str) -> list[str]:
    """Sentences on who has the same to say; nobody who has nothing."""
    by_text: dict[str, list[str]] = {}
    for name, text in said.items():
        if text:
            by_text.setdefault(text, []).append(name)
    return [
        f"{len(names)} of {len(said)} workers {what}: {list_some(names)}: {text}"
        for text, names in by_text.items()
    ]
