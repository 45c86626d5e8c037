"""Report on the predictions of a target by a model and by other predictors: measures, differences, verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.json_records import JsonRecord
from pmflib.model.measures import Measure, count_confusion, describe_bins, measure_all, sum_bins
from pmflib.schema import Variable

PREDICTORS = ("model", "majority class", "naive Bayes", "logistic regression", "boosting")
"""Names of the predictors, in the order shown."""

MODEL, MAJORITY, NAIVE_BAYES, LOGISTIC, BOOSTING = PREDICTORS

MEASURES = {
    "accuracy": "accuracy",
    "log_loss": "log-loss (nats)",
    "auc": "area under the curve",
    "brier": "Brier score",
    "calibration_error": "calibration error",
}
"""Names of the measures of a target, in the order shown."""

LEAST_ERRORS = 2.0
"""Minimum difference, in standard errors, that the verdict calls one."""

MAX_CONFUSED = 50
"""Maximum number of levels of a target for which the confusion matrix is reported."""


@dataclass(frozen=True)
class Estimate:
    """A measure and its standard error; None if undefined."""

    value: float | None
    error: float | None

    @classmethod
    def make(cls, value: float, error: float) -> Estimate:
        """Build an estimate; NaN becomes None."""
        return cls(None if math.isnan(value) else value, None if math.isnan(error) else error)


Estimates: TypeAlias = dict[str, dict[str, Estimate]]
"""Estimates by predictor and measure."""


@dataclass(frozen=True)
class TargetReport(JsonRecord):
    """Report on the predictions of a target.

    Parameters
    ----------
    target
        Name of the variable.
    rows
        Number of test samples with the target; if 0, the report has only a verdict.
    verdict
        Sentences.
    scores
        Measures of each predictor.
    differences
        Measures of the model minus those of each other predictor, paired by rows.
    levels, confusion
        Levels of the target, and the number of rows by true and predicted level; None for more than `MAX_CONFUSED`
        levels.
    calibration
        Bins of the probability of the model's most probable level: from, to, rows, probability, accuracy,
        accuracy_error.
    left_out
        Predictors that were left out, with the reasons.
    """

    target: str
    rows: int
    verdict: Sequence[str]
    scores: Estimates = field(default_factory=dict)
    differences: Estimates = field(default_factory=dict)
    levels: Sequence[str] | None = None
    confusion: Sequence[Sequence[int]] | None = None
    calibration: Sequence[Mapping[str, float]] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def find(cls, facts: Mapping[str, Any]) -> TargetReport | None:
        """Read the report from the scores in the facts of a run; None without a target."""
        found = (facts.get("scores") or {}).get("target")
        return cls.from_json(found) if found else None

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON types."""
        content = super().to_json()
        if not self.rows:
            return {key: content[key] for key in ("target", "rows", "left_out", "verdict")}
        last = {"verdict": content.pop("verdict"), "left_out": content.pop("left_out")}
        return content | last


def compare_predictions(
    variable: Variable,
    truth: IntArray,
    predictions: Mapping[str, FloatArray],
    weights: FloatArray | None = None,
) -> TargetReport:
    """Compare the predictions of a model with those of other predictors.

    Parameters
    ----------
    variable
        The target.
    truth
        int64 of shape (n_rows,): its true codes, at least one.
    predictions
        PMFs by name of the predictor, `MODEL` among them, float64 of shape (n_rows, cardinality).
    weights
        As for `pmflib.model.measures.measure_all`; the confusion matrix counts rows.
    """
    measured = {name: measure_all(pmf, truth, weights) for name, pmf in predictions.items()}
    mine = measured[MODEL]
    others = {name: each for name, each in measured.items() if name != MODEL}
    small = variable.cardinality <= MAX_CONFUSED
    return TargetReport(
        variable.name,
        len(truth),
        [_assess(variable.name, name, mine, each) for name, each in others.items()],
        {
            name: {key: Estimate.make(each.value, each.error) for key, each in found.items()}
            for name, found in measured.items()
        },
        {
            name: {key: Estimate.make(*mine[key].less(each)) for key, each in found.items()}
            for name, found in others.items()
        },
        list(variable.levels) if small else None,
        count_confusion(predictions[MODEL], truth).tolist() if small else None,
        describe_bins(sum_bins(predictions[MODEL], truth, weights)),
    )


def _assess(
    target: str, name: str, mine: Mapping[str, Measure], other: Mapping[str, Measure]
) -> str:
    """Describe whether the model predicts better than another predictor, by the log-loss."""
    less, error = other["log_loss"].less(mine["log_loss"])
    if math.isnan(error):
        return f"predicts {target!r}: a single row is not enough to compare with {name}"
    measured = f"{less:+.3f} +- {error:.3f} nats"
    if abs(less) <= LEAST_ERRORS * error:
        return f"predicts {target!r} no better and no worse than {name}, as far as these rows can say: {measured}"
    measured = f"{abs(less):.3f} +- {error:.3f} nats"
    if less > 0:
        return f"predicts {target!r} better than {name} by {measured}"
    advice = {
        MAJORITY: "the other variables say nothing of it, or the model is fitted to chance: raise em.pseudo_count",
        NAIVE_BAYES: "raise the rank, or leave it to rank = 'auto'",
        LOGISTIC: "raise the rank, or leave it to rank = 'auto'",
        BOOSTING: "for this variable alone take boosting, or raise the rank",
    }.get(name, "look at its rank")
    return f"predicts {target!r} worse than {name} by {measured}; {advice}"
