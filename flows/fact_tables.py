"""Tables that commands print: facts of a run, labels, anything with columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from flows.tables import format_value, make_table
from pmflib.selection.comparison import Comparison
from pmflib.selection.comparison_tables import tabulate

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


def make_facts_tables(facts: Mapping[str, Any]) -> list[Group | Text]:
    """Tables of a run's facts: rows, findings, new model, scores of it, of the live model and of the baseline."""
    rows, model, scores = facts["rows"], facts["model"], facts["scores"]
    counted = [(label, rows[key]) for key, label in ROWS.items() if key in rows]
    counted += [(f"  {reason}", n) for reason, n in rows.get("reasons", {}).items()]
    if skipped := rows.get("files_skipped"):
        counted.append(("files passed over", ", ".join(skipped)))
    if made_missing := rows.get("cells_made_missing"):
        most = dict(list(made_missing.items())[:VARIABLES_SHOWN])
        counted.append(("unknown levels taken as missing", most))
    tables: list[Group | Text] = [make_table("Rows", ("what", "how many"), counted)]
    if "quality" in facts:
        tables += make_quality_tables(facts["quality"])
    known = ("method", "rank", "passes", "best_pass", "converged")
    described = [(k, model[k]) for k in known]
    if "refit" in facts:
        described.append(("fit", facts["refit"]["reason"]))
    if "rank" in facts:
        described.append(("is the rank fine", facts["rank"]["verdict"]))
        described += [("why this rank", reason) for reason in facts["rank"]["reasons"]]
    described += [("note", note) for note in model.get("notes", ())]
    described += [("warning", text) for text in facts.get("warnings", ())]
    gate = facts.get("gate", {})
    tables.append(make_table(_name("New model", gate.get("new")), ("what", "value"), described))
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
    title = f"Hidden answers of held-out samples ({scores['hidden_cells']:,.0f})"
    columns = ("measure", *(title for title, _ in models), "single variables")
    return make_table(title, columns, rows)


def _name(title: str, digest: str | None) -> str:
    """Title of a model with the digits that name it."""
    return f"{title} {digest[:DIGITS]}" if digest else title


def make_quality_tables(findings: Sequence[Mapping[str, Any]]) -> list[Group | Text]:
    """Findings of guards that crossed a limit, and a line for those that passed."""
    crossed = [each for each in findings if not each["passed"]]
    passed = {each["guard"] for each in findings} - {each["guard"] for each in crossed}
    shown: list[Group | Text] = []
    if crossed:
        columns = ("guard", "measured", "limit", "action", "what was found")
        keys = ("guard", "measured", "limit", "action", "sentence")
        rows = [[each[key] for key in keys] for each in crossed]
        shown.append(make_table("Guards of quality", columns, rows))
    return [*shown, Text(f"{len(passed)} guards of quality passed")]


def make_labels_table(facts: Mapping[str, Any]) -> Group:
    """Table of what was found in a label log."""
    known = (
        "method",
        "em",
        "tasks",
        "labels",
        "workers",
        "classes",
        "prior",
        "passes",
        "converged",
    )
    lists = {key: ", ".join(map(format_value, facts[key])) for key in ("classes", "prior")}
    rows = [(key, lists.get(key, facts[key])) for key in known if key in facts]
    return make_table("Labels", ("what", "value"), rows)
