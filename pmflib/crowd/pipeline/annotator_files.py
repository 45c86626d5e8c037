"""Annotators in a store."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pmflib.solvers.crowd.annotator_model import Annotators, Rule
from pmflib.store.zarr_arrays import check_kind, read_arrays, write_arrays

KIND = "annotators"


def save_annotators(path: Path, annotators: Annotators, rng: np.random.Generator) -> None:
    """Write annotators as a Zarr group, and the generator that they were drawn with; the folder must not exist."""
    arrays = {
        "states": (annotators.states, ("label",)),
        "mass": (annotators.mass, ("worker", "answer", "label")),
    }
    attributes = {
        "kind": KIND,
        "strength": annotators.strength,
        "votes": annotators.votes,
        "rule": asdict(annotators.rule),
        # as text: its integers are larger than most readers of JSON can take
        "generator": json.dumps(rng.bit_generator.state),
    }
    write_arrays(path, arrays, attributes)


def load_annotators(path: Path) -> tuple[Annotators, np.random.Generator]:
    """Read what `save_annotators` wrote, to the same bits: the generator goes on where it stood.

    Raises
    ------
    StoreError
        If the group is absent, damaged, or holds something else.
    """
    check_kind(path, KIND)
    arrays, attributes = read_arrays(path)
    rule = Rule(**attributes["rule"])
    scalars = float(attributes["strength"]), rule, float(attributes["votes"])
    found = Annotators(arrays["states"], arrays["mass"], *scalars)
    rng = np.random.default_rng()
    rng.bit_generator.state = json.loads(attributes["generator"])
    return found, rng
