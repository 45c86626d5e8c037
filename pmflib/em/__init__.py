"""Expectation-maximisation (EM) for all families of models."""

from typing import TYPE_CHECKING

from pmflib.base.faces import make_face

if TYPE_CHECKING:
    from pmflib.em.stored_samples import StoredSamples

_HOMES = {
    "StoredSamples": "pmflib.em.stored_samples",
}

__all__ = ["StoredSamples"]

__getattr__, __dir__ = make_face(__name__, _HOMES)
