"""Cells of the product that are known to be wrong: each row goes when its fault is mended."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Cells that are wrong in one way.

    Parameters
    ----------
    families, sources, weights, requests
        The cells are their product.
    says
        What the verdict of each of them holds.
    sentence
        What is wrong.
    """

    families: Collection[str]
    sources: Collection[str]
    weights: Collection[str]
    requests: Collection[str]
    says: str
    sentence: str


FAULTS: tuple[Fault, ...] = ()
"""In the order in which they were found."""


def find_fault(family: str, source: str, weights: str, name: str) -> Fault | None:
    """Find the fault of a cell, if it is known to be wrong."""
    for fault in FAULTS:
        if (
            family in fault.families
            and source in fault.sources
            and weights in fault.weights
            and name in fault.requests
        ):
            return fault
    return None
