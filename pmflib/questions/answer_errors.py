"""Standard errors of answers: every number again for each fit without a fold."""

from __future__ import annotations

import math

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError
from pmflib.questions.binding import BoundQuestion
from pmflib.questions.evidence import Evidence
from pmflib.questions.measuring import measure
from pmflib.questions.support import Support

MOST_ERROR = 0.5
"""Largest standard deviation that a number in [0, 1] can have: a larger estimate is this."""


def measure_refits(
    bound: BoundQuestion,
    evidence: Evidence,
    combinations: IntArray | None,
    shape: tuple[int, ...],
) -> tuple[FloatArray, str]:
    """Numbers of every fit without a fold, (n_folds, n_by, n_each); NaN where it rules the conditions out."""
    models, why = evidence.refit()
    if why:
        return np.empty(0), why
    found = np.full((len(models), *shape), np.nan)
    for fold, refit in enumerate(models):
        try:
            found[fold] = measure(refit, bound, combinations)
        except PmfError:
            # without that fold nobody meets the conditions: no error is known
            continue
    return found, ""


def find_errors(bound: BoundQuestion, numbers: FloatArray, refits: FloatArray) -> FloatArray:
    """Standard errors of the numbers, of their shape; NaN where a fit has none."""
    from pmflib.diagnosis.jackknife import measure_spread

    if bound.question.measure not in ("odds", "OR"):
        found = measure_spread(refits)
        # no share of anything varies more
        return np.minimum(found, MOST_ERROR) if _is_share(bound) else found
    with np.errstate(divide="ignore", invalid="ignore"):
        errors: FloatArray = measure_spread(np.log(refits)) * numbers
    return errors


def raise_unseen(
    bound: BoundQuestion, support: Support, refits: FloatArray, errors: FloatArray
) -> FloatArray:
    """Raise the errors of levels that no sample has: every fit says 0 there, and that is no certainty."""
    if bound.question.measure != "P" or len(bound.targets) != 1:
        return errors
    n_rows = support.given[0].with_targets
    with np.errstate(invalid="ignore"):
        is_sure = (refits.max(axis=0) < 0.1 / (n_rows + 1)) | (
            refits.min(axis=0) > 1 - 0.1 / (n_rows + 1)
        )
    return np.where(is_sure, np.maximum(errors, 1 / (n_rows + 2)), errors)


def _is_share(bound: BoundQuestion) -> bool:
    return bound.question.measure in ("P", "argmax", "median", "quantile", "TV")


def doubt_errors(bound: BoundQuestion, errors: FloatArray | None) -> list[str]:
    """Sentence where the data leave an answer open."""
    if errors is None:
        return []
    if np.isnan(errors).all():
        return [
            "without one fold or another the model gives no such answer: its error is not known"
        ]
    if _is_share(bound) and np.nanmax(errors) >= MOST_ERROR / 2:
        return ["the data do not determine this answer: see its standard errors"]
    return []


def expect(
    bound: BoundQuestion, numbers: FloatArray, refits: FloatArray
) -> tuple[float | None, float | None]:
    """Find the expected value of the one variable whose PMF the answer is, and its error."""
    group = bound.groups[0]
    if bound.question.measure != "P" or len(group) != 1 or bound.events[0] or bound.by:
        return None, None
    variable = bound.schema[group[0]]
    if variable.values is None:
        return None, None
    from pmflib.diagnosis.jackknife import measure_spread

    values = variable.numeric_values()
    error = float(measure_spread(refits[:, 0] @ values)) if refits.size else math.nan
    return float(numbers[0] @ values), error if math.isfinite(error) else None
