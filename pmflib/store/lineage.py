"""Lineage: the graph of artefacts and their inputs, and the artefacts that kept runs need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pmflib.base.errors import StoreError
from pmflib.base.json_records import Form, JsonRecord, from_json
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.erasures import read_erasures
from pmflib.store.run_records import COLLECTIONS, RUNS, RunRecord, list_histories, list_records

DISPENSABLE = frozenset(
    {
        ("dataset", "dataset"),
        ("samples", "spill-list"),
        ("counts", "dataset"),
        ("start", "model"),
        ("model", "model"),
        ("marginals", "counts"),
    }
)
"""Pairs (kind of artefact, kind of input) in which the artefact can be used without the input: a dataset names all its
partitions and spills, counts are complete or refer to counts, marginals are complete, and initial parameters are
superseded by the fit. Such inputs are mostly of earlier runs, and following them would keep every earlier run."""

OF_LAST_RUNS = {"spill": "rows-*.parquet"}
"""By kind of artefact, the files that only the last runs need: what the next run builds upon and compares new files
with, and an erasure searches. What is said of earlier runs is in other files: rejected rows and counts of levels."""

EVALUATIONS = frozenset({"quality", "scores", "comparison", "reference", "tables"})
"""Kinds of artefacts that evaluate data or models, and can be read without these."""

BY_AGE = frozenset({"predictions", "answers"}) | EVALUATIONS
"""Kinds of artefacts that are kept as long as runs of the same age, whether needed or not."""


def is_needed(entry: Entry, reference: Reference) -> bool:
    """Whether an input must be kept with an artefact: not the subject of an evaluation, and not ``DISPENSABLE``."""
    kind = entry.reference.kind
    if (kind, reference.kind) == ("counts", "counts"):
        # full tables are complete; differences need the tables before them
        return entry.summary.get("differences") != 0
    return kind not in EVALUATIONS and (kind, reference.kind) not in DISPENSABLE


def list_needed(entry: Entry) -> list[Reference]:
    """Inputs that must be kept with an artefact."""
    return [reference for reference in entry.inputs.values() if is_needed(entry, reference)]


def reach(entries: Mapping[str, Entry], roots: Iterable[str]) -> set[str]:
    """Find all artefacts that some artefacts need, directly or indirectly.

    Parameters
    ----------
    entries
        Entries of the manifest by identity.
    roots
        Identities to start from; those without an entry are ignored.

    Returns
    -------
    Identities of the roots and of everything they need, as far as entries exist.
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
    """Sort identities so that each precedes its inputs: an interrupted deletion leaves no artefact without an input."""
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
class KeptRuns(JsonRecord):
    """Runs of a store whose artefacts are kept.

    Parameters
    ----------
    numbers
        Sorted numbers of the kept runs by history.
    last
        Number of the last run of each history at the time of the decision.
    roots
        Identities of the artefacts of kept runs, of the models live after them, and of the runs that fitted these
        models.
    """

    numbers: Annotated[dict[str, list[int]], "kept_runs"]
    last: Annotated[dict[str, int], "last_runs"]
    roots: Annotated[frozenset[str], Form.HIDDEN] = frozenset()


def choose_kept_runs(store: Store, keep_runs: int) -> KeptRuns:
    """Choose the runs to keep: the last completed runs of every pipeline, and its last runs of any outcome.

    Failed runs are kept so that their data need not be read again, and can be inspected.

    Parameters
    ----------
    store
        The store.
    keep_runs
        Number of runs of each kind to keep per pipeline, at least 1.

    Raises
    ------
    StoreError
        If a record is damaged, so that its references are unknown.
    """
    numbers: dict[str, list[int]] = {}
    last: dict[str, int] = {}
    roots: set[str] = set()
    for name in list_histories(store):
        records = list_records(store, name)
        kept = _choose(records, keep_runs)
        last[name] = max((record.number for record in records), default=0)
        made_by = {
            record.model: record
            for record in records
            if record.action in RUNS and record.model is not None
        }
        # the last record names the present live model, whether it is kept or not
        for live in {record.live for record in [*kept, *records[-1:]]} - {None}:
            assert live is not None
            roots.add(live.identity)
            kept += [made_by[live]] if live in made_by else []
        numbers[name] = sorted({record.number for record in kept})
        roots |= {reference.identity for record in kept for reference in record.stages.values()}
    return KeptRuns(numbers, last, frozenset(roots))


