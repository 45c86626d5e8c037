"""Annotators in a store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from pmflib.solvers.annotators import Annotators, Rule
from pmflib.store.arrays import check_kind, read_arrays, write_arrays

KIND = "annotators"


def save_annotators(path: Path, annotators: Annotators) -> None:
    """Write annotators as a Zarr group; the folder must not exist."""
    arrays = {
        "states": (annotators.states, ("label",)),
        "mass": (annotators.mass, ("worker", "answer", "label")),
    }
    attributes = {
        "kind": KIND,
        "strength": annotators.strength,
        "rule": asdict(annotators.rule),
    }
    write_arrays(path, arrays, attributes)


def load_annotators(path: Path) -> Annotators:
    """Read what `save_annotators` wrote, to the same bits.

    Raises
    ------
    StoreError
        If the group is absent, damaged, or holds something else.
    """
    check_kind(path, KIND)
    arrays, attributes = read_arrays(path)
    rule = Rule(**attributes["rule"])
    return Annotators(arrays["states"], arrays["mass"], float(attributes["strength"]), rule)
