"""Commands about the past runs of a pipeline: history, gc."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pmflib.base.display.summary import DIGITS
from pmflib.base.errors import ConfigError, StoreError
from pmflib_flows.console import AsJson, ConfigPath, load_pipeline, out, print_json
from pmflib_flows.tables import make_table

if TYPE_CHECKING:
    from pmflib.store.artefacts import Store
    from pmflib.store.run_records import RunRecord

REASON_LETTERS = 110
"""Maximum length of a reason in the history; `--json` has all."""
SCORE = "log_prob_per_cell"
"""Score shown in the history."""


def history(
    config: ConfigPath,
    last: Annotated[int, typer.Option(min=0, help="Number of runs to show; 0 for all.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the runs of a pipeline: time, duration, outcome and reason, rows, new files, model and score."""
    from pmflib.store.erasures import list_erased
    from pmflib.store.lineage import list_collected_runs
    from pmflib.store.run_records import COLLECTIONS, list_records, name_labelling
    from pmflib_tasks.stage import open_store

    checked = load_pipeline(config)
    store = open_store(checked)
    titles = {checked.name: "Runs", name_labelling(checked.name): "Labels"}
    histories = {title: list_records(store, name) for name, title in titles.items()}
    collections = list_records(store, COLLECTIONS)
    gone, erased = list_collected_runs(store), list_erased(store)
    collected = {title: gone.get(name, set()) for name, title in titles.items()}
    shown = {title: records[-last:] for title, records in histories.items()}
    if as_json:
        content: dict[str, object] = {
            title.lower(): [
                {
                    **record.to_json(),
                    "collected": record.number in collected[title],
                    "erased": _is_erased(record, erased),
                }
                for record in records
            ]
            for title, records in shown.items()
        }
        print_json({**content, "collections": [record.to_json() for record in collections[-last:]]})
        return
    if not any(histories.values()):
        out.print("No run has ended yet.")
    for title, records in shown.items():
        if not records:
            continue
        new = _count_new_files(histories[title])
        since = [each for each in collections if each.started >= records[0].started]
        # within the same second, a collection is shown after the run that it kept
        mixed = sorted([*records, *since], key=lambda each: (each.started, each.action == "gc"))
        rows = [
            _describe(each, new, each.number in collected[title], erased=_is_erased(each, erased))
            for each in mixed
        ]
        columns = ("run", "what", "started (UTC)", "s", "outcome", "rows", "new")
        out.print(make_table(title, (*columns, "model", "nats/cell"), rows))
        for each in mixed:
            what = "gc" if each.action == "gc" else f"run {each.number}"
            out.print(f"{what}: {_shorten(each.reason)}")


def _is_erased(record: RunRecord, erased: Collection[str]) -> bool:
    """Return whether some results of a run were deleted because they contained erased samples."""
    return any(reference.identity in erased for reference in record.stages.values())


def _describe(
    record: RunRecord, new: Mapping[int, int], collected: bool, *, erased: bool
) -> list[Any]:
    """Return a row of the history."""
    from pmflib_tasks.facts import RunFacts

    if record.action == "gc":
        when = record.started[:16].replace("T", " ")
        return ["", "gc", when, "", record.outcome, "", "", "", ""]
    took = datetime.fromisoformat(record.ended) - datetime.fromisoformat(record.started)
    account, score = RunFacts(record.facts).account, record.scores.get(SCORE)
    model = record.model or record.live
    return [
        record.number,
        record.action,
        record.started[:16].replace("T", " "),
        took // timedelta(seconds=1),
        record.outcome + (", collected" if collected else ", erased" if erased else ""),
        "" if account is None else account.rows_in,
        new.get(record.number, ""),
        "" if model is None else model.digest[:DIGITS],
        "" if score is None else f"{score:.4f}",
    ]


def _shorten(reason: str) -> str:
    """Return the first line of a reason, shortened to the maximum length."""
    line = reason.split("\n")[0]
    return line if len(line) <= REASON_LETTERS else line[: REASON_LETTERS - 1] + "…"


def _count_new_files(records: Sequence[RunRecord]) -> dict[int, int]:
    """Count the files of each run that are new or changed since the run before, by run number."""
    from pmflib_tasks.file_changes import compare_files

    reading = [record for record in records if record.inputs]
    counts = {record.number: len(record.inputs) for record in reading[:1]}
    for before, after in pairwise(reading):
        changes = compare_files(before.inputs, after.inputs)
        counts[after.number] = len(changes.added) + len(changes.changed)
    return counts


def find_recorded_name(store: Store, name: str) -> str:
    """Return the name of a pipeline's history, or that of its labels if there is no other."""
    from pmflib.store.run_records import list_histories, name_labelling

    labels = name_labelling(name)
    known = list_histories(store)
    return labels if labels in known and name not in known else name


def find_run(store: Store, name: str, which: str) -> RunRecord:
    """Find a run in a history: by number, the last one, or the one of the live model.

    Raises
    ------
    ConfigError
        If ``which`` is none of these.
    StoreError
        If there is no such run.
    """
    from pmflib.store.run_records import find_last_run, find_live, find_record, find_run_of

    if which.isdecimal():
        return find_record(store, name, int(which))
    if which == "last":
        found = find_last_run(store, name)
    elif which == "live":
        live = find_live(store, name)
        found = None if live is None else find_run_of(store, name, live)
    else:
        raise ConfigError(f"run {which!r} is no run; pass a number, live or last")
    if found is None:
        raise StoreError(f"there is no {which} run; `pmf history` lists what there is")
    return found


def gc(
    config: ConfigPath,
    keep_runs: Annotated[
        int, typer.Option(min=1, help="Number of runs to keep for every pipeline in the store.")
    ] = 30,
    older_than: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="HOURS",
            help="Keep what was made or used within so many hours: more than the longest run takes, as runs under way "
            "are known by nothing else.",
        ),
    ] = 24.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted, without deleting.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete artefacts that no kept run or live model needs and no run has used of late; run records are kept."""
    from pmflib.store.care.collection import collect
    from pmflib_tasks.stage import open_store

    store = open_store(load_pipeline(config))
    found = collect(store, keep_runs, older_than=older_than, dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, **found.to_json()})
        return

    kinds = sorted({*found.artefacts, *found.kept})
    rows = [[kind, *_amounts(found.artefacts, kind), *_amounts(found.kept, kind)] for kind in kinds]
    rows += [[kind, each.number, each.bytes, 0, 0] for kind, each in found.leftovers.items()]
    deleted = "to delete" if dry_run else "deleted"
    columns = ("kind", deleted, "bytes", "kept", "bytes kept")
    out.print(make_table("Artefacts", columns, rows))
    verb = "would be freed" if dry_run else "freed"
    out.print(f"{found.bytes:,} bytes {verb}")


def _amounts(amounts: Mapping[str, Any], kind: str) -> Iterable[int]:
    amount = amounts.get(kind)
    return (0, 0) if amount is None else (amount.number, amount.bytes)
