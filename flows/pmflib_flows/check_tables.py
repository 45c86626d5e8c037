"""Tables and JSON of data that are checked against a schema."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Group

from pmflib.ingest.data_checks import DataCheck
from pmflib_flows.tables import make_table

VARIABLES_SHOWN = 40
"""Variables that are shown, at most: those with most unknown values, then those with most missing ones."""
LEVELS_SHOWN = 5
"""Unknown levels of a variable that are shown."""
RAW_SHOWN = 80
"""Characters of a row in quarantine that are shown."""


def describe_check(check: DataCheck) -> dict[str, object]:
    """Plain JSON types: everything that was found."""
    content = asdict(check)
    for found, each in zip(content["variables"], check.variables, strict=True):
        found["share_missing"] = each.share_missing
    return {"fits": check.fits, **content}


def make_check_tables(check: DataCheck) -> list[Group]:
    """Tables of files, of rows in quarantine, of variables, and of what is read otherwise than it is written."""
    rows = [
        (
            file.name,
            file.rows_in,
            file.rows_encoded,
            file.rows_left_out,
            file.rows_quarantined,
            file.reasons or "-",
        )
        for file in check.files
    ]
    tables = [
        make_table("Rows", ("file", "rows", "encoded", "left out", "quarantined", "why"), rows)
    ]
    notes = [(file.name, f"cannot be used: {file.error}") for file in check.files if file.error]
    notes += [(file.name, sentence) for file in check.files for sentence in file.reading]
    notes += [
        (file.name, f"columns that are not in the schema, and not read: {file.ignored_columns[:8]}")
        for file in check.files
        if file.ignored_columns
    ]
    if notes:
        tables.append(make_table("Files", ("file", "what was found"), notes))
    rejected = [
        (file.name, number, reason, column or "-", raw[:RAW_SHOWN])
        for file in check.files
        for reason, kept in file.examples.items()
        for number, column, raw in kept
    ]
    if rejected:
        title = "Rows in quarantine, the first of each reason"
        tables.append(make_table(title, ("file", "row", "reason", "column", "text"), rejected))
    variables = sorted(
        check.variables,
        key=lambda each: (-sum(n for _, n, _ in each.unknown), -each.share_missing),
    )
    described = [
        (
            each.name,
            each.values,
            f"{100 * each.share_missing:.3g} %",
            each.undecodable,
            sum(n for _, n, _ in each.unknown),
            _list_unknown(each.unknown),
        )
        for each in variables[:VARIABLES_SHOWN]
    ]
    title = "Variables"
    if more := len(variables) - len(described):
        title += f" ({more} more: --json has all)"
    columns = ("variable", "values", "missing", "undecodable", "unknown", "unknown levels")
    return [*tables, make_table(title, columns, described)]


def _list_unknown(unknown: list[tuple[str, int, str | None]]) -> str:
    shown = [
        f"{text!r} {n:,}" + (f" ({near!r}?)" if near is not None else "")
        for text, n, near in unknown[:LEVELS_SHOWN]
    ]
    return ", ".join(shown + (["..."] if unknown[LEVELS_SHOWN:] else [])) or "-"
