"""Retention: which artefacts of a store are needed, by kept runs, live models and whatever runs now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.run_records import (
    COLLECTIONS,
    RunRecord,
    list_histories,
    list_records,
)

DISPENSABLE = frozenset(
    {
        ("dataset", "dataset"),
        ("samples", "spill-list"),
        ("counts", "dataset"),
        ("start", "model"),
        ("model", "model"),
    }
)
"""Kinds of an artefact and of an input that it does without: a dataset names all of its partitions and its list of
spills itself, counts hold theirs or refer to counts, and parameters that a fit starts from are in what came of it. Most
of these are of earlier runs, and followed back would lead from every night to all nights before it."""

JUDGEMENTS = frozenset({"quality", "scores", "comparison", "reference", "refits"})
"""Kinds of artefacts that judge data or models, and are read without what they judged."""

BY_AGE = frozenset({"predictions", "answers"}) | JUDGEMENTS
"""Kinds of artefacts that are kept as long as the runs that are as old, whether these need them or not."""


def is_needed(entry: Entry, reference: Reference) -> bool:
    """Whether an input is kept together with an artefact: not what a judgement is about, or is ``DISPENSABLE``."""
    kind = entry.reference.kind
    if (kind, reference.kind) == ("counts", "counts"):
        # full tables are complete; differences lead back to the last full ones
        return entry.summary.get("differences") != 0
    return kind not in JUDGEMENTS and (kind, reference.kind) not in DISPENSABLE


def list_needed(entry: Entry) -> list[Reference]:
    """Inputs that are kept together with an artefact."""
    return [reference for reference in entry.inputs.values() if is_needed(entry, reference)]


def reach(entries: Mapping[str, Entry], roots: Iterable[str]) -> set[str]:
    """Identities that are needed, from some that are.

    Parameters
    ----------
    entries
        Entries of the manifest by identity.
    roots
        Identities to start from; those without an entry are passed over.

    Returns
    -------
    Identities of the roots and of all that they need, as far as there are entries.
    """
    reached: set[str] = set()
    waiting = list(roots)
    while waiting:
        identity = waiting.pop()
        if identity in reached or identity not in entries:
            continue
        reached.add(identity)
        waiting += [reference.identity for reference in list_needed(entries[identity])]
    return reached


def order_by_need(entries: Mapping[str, Entry], chosen: set[str]) -> list[str]:
    """Chosen identities, each before what it needs: where deleting stops, no artefact is left that lacks an input."""
    needed_by = dict.fromkeys(sorted(chosen), 0)
    for identity in chosen:
        for reference in list_needed(entries[identity]):
            if reference.identity in needed_by:
                needed_by[reference.identity] += 1
    ready = [identity for identity, count in needed_by.items() if not count]
    ordered = []
    while ready:
        identity = ready.pop()
        ordered.append(identity)
        for reference in list_needed(entries[identity]):
            if reference.identity in needed_by:
                needed_by[reference.identity] -= 1
                if not needed_by[reference.identity]:
                    ready.append(reference.identity)
    return ordered


@dataclass(frozen=True)
class KeptRuns:
    """Runs of a store that are kept whole.

    Parameters
    ----------
    numbers
        Numbers of the kept runs, in order, by history.
    last
        Number of the last run of each history: runs after it were not there when this was decided.
    roots
        Identities of the artefacts of the kept runs, of the models that were live after them, and of the runs that made
        these models.
    """

    numbers: dict[str, list[int]]
    last: dict[str, int]
    roots: frozenset[str]


def choose_kept_runs(store: Store, keep_runs: int) -> KeptRuns:
    """Choose the last runs of every pipeline of a store, and what they need.

    Kept are the last runs that reached their end, and the last of any outcome: what a failed night has read is not read
    again, and a person may look into it.

    Parameters
    ----------
    store
        The store.
    keep_runs
        Number of runs to keep of each kind, and of each pipeline; at least 1.

    Raises
    ------
    StoreError
        If a record is damaged: what it refers to is not known.
    """
    numbers: dict[str, list[int]] = {}
    last: dict[str, int] = {}
    roots: set[str] = set()
    for name in list_histories(store):
        records = list_records(store, name)
        kept = _choose(records, keep_runs)
        last[name] = max((record.number for record in records), default=0)
        made_by = {
            record.stages["model"]: record
            for record in records
            if record.action == "run" and "model" in record.stages
        }
        # what is live now is what the last record says, kept or not
        for live in {record.live for record in [*kept, *records[-1:]]} - {None}:
            assert live is not None
            roots.add(live.identity)
            kept += [made_by[live]] if live in made_by else []
        numbers[name] = sorted({record.number for record in kept})
        roots |= {reference.identity for record in kept for reference in record.stages.values()}
    return KeptRuns(numbers, last, frozenset(roots))


def _choose(records: Sequence[RunRecord], keep_runs: int) -> list[RunRecord]:
    runs = [record for record in records if record.action in ("run", "labels")]
    complete = [record for record in runs if record.is_complete]
    chosen = {record.number for record in [*runs[-keep_runs:], *complete[-keep_runs:]]}
    return [record for record in records if record.number in chosen]


def list_collected_runs(store: Store) -> dict[str, set[int]]:
    """Runs whose artefacts may be gone, by history: `pmf gc` did not keep them.

    Raises
    ------
    StoreError
        If a record is damaged.
    """
    collected: dict[str, set[int]] = {}
    for record in list_records(store, COLLECTIONS):
        for name, last in record.facts["last_runs"].items():
            kept = record.facts["kept_runs"][name]
            collected.setdefault(name, set()).update({*range(1, last + 1)} - {*kept})
    return collected
