"""What the client and every worker see of a pipeline's places: the function that each of them calls."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass, field

from pmflib.errors import PmfError
from pmflib.health.process_facts import ProcessFacts, find_process_facts
from pmflib.health.store_probe import (
    FolderFacts,
    look_at_folder,
    read_probe,
    remove_probe,
    write_probe,
)
from pmflib.ingest.source_urls import mask_secrets
from pmflib.ingest.sources import find_sources, open_source


@dataclass(frozen=True)
class Places:
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
        Whether files without a byte are passed over.
    """

    store: str
    probe: str
    sources: tuple[str, ...] = field(repr=False)
    suffixes: tuple[str, ...]
    skip_empty: bool


@dataclass(frozen=True)
class SourceFacts:
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

    process: ProcessFacts
    scratch: FolderFacts
    store: FolderFacts | None
    unread: str
    unwritten: str
    written: str
    sources: SourceFacts


def look_from_worker(places: Places, own_probe: str) -> WorkerView:
    """Look at a pipeline's places from the process that calls this.

    Parameters
    ----------
    places
        What to look at.
    own_probe
        Name of the probe file that this process is to write.
    """
    unwritten, store = "", None
    try:
        store = look_at_folder(places.store)
        write_probe(places.store, own_probe)
    except OSError as error:
        unwritten = error.strerror or str(error)
    unread = read_probe(places.store, places.probe)
    if unwritten or unread:
        # the client looks for it in another folder, or does not wait any more
        remove_probe(places.store, own_probe)
    return WorkerView(
        process=find_process_facts(),
        scratch=look_at_folder(tempfile.gettempdir()),
        store=store,
        unread=unread,
        unwritten=unwritten,
        written="" if unwritten or unread else own_probe,
        sources=look_at_sources(places.sources, places.suffixes, skip_empty=places.skip_empty),
    )


def look_at_sources(
    paths: tuple[str, ...], suffixes: tuple[str, ...], *, skip_empty: bool
) -> SourceFacts:
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
        return SourceFacts(0, 0, "", mask_secrets(str(error)))
    seen = repr([(each.name, each.size) for each in found]).encode()
    n_bytes = sum(each.size for each in found)
    return SourceFacts(len(found), n_bytes, hashlib.sha256(seen).hexdigest())
