"""Exports: reports, tables and labels written outside a store, remembered so that an erasure can list them."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pmflib.base.errors import StoreError
from pmflib.base.json_records import from_json
from pmflib.store.artefacts import Store, refuse_unwritable
from pmflib.store.file_digests import seal, unseal
from pmflib.store.objects.local_folder import digest_file
from pmflib.store.run_records import now

EXPORTS = "exports"
"""Folder of a store with a file for each export."""

State = Literal["as written", "changed", "gone", "on another host"]
"""State of an export: its files are unchanged, changed, gone, or on another host."""


@dataclass(frozen=True)
class Export:
    """One export, as last written.

    Parameters
    ----------
    kind
        Kind of content: report, figures, predictions, answers, quarantine, labels or counts.
    path
        Absolute path of the file or folder.
    host
        Host that wrote it.
    written
        Time in UTC, ISO 8601.
    files
        SHA-256 of each file, by its absolute path.
    """

    kind: str
    path: str
    host: str
    written: str
    files: dict[str, str]

    def find_state(self) -> State:
        """Compare the files with their digests."""
        paths = [path for path in self.files if os.path.exists(path)]
        if not paths:
            return "gone" if self.host == platform.node() else "on another host"
        with suppress(OSError):
            if len(paths) == len(self.files) and all(
                digest_file(Path(path)) == digest for path, digest in self.files.items()
            ):
                return "as written"
        return "changed"


def remember_export(store: Store, kind: str, output: Path, paths: Iterable[Path]) -> None:
    """Record an export in a store, unless the store is read-only for this user.

    Parameters
    ----------
    store
        Store that the export was written from.
    kind, output
        Kind and path: see `Export`. An earlier record of the same path is replaced.
    paths
        Files of the export.
    """
    files = {str(path.resolve()): digest_file(path) for path in sorted(paths)}
    export = Export(kind, str(output.resolve()), platform.node(), now(), files)
    name = hashlib.sha256(os.fsencode(f"{export.host}\0{export.path}")).hexdigest()
    # the store may be another user's, and names that are not UTF-8 cannot be recorded
    with suppress(StoreError, UnicodeEncodeError), refuse_unwritable(store.root):
        store.objects.put(f"{EXPORTS}/{name}.json", seal(asdict(export)))


def list_exports(store: Store) -> list[Export]:
    """List the exports of a store, sorted by path.

    Raises
    ------
    StoreError
        If a record is damaged or was edited.
    """
    found = []
    for metadata in store.objects.list_objects(EXPORTS):
        try:
            found.append(read_export(store, metadata.name))
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{metadata.name} of store {store.name!r} is damaged ({error}); restore it from a copy of the "
                "store, or delete it: certificates of erasure will not list that export"
            ) from error
    return sorted(found, key=lambda export: (export.path, export.host))


def read_export(store: Store, name: str) -> Export:
    """Read the record of an export; raise `ValueError` if it is damaged."""
    return from_json(Export, unseal(store.objects.read(name)[0]))
