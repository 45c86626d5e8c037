"""What families offer for their kind of model, found by the kind of a given model."""

from __future__ import annotations

from typing import Any

from pmflib.base.arrays import check_model_type
from pmflib.base.errors import PmfError
from pmflib.base.hooks import find_offers
from pmflib.information.latent_classes import ClassInformation
from pmflib.information.model_information import ModelInformation
from pmflib.information.parameter_errors import FittedModel
from pmflib.model import JointPMF


def open_information(model: FittedModel) -> ModelInformation:
    """Open the information on the parameters of a model.

    Raises
    ------
    PmfError
        If it is no model, or of a kind that has none.
    """
    if not isinstance(getattr(model, "kind", None), str):
        check_model_type("model", model, JointPMF)
    found: ModelInformation = find_entry("information", model, ClassInformation)(model)
    return found


def open_single_fit(model: JointPMF) -> ModelInformation:
    """Open the information on the parameters of a joint PMF that maximise one likelihood.

    Raises
    ------
    PmfError
        If the model is an average of fits, or its states are no parameters.
    """
    check_model_type("model", model, JointPMF)
    found = open_information(model)
    found.check_fit()
    return found


def find_entry(hook: str, model: FittedModel, of_classes: type) -> Any:
    """Find what is offered under a hook for the kind of a model.

    Parameters
    ----------
    hook
        Name of the hook; families offer under it by the kind of model.
    model
        The model.
    of_classes
        The entry of latent classes.

    Raises
    ------
    PmfError
        If nothing is offered for the kind.
    """
    kind, own, offers = name_kind(model), {"classes": of_classes}, find_offers(hook)
    for table in (own, offers):
        if kind in table:
            return table[kind]
    known = ", ".join(map(repr, (*own, *offers)))
    raise PmfError(f"a model of kind {kind!r} has no {hook!r}; pass one of kind {known}")


def name_kind(model: FittedModel) -> str:
    """Name the kind of a model."""
    return model.kind if getattr(model, "trait_model", None) is None else "traits"
