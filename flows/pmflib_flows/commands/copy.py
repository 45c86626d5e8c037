"""Command that copies a store into another: copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmflib.core.errors import ConfigError
from pmflib_flows.console import AsJson, SafeConsole, out, print_json

if TYPE_CHECKING:
    from pmflib.store.artefacts import Store


def copy(
    store_a: Annotated[
        str, typer.Argument(help="Store to copy: its folder, or s3://bucket/prefix.")
    ],
    store_b: Annotated[str, typer.Argument(help="Store to copy to; made if absent.")],
    pipeline: Annotated[
        str | None,
        typer.Option(
            help="Only the runs of this pipeline, and what they need.", show_default="all"
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Also read what STORE_B has, and copy again what is damaged."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only; write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy a store: artefacts, manifest, records, erasures, pages, lineage; what STORE_B has is not copied again.

    Every file is compared with its digest. STORE_B is valid at every moment; a copy that was stopped goes on with the
    same command. Where samples were erased from STORE_A, what may hold them is deleted from STORE_B.
    """
    from pmflib.display.progress_bars import draw_progress
    from pmflib.store.copying import copy_store

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
    """Open a store that is there."""
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
    """Open a store to copy to; None for one that need not be made."""
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
        f"STORE_B {location!r} is neither a store nor empty; name a new folder, or one of a store"
    )


def _holds_store(store: Store) -> bool:
    """Whether there is a store in a bucket, also one that a copy has only started to fill."""
    return not {"manifest", "leases"}.isdisjoint(store.objects.list_folders(""))
