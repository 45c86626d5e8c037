"""Whether confidence in labels is what it says: shares of right labels by confidence, for reliability diagrams."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import BoolArray, FloatArray
from pmflib.crowd.known_labels import find_known
from pmflib.errors import PmfError

if TYPE_CHECKING:
    from pmflib.crowd.true_labels import Aggregation

N_BINS = 10
"""Most bins of a diagram."""
LEAST_TASKS = 10
"""Tasks of a bin, where there are so many."""


def bin_confidence(confidence: FloatArray, right: BoolArray) -> list[dict[str, float]]:
    """Share of right labels by confidence, in bins of as many tasks.

    Parameters
    ----------
    confidence
        float64 of shape (n_tasks,), in [0, 1]; at least one task.
    right
        Whether the label of each task is right, (n_tasks,).

    Returns
    -------
    Of at most ten bins, in order: mean confidence (probability), share of right labels (accuracy), and the standard
    error of that share, with a pseudo-task each for right and wrong.
    """
    n_bins = min(max(confidence.size // LEAST_TASKS, 1), N_BINS)
    found = []
    for part in np.array_split(np.argsort(confidence, kind="stable"), n_bins):
        hits = int(right[part].sum())
        drawn_in = (hits + 1) / (part.size + 2)
        found.append(
            {
                "probability": float(confidence[part].mean()),
                "accuracy": hits / part.size,
                "accuracy_error": math.sqrt(drawn_in * (1 - drawn_in) / (part.size + 2)),
            }
        )
    return found


def judge_confidence(found: Aggregation, known: object) -> dict[str, list[dict[str, float]]]:
    """Bins of the method's own posterior and of the calibrated confidence, by known labels.

    Parameters
    ----------
    found
        The label log, aggregated.
    known
        True labels of some tasks, as for `aggregate`. Those that it was given are left out, for nothing was predicted.

    Returns
    -------
    Bins as from `bin_confidence`, of "the method" and of "calibrated".

    Raises
    ------
    PmfError
        If no task is left.
    """
    codes = find_known(known, found.log.tasks, found.log.classes).codes
    rows = np.flatnonzero((codes >= 0) & ~found.log.is_known)
    if not rows.size:
        raise PmfError(
            "known has labels of no other tasks than those that aggregate was given; give some that it has not seen"
        )
    right = found.codes[rows] == codes[rows]
    before = found.posterior[rows, found.codes[rows]]
    return {
        "the method": bin_confidence(before, right),
        "calibrated": bin_confidence(found.confidence[rows], right),
    }
