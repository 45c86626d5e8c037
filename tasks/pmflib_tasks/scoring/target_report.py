"""How well a target is predicted by a model, and by what else it could be predicted: measures, differences, verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.model.measures import Measure, count_confusion, describe_bins, measure_all, sum_bins
from pmflib.schema import Variable

PREDICTORS = ("model", "majority class", "naive Bayes", "logistic regression")
"""Names of the predictions, in the order in which they are shown."""

MODEL, MAJORITY, NAIVE_BAYES, LOGISTIC = PREDICTORS

SURE = 2.0
"""Standard errors from which a difference is spoken of as one."""

MAX_CONFUSED = 50
"""Levels of a target up to which the confusion matrix is reported."""


@dataclass(frozen=True)
class Estimate:
    """A measure and its standard error; None where the rows do not define it."""

    value: float | None
    error: float | None

    @classmethod
    def make(cls, value: float, error: float) -> Estimate:
        """Build an estimate of numbers that may be NaN, in whose place JSON has None."""
        return cls(None if math.isnan(value) else value, None if math.isnan(error) else error)


Estimates: TypeAlias = dict[str, dict[str, Estimate]]
"""Estimates by name of a prediction and by measure."""


@dataclass(frozen=True)
class TargetReport:
    """How well a target is predicted.

    Parameters
    ----------
    target
        Name of the variable.
    rows
        Test samples that have it; of 0 there is a verdict, and nothing else.
    verdict
        Sentences.
    scores
        Measures of each prediction.
    differences
        By how much the model's measures are larger than those of each other prediction, paired by rows.
    levels, confusion
        Levels of the target, and the number of rows by true level and by the one that the model predicts; None of more
        than `MAX_CONFUSED` levels.
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
    def from_json(cls, content: Mapping[str, Any]) -> TargetReport:
        """Read what `to_json` gives."""
        numbers = {
            name: {
                predictor: {key: Estimate(**each) for key, each in found.items()}
                for predictor, found in content.get(name, {}).items()
            }
            for name in ("scores", "differences")
        }
        return cls(**{**content, **numbers})

    @classmethod
    def find(cls, facts: Mapping[str, Any]) -> TargetReport | None:
        """Report among the facts of a run, in its scores; None where the model is for no target."""
        found = (facts.get("scores") or {}).get("target")
        return cls.from_json(found) if found else None

    def to_json(self) -> dict[str, object]:
        """Plain JSON types."""
        content = asdict(self)
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
    """Compare the predictions of a model with others.

    Parameters
    ----------
    variable
        The target.
    truth
        int64 of shape (n_rows,): its codes, at least one.
    predictions
        PMFs by name, float64 of shape (n_rows, cardinality): that of the model, `MODEL`, and of others.
    weights
        As for `pmflib.model.measures.measure_all`; the confusion matrix has rows.
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
