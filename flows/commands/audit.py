"""Commands that inspect the store: log, verify."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.console import AsJson, ConfigPath, out, print_json
from pmflib.config import load_config
from pmflib.errors import StoreError


def log(
    config: ConfigPath,
    artefact: Annotated[
        str | None,
        typer.Argument(help="First digits of a digest; default: the live model, or the labels."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what an artefact was made from, back to the raw files."""
    from pmflib.store.lineage import find_reference, trace
    from pmflib.store.run_records import find_last_run, find_live, name_labelling
    from tasks.stage import open_store

    checked = load_config(config)
    store = open_store(checked)
    if artefact is not None:
        reference = find_reference(store, artefact)
    elif (live := find_live(store, checked.name)) is not None:
        reference = live
    elif (labelling := find_last_run(store, name_labelling(checked.name))) is not None:
        reference = labelling.stages["labels"]
    else:
        raise StoreError(
            f"pipeline {checked.name!r} has no live model yet; `pmf run` makes one (and `pmf crowd` finds labels)"
        )
    steps = list(trace(store, reference))
    if as_json:
        print_json(
            [
                {"depth": s.depth, "role": s.role, "again": s.again, **s.entry.to_json()}
                for s in steps
            ]
        )
        return
    for step in steps:
        entry = step.entry
        name = entry.options.get("name", "")
        more = " (see above)" if step.again and entry.inputs else ""
        line = (
            f"{'  ' * step.depth}{entry.reference.kind} {entry.reference.digest[:12]} {name}{more}"
        )
        out.print(line.rstrip())


def verify(config: ConfigPath, as_json: AsJson = False) -> None:
    """Compare every stored byte with the digest it was published under; damaged artefacts are named."""
    from pmflib.store.verification import find_damage
    from tasks.stage import open_store

    store = open_store(load_config(config))
    kept, damaged = find_damage(store)
    if as_json:
        print_json({"artefacts": kept, "damaged": [str(folder) for folder in damaged]})
    else:
        out.print(f"{kept} artefacts hold what they were published with")
    if damaged:
        names = ", ".join(str(folder) for folder in damaged)
        raise StoreError(
            f"{len(damaged)} artefacts of store {str(store.root)!r} do not hold what they were published with: "
            f"{names}; delete these folders, and the command that made them makes them again"
        )
