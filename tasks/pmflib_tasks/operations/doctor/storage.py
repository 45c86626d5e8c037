"""What the client and every worker see of a pipeline's store, sources and disks, and checks of it."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from pmflib.cluster.memory import format_bytes
from pmflib.core.errors import PmfError
from pmflib.core.texts import mask_secrets
from pmflib.ingest.sources import find_sources, open_source
from pmflib_tasks.operations.doctor import HealthLine, fail, list_first, note, warn
from pmflib_tasks.operations.doctor.probes import (
    FolderState,
    StoreState,
    look_at_folder,
    read_probe,
    remove_probe,
    write_probe,
)
from pmflib_tasks.operations.doctor.processes import ProcessState, find_process_state

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


@dataclass(frozen=True)
class PipelinePaths:
    """What a process is to look at.

    Parameters
    ----------
    store
        Folder of the store, or the nearest one above it that is there.
    probe
        Name of a probe file that another process has written there.
    sources
        Paths and URLs of the raw files, which may hold secrets.
    suffixes
        Ends of the names of data.
    skip_empty
        Whether files without a byte are skipped.
    """

    store: str
    probe: str
    sources: tuple[str, ...] = field(repr=False)
    suffixes: tuple[str, ...]
    skip_empty: bool


@dataclass(frozen=True)
class SourceState:
    """The raw files as one process sees them.

    Parameters
    ----------
    n_files, n_bytes
        Their number, and their bytes as stored.
    digest
        SHA-256 of their names and sizes: the same where the same files are seen.
    error
        Why they cannot be listed or opened; empty where they can.
    """

    n_files: int
    n_bytes: int
    digest: str
    error: str = ""


@dataclass(frozen=True)
class WorkerView:
    """What one worker sees.

    Parameters
    ----------
    process
        What its process has.
    scratch
        Folder for its temporary files.
    store
        The folder of the store; None where it cannot be looked at.
    unread
        Why the probe file of the client could not be read; empty where it could.
    unwritten
        Why it could write none of its own; empty where it could.
    written
        Name of the probe file that it has left there, which the client reads and removes; empty where there is none.
    sources
        The raw files.
    """

    process: ProcessState
    scratch: FolderState
    store: FolderState | None
    unread: str
    unwritten: str
    written: str
    sources: SourceState


def look_from_worker(paths: PipelinePaths, own_probe: str, scratch: str) -> WorkerView:
    """Look at a pipeline's paths from the process that calls this.

    Parameters
    ----------
    paths
        What to look at.
    own_probe
        Name of the probe file that this process is to write.
    scratch
        Folder of this worker, in which it spills data; empty for that of temporary files.
    """
    unwritten, store = "", None
    try:
        store = look_at_folder(paths.store)
        write_probe(paths.store, own_probe)
    except OSError as error:
        unwritten = error.strerror or str(error)
    unread = read_probe(paths.store, paths.probe)
    if unwritten or unread:
        # the client looks for it in another folder, or does not wait any more
        remove_probe(paths.store, own_probe)
    return WorkerView(
        process=find_process_state(),
        scratch=look_at_folder(scratch or tempfile.gettempdir()),
        store=store,
        unread=unread,
        unwritten=unwritten,
        written="" if unwritten or unread else own_probe,
        sources=look_at_sources(paths.sources, paths.suffixes, skip_empty=paths.skip_empty),
    )


def look_at_sources(
    paths: tuple[str, ...], suffixes: tuple[str, ...], *, skip_empty: bool
) -> SourceState:
    """List raw files, and read the first byte of the first of them.

    Parameters
    ----------
    paths, suffixes, skip_empty
        As for `find_sources`.
    """
    try:
        found = find_sources(paths, suffixes, skip_empty=skip_empty)
        with open_source(found[0], unpack=False) as stream:
            stream.read(1)
    except (PmfError, OSError) as error:
        return SourceState(0, 0, "", mask_secrets(str(error)))
    seen = repr([(each.name, each.size) for each in found]).encode()
    n_bytes = sum(each.size for each in found)
    return SourceState(len(found), n_bytes, hashlib.sha256(seen).hexdigest())


def check_store_folder(store: StoreState | BaseException) -> HealthLine:
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
    return fail("store", said, f"{remedy}, or set store.path to another location", "store")


def check_file_system(folder: FolderState) -> HealthLine:
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
CACHE_REMEDY = "make room, or set PMF_MIRROR to a folder on another disk"


def check_disk(what: str, folder: FolderState, needed: int, remedy: str = GC_REMEDY) -> HealthLine:
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
        return fail(what, f"{free} free at {where}: full", remedy, "store")
    if folder.free < max(LITTLE_FREE, needed):
        return warn(
            what,
            f"{free} free at {where}; about {format_bytes(max(LITTLE_FREE, needed))} may be written",
            remedy,
        )
    return note(what, f"{free} free at {where}")


def check_sources(sources: SourceState) -> HealthLine:
    """Check that the client sees the raw files."""
    if sources.error:
        return fail("sources", sources.error, "correct source.path, or bring the files", "source")
    return note(
        "sources",
        f"{sources.n_files:,} file{'' if sources.n_files == 1 else 's'}, {format_bytes(sources.n_bytes)}",
    )


def check_worker_paths(
    views: Mapping[str, WorkerView],
    unseen: Mapping[str, str],
    ours: SourceState,
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


def _check_worker_sources(views: Mapping[str, WorkerView], ours: SourceState) -> list[HealthLine]:
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
        said = f"other files than here ({here}) at {list_first(other)}"
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
            f"temporary files are in memory at {list_first(in_memory)}, and count against its limit",
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
        f"{len(names)} of {len(said)} workers {what}: {list_first(names)}: {text}"
        for text, names in by_text.items()
    ]
