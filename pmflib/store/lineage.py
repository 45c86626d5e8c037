"""Lineage: which artefact was made from which, and which are needed by kept runs, live models and runs under way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pmflib.core.errors import StoreError
from pmflib.core.json_records import from_json
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
    }
)
"""Kinds of an artefact and of an input that it does without: a dataset names all of its partitions and its list of
spills itself, counts hold theirs or refer to counts, and parameters that a fit starts from are in what came of it. Most
of these are of earlier runs, and followed back would lead from every night to all nights before it."""

EVALUATIONS = frozenset({"quality", "scores", "comparison", "reference", "tables"})
"""Kinds of artefacts that evaluate data or models, and are read without what they evaluated."""

BY_AGE = frozenset({"predictions", "answers"}) | EVALUATIONS
"""Kinds of artefacts that are kept as long as the runs that are as old, whether these need them or not."""


def is_needed(entry: Entry, reference: Reference) -> bool:
    """Whether an input is kept together with an artefact: not what an evaluation is about, or is ``DISPENSABLE``."""
    kind = entry.reference.kind
    if (kind, reference.kind) == ("counts", "counts"):
        # full tables are complete; differences lead back to the last full ones
        return entry.summary.get("differences") != 0
    return kind not in EVALUATIONS and (kind, reference.kind) not in DISPENSABLE


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
    roots: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, object]:
        """Plain JSON types."""
        return {"kept_runs": self.numbers, "last_runs": self.last}


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
            record.model: record
            for record in records
            if record.action in RUNS and record.model is not None
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
    runs = [record for record in records if record.action in RUNS]
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
        numbers = from_json(dict[str, list[int]], record.facts["kept_runs"])
        for name, last in from_json(dict[str, int], record.facts["last_runs"]).items():
            collected.setdefault(name, set()).update({*range(1, last + 1)} - {*numbers[name]})
    return collected


@dataclass(frozen=True)
class Step:
    """One artefact on the way back from a result to the raw files.

    Parameters
    ----------
    depth
        Edges between the result and this artefact.
    role
        Role of the artefact among the inputs of the one made from it; "" for the result.
    reference
        The artefact.
    entry
        Its manifest entry; None for one that `pmf gc` has collected, for what was made of it does without it, and for
        one that held erased samples.
    again
        Whether an earlier step is the same artefact: its inputs are not listed again.
    erased
        Whether it is gone because it held erased samples; the next step is what took its place, where something did.
    """

    depth: int
    role: str
    reference: Reference
    entry: Entry | None
    again: bool
    erased: bool = False


def trace(store: Store, reference: Reference, *, dispensable: bool = True) -> Iterator[Step]:
    """Walk from a result back to the raw files, inputs after what is made from them.

    Parameters
    ----------
    store
        The store.
    reference
        The result.
    dispensable
        Whether to go on to inputs that the artefact does without: see `is_needed`.

    Raises
    ------
    StoreError
        If an entry on the way is missing that no collection may have taken.
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
                # what is found beyond a dispensable input may be on its way out as well
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
