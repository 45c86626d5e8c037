"""Tables that commands print: facts of a run, labels, anything with columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pmflib.selection.comparison import Comparison
from pmflib.selection.comparison_tables import tabulate

VARIABLES_SHOWN = 8
"""Variables with unknown levels that are listed, at most."""

ROWS = {
    "samples": "samples",
    "observed": "observed answers",
    "rows_in": "rows read",
    "rows_encoded": "rows used",
    "rows_left_out": "rows of variables left out",
    "rows_quarantined": "rows in quarantine",
}
"""Words for the keys of an account of rows, in the order shown."""


def make_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Group:
    """Table of values under its title; numbers are shortened and aligned to the right."""
    table = Table()
    for place, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[place], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        # texts of the data: a "[" in them is no markup
        table.add_row(*(Text(format_value(value)) for value in row))
    # a title of the table itself would be cut to the table's width
    return Group("", Text(title, style="bold"), table)


def format_value(value: Any) -> str:
    """Text of a value: thousands are grouped, fractions have six digits."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:.6g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_value(item)}" for key, item in value.items())
    return str(value)


def make_facts_tables(facts: Mapping[str, Any]) -> list[Group]:
    """Tables of a run's facts: rows, model, scores against the baseline."""
    rows, model, scores = facts["rows"], facts["model"], facts["scores"]
    counted = [(label, rows[key]) for key, label in ROWS.items() if key in rows]
    counted += [(f"  {reason}", n) for reason, n in rows.get("reasons", {}).items()]
    if skipped := rows.get("files_skipped"):
        counted.append(("files passed over", ", ".join(skipped)))
    if made_missing := rows.get("cells_made_missing"):
        most = dict(list(made_missing.items())[:VARIABLES_SHOWN])
        counted.append(("unknown levels taken as missing", most))
    tables = [make_table("Rows", ("what", "how many"), counted)]
    known = ("method", "rank", "passes", "best_pass", "converged")
    described = [(k, model[k]) for k in known]
    if "rank" in facts:
        described += [("why this rank", reason) for reason in facts["rank"]["reasons"]]
    described += [("note", note) for note in model.get("notes", ())]
    described += [("warning", text) for text in facts.get("warnings", ())]
    tables.append(make_table("Model", ("what", "value"), described))
    for chosen in (facts.get("rank", {}), model):
        for content in chosen.get("comparisons", ()):
            table = tabulate(Comparison.from_json(content))
            tables.append(make_table(table.title, table.columns, table.rows))
    if scores.get("hidden_cells"):
        measures = [k for k in scores if f"baseline_{k}" in scores]
        compared = [(k, scores[k], scores[f"baseline_{k}"]) for k in measures]
        title = f"Hidden answers of held-out samples ({scores['hidden_cells']:,.0f})"
        tables.append(make_table(title, ("measure", "model", "single variables"), compared))
    return tables


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
