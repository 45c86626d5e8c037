"""Command that copies a store into another: copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmflib.base.errors import ConfigError
from pmflib_flows.console import AsJson, SafeConsole, out, print_json

if TYPE_CHECKING:
    from pmflib.store.artefacts import Store


def copy(
    store_a: Annotated[
        str, typer.Argument(help="Store to copy: its folder, or s3://bucket/prefix.")
    ],
    store_b: Annotated[str, typer.Argument(help="Target store; created if it does not exist.")],
    pipeline: Annotated[
        str | None,
        typer.Option(
            help="Copy only the runs of this pipeline, with everything they need.",
            show_default="all",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Also verify files already in STORE_B, and replace damaged ones."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be copied, without writing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy a store: artefacts, manifest, records, erasures, report pages and lineage. Existing files are skipped.

    Every file is compared with its digest. STORE_B is valid at all times; an interrupted copy continues with the same
    command. Artefacts that may contain samples erased from STORE_A are deleted from STORE_B.
    """
    from pmflib.base.display.progress_bars import draw_progress
    from pmflib.store.care.copying import copy_store

    source = _open(store_a)
    with draw_progress(SafeConsole(stderr=True, quiet=as_json)):
        found = copy_store(
            source,
            _open_target(store_b, dry_run),
            pipeline=pipeline,
            verify=verify,
            dry_run=dry_run,
        )
    if as_json:
        print_json({"from": store_a, "to": store_b, "dry_run": dry_run, **found.to_json()})
        return
    from pmflib_flows.tables import make_table

    rows = []
    for kind in sorted({*found.artefacts, *found.present, *found.removed}):
        amounts = [found.artefacts.get(kind), found.removed.get(kind)]
        copied, removed = (
            (0, 0) if each is None else (each.number, each.bytes) for each in amounts
        )
        rows.append([kind, *copied, found.present.get(kind, 0), *removed])
    verb = "to copy" if dry_run else "copied"
    columns = ["kind", verb, "bytes", "there already"]
    if found.removed:
        columns += ["to delete" if dry_run else "deleted", "bytes deleted"]
    out.print(make_table("Artefacts", columns, [row[: len(columns)] for row in rows]))
    out.print(
        f"{verb}: {found.bytes:,} bytes, {found.entries:,} manifest entries, {found.records:,} records, "
        f"{found.pages:,} report pages"
    )
    if found.n_ahead:
        out.print(
            f"{store_b} has {found.n_ahead:,} records that {store_a} does not have; they stay"
        )


def _open(location: str) -> Store:
    """Open an existing store."""
    from pmflib.store.artefacts import Store
    from pmflib.store.objects.addresses import is_bucket

    if is_bucket(location):
        store = Store(location)
        if _holds_store(store):
            return store
    elif (Path(location) / "manifest").is_dir():
        return Store(location)
    raise ConfigError(
        f"STORE_A {location!r} is no store: there is no folder 'manifest' in it; give what [store] path names"
    )


def _open_target(location: str, dry_run: bool) -> Store | None:
    """Open the target store; None if it need not be created."""
    from pmflib.store.artefacts import Store
    from pmflib.store.objects.addresses import is_bucket

    if is_bucket(location):
        store = Store(location)
        if _holds_store(store) or not store.objects.list_folders(""):
            return store
    else:
        path = Path(location)
        is_store = (path / "manifest").is_dir()
        if is_store or not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return None if dry_run and not is_store else Store(location)
    raise ConfigError(
        f"STORE_B {location!r} is neither a store nor empty; name a new folder, or the folder of a store"
    )


def _holds_store(store: Store) -> bool:
    """Return whether a bucket contains a store, even if a copy has only started to fill it."""
    return not {"manifest", "leases"}.isdisjoint(store.objects.list_folders(""))
