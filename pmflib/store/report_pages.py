"""Pages of runs that a store keeps: `pmf report` writes them again at any time, so that nothing depends on them."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from pmflib.store.artefacts import Store, refuse_unwritable

REPORTS = "reports"
"""Folder of a store with a folder of pages for each pipeline."""


def keep_page(store: Store, name: str, number: int, content: bytes) -> str:
    """Write the page of a run into a store; one that is there is replaced.

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
    The place of the page: a path, absolute, or a URL.

    Raises
    ------
    StoreError
        If the store cannot be written.
    """
    place = f"{REPORTS}/{name}/{number:06}.html"
    with refuse_unwritable(store.root):
        store.objects.put(place, content)
    return f"{store.address}/{place}"


def drop_pages(store: Store, kept: Mapping[str, Collection[int]] | None = None) -> int:
    """Delete pages: of all runs, for they may show rows of samples that are erased; or of all runs but those kept.

    Parameters
    ----------
    store
        The store.
    kept
        Numbers of the runs to keep, by pipeline; None keeps none.

    Returns
    -------
    Number of pages.
    """
    pages = [Path(facts.name) for facts in store.objects.list_objects(REPORTS)]
    gone = [
        page
        for page in pages
        if kept is None
        or not page.stem.isdecimal()
        or int(page.stem) not in kept.get(page.parent.name, ())
    ]
    store.objects.delete([page.as_posix() for page in gone])
    if kept is None and not store.is_bucket:
        # drafts go with them
        with suppress(FileNotFoundError):
            shutil.rmtree(store.root / REPORTS)
    return len(gone)
