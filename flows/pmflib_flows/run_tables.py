"""Tables that commands print: facts of a run, labels, anything with columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from pmflib.core.comparison import Comparison
from pmflib.display.summary import tabulate
from pmflib.fitting.fit_statistics import (
    HeldOutScore,
    describe_likelihood,
    tabulate_statistics,
)
from pmflib.fitting.pair_agreement import PairAgreement
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib_flows.tables import format_value, make_table
from pmflib_tasks.gate_decision import OF_WEIGHTED, GateNumbers
from pmflib_tasks.guards.findings import Finding, find_recorded
from pmflib_tasks.refit import Refit
from pmflib_tasks.scoring.value_errors import list_error_rows

if TYPE_CHECKING:
    from pmflib.crowd.pipeline.summaries import LabelSummary

DIGITS = 12
"""Digits of a digest that name a model to people; `pmf log` takes them."""

VARIABLES_SHOWN = 8
"""Variables with unknown levels that are listed, at most."""

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
"""Words for the keys of an account of rows, in the order shown."""


def make_run_tables(facts: Mapping[str, Any]) -> list[Group | Text]:
    """Tables of a run's facts: rows, findings, new model, scores of it, of the live model and of the baseline."""
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
        made = tabulate_statistics(fit)
        tables.append(make_table(made.title, ("statistic", "value"), made.rows))
    for chosen in (facts.get("rank", {}), model):
        for content in chosen.get("comparisons", ()):
            table = tabulate(Comparison.from_json(content))
            tables.append(make_table(table.title, table.columns, table.rows))
    if scores.get("hidden_cells"):
        tables.append(_make_scores_table(facts))
    return tables


def _make_scores_table(facts: Mapping[str, Any]) -> Group:
    """Scores of the new model, of the live model that it was compared with, and of single variables, on the same cells.

    Every column of a model has its name, for which of the two is live is another matter.
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
    """Title of a model with the digits that name it."""
    return f"{title} {digest[:DIGITS]}" if digest else title


def make_quality_tables(findings: Sequence[Finding]) -> list[Group | Text]:
    """Findings of guards that crossed a limit, and a line for those that passed."""
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


def make_labels_table(found: LabelSummary) -> Group:
    """Table of what was found in a label log."""
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
