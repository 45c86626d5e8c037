"""Plan of a copy: what one store has, what the other lacks, and whether one may follow the other at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pmflib.core.errors import ConfigError, StoreError
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.erasures import ERASURES, read_erasures
from pmflib.store.lineage import list_collected_runs, list_needed, order_by_need, reach
from pmflib.store.objects.addresses import call_in_parallel
from pmflib.store.run_records import (
    COLLECTIONS,
    RECORDS,
    REPORTS,
    RunRecord,
    list_histories,
    list_stored,
    name_labelling,
    read_record,
)

SHOWN = 3
"""Locations that an error names, at most."""


@dataclass
class CopyPlan:
    """What a copy has to do; the order of each list is that of the copy.

    Parameters
    ----------
    entries
        Entries of the manifest that the target has to have, each after what it needs.
    collections
        Records of `pmf gc` that the target does not have.
    records
        Names of the files of records, of lost ones too, that the target does not have: by history, by number.
    pages
        Names of report pages of the source.
    foreign
        Identities of entries of the target that have to go, each before what it needs: samples were erased from the
        source, and what it does not hold may hold them.
    follows_erasures
        Whether the list of erased samples is carried over, and whatever is foreign deleted.
    n_ahead
        Records that the target alone has.
    """

    entries: list[Entry]
    collections: list[RunRecord] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    follows_erasures: bool = False
    n_ahead: int = 0


def plan_copy(source: Store, target: Store | None, pipeline: str | None = None) -> CopyPlan:
    """Find what a copy has to do, and refuse it where the target cannot follow the source.

    Runs may be under way in the source meanwhile: records are listed first, and whatever they refer to was there before
    them.

    Parameters
    ----------
    source, target
        The stores; None for a target that is not there yet.
    pipeline
        Name of the only pipeline to copy, with its labels; None copies all there is.

    Raises
    ------
    ConfigError
        If there is no such pipeline.
    StoreError
        If a part of the source is missing or damaged, the histories have diverged, or samples were erased from the
        target that the source still holds.
    """
    histories = _choose_histories(source, pipeline)
    files = {name: _list_files(source, name) for name in histories}
    entries = {entry.reference.identity: entry for entry in _read_entries(source)}
    plan, ahead = CopyPlan([]), dict[str, int]()
    if target is not None:
        _compare_erasures(source, target)
        ahead = _compare_histories(source, target, histories)
        plan.n_ahead = sum(ahead.values())
    if read_erasures(source) is not None:
        plan.follows_erasures = True
        if target is not None:
            _list_foreign(source, target, entries, ahead, plan)
    # after the manifest: what is not there for a collection is in its record by now
    roots = _check_records(source, files, entries)
    chosen = set(entries) if pipeline is None else reach(entries, roots)
    _check_inputs(source, entries, chosen)
    plan.entries = [entries[identity] for identity in reversed(order_by_need(entries, chosen))]
    plan.collections = _list_new_collections(source, target)
    there: set[str] = set()
    if target is not None:
        there = {each for name in histories for each in _list_files(target, name)}
    for name in histories:
        new = [each for each in files[name] if each not in there]
        plan.records += _order_records(source, name, new, chosen)
    plan.pages = [each for each in list_pages(source) if each.split("/")[1] in histories]
    return plan


def _choose_histories(source: Store, pipeline: str | None) -> list[str]:
    known = list_histories(source)
    if pipeline is None:
        return known
    chosen = [name for name in (pipeline, name_labelling(pipeline)) if name in known]
    if not chosen:
        raise ConfigError(
            f"--pipeline {pipeline!r} has no run in store {source.name!r}; there are {known}, and without "
            "--pipeline all are copied"
        )
    return chosen


def _list_files(store: Store, name: str) -> list[str]:
    """Names of the files of a history, by number."""
    numbers, lost = (set(list_stored(store, name, suffix)) for suffix in (".json", ".lost"))
    return [
        f"{RECORDS}/{name}/{number:06}.{'json' if number in numbers else 'lost'}"
        for number in sorted(numbers | lost)
    ]


def _order_records(
    source: Store, name: str, files: list[str], entries: Collection[str]
) -> list[str]:
    """Order new records so that the last one never names a live model that was collected: those between come after."""
    ordered: list[str] = []
    waiting: list[str] = []
    for file in files:
        waiting.append(file)
        path = Path(file)
        if path.suffix == ".json":
            live = read_record(source, name, int(path.stem)).live
            if live is None or live.identity in entries:
                ordered += reversed(waiting)
                waiting = []
    return ordered + waiting[::-1]


def _read_entries(store: Store) -> list[Entry]:
    """Entries of the manifest, also those whose content is gone."""
    found = call_in_parallel(store.read_entry, store.list_identities())
    return [entry for entry in found if entry is not None]


def list_pages(store: Store) -> list[str]:
    """Names of the report pages of a store."""
    names = (metadata.name for metadata in store.objects.list_objects(REPORTS))
    return [name for name in names if name.endswith(".html")]


def read_or_none(store: Store | None, name: str) -> bytes | None:
    """Content of a file of a store; None if there is none, or no store."""
    if store is None:
        return None
    try:
        return store.objects.read(name)[0]
    except FileNotFoundError:
        return None


def _check_records(
    source: Store, files: Mapping[str, list[str]], entries: Mapping[str, Entry]
) -> set[str]:
    """Check that what the records refer to is there; identities of it."""
    collected, roots = list_collected_runs(source), set()
    for name in files:
        numbers = list_stored(source, name, ".json")
        for number in numbers:
            record = read_record(source, name, number)
            gone = number in collected.get(name, ())
            references = [] if gone else list(record.stages.values())
            if record.live is not None and (not gone or number == numbers[-1]):
                references.append(record.live)
            for reference in references:
                _check(source, reference, f"run {number} of {name}", entries)
                roots.add(reference.identity)
    erasures = read_erasures(source)
    forward = {} if erasures is None else erasures.forward()
    return roots | {forward[identity].identity for identity in roots & forward.keys()}


def _check_inputs(source: Store, entries: dict[str, Entry], chosen: set[str]) -> None:
    """Check that what entries need is there; what was written while they were listed is added."""
    waiting = sorted(chosen)
    while waiting:
        entry = entries[waiting.pop()]
        for reference in list_needed(entry):
            if reference.identity not in entries:
                late = source.read_entry(reference.identity)
                if late is not None:
                    entries[reference.identity] = late
                    chosen.add(reference.identity)
                    waiting.append(reference.identity)
            _check(
                source,
                reference,
                f"{entry.reference.kind} {entry.reference.digest[:12]}",
                entries,
            )


def _check(source: Store, reference: Reference, user: str, entries: Mapping[str, Entry]) -> None:
    if reference.identity in entries:
        return
    erasures = read_erasures(source)
    if erasures is None or reference.identity not in erasures.list_deleted():
        raise StoreError(
            f"{reference.kind} {reference.digest[:12]} of {user} is not in the manifest of store "
            f"{source.name!r}; `pmf verify` lists all that is missing there, and what to do"
        )


def _compare_histories(source: Store, target: Store, histories: Collection[str]) -> dict[str, int]:
    """Check that no record of the target differs from that of the source; number of records that it alone has."""
    ahead = {}
    for name in list_histories(target):
        mine, theirs = ({*list_stored(store, name, ".json")} for store in (source, target))
        for number in sorted(mine & theirs if name in histories else ()):
            path = f"{RECORDS}/{name}/{number:06}.json"
            if read_or_none(source, path) != read_or_none(target, path):
                there, here = (_describe(store, name, number) for store in (source, target))
                raise StoreError(
                    f"the histories of stores {source.name!r} and {target.name!r} have diverged: run {number} of "
                    f"{name!r} is {there} there, and {here} here; copy to an empty store, or delete the one "
                    "whose runs are not wanted"
                )
        if theirs - mine:
            ahead[name] = len(theirs - mine)
    return ahead


def _describe(store: Store, name: str, number: int) -> str:
    record = read_record(store, name, number)
    return f"'{record.action}, {record.outcome}' of {record.started}"


def _compare_erasures(source: Store, target: Store) -> None:
    """Check that the target has erased nothing that the source holds."""
    ours, theirs = read_erasures(source), read_erasures(target)
    if ours is not None and ours.unfinished:
        raise StoreError(
            f"samples are yet to be erased from store {source.name!r}; `pmf erase CONFIG` of one of its "
            "pipelines finishes that, then copy again"
        )
    if theirs is None:
        return
    n_ours = 0 if ours is None else len(ours.erasures)
    if ours is None or ours.salt != theirs.salt or n_ours < len(theirs.erasures):
        raise StoreError(
            f"samples were erased from store {target.name!r} that store {source.name!r} may still hold, "
            "and a copy would bring them back; erase them from the one that is copied, then copy to an empty store"
        )


def _list_foreign(
    source: Store,
    target: Store,
    entries: Mapping[str, Entry],
    ahead: Mapping[str, int],
    plan: CopyPlan,
) -> None:
    """List what has to go from a target whose source has erased samples."""
    theirs = {entry.reference.identity: entry for entry in _read_entries(target)}
    plan.foreign = order_by_need(theirs, theirs.keys() - entries.keys())
    pages = {*list_pages(target)} - {*list_pages(source)}
    same = read_or_none(source, ERASURES) == read_or_none(target, ERASURES)
    plan.follows_erasures = bool(plan.foreign or pages or not same)
    if plan.foreign and ahead:
        runs = ", ".join(f"{n} of {name!r}" for name, n in sorted(ahead.items())[:SHOWN])
        raise StoreError(
            f"samples were erased from store {source.name!r}, and store {target.name!r} has runs of its "
            f"own ({runs}) whose artefacts may hold them; run `pmf erase` with the same samples there, or copy to an "
            "empty store"
        )


def _list_new_collections(source: Store, target: Store | None) -> list[RunRecord]:
    """Records of collections that the target does not have: each store counts its own."""
    known = set() if target is None else {_name(each) for each in _read_collections(target)}
    return [each for each in _read_collections(source) if _name(each) not in known]


def _read_collections(store: Store) -> list[RunRecord]:
    numbers = list_stored(store, COLLECTIONS, ".json")
    return [read_record(store, COLLECTIONS, number) for number in numbers]


def _name(record: RunRecord) -> str:
    return f"{record.started} {record.reason} {record.facts}"
