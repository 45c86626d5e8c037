"""Tables of how well a target is predicted, and by what else it could be."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from pmflib_flows.tables import make_table
from pmflib_tasks.scoring.target_report import PREDICTORS, Estimate, TargetReport

CONFUSED_SHOWN = 12
"""Levels of a target up to which the confusion matrix is shown; JSON has it of more."""

WORDS = {
    "accuracy": "accuracy",
    "log_loss": "log-loss (nats)",
    "auc": "area under the curve",
    "brier": "Brier score",
    "calibration_error": "calibration error",
}
"""Words for the measures, in the order shown."""


def make_target_tables(report: TargetReport) -> list[Group | Text]:
    """Tables of a report, and its verdict."""
    target, rows = report.target, report.rows
    shown: list[Group | Text] = []
    if rows:
        title = f"{target} predicted from the other answers of held-out samples ({rows:,})"
        names = [name for name in PREDICTORS if name in report.scores]
        lines = [
            (word, *(_format(report.scores[name][key]) for name in names))
            for key, word in WORDS.items()
        ]
        shown.append(make_table(title, ("measure", *names), lines))
        others, differences = names[1:], report.differences
        lines = [
            (word, *(_format(differences[name][key], signed=True) for name in others))
            for key, word in WORDS.items()
        ]
        title = f"{target}: the model's measures less those of others, on the same samples"
        shown.append(make_table(title, ("measure", *others), lines))
        shown += _make_confusion_table(report)
        columns = ("probability from", "to", "samples", "mean probability", "true in")
        bins = [
            (
                f"{each['from']:.1f}",
                f"{each['to']:.1f}",
                each["rows"],
                f"{each['probability']:.4f}",
                _format(Estimate(each["accuracy"], each["accuracy_error"])),
            )
            for each in report.calibration
        ]
        title = f"Calibration of {target}: probability of the most probable level"
        shown.append(make_table(title, columns, bins))
    for name, reason in report.left_out.items():
        shown.append(Text(f"{name} was left out: {reason}"))
    return [
        *shown,
        *(Text(f"The model {sentence}" if rows else sentence) for sentence in report.verdict),
    ]


def _make_confusion_table(report: TargetReport) -> list[Group | Text]:
    levels, counts = report.levels, report.confusion
    if levels is None or counts is None or len(levels) > CONFUSED_SHOWN:
        return []
    lines = [(level, *row) for level, row in zip(levels, counts, strict=True)]
    title = f"Confusion of {report.target}: true level by row, predicted by column"
    return [make_table(title, ("true", *levels), lines)]


def _format(measure: Estimate, *, signed: bool = False) -> str:
    """A measure and its standard error."""
    value, error = measure.value, measure.error
    if value is None:
        return "-"
    text = f"{value:+.3f}" if signed else f"{value:.3f}"
    return text if error is None else f"{text} +- {error:.3f}"
