"""What a run says of its target: measures of the model and of other predictors, calibration, verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pmflib_tasks.sections import Section
from pmflib_tasks.target.target_report import MEASURES, PREDICTORS, Estimate, TargetReport

CONFUSED_SHOWN = 12
"""Maximum number of levels of a target for which the confusion matrix is shown; JSON always has it."""


def describe_target(facts: Mapping[str, Any]) -> Iterator[Section]:
    """List the sections on the target of a run; none without a target."""
    report = TargetReport.find(facts)
    if report is None:
        return
    target, rows = report.target, report.rows
    if rows:
        title = f"{target} predicted from the other answers of held-out samples ({rows:,})"
        names = [name for name in PREDICTORS if name in report.scores]
        lines = [
            (word, *(_format_measure(report.scores[name][key]) for name in names))
            for key, word in MEASURES.items()
        ]
        yield Section.of_values("target", title, ("measure", *names), lines)
        others, differences = names[1:], report.differences
        lines = [
            (word, *(_format_measure(differences[name][key], signed=True) for name in others))
            for key, word in MEASURES.items()
        ]
        title = f"{target}: the model's measures less those of others, on the same samples"
        yield Section.of_values("target", title, ("measure", *others), lines)
        levels, counts = report.levels, report.confusion
        if levels is not None and counts is not None and len(levels) <= CONFUSED_SHOWN:
            table = [(level, *row) for level, row in zip(levels, counts, strict=True)]
            title = f"Confusion of {target}: true level by row, predicted by column"
            yield Section.of_values("target", title, ("true", *levels), table)
        columns = ("probability from", "to", "samples", "mean probability", "true in")
        bins = [
            (
                f"{each['from']:.1f}",
                f"{each['to']:.1f}",
                each["rows"],
                f"{each['probability']:.4f}",
                _format_measure(Estimate(each["accuracy"], each["accuracy_error"])),
            )
            for each in report.calibration
        ]
        title = f"Calibration of {target}: probability of the most probable level"
        yield Section.of_values("target", title, columns, bins)
    left_out = [f"{name} was left out: {reason}" for name, reason in report.left_out.items()]
    verdict = [f"The model {sentence}" if rows else sentence for sentence in report.verdict]
    yield Section("target", sentences=(*left_out, *verdict))


def _format_measure(measure: Estimate, *, signed: bool = False) -> str:
    """Format a measure and its standard error."""
    value, error = measure.value, measure.error
    if value is None:
        return "-"
    text = f"{value:+.3f}" if signed else f"{value:.3f}"
    return text if error is None else f"{text} +- {error:.3f}"
