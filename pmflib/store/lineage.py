"""Lineage: which artefact was made from which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pmflib.errors import StoreError
from pmflib.store.artefacts import SOURCE, Entry, Reference, Store


@dataclass(frozen=True)
class Step:
    """One artefact on the way back from a result to the raw files.

    Parameters
    ----------
    depth
        Edges between the result and this artefact.
    role
        Role of the artefact among the inputs of the one made from it; "" for the result.
    entry
        Its manifest entry.
    again
        Whether an earlier step is the same artefact: its inputs are not listed again.
    """

    depth: int
    role: str
    entry: Entry
    again: bool


def trace(store: Store, reference: Reference) -> Iterator[Step]:
    """Walk from a result back to the raw files, inputs after what is made from them.

    Raises
    ------
    StoreError
        If an entry on the way is missing.
    """
    listed: set[str] = set()
    waiting: list[tuple[int, str, Reference]] = [(0, "", reference)]
    while waiting:
        depth, role, current = waiting.pop()
        entry = store.find(current.identity)
        if entry is None:
            raise StoreError(
                f"{current.kind} {current.digest[:12]} is not in the manifest: its lineage is broken; "
                "run the pipeline again"
            )
        again = current.identity in listed
        yield Step(depth, role, entry, again)
        if not again:
            listed.add(current.identity)
            inputs = sorted(entry.inputs.items(), reverse=True)
            waiting += [(depth + 1, name, parent) for name, parent in inputs]


def list_sources(store: Store, reference: Reference | None) -> list[dict[str, Any]]:
    """Raw files that an artefact was made from: name, digest and bytes of each, by name; none of no artefact."""
    if reference is None:
        return []
    sources = [step.entry for step in trace(store, reference) if not step.again]
    found = [
        {
            "name": entry.options["name"],
            "digest": entry.reference.digest,
            "bytes": entry.summary.get("bytes", 0),
        }
        for entry in sources
        if entry.reference.kind == SOURCE
    ]
    return sorted(found, key=lambda file: str(file["name"]))


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
