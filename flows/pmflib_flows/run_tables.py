"""The facts of a run on the terminal: rows, guards, model, scores, target, labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from pmflib.base.comparison import Comparison
from pmflib.base.display.summary import format_value, tabulate_comparison
from pmflib.fits.fit_statistics import (
    HeldOutScore,
    describe_likelihood,
    tabulate_statistics,
)
from pmflib.fits.pair_agreement import PairAgreement
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib_flows.console import out, print_json
from pmflib_flows.tables import DIGITS, draw_table, make_table
from pmflib_tasks.gate.gate_decision import OF_WEIGHTED, GateNumbers
from pmflib_tasks.gate.refit import Refit
from pmflib_tasks.gate.value_errors import list_error_rows
from pmflib_tasks.guards.findings import Finding, find_recorded
from pmflib_tasks.target.target_report import MEASURES, PREDICTORS, Estimate, TargetReport

if TYPE_CHECKING:
    from pmflib.apps.crowd.stored.summaries import KnownSummary, LabelSummary

VARIABLES_SHOWN = 8
"""Maximum number of variables with unknown levels, and of scales with errors, listed."""
CONFUSED_SHOWN = 12
"""Maximum number of levels of a target for which the confusion matrix is shown; JSON always has it."""
NAMED = 5
"""Maximum number of tasks and workers named; the facts have all."""

ROWS = {
    "samples": "samples",
    "observed": "observed answers",
    "rows_in": "rows read",
    "rows_encoded": "rows used",
    "rows_left_out": "rows of variables left out",
    "rows_outside": "rows outside the window",
    "rows_erased": "rows of erased samples",
    "rows_quarantined": "rows in quarantine",
}
"""Names of the keys of an account of rows, in the order shown."""


def show_run(facts: Mapping[str, Any], as_json: bool) -> None:
    """Print the facts of a run: tables, or JSON."""
    if as_json:
        print_json(facts)
        return
    for table in make_run_tables(facts):
        out.print(table)
    if (target := TargetReport.find(facts)) is not None:
        for table in make_target_tables(target):
            out.print(table)
    out.print()
    out.print(f"Run {facts['run']}: {facts['reason']}")
    if where := facts.get("where"):
        out.print(f"Stages ran in {where}")
    out.print(f"Live model {facts['live_model'][:DIGITS]}:")
    out.print(f"  {facts['live']}")
    show_quarantine(facts)


def show_quarantine(facts: Mapping[str, Any]) -> None:
    """Print how to read the rejected rows, if a run has any."""
    account = DatasetAccount.find(facts)
    if account is not None and account.reasons:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in account.reasons.items())
        out.print(
            f"Quarantined rows: {account.rows_quarantined:,} ({reasons}); "
            "`pmf quarantine` writes them to a Parquet file"
        )


def make_run_tables(facts: Mapping[str, Any]) -> list[Group | Text]:
    """Build the tables of a run's facts: rows, findings, the new model, and its scores beside the live model's."""
    rows = DatasetAccount.from_json(facts["rows"])
    model, scores = facts["model"], facts["scores"]
    counted: list[tuple[str, object]]
    counted = [(label, getattr(rows, key)) for key, label in ROWS.items()]
    counted += [(f"  {reason}", n) for reason, n in rows.reasons.items()]
    if rows.weights is not None:
        worth = rows.weights.n_effective
        counted += [
            ("sum of the weights", rows.weights.total),
            ("effective samples (Kish)", worth),
            ("design effect of the weights", rows.samples / max(worth, 1.0)),
        ]
    counted += [
        (f"counts of {name}", f"{site['rows']:,} rows, minimum {site['minimum']}")
        for name, site in model.get("sites", {}).items()
    ]
    if rows.files_skipped:
        counted.append(("files passed over", ", ".join(rows.files_skipped)))
    if rows.cells_made_missing:
        most = dict(list(rows.cells_made_missing.items())[:VARIABLES_SHOWN])
        counted.append(("unknown levels taken as missing", most))
    tables: list[Group | Text] = [make_table("Rows", ("what", "how many"), counted)]
    if "quality" in facts:
        tables += make_quality_tables(find_recorded(facts))
    known = ("method", "rank", "passes", "best_pass", "converged", "stopped_early")
    agreement = PairAgreement.find(facts)
    described = [] if agreement is None else [("pairs", agreement.sentence)]
    described += [(k, model[k]) for k in known if k in model]
    if (refit := Refit.find(facts)) is not None:
        described.append(("fit", refit.reason))
    if "rank" in facts:
        described.append(("is the rank fine", facts["rank"]["verdict"]))
        described += [("why this rank", reason) for reason in facts["rank"]["reasons"]]
    if fit := model.get("fit"):
        described.append(("log-likelihood", describe_likelihood(fit)))
    if held_out := model.get("held_out"):
        described.append(("held out", HeldOutScore.from_json(held_out).describe()))
    if residuals := model.get("residuals"):
        described.append(("within states", residuals["sentence"]))
    if errors := model.get("errors"):
        described.append(("parameters", errors["sentence"]))
    described += [("note", note) for note in model.get("notes", ())]
    described += [("warning", text) for text in facts.get("warnings", ())]
    gate = facts.get("gate", {})
    if rows.weights is not None and GateNumbers.find(facts).assessed:
        described.append(("note", OF_WEIGHTED))
    tables.append(make_table(_name("New model", gate.get("new")), ("what", "value"), described))
    if fit:
        tables.append(draw_table(tabulate_statistics(fit)))
    for chosen in (facts.get("rank", {}), model):
        for content in chosen.get("comparisons", ()):
            tables.append(draw_table(tabulate_comparison(Comparison.from_json(content))))
    if scores.get("hidden_cells"):
        tables.append(_make_scores_table(facts))
    return tables


def _make_scores_table(facts: Mapping[str, Any]) -> Group:
    """Build the table of the scores of the new model, of the live model and of single variables, on the same cells.

    Columns name their models, because either may be live after the run.
    """
    scores, gate = facts["scores"], facts.get("gate", {})
    ending = {"promoted": ", promoted", "kept": ", rejected"}.get(facts.get("outcome", ""), "")
    models = [(_name("new model", gate.get("new")) + ending, scores)]
    if gate.get("new") == gate.get("live") is not None:
        models = [(_name("live model", gate["live"]), scores)]
    elif "live_scores" in facts:
        title = "live model before" if ending == ", promoted" else "live model"
        models.append((_name(title, gate["live"]), facts["live_scores"]))
    measures = [key for key in scores if f"baseline_{key}" in scores]
    rows = [
        (key, *(each[key] for _, each in models), scores[f"baseline_{key}"]) for key in measures
    ]
    errors, n_more = list_error_rows([each for _, each in models], VARIABLES_SHOWN)
    rows += [(f"{measure} of {name}", *values) for measure, name, *values in errors]
    title = f"Hidden answers of held-out samples ({scores['hidden_cells']:,.0f})"
    if n_more:
        title += f"; errors of {n_more:,} more scales are in --json"
    columns = ("measure", *(title for title, _ in models), "single variables")
    return make_table(title, columns, rows)


def _name(title: str, digest: str | None) -> str:
    """Add the short digest of a model to a title."""
    return f"{title} {digest[:DIGITS]}" if digest else title


def make_quality_tables(findings: Sequence[Finding]) -> list[Group | Text]:
    """Build the table of findings beyond a limit, and a line that counts the guards that passed."""
    crossed = [each for each in findings if not each.passed]
    passed = {each.guard for each in findings} - {each.guard for each in crossed}
    shown: list[Group | Text] = []
    if crossed:
        columns = ("guard", "measured", "limit", "action", "what was found")
        rows = [
            (each.guard, each.measured, each.limit, each.action, each.sentence) for each in crossed
        ]
        shown.append(make_table("Guards of quality", columns, rows))
    return [*shown, Text(f"{len(passed)} guards of quality passed")]


def make_target_tables(report: TargetReport) -> list[Group | Text]:
    """Build the tables of a report on a target, and its verdict."""
    target, rows = report.target, report.rows
    shown: list[Group | Text] = []
    if rows:
        title = f"{target} predicted from the other answers of held-out samples ({rows:,})"
        names = [name for name in PREDICTORS if name in report.scores]
        lines = [
            (word, *(_format_measure(report.scores[name][key]) for name in names))
            for key, word in MEASURES.items()
        ]
        shown.append(make_table(title, ("measure", *names), lines))
        others, differences = names[1:], report.differences
        lines = [
            (word, *(_format_measure(differences[name][key], signed=True) for name in others))
            for key, word in MEASURES.items()
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
                _format_measure(Estimate(each["accuracy"], each["accuracy_error"])),
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


def _format_measure(measure: Estimate, *, signed: bool = False) -> str:
    """Format a measure and its standard error."""
    value, error = measure.value, measure.error
    if value is None:
        return "-"
    text = f"{value:+.3f}" if signed else f"{value:.3f}"
    return text if error is None else f"{text} +- {error:.3f}"


def make_labels_table(found: LabelSummary) -> Group:
    """Build the table of the result of a label log."""
    rows = [
        ("method", found.method),
        ("em", found.em),
        ("tasks", found.tasks),
        ("labels", found.labels),
        ("workers", found.workers),
        ("classes", ", ".join(map(format_value, found.classes))),
        ("prior", ", ".join(map(format_value, found.prior))),
        ("passes", found.passes),
        ("converged", found.converged),
    ]
    shown = [(what, value) for what, value in rows if value is not None]
    return make_table("Labels", ("what", "value"), shown)


def describe_agreement(found: LabelSummary) -> Iterator[str]:
    """Yield lines on the result of a label log: agreement, tasks to ask again, suspicious workers."""
    from pmflib.apps.crowd.confidence import describe_sureness  # other runs do without its import

    if found.compared_labels == 0 and found.labels and not found.known and len(found.classes) > 1:
        yield (
            "no task has two labels: how good workers are cannot be seen, and confidence is what is assumed of them; "
            "have some tasks labelled again"
        )
    if found.unused_classes:
        yield (
            f"the fit hardly uses the classes {', '.join(found.unused_classes)}, although workers give them: compare "
            "with --method balanced, or give known labels of them"
        )
    if found.alpha is not None:
        yield (
            "agreement between workers (Krippendorff's alpha; 1 is all, 0 is chance): "
            f"{found.alpha:.3f}"
        )
    if found.majority_agreement is not None:
        yield f"labels that the majority vote gives too: {100 * found.majority_agreement:.1f} %"
    if found.confidence is not None:
        yield describe_sureness(found.confidence, found.known or 0)
    if found.power is not None:
        yield (
            f"confidence: a label counts for {found.power:.2f} of one that is independent of the others of its task"
        )
    if found.classifier_power is not None:
        yield (
            f"classifier: its probabilities count with power {found.classifier_power:.2f}; 0 says nothing, 1 is right "
            "as it stands"
        )
    if tasks := found.ask_again[:NAMED]:
        named = (
            f"{each['task']} by {each['worker'] or 'somebody new'} ({each['label']} {100 * each['confidence']:.0f} %, "
            f"{each['n_labels']} labels)"
            for each in tasks
        )
        yield f"ask again: {', '.join(named)}"
    if not found.suspicious_workers:
        yield "suspicious workers: none"
        return
    yield f"suspicious workers: {len(found.suspicious_workers)}"
    for worker in found.suspicious_workers[:NAMED]:
        yield (
            f"  {worker['worker']}: {worker['reason']}; {100 * worker['right']:.0f} % of {worker['n_labels']} labels "
            f"right, {100 * worker['by_chance']:.0f} % by chance"
        )


def describe_known(found: KnownSummary) -> str:
    """Describe the known labels in one line.

    Examples
    --------
    >>> from pmflib.apps.crowd.stored.summaries import KnownSummary
    >>> describe_known(KnownSummary(25, {"unknown_task": 2}))
    'known labels: 25 tasks; rows set aside: 2 unknown_task'
    """
    reasons = ", ".join(f"{count} {reason}" for reason, count in found.set_aside.items())
    return f"known labels: {found.known:,} tasks" + (
        f"; rows set aside: {reasons}" if reasons else ""
    )
