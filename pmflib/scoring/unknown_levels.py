"""Values of scored files that are no level: named, counted, and refused where nothing of a column is understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pmflib.core.errors import SchemaError
from pmflib.core.texts import abridge_names, list_some
from pmflib.ingest.dataset.accounts import Account
from pmflib.ingest.dataset.file_accounts import read_files
from pmflib.ingest.dataset.quarantine import read_quarantine
from pmflib.ingest.dataset.row_screening import PROBLEMS
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.schema_draft import count_values
from pmflib.ingest.sources import Source, attempt, keep_readable
from pmflib.schema import Schema
from pmflib.schema.variable import UNKNOWN
from pmflib.store.artefacts import Reference, Store

MOST_VALUES = 256
"""Distinct values of a column that are counted, the first ones that are met: memory does not grow with the files."""
LONGEST_VALUE = 100
"""Characters of a value that are kept."""
VALUES_LISTED = 20
"""Distinct values of a column in JSON, the most frequent ones."""
VALUES_SHOWN = 6
"""Distinct values of a column in a sentence."""
LEVELS_SHOWN = 12
"""Levels of the schema in a sentence."""
MOST_ROWS = 0.5
"""Share of the rows of a file that may be refused: of more, the file is not what it is taken for."""

Counts = Mapping[str, Mapping[str, int]]
"""Cells by column and value, the values in the order in which they are met."""


def count_texts(values: pa.Array) -> dict[str, int]:
    """Count distinct texts without the blanks around them, in the order in which they are met.

    Parameters
    ----------
    values
        Texts in UTF-8, as `pmflib.ingest.dataset.wide.read_texts` gives them.
    """
    texts = pc.utf8_slice_codeunits(pc.utf8_trim_whitespace(values), 0, LONGEST_VALUE)
    counted = [(each["values"].as_py(), each["counts"].as_py()) for each in pc.value_counts(texts)]
    return dict(counted[:MOST_VALUES])


def add_counts(first: Counts, second: Counts) -> dict[str, dict[str, int]]:
    """Add up counts of which the second come later; of a column with too many values, the first ones are kept."""
    total = {column: dict(counts) for column, counts in first.items()}
    for column, counts in second.items():
        own = total.setdefault(column, {})
        for value, n in counts.items():
            if value in own or len(own) < MOST_VALUES:
                own[value] = own.get(value, 0) + n
    return total


@dataclass(frozen=True)
class UnknownLevels:
    """Values of one column that are no level.

    Parameters
    ----------
    cells
        Number of cells that hold one.
    counts
        Number of cells by value, of at most ``MOST_VALUES``.
    """

    cells: int
    counts: Mapping[str, int]

    @property
    def most(self) -> list[tuple[str, int]]:
        """Values and their numbers, the most frequent one first; of equal ones, the first that was met."""
        return sorted(self.counts.items(), key=lambda each: -each[1])

    def to_json(self) -> dict[str, object]:
        """Plain JSON types: cells, the most frequent values, and how many other values were counted."""
        most = self.most
        return {
            "cells": self.cells,
            "values": dict(most[:VALUES_LISTED]),
            "more_values": max(0, len(most) - VALUES_LISTED),
        }


def describe_unknown(column: str, found: Mapping[str, Any], *, is_target: bool) -> str:
    """Say which values of a column are no level, from what `UnknownLevels.to_json` gives.

    Examples
    --------
    >>> describe_unknown("car", {"cells": 9, "values": {"x": 8, "y": 1}, "more_values": 0}, is_target=False)
    "car: 9 values are no level, and count as missing: 'x' 8, 'y' 1"
    """
    values = [f"{value!r} {n:,}" for value, n in found["values"].items()]
    listed = list_some(values + [""] * found["more_values"], VALUES_SHOWN)
    effect = "are not known to evaluate by" if is_target else "count as missing"
    named = f": {listed}" if values else ""
    return f"{column}: {found['cells']:,} values are no level, and {effect}{named}"


def check_file(
    name: str,
    account: Account,
    observed: Mapping[str, int],
    unknown: Counts,
    schema: Schema,
    targets: Sequence[str],
    example: str,
) -> None:
    """Refuse a file of which most rows do not fit, or a column of which no value is a level.

    Parameters
    ----------
    name
        Name of the file.
    account
        Its rows.
    observed
        Cells that hold a level, by variable.
    unknown
        Cells that hold none, by variable and value.
    schema
        Variables and levels.
    targets
        Variables that are predicted: their own levels are only evaluated by.
    example
        A row that does not fit, as `describe_row` says it; "" where there is none.

    Raises
    ------
    SchemaError
        With the column, a value of it, the levels, and what to do.
    """
    unfit = account.rows_unfit
    if unfit > MOST_ROWS * account.rows_in:
        reasons = [f"{reason} {n:,}" for reason, n in account.list_reasons().items()]
        raise SchemaError(
            f"{name}: {unfit:,} of {account.rows_in:,} rows do not fit ({', '.join(reasons)})"
            + (f", such as {example}" if example else "")
            + f"; the schema's variables are {abridge_names(schema.names, LEVELS_SHOWN)}. No scores are published: "
            "correct the file, or how it is read (its delimiter, encoding, header)"
        )
    for variable in schema:
        n_unknown = account.cells_made_missing[variable.name]
        if not n_unknown or observed.get(variable.name, 0) or variable.name in targets:
            continue
        found = UnknownLevels(n_unknown, unknown.get(variable.name, {}))
        such = [f"{value!r} ({n:,} times)" for value, n in found.most[:1]]
        raise SchemaError(
            f"{name}: none of the {n_unknown:,} values of column {variable.name!r} is a level"
            + "".join(f", such as {each}" for each in such)
            + f"; levels are {abridge_names(variable.levels, LEVELS_SHOWN)}. No scores are published: write the values "
            "as the schema has its levels, or leave the column empty where they are not known, or name it as a target "
            "if it is to be predicted"
        )


def check_dataset(
    store: Store,
    dataset: Reference,
    sources: Sequence[Source],
    config: SourceOptions,
    schema: Schema,
    targets: Sequence[str],
) -> dict[str, dict[str, int]]:
    """Check the files that samples to score were made of: see `check_file`.

    Parameters
    ----------
    store, dataset
        The samples.
    sources, config
        The files, and how they are read. They are read again where some value of theirs is no level, to name it.
    schema, targets
        As for `check_file`.

    Returns
    -------
    Cells of the files that hold no level, by variable and value: rows that other rows supersede are among them.

    Raises
    ------
    SchemaError
        If most rows of a file do not fit, or no value of a column is a level: all files that are at fault are named.
    """
    files = {file.name: file for file in read_files(store, dataset)}
    used = [source for source in sources if source.name in files]
    examples: dict[str, str] = {}
    for batch in read_quarantine(store, dataset):
        for row in batch.select(["file", "row", "reason", "column"]).to_pylist():
            if row["reason"] != "duplicate":
                examples.setdefault(row.pop("file"), describe_row(**row))
    unknown: dict[str, dict[str, dict[str, int]]] = {source.name: {} for source in used}
    for source in used:
        names = [name for name, n in files[source.name].rows.cells_made_missing.items() if n]
        found = count_values([source], config, names) if names else {}
        for name in names:
            codes = {text: schema[name].encode_value(text) for text in found[name].counts}
            own = {
                text.strip()[:LONGEST_VALUE]: n
                for text, n in found[name].counts.items()
                if codes[text] == UNKNOWN
            }
            unknown[source.name][name] = dict(list(own.items())[:MOST_VALUES])

    def check(source: Source) -> None:
        file = files[source.name]
        observed = {
            name: int(file.level_counts[schema.rows_of(index)].sum())
            for index, name in enumerate(schema.names)
        }
        check_file(
            *(source.name, file.rows, observed, unknown[source.name], schema, targets),
            examples.get(source.name, ""),
        )

    keep_readable(used, [attempt(source, build=check) for source in used], "stop", {})
    total: dict[str, dict[str, int]] = {}
    for counts in unknown.values():
        total = add_counts(total, counts)
    return total


def describe_row(row: int, reason: str, column: str | None) -> str:
    """Say what is wrong with a row in quarantine, without its text, which may name a person.

    Examples
    --------
    >>> describe_row(7, "undecodable", "town")
    "row 7, whose column 'town' is not UTF-8"
    """
    where = "which" if column is None else f"whose column {column!r}"
    return f"row {row}, {where} {PROBLEMS[reason]}"
