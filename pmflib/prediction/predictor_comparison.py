"""Predictions of a target by a model and by others, compared on the same rows: a report in plain JSON types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pmflib.arrays import FloatArray, IntArray
from pmflib.prediction.measures import (
    Measure,
    count_confusion,
    describe_bins,
    measure_all,
    sum_bins,
)
from pmflib.schema import Variable

PREDICTORS = ("model", "majority class", "naive Bayes", "logistic regression")
"""Names of the predictions, in the order in which they are shown."""

MODEL, MAJORITY, NAIVE_BAYES, LOGISTIC = PREDICTORS

SURE = 2.0
"""Standard errors from which a difference is spoken of as one."""

MAX_CONFUSED = 50
"""Levels of a target up to which the confusion matrix is reported."""


def compare_predictions(
    variable: Variable, truth: IntArray, predictions: Mapping[str, FloatArray]
) -> dict[str, Any]:
    """Compare the predictions of a model with others.

    Parameters
    ----------
    variable
        The target.
    truth
        int64 of shape (n_rows,): its codes, at least one.
    predictions
        PMFs by name, float64 of shape (n_rows, cardinality): that of the model, `MODEL`, and of others.

    Returns
    -------
    target, rows; scores: by name and measure, the value and its standard error (None where rows do not define it);
    differences: by name of each other prediction and measure, by how much the model's measure is larger, paired by
    rows, and its standard error; levels, confusion (None of more than `MAX_CONFUSED` levels) and calibration of the
    model; verdict: sentences.
    """
    measured = {name: measure_all(pmf, truth) for name, pmf in predictions.items()}
    mine = measured[MODEL]
    others = {name: each for name, each in measured.items() if name != MODEL}
    small = variable.cardinality <= MAX_CONFUSED
    return {
        "target": variable.name,
        "rows": len(truth),
        "scores": {
            name: {key: _state(each.value, each.error) for key, each in found.items()}
            for name, found in measured.items()
        },
        "differences": {
            name: {key: _state(*mine[key].less(each)) for key, each in found.items()}
            for name, found in others.items()
        },
        "levels": list(variable.levels) if small else None,
        "confusion": count_confusion(predictions[MODEL], truth).tolist() if small else None,
        "calibration": describe_bins(sum_bins(predictions[MODEL], truth)),
        "verdict": [_judge(variable.name, name, mine, each) for name, each in others.items()],
    }


def _state(value: float, error: float) -> dict[str, float | None]:
    """A value and its error; None is what JSON has in place of NaN."""
    return {
        "value": None if math.isnan(value) else value,
        "error": None if math.isnan(error) else error,
    }


def _judge(
    target: str, name: str, mine: Mapping[str, Measure], other: Mapping[str, Measure]
) -> str:
    """Say in words whether the model predicts better than another, by the log-loss."""
    less, error = other["log_loss"].less(mine["log_loss"])
    if math.isnan(error):
        return f"predicts {target!r}: one row cannot say whether better than {name}"
    measured = f"{less:+.3f} +- {error:.3f} nats"
    if abs(less) <= SURE * error:
        return f"predicts {target!r} no better and no worse than {name}, as far as these rows can say: {measured}"
    measured = f"{abs(less):.3f} +- {error:.3f} nats"
    if less > 0:
        return f"predicts {target!r} better than {name} by {measured}"
    advice = {
        MAJORITY: "the other variables say nothing of it, or the model is fitted to chance: raise em.pseudo_count",
        NAIVE_BAYES: "raise the rank, or leave it to rank = 'auto'",
        LOGISTIC: "raise the rank, or leave it to rank = 'auto'",
    }.get(name, "look at its rank")
    return f"predicts {target!r} worse than {name} by {measured}; {advice}"
