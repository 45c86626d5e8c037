"""Imports without a search for garbage among modules, which live until the end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def import_quickly() -> Iterator[None]:
    """Collect no garbage while the context lasts: imports of Prefect take a seventh less processor time."""
    gc.disable()
    try:
        yield
    finally:
        # what has been imported is never looked at again
        gc.freeze()
        gc.enable()
