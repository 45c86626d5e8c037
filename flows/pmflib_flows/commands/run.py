"""Commands that run pipelines: run, status."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pmflib.base.display.summary import format_seconds
from pmflib.base.errors import StoreError
from pmflib_flows.console import (
    AsJson,
    ConfigPath,
    load_pipeline,
    out,
    print_json,
    progress_shown,
)
from pmflib_flows.pipeline_flow import import_quickly, spare_pandas
from pmflib_flows.tables import make_table

if TYPE_CHECKING:
    from pmflib.store.artefacts import Reference, Store
    from pmflib.store.run_records import RunRecord


USED = ("stage", "time", "processor time", "the client", "a worker", "read", "written")
"""Columns of the table of resource usage by stage."""


def run(
    config: ConfigPath,
    accept_quality: Annotated[
        bool,
        typer.Option(
            "--accept-quality", help="Accept the data of this run even if a quality check fails."
        ),
    ] = False,
    rehash: Annotated[
        bool,
        typer.Option(
            "--rehash", help="Read all sources again, including those that seem unchanged."
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help='Fit a short ladder, or spend at most a minute on rank = "auto" (see model.rank_budget).',
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline: ingest new data, count, check quality, fit, refine, evaluate and publish."""
    spare_pandas()
    with import_quickly():
        from pmflib_flows.etl import etl

    with progress_shown(as_json):
        facts = etl(str(config), accept_quality=accept_quality, rehash=rehash, quick=quick)
    from pmflib_flows.run_tables import show_run

    show_run(facts, as_json)


def status(config: ConfigPath, as_json: AsJson = False) -> None:
    """Show the last run of a pipeline, or its last labels, and the artefacts of its stages."""
    from pmflib.store.care.collection import list_unfinished
    from pmflib.store.model_history import describe_live
    from pmflib.store.run_records import find_last_run, find_live, list_records
    from pmflib_flows.run_tables import draw_sections, show_run
    from pmflib_tasks.features import list_offers
    from pmflib_tasks.gate.publish import locate_for_people
    from pmflib_tasks.stage import open_store

    checked = load_pipeline(config)
    store = open_store(checked)
    unfinished = list_unfinished(store)
    last, live = find_last_run(store, checked.name), find_live(store, checked.name)
    facts: dict[str, object] = {}
    worth: dict[str, Any] = {}
    if last is not None and live is not None:
        facts = {"run": last.number, "outcome": last.outcome, "reason": last.reason, **last.facts}
        facts |= locate_for_people(store, live)
        worth = _describe_equivalent_samples(store, live)
    became_live = describe_live(list_records(store, checked.name))
    parts = [find_part(checked, store) for find_part in list_offers("status")]
    known = next((each for each in (last, *(part.record for part in parts)) if each), None)
    current = known is not None and known.config == checked.digest
    # the record of the run names them: reading a manifest of many nightly runs takes minutes
    stages = {} if known is None else known.stages
    if as_json:
        answer: dict[str, object] = {
            "artefacts": {stage: each.digest for stage, each in stages.items()},
            "unfinished": [asdict(work) for work in unfinished],
            "run": facts,
            "live": {} if became_live is None else asdict(became_live),
            "current": current,
            "equivalent_samples": worth,
        }
        for part in parts:
            answer |= part.content
        print_json(answer)
        return
    rows = [(stage, each.kind, each.digest[:12]) for stage, each in stages.items()]
    if rows:
        out.print(make_table("Artefacts", ("stage", "kind", "digest"), rows))
    for work in unfinished:
        what = f"{work.kind or 'work'} {work.identity[:12]}, since {work.since or 'some time'}"
        out.print(f"Unfinished: {what} (UTC); run the same command again to continue it")
    for part in parts:
        for shown in draw_sections(part.sections):
            out.print(shown)
    if last is not None and facts:
        show_run(facts, as_json=False)
        out.print(make_table("What stages took", USED, _list_usage(last), narrow=True))
    if facts and became_live is not None:
        out.print(f"  live since {became_live.since}, run {became_live.run}: {became_live.why}")
        out.print(f"  in answers it is worth {worth['text']}")
    if known is None:
        out.print("No run has finished yet.")
        return
    if not current:
        out.print("The configuration has changed since that run.")


def _list_usage(record: RunRecord) -> list[tuple[str, ...]]:
    """Return rows of the table of resource usage by stage; "-" for unknown memory."""
    from pmflib.cluster.memory import format_bytes

    return [
        (
            took.stage,
            format_seconds(took.seconds),
            format_seconds(took.processor_seconds),
            *(
                format_bytes(size) if size else "-"
                for size in (
                    took.client_memory,
                    took.worker_memory,
                    took.read_bytes,
                    took.written_bytes,
                )
            ),
        )
        for took in record.timings
    ]


def _describe_equivalent_samples(store: Store, live: Reference) -> dict[str, Any]:
    """Return the number of rows that the live model counts for in answers, as text, and how it was estimated."""
    from pmflib.answering.equivalent_samples import find_equivalent_samples
    from pmflib.store.array_groups import read_arrays

    try:
        _, attributes = read_arrays(store.locate(live) / "model", [])
    except StoreError as error:
        return {"text": f"what cannot be read: {error}"}
    found = find_equivalent_samples(attributes["origin"])
    return {"text": str(found), **found.to_json()}
