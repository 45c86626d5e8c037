"""Models on disk: a Zarr group each, plain, with traits, or with forests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmflib.schema import Schema
from pmflib.store.mirrors import find_place
from pmflib.store.zarr_arrays import read_arrays, refuse_damage, write_arrays

if TYPE_CHECKING:
    from pmflib.model.joint_pmf import JointPMF

KIND = "joint PMF"
"""Attribute ``kind`` of the Zarr group of a model."""

Arrays = dict[str, tuple[Any, tuple[str, ...]]]
"""Arrays by name, with the names of their dimensions."""


def write_model(path: Path, model: JointPMF, arrays: Arrays, attributes: dict[str, Any]) -> None:
    """Write a model as a Zarr group; the folder must not exist.

    Parameters
    ----------
    path
        The folder.
    model
        The model.
    arrays, attributes
        What it has beside prior, factors, schema and origin.
    """
    own: Arrays = {
        "prior": (model.prior, ("state",)),
        "factors": (model.factors, ("level", "state")),
        "offsets": (model.schema.offsets, ("variable_edge",)),
    }
    facts = {
        "kind": KIND,
        "units": "probability",
        "schema": model.schema.to_json(),
        "origin": dict(model.origin),
    }
    write_arrays(path, own | arrays, facts | attributes)


def read_model(path: str | Path) -> JointPMF:
    """Read a model that `write_model` wrote: see `pmflib.model.joint_pmf.JointPMF.load`."""
    from pmflib.model.joint_pmf import JointPMF

    place = find_place(path)
    arrays, attributes = read_arrays(place, ["prior", "factors"], kind=KIND)
    is_tree = attributes.get("dependence") == "tree"
    if is_tree:
        arrays, _ = read_arrays(place, ["prior", "parents", "tables"], kind=KIND)
    with refuse_damage(place):
        schema, origin = Schema.from_json(attributes["schema"]), dict(attributes["origin"])
        if is_tree:
            from pmflib.trees.tree_pmf import TreePMF

            return TreePMF.read(arrays, schema, origin)
        traits = None
        if "n_traits" in attributes:
            from pmflib.traits.trait_model import TraitModel

            traits = TraitModel.load(place, schema)
        return JointPMF(arrays["prior"], arrays["factors"], schema, origin, traits)
