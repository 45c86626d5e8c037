"""Commands that inspect the store: log, verify."""

from __future__ import annotations

from dataclasses import asdict
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
        out.print(line.rstrip(), markup=False, highlight=False)


def verify(config: ConfigPath, as_json: AsJson = False) -> None:
    """Check that all that the manifest and the history refer to is there, with every byte it was published with."""
    from pmflib.store.verification import REMEDIES, verify_store
    from tasks.stage import open_store

    store = open_store(load_config(config))
    found = verify_store(store)
    by_problem: dict[str, list[str]] = {}
    for each in found.damages:
        by_problem.setdefault(each.problem, []).append(each.place)
    remedies = {problem: text for problem, text in REMEDIES.items() if problem in by_problem}
    if as_json:
        damages = [asdict(each) for each in found.damages]
        print_json({"artefacts": found.n_whole, "damages": damages, "remedies": remedies})
    else:
        out.print(f"{found.n_whole} artefacts hold what they were published with")
        for each in found.damages:
            line = f"{each.problem}: {each.place} ({each.detail})"
            out.print(line, markup=False, highlight=False, soft_wrap=True)
    if found.damages:
        parts = [_sum_up(problem, by_problem[problem], text) for problem, text in remedies.items()]
        raise StoreError(f"store {str(store.root)!r} is not whole: {'. '.join(parts)}")


def _sum_up(problem: str, places: list[str], remedy: str) -> str:
    """Say where a problem is, for the first few places, and what to do about it."""
    shown = ", ".join(places[:3]) + (", ..." if len(places) > 3 else "")
    return f"{problem} ({len(places)}: {shown}): {remedy}"
