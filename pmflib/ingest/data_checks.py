"""Check data against a schema without a run: which rows would be encoded, which would not, and why."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from pmflib.base.errors import SchemaError, SourceError
from pmflib.base.machine import make_private_folder
from pmflib.ingest.column_values import count_head, count_values
from pmflib.ingest.csv.sniffing import check_reading
from pmflib.ingest.dataset.long import spill_long
from pmflib.ingest.dataset.quarantine import QUARANTINE
from pmflib.ingest.dataset.repeated_rows import check_repeated
from pmflib.ingest.dataset.wide import encode_wide, list_ignored, spill_wide
from pmflib.ingest.options import SchemaOptions, SourceOptions
from pmflib.ingest.sources import Source
from pmflib.schema import MISSING, Schema, Variable
from pmflib.schema.value_counts import ValueCounts
from pmflib.schema.variable import UNKNOWN

EXAMPLES = 3
"""Number of example rows per reason and file."""
UNKNOWN_KEPT = 100
"""Number of unknown levels that are kept per variable, the most frequent ones."""


@dataclass
class FileCheck:
    """Result for one file.

    Parameters
    ----------
    name
        Name of the source.
    rows_in, rows_encoded, rows_left_out, rows_quarantined
        As in the account of a run, except for duplicates, which only a run finds.
    reasons
        Rows in quarantine by reason.
    examples
        Some of these rows by reason: number in the file, column, text.
    cells_made_missing
        Unknown levels that count as missing, by variable.
    ignored_columns
        Columns that are not used.
    reading
        Signs that the file is read with wrong options: see `check_reading`.
    error
        Why the file cannot be used at all; empty if it can.
    """

    name: str
    rows_in: int = 0
    rows_encoded: int = 0
    rows_left_out: int = 0
    rows_quarantined: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[tuple[int, str | None, str]]] = field(default_factory=dict)
    cells_made_missing: dict[str, int] = field(default_factory=dict)
    ignored_columns: list[str] = field(default_factory=list)
    reading: list[str] = field(default_factory=list)
    error: str = ""


@dataclass
class VariableCheck:
    """Result for one variable in all usable files.

    Parameters
    ----------
    name
        Name of the variable.
    values
        Number of values; in a long log, of rows with the variable.
    missing
        Number of missing values.
    undecodable
        Number of undecodable values.
    unknown
        Unknown levels, most frequent first, each with its count and the most similar level, or None.
    """

    name: str
    values: int
    missing: int
    undecodable: int
    unknown: list[tuple[str, int, str | None]]

    @property
    def share_missing(self) -> float:
        """Share of missing values; 0 without values."""
        return self.missing / max(self.values, 1)


@dataclass
class DataCheck:
    """Result of `check_data`.

    Parameters
    ----------
    files, variables
        Results for each.
    repeated
        Rows without identifiers that come again: see `check_repeated`; empty if none do.
    """

    files: list[FileCheck]
    variables: list[VariableCheck]
    repeated: str = ""

    @property
    def fits(self) -> bool:
        """Whether every row of every file would be encoded or left out on purpose."""
        return not any(file.error or file.rows_quarantined for file in self.files)


def check_data(
    sources: Sequence[Source],
    schema: Schema,
    config: SourceOptions,
    policy: SchemaOptions,
    *,
    on_rows: Callable[[int], None] | None = None,
) -> DataCheck:
    """Encode files like a run, discard the result, and account for rows that do not fit.

    Every file is read twice in bounded memory: once to encode it, via a temporary folder, and once to count the values
    of each variable.

    Parameters
    ----------
    sources
        The files.
    schema
        Variables and levels.
    config
        How the files are read.
    policy
        Policy for rows that do not fit; instead of stopping, rows count as quarantined.
    on_rows
        Progress callback, given the number of rows of each encoded batch.

    Returns
    -------
    Results for the files, including unusable ones, and for the variables.
    """
    lenient = policy.model_copy(
        update={
            "on_malformed": "quarantine",
            "on_unknown_level": "missing" if policy.on_unknown_level == "missing" else "quarantine",
        }
    )
    files, usable = [], []
    for source in sources:
        file = FileCheck(source.name)
        files.append(file)
        try:
            file.reading = check_reading(source, config)
            _encode(source, schema, config, lenient, file, on_rows)
        except (SourceError, SchemaError) as error:
            file.error = str(error)
        else:
            usable.append(source)
    value_counts = (
        count_values(usable, config, schema.columns, schema.coded_columns) if usable else {}
    )
    is_plain = config.layout == "wide" and config.sample is None
    return DataCheck(
        files,
        [_check_variable(each, value_counts.get(each.column, ValueCounts())) for each in schema],
        check_repeated(usable, config, schema.columns) if is_plain else "",
    )


@dataclass
class HeadCheck:
    """Result of `check_head`.

    Parameters
    ----------
    name, rows
        Name of the source, and number of rows that were read.
    unknown_names
        Names of a long log that are no variables of the schema.
    unknown
        Variables with unknown levels.
    """

    name: str
    rows: int
    unknown_names: list[str]
    unknown: list[VariableCheck]


def check_head(source: Source, schema: Schema, config: SourceOptions) -> HeadCheck:
    """Compare the columns of a file, and the values in its first rows, with a schema.

    Parameters
    ----------
    source, schema, config
        As for `check_data`.

    Raises
    ------
    SourceError, SchemaError
        If the file cannot be read, or lacks a column.
    """
    if config.layout == "wide":
        list_ignored(source, schema, config)
    n_rows, counted = count_head(source, config, schema.columns, schema.coded_columns)
    variables = [_check_variable(each, counted.pop(each.column, ValueCounts())) for each in schema]
    return HeadCheck(
        source.name, n_rows, list(counted), [each for each in variables if each.unknown]
    )


def _encode(
    source: Source,
    schema: Schema,
    config: SourceOptions,
    policy: SchemaOptions,
    file: FileCheck,
    on_rows: Callable[[int], None] | None,
) -> None:
    with make_private_folder() as name:
        folder = Path(name)
        if config.layout == "wide" and config.sample is None:
            encode = partial(encode_wide, n_folds=1, seed=0)
        else:
            encode = partial(spill_long if config.layout == "long" else spill_wide, n_buckets=1)
        summary = encode(source, schema, config, policy, folder=folder, on_rows=on_rows)
        content = summary.to_json()
        for key in (
            *("rows_in", "rows_encoded", "rows_left_out", "rows_quarantined"),
            *("reasons", "cells_made_missing", "ignored_columns"),
        ):
            setattr(file, key, content[key])
        file.examples = _find_examples(folder / QUARANTINE, file.reasons)


def _find_examples(
    path: Path, reasons: dict[str, int]
) -> dict[str, list[tuple[int, str | None, str]]]:
    """First quarantined rows for each reason."""
    examples: dict[str, list[tuple[int, str | None, str]]] = {reason: [] for reason in reasons}
    open_reasons = {reason: min(count, EXAMPLES) for reason, count in reasons.items()}
    with pq.ParquetFile(path) as parquet:
        for batch in parquet.iter_batches(use_threads=False):
            for row in batch.to_pylist():
                kept = examples[row["reason"]]
                if len(kept) < EXAMPLES:
                    kept.append((row["row"], row["column"], row["raw"]))
            if all(len(examples[reason]) == n for reason, n in open_reasons.items()):
                break
    return examples


def _check_variable(variable: Variable, counted: ValueCounts) -> VariableCheck:
    missing = 0
    unknown: Counter[str] = Counter()
    for text, count in counted.counts.items():
        code = variable.encode_cell(text)
        missing += count if code == MISSING else 0
        unknown[text] += count if code == UNKNOWN else 0
    most = [(text, n) for text, n in unknown.most_common(UNKNOWN_KEPT) if n]
    return VariableCheck(
        variable.name,
        counted.n_rows + counted.undecodable,
        missing,
        counted.undecodable,
        [(text, n, _find_nearest(text, variable)) for text, n in most],
    )


def _find_nearest(text: str, variable: Variable) -> str | None:
    """Level most similar to a text, ignoring case."""
    if variable.edges is not None:
        return None
    levels = {level.casefold(): level for level in reversed(variable.levels)}
    close = difflib.get_close_matches(text.casefold(), levels, n=1, cutoff=0.6)
    return levels[close[0]] if close else None
