"""Verification of a store: whether every artefact still holds the bytes it was published with."""

from __future__ import annotations

from pathlib import Path

from pmflib.store.artefacts import Store
from pmflib.store.file_digests import digest_tree


def find_damage(store: Store) -> tuple[int, list[Path]]:
    """Read every artefact of a store, and compare it with its digest.

    Zarr checks its own checksums when a chunk is read. Here all files are checked: Parquet and JSON too, and whether
    one is missing or was added.

    Parameters
    ----------
    store
        The store; raw sources are not part of it and are not read.

    Returns
    -------
    Number of artefacts that are whole, and the folders of those that are not, in order.

    Raises
    ------
    StoreError
        If an entry of the manifest does not read.
    """
    digests = {
        store.root / entry.reference.path: entry.reference.digest
        for entry in store.entries()
        if entry.reference.path
    }
    damaged = [folder for folder in sorted(digests) if digest_tree(folder) != digests[folder]]
    return len(digests) - len(damaged), damaged
