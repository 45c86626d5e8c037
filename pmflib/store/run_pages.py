"""Report pages of runs, kept in the store."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from pmflib.store.artefacts import Store, refuse_unwritable

REPORTS = "reports"
"""Folder of a store with a folder of report pages for each pipeline."""


def keep_page(store: Store, name: str, number: int, content: bytes) -> str:
    """Write the report page of a run into a store, replacing an existing one.

    Parameters
    ----------
    store
        The store.
    name, number
        Name of the pipeline, and number of the run.
    content
        The page.

    Returns
    -------
    Absolute path or URL of the page.

    Raises
    ------
    StoreError
        If the store cannot be written.
    """
    location = f"{REPORTS}/{name}/{number:06}.html"
    with refuse_unwritable(store.root):
        store.objects.put(location, content)
    return f"{store.address}/{location}"


def list_pages(store: Store) -> list[str]:
    """List the names of the report pages of a store."""
    names = (metadata.name for metadata in store.objects.list_objects(REPORTS))
    return [name for name in names if name.endswith(".html")]


def drop_pages(store: Store, kept: Mapping[str, Collection[int]] | None = None) -> int:
    """Delete the report pages of all runs except those to keep.

    Parameters
    ----------
    store
        The store.
    kept
        Numbers of the runs to keep by pipeline; None deletes all pages, as for erasures.

    Returns
    -------
    Number of deleted pages.
    """
    pages = [Path(metadata.name) for metadata in store.objects.list_objects(REPORTS)]
    gone = [
        page
        for page in pages
        if kept is None
        or not page.stem.isdecimal()
        or int(page.stem) not in kept.get(page.parent.name, ())
    ]
    store.objects.delete([page.as_posix() for page in gone])
    if kept is None and not store.is_bucket:
        # including drafts
        with suppress(FileNotFoundError):
            shutil.rmtree(store.root / REPORTS)
    return len(gone)
