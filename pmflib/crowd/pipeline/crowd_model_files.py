"""Crowd models in a store."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pmflib.solvers.crowd.annotator_model import AnnotatorModel, CrowdModel
from pmflib.store.zarr_arrays import read_arrays, write_arrays

KIND = "crowd-model"


def save_crowd_model(path: Path, model: CrowdModel, rng: np.random.Generator) -> None:
    """Write a crowd model with one subclass as a Zarr group, and the generator that it was found with.

    The folder must not exist.
    """
    arrays = {
        "states": (model.states, ("class",)),
        "mass": (model.mass, ("worker", "label", "class")),
    }
    attributes = {
        "kind": KIND,
        "pseudo_count": model.pseudo_count,
        "vote_weight": model.vote_weight,
        "annotator_model": asdict(model.annotator_model),
        # as text: its integers are larger than most readers of JSON can take
        "generator": json.dumps(rng.bit_generator.state),
    }
    write_arrays(path, arrays, attributes)


def load_crowd_model(path: Path) -> tuple[CrowdModel, np.random.Generator]:
    """Read what `save_crowd_model` wrote, to the same bits: the generator continues where it was.

    Raises
    ------
    StoreError
        If the group is absent, damaged, or holds something else.
    """
    arrays, attributes = read_arrays(path, kind=KIND)
    model = CrowdModel(
        arrays["states"],
        arrays["mass"],
        float(attributes["pseudo_count"]),
        AnnotatorModel(**attributes["annotator_model"]),
        float(attributes["vote_weight"]),
    )
    rng = np.random.default_rng()
    rng.bit_generator.state = json.loads(attributes["generator"])
    return model, rng
