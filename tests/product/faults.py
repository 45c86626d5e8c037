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


CLASSES = ("classes", "forests")

FAULTS = (
    Fault(
        CLASSES,
        ("stored", "bucket"),
        ("weights", "design"),
        ("standard errors",),
        "differs from samples in memory",
        "standard errors of stored samples take weights as numbers of rows, and leave a design out in silence",
    ),
    Fault(
        ("average",),
        ("frame",),
        ("weights",),
        ("summary",),
        "copies of a state",
        "the summary of an average lists a state once for each member that has found it",
    ),
    Fault(
        ("average",),
        ("stored",),
        ("none", "equal", "weights", "design"),
        ("summary",),
        "copies of a state",
        "as above",
    ),
    Fault(
        ("traits", "items"),
        ("frame",),
        ("weights", "design"),
        ("criteria",),
        "log-likelihood",
        "a model of traits does not keep that it was fitted with weights, and criteria without these are not refused",
    ),
)
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
