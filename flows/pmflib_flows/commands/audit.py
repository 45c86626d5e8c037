"""Commands that inspect the store: log, verify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pmflib.base.errors import StoreError
from pmflib_flows.commands.history import find_recorded_name
from pmflib_flows.console import AsJson, ConfigPath, load_pipeline, out, print_json

if TYPE_CHECKING:
    from pmflib.store.artefacts import Reference, Store
    from pmflib.store.lineage import Step
    from pmflib.store.run_records import RunRecord


def log(
    config: ConfigPath,
    what: Annotated[
        str | None,
        typer.Argument(
            help="Number of a run, or first digits of a digest. Default: the live model, or the labels."
        ),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(
            help="Show the raw rows of one sample: its identifier, or FILE:ROW if samples have no identifiers."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Trace a run, model or prediction back to the raw files and rows it was made from."""
    from pmflib.store.lineage import trace
    from pmflib_tasks.stage import open_store

    checked = load_pipeline(config)
    store = open_store(checked)
    reference = _find_start(store, checked.name, what)
    steps = list(trace(store, reference))
    if sample is not None:
        _show_sample(store, steps, sample, as_json)
        return
    if as_json:
        print_json(
            [
                {
                    "depth": s.depth,
                    "role": s.role,
                    "again": s.again,
                    "collected": s.entry is None and not s.erased,
                    "erased": s.erased,
                    **({"reference": asdict(s.reference)} if s.entry is None else asdict(s.entry)),
                }
                for s in steps
            ]
        )
        return
    for step in steps:
        name, more = "", " (erased)" if step.erased else " (collected)"
        if step.entry is not None:
            name = step.entry.options.get("name", "")
            more = " (see above)" if step.again and step.entry.inputs else ""
        line = f"{'  ' * step.depth}{step.reference.kind} {step.reference.digest[:12]} {name}{more}"
        out.print(line.rstrip())


def _find_start(store: Store, name: str, what: str | None) -> Reference:
    """Find the artefact that a run ended with, that has a digest, or that answers questions."""
    from pmflib.store.lineage import find_reference
    from pmflib.store.run_records import find_last_run, find_live, list_records, name_labelling

    if what is not None:
        history = find_recorded_name(store, name)
        for record in list_records(store, history):
            # a digest could begin like the number of a run, but nobody gives so few digits
            if what.isdecimal() and record.number == int(what):
                return _find_end(store, history, record)
        return find_reference(store, what)
    if (live := find_live(store, name)) is not None:
        return live
    if (labelling := find_last_run(store, name_labelling(name))) is not None:
        return labelling.stages["labels"]
    raise StoreError(
        f"pipeline {name!r} has no live model yet; `pmf run` makes one (and `pmf crowd` finds labels)"
    )


def _find_end(store: Store, history: str, record: RunRecord) -> Reference:
    """Return the artefact of a run's last stage; for other commands, the model that was live afterwards."""
    from pmflib.store.erasures import list_erased
    from pmflib.store.lineage import list_collected_runs

    stages = ("model", "labels", "start", "counts", "dataset")
    found = [record.stages[stage] for stage in stages if stage in record.stages]
    if record.action not in ("run", "labels"):
        found = [] if record.live is None else [record.live]
    if not found:
        raise StoreError(
            f"run {record.number} was {record.outcome} before it had made anything: {record.reason}"
        )
    if found[0].identity in list_erased(store):
        raise StoreError(
            f"what run {record.number} made last held samples that were erased, and is no longer in the store; its "
            "record is, see `pmf history --json`"
        )
    gone = record.number in list_collected_runs(store).get(history, ())
    if gone and store.find(found[0].identity) is None:
        raise StoreError(
            f"run {record.number} was collected by `pmf gc`: what it made is no longer in the store; its record is, "
            "see `pmf history --json`"
        )
    return found[0]


def _show_sample(store: Store, steps: Sequence[Step], sample: str, as_json: bool) -> None:
    """Show which rows of raw files a sample came from."""
    from pmflib.ingest.dataset.sample_origins import find_sample

    datasets = sorted(
        (step for step in steps if step.reference.kind == "dataset" and not step.erased),
        key=lambda step: step.depth,
    )
    if not datasets:
        raise StoreError(
            f"{steps[0].reference.kind} {steps[0].reference.digest[:12]} was not made from a dataset; "
            "pass a run, a model or predictions"
        )
    found = find_sample(store, datasets[0].reference, sample)
    if as_json:
        content = {
            name.replace("partition_index", "place"): value for name, value in asdict(found).items()
        }
        print_json({"dataset": datasets[0].reference.digest, **content})
        return
    lines = [
        f"dataset {datasets[0].reference.digest[:12]}",
        f"  samples {found.partition.digest[:12]} row {found.row}, in the block of rows "
        f"{found.start} to {found.stop - 1}, fold {found.fold}",
    ]
    if steps[0].reference.kind == "predictions":
        lines.insert(
            0,
            f"predictions {steps[0].reference.digest[:12]} part-{found.partition_index:05}.parquet",
        )
    for file in found.files:
        numbers = ", ".join(map(str, file.rows))
        lines.append(f"    source {file.digest[:12]} {file.name}: rows {numbers}")
    for line in lines:
        out.print(line)


def verify(config: ConfigPath, as_json: AsJson = False) -> None:
    """Verify that everything the manifest and the run history refer to exists and is unchanged."""
    from pmflib.base.json_files import parse_json
    from pmflib.store.care.verification import REMEDIES, verify_store
    from pmflib.store.erasures import list_erased
    from pmflib.store.lineage import is_needed, list_collected_runs
    from pmflib_tasks.features import list_offers
    from pmflib_tasks.stage import open_store

    store = open_store(load_pipeline(config))
    read_event = next(list_offers("read_event"), parse_json)
    found = verify_store(
        store, list_collected_runs(store), is_needed, list_erased(store), read_event
    )
    by_problem: dict[str, list[str]] = {}
    for each in found.damages:
        by_problem.setdefault(each.problem, []).append(each.location)
    remedies = {problem: text for problem, text in REMEDIES.items() if problem in by_problem}
    if as_json:
        damages = [
            {"problem": each.problem, "place": each.location, "detail": each.detail}
            for each in found.damages
        ]
        print_json(
            {
                "artefacts": found.n_whole,
                "damages": damages,
                "remedies": remedies,
                "torn": list(found.torn),
            }
        )
    else:
        out.print(f"{found.n_whole} artefacts hold what they were published with")
        for each in found.damages:
            line = f"{each.problem}: {each.location} ({each.detail})"
            out.print(line, soft_wrap=True)
        for location in found.torn:
            line = f"{location}: a crash cut off its last line, which the next run replaces"
            out.print(line, soft_wrap=True)
    if found.damages:
        parts = [_sum_up(problem, by_problem[problem], text) for problem, text in remedies.items()]
        raise StoreError(f"store {store.name!r} is not whole: {'. '.join(parts)}")


def _sum_up(problem: str, locations: list[str], remedy: str) -> str:
    """Say where a problem is, for the first few locations, and what to do about it."""
    shown = ", ".join(locations[:3]) + (", ..." if len(locations) > 3 else "")
    return f"{problem} ({len(locations)}: {shown}): {remedy}"