def _choose(records: Sequence[RunRecord], keep_runs: int) -> list[RunRecord]:
    runs = [record for record in records if record.action in RUNS]
    complete = [record for record in runs if record.is_complete]
    chosen = {record.number for record in [*runs[-keep_runs:], *complete[-keep_runs:]]}
    return [record for record in records if record.number in chosen]


def list_collected_runs(store: Store) -> dict[str, set[int]]:
    """Runs that `pmf gc` did not keep, by history: their artefacts may be gone.

    Raises
    ------
    StoreError
        If a record is damaged.
    """
    collected: dict[str, set[int]] = {}
    for record in list_records(store, COLLECTIONS):
        numbers = from_json(dict[str, list[int]], record.facts["kept_runs"])
        for name, last in from_json(dict[str, int], record.facts["last_runs"]).items():
            collected.setdefault(name, set()).update({*range(1, last + 1)} - {*numbers[name]})
    return collected


@dataclass(frozen=True)
class Step:
    """One artefact on the path from a result back to the raw files.

    Parameters
    ----------
    depth
        Number of edges between the result and this artefact.
    role
        Role of the artefact among the inputs of the one made from it; "" for the result.
    reference
        The artefact.
    entry
        Its manifest entry; None if `pmf gc` has collected it as dispensable, or if it contained erased samples.
    again
        Whether the artefact was listed before, in which case its inputs are not repeated.
    erased
        Whether it was deleted because it contained erased samples; the next step is its replacement, if there is one.
    """

    depth: int
    role: str
    reference: Reference
    entry: Entry | None
    again: bool
    erased: bool = False


def trace(store: Store, reference: Reference, *, dispensable: bool = True) -> Iterator[Step]:
    """Walk from a result back to the raw files, depth first.

    Parameters
    ----------
    store
        The store.
    reference
        The result.
    dispensable
        Whether to follow dispensable inputs, too: see `is_needed`.

    Raises
    ------
    StoreError
        If an entry is missing that cannot have been collected.
    """
    listed: set[str] = set()
    erasures = read_erasures(store)
    deleted = set() if erasures is None else erasures.list_deleted()
    forward = {} if erasures is None else erasures.forward()
    waiting: list[tuple[int, str, Reference, bool]] = [(0, "", reference, True)]
    while waiting:
        depth, role, current, needed = waiting.pop()
        entry = store.find(current.identity)
        if entry is None and current.identity in deleted:
            yield Step(depth, role, current, None, False, erased=True)
            if (taker := forward.get(current.identity)) is not None:
                waiting.append((depth + 1, "without erased samples", taker, False))
            continue
        if entry is None and needed:
            raise StoreError(
                f"{current.kind} {current.digest[:12]} is not in the manifest: its lineage is broken; "
                "run the pipeline again"
            )
        again = current.identity in listed
        yield Step(depth, role, current, entry, again)
        if entry is None or again:
            continue
        listed.add(current.identity)
        for name, parent in sorted(entry.inputs.items(), reverse=True):
            kept = is_needed(entry, parent)
            if kept or dispensable:
                # inputs of a dispensable input may be collected as well
                waiting.append((depth + 1, name, parent, kept and needed))


def find_reference(store: Store, prefix: str) -> Reference:
    """Find an artefact by a prefix of its digest or identity.

    Raises
    ------
    StoreError
        If none, or more than one, starts with the prefix.
    """
    found = {
        entry.reference.identity: entry.reference
        for entry in store.entries()
        if entry.reference.digest.startswith(prefix) or entry.reference.identity.startswith(prefix)
    }
    if not found:
        raise StoreError(
            f"no artefact starts with {prefix!r}; `pmf log` without one shows the live model's"
        )
    if len(found) > 1:
        kinds = sorted(f"{r.kind} {r.digest[:12]}" for r in found.values())
        raise StoreError(
            f"{len(found)} artefacts start with {prefix!r}: {kinds[:5]}; give more of the digest"
        )
    return next(iter(found.values()))
