"""Summaries of schemas and variables."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pmflib.displays.cells import count, cut, decimal, list_some, name_missing
from pmflib.displays.summary import MOST_ROWS, Summary, SummaryTable

if TYPE_CHECKING:
    from pmflib.schema import Schema, Variable


def summarise_schema(schema: Schema) -> Summary:
    """A row per variable: its role, its levels, what is missing."""
    facts = [("missing in all", name_missing(schema.missing))]
    if schema.left_out:
        facts.append(("left out", list_some(schema.left_out, len(schema.left_out))))
    rows = [
        (
            str(place),
            cut(variable.name),
            variable.role,
            count(variable.cardinality),
            list_some(variable.levels, variable.cardinality),
            _name_own_missing(variable, schema),
        )
        for place, variable in enumerate(islice(schema, MOST_ROWS))
    ]
    table = SummaryTable(
        "Variables",
        (">place", "variable", "role", ">levels", "labels", "missing, other"),
        rows,
        schema.n_variables,
        "schema.names, schema[name]",
    )
    headline = f"Schema: {count(schema.n_variables)} variables, {count(schema.n_levels)} levels"
    return Summary(headline, tuple(facts), (), (table,))


def _name_own_missing(variable: Variable, schema: Schema) -> str:
    """What a variable has apart from what holds in all: texts that are missing, and the level of other texts."""
    own = [text for text in variable.missing if text not in schema.missing]
    parts = [name_missing(own)] if own else []
    if variable.other is not None:
        parts.append(f"others are {cut(variable.other)!r}")
    return "; ".join(parts)


def summarise_variable(variable: Variable) -> Summary:
    """A row per level: its code, its label, its value or the edges of its bin."""
    facts = [("missing", name_missing(variable.missing))]
    if variable.other is not None:
        facts.append(("any other text", f"counts as {cut(variable.other)!r}"))
    columns: tuple[str, ...] = (">code", "level")
    if variable.role != "nominal":
        columns += (">value",) if variable.role == "ordinal" else ("holds",)
    rows = []
    for code, level in enumerate(variable.levels[:MOST_ROWS]):
        row: tuple[str, ...] = (str(code), cut(level))
        if variable.edges is not None:
            row += (_name_bin(variable.edges, code),)
        elif variable.values is not None:
            row += (decimal(variable.values[code], 6),)
        rows.append(row)
    table = SummaryTable("Levels", columns, rows, variable.cardinality, "variable.levels")
    headline = (
        f"Variable {cut(variable.name)!r}: {variable.role}, {count(variable.cardinality)} levels"
    )
    return Summary(headline, tuple(facts), (), (table,))


def _name_bin(edges: tuple[float, ...], code: int) -> str:
    """Range of numbers that a level of a continuous variable holds."""
    parts = [f"{decimal(edges[code - 1], 6)} <= "] if code > 0 else []
    parts.append("x")
    if code < len(edges):
        parts.append(f" < {decimal(edges[code], 6)}")
    return "".join(parts) if len(parts) > 1 else "every number"
