"""What the page of a run shows of its target beside the sections of the record: figures."""

from __future__ import annotations

from collections.abc import Iterator

from pmflib.base.display.drawing import plot_calibration, plot_confusion_matrix
from pmflib.store.artefacts import Store
from pmflib.store.run_records import RunRecord
from pmflib_tasks.sections import CONFUSED, Drawing, ReportPart, Section
from pmflib_tasks.target.target_report import TargetReport
from pmflib_tasks.wording import as_count


def report_target(store: Store, record: RunRecord) -> ReportPart | None:
    """Report on the target of a run; None without a target or test samples that have it."""
    report = TargetReport.find(record.facts)
    if report is None or not report.rows:
        return None
    captions = (
        ("target-confusion", "True level by row, predicted level by column, per cent of the row."),
        ("target-calibration", ""),
    )
    return ReportPart((Section("target", figures=captions),), tuple(_draw_target(report)))


def _draw_target(report: TargetReport) -> Iterator[Drawing]:
    name, levels, confusion = report.target, report.levels, report.confusion
    yield Drawing(
        "target-calibration",
        f"Calibration of the target {name}",
        "How often the most probable level was true, by how probable it was said to be.",
        lambda ax: plot_calibration(report.calibration, ax=ax),
        (4.6, 4.2),
    )
    if levels is not None and confusion is not None and len(levels) <= CONFUSED:
        yield Drawing(
            "target-confusion",
            f"Confusion of the target {name}",
            f"True level by row and predicted level by column, of {as_count(report.rows, 'sample')}.",
            lambda ax: plot_confusion_matrix(confusion, levels, ax=ax),
            (2.6 + 0.6 * len(levels), 1.4 + 0.42 * len(levels)),
        )
