"""Pages of runs that a store keeps: `pmf report` writes them again at any time, so that nothing depends on them."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from pmflib.store.artefacts import Store, refuse_unwritable, replace_file
from pmflib.store.private_files import make_folder

REPORTS = "reports"
"""Folder of a store with a folder of pages for each pipeline."""


def keep_page(store: Store, name: str, number: int, content: bytes) -> Path:
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
    The file.

    Raises
    ------
    StoreError
        If the store cannot be written.
    """
    path = store.root / REPORTS / name / f"{number:06}.html"
    with refuse_unwritable(store.root):
        make_folder(path.parent)
        replace_file(path, content)
    return path


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
    pages = sorted((store.root / REPORTS).glob("*/*.html"))
    if kept is None:
        with suppress(FileNotFoundError):
            shutil.rmtree(store.root / REPORTS)
        return len(pages)
    gone = [
        page
        for page in pages
        if not page.stem.isdecimal() or int(page.stem) not in kept.get(page.parent.name, ())
    ]
    for page in gone:
        with suppress(FileNotFoundError):
            page.unlink()
    return len(gone)
