"""Lineage: which artefact was made from which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pmflib.errors import StoreError
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.erasures import read_erasures
from pmflib.store.retention import is_needed


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
