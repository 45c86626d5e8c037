"""Accounts of scored rows: numbers of rows by outcome, and values that are not levels of the schema."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.base.errors import SchemaError, StoreError
from pmflib.base.json_files import parse_json
from pmflib.base.texts import abridge_names, list_some
from pmflib.ingest.column_values import count_values
from pmflib.ingest.dataset.accounts import Account, DatasetAccount
from pmflib.ingest.dataset.file_accounts import read_files
from pmflib.ingest.dataset.quarantine import read_quarantine
from pmflib.ingest.dataset.row_screening import PROBLEMS
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.sources import Source, attempt, keep_readable
from pmflib.model.measures import TargetSums
from pmflib.schema import Schema
from pmflib.schema.variable import UNKNOWN
from pmflib.store.artefacts import Reference, Store
from pmflib.store.table_files import ACCOUNT

MOST_VALUES = 256
"""Maximum number of distinct values counted per column, in order of appearance, which bounds the memory."""
LONGEST_VALUE = 100
"""Maximum number of characters kept of a value."""
VALUES_LISTED = 20
"""Maximum number of distinct values of a column in JSON, the most frequent ones."""
VALUES_SHOWN = 6
"""Maximum number of distinct values of a column in a sentence."""
LEVELS_SHOWN = 12
"""Maximum number of levels of the schema in a sentence."""
MOST_ROWS = 0.5
"""Maximum share of rejected rows of a file; if more are rejected, the file is refused."""

Counts = Mapping[str, Mapping[str, int]]
"""Numbers of cells by column and value, the values in order of appearance."""


def count_texts(values: pa.Array) -> dict[str, int]:
    """Count distinct texts, stripped of surrounding blanks, in order of appearance.

    Parameters
    ----------
    values
        Texts in UTF-8, from `pmflib.ingest.dataset.wide.read_texts`.
    """
    texts = pc.utf8_slice_codeunits(pc.utf8_trim_whitespace(values), 0, LONGEST_VALUE)
    counted = [(each["values"].as_py(), each["counts"].as_py()) for each in pc.value_counts(texts)]
    return dict(counted[:MOST_VALUES])


def add_counts(first: Counts, second: Counts) -> dict[str, dict[str, int]]:
    """Add counts, the second being later ones; of a column with too many values, the first ones are kept."""
    total = {column: dict(counts) for column, counts in first.items()}
    for column, counts in second.items():
        own = total.setdefault(column, {})
        for value, n in counts.items():
            if value in own or len(own) < MOST_VALUES:
                own[value] = own.get(value, 0) + n
    return total


def list_unknown(n_cells: int, counts: Mapping[str, int]) -> dict[str, object]:
    """List the values of a column that are not levels, as plain JSON types.

    Parameters
    ----------
    n_cells
        Number of cells with such a value.
    counts
        Number of cells by value, for at most ``MOST_VALUES`` values.

    Returns
    -------
    The cells, the most frequent values (ties in order of appearance), and the number of other values.
    """
    return {
        "cells": n_cells,
        "values": dict(Counter(counts).most_common(VALUES_LISTED)),
        "more_values": max(0, len(counts) - VALUES_LISTED),
    }


def describe_unknown(column: str, found: Mapping[str, Any], *, is_target: bool) -> str:
    """Describe the values of a column that are not levels, from `list_unknown`.

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
    name: str, file: PartAccount, schema: Schema, targets: Sequence[str], example: str
) -> None:
    """Refuse a file if most of its rows are rejected, or if no value of a column is a level.

    Parameters
    ----------
    name
        Name of the file.
    file
        Account of its rows.
    schema
        Variables and levels.
    targets
        Predicted variables, whose own values are used only for evaluation.
    example
        A rejected row, from `describe_row`; empty if there is none.

    Raises
    ------
    SchemaError
        If the file is refused; the message names the column, a value, the levels and the remedy.
    """
    account = file.account
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
        if not n_unknown or file.observed[variable.name] or variable.name in targets:
            continue
        most = Counter(file.unknown.get(variable.name, {})).most_common(1)
        such = [f"{value!r} ({n:,} times)" for value, n in most]
        raise SchemaError(
            f"{name}: none of the {n_unknown:,} values of column {variable.name!r} is a level"
            + "".join(f", such as {each}" for each in such)
            + f"; {variable.list_known()}. No scores are published: write the values "
            "as the schema has its levels, or leave the column empty where they are not known, or name it as a target "
            "if it is to be predicted"
        )


def check_files(
    files: Sequence[tuple[Source, PartAccount]],
    schema: Schema,
    targets: Sequence[str],
    find_example: Callable[[Source], str],
) -> None:
    """Check the accounts of files, each with a rejected row as an example: see `check_file`.

    Raises
    ------
    SchemaError
        If a file is refused; the message names all such files.
    """

    def check(item: tuple[Source, PartAccount]) -> None:
        source, file = item
        check_file(source.name, file, schema, targets, find_example(source))

    sources = [source for source, _ in files]
    keep_readable(sources, [attempt(item, build=check) for item in files], "stop", {})


def check_dataset(
    store: Store,
    dataset: Reference,
    sources: Sequence[Source],
    config: SourceOptions,
    schema: Schema,
    targets: Sequence[str],
) -> Counts:
    """Check the files of the samples to score: see `check_file`.

    Parameters
    ----------
    store, dataset
        The samples.
    sources, config
        The files, and their reading options. Files with values that are not levels are read again to list these.
    schema, targets
        As for `check_file`.

    Returns
    -------
    Number of cells without a level, by variable and value, superseded rows included.

    Raises
    ------
    SchemaError
        If most rows of a file are rejected, or no value of a column is a level; the message names all such files.
    """
    files = {file.name: file for file in read_files(store, dataset)}
    used = [source for source in sources if source.name in files]
    examples: dict[str, str] = {}
    for batch in read_quarantine(store, dataset):
        for row in batch.select(["file", "row", "reason", "column"]).to_pylist():
            if row["reason"] != "duplicate":
                examples.setdefault(row.pop("file"), describe_row(**row))
    accounts: list[PartAccount] = []
    for source in used:
        file, unknown = files[source.name], dict[str, dict[str, int]]()
        names = [name for name, n in file.rows.cells_made_missing.items() if n]
        columns = list(dict.fromkeys(schema[name].column for name in names))
        found = count_values([source], config, columns, schema.coded_columns) if names else {}
        for name in names:
            texts = found[schema[name].column].counts
            own = {
                text.strip()[:LONGEST_VALUE]: n
                for text, n in texts.items()
                if schema[name].encode_cell(text) == UNKNOWN
            }
            unknown[name] = dict(list(own.items())[:MOST_VALUES])
        observed = {
            name: int(file.level_counts[schema.rows_of(index)].sum())
            for index, name in enumerate(schema.names)
        }
        accounts.append(PartAccount(file.rows, (), True, Counter(observed), unknown))
    check_files(
        list(zip(used, accounts, strict=True)),
        *(schema, targets, lambda source: examples.get(source.name, "")),
    )
    return sum(accounts, PartAccount.zero(0)).unknown


def describe_row(row: int, reason: str, column: str | None) -> str:
    """Describe the problem of a row in quarantine without its text, which may name a person.

    Examples
    --------
    >>> describe_row(7, "undecodable", "town")
    "row 7, whose column 'town' is not UTF-8"
    """
    where = "which" if column is None else f"whose column {column!r}"
    return f"row {row}, {where} {PROBLEMS[reason]}"


@dataclass(frozen=True)
class PartAccount:
    """Account of one or several parts of predictions; each part stores its own in its metadata.

    Parameters
    ----------
    account
        Rows read, scored ("encoded"), and rejected by reason.
    sums
        Sums behind the measures of each target.
    is_last
        Whether it is the last part of its chunk.
    observed
        Number of cells with a level in scored rows, by variable.
    unknown
        Number of cells without one in scored rows, by variable and value.
    """

    account: Account
    sums: tuple[TargetSums, ...]
    is_last: bool = False
    observed: Counter[str] = field(default_factory=Counter)
    unknown: Counts = field(default_factory=dict)

    @classmethod
    def zero(cls, n_targets: int) -> PartAccount:
        """Build the account of no rows."""
        return cls(Account(), (TargetSums(),) * n_targets)

    def __add__(self, other: PartAccount) -> PartAccount:
        """Add a later account."""
        sums = map(TargetSums.merge, zip(self.sums, other.sums, strict=True))
        return PartAccount(
            self.account + other.account,
            tuple(sums),
            other.is_last,
            self.observed + other.observed,
            add_counts(self.unknown, other.unknown),
        )

    def to_bytes(self) -> bytes:
        """Encode as JSON, for the metadata of the part."""
        sums = [asdict(each) for each in self.sums]
        # values as pairs, in order of appearance
        unknown = {column: list(counts.items()) for column, counts in self.unknown.items()}
        content = self.account.to_json() | {
            "sums": sums,
            "is_last": self.is_last,
            "observed": dict(self.observed),
            "unknown": unknown,
        }
        return json.dumps(content, sort_keys=True).encode()

    @classmethod
    def read(cls, path: Path) -> PartAccount:
        """Read the account of a part.

        Raises
        ------
        StoreError
            If the file is not a finished part.
        """
        try:
            known = parse_json((pq.read_metadata(path).metadata or {})[ACCOUNT])
            sums = tuple(TargetSums(**each) for each in known["sums"])
            unknown = {column: dict(pairs) for column, pairs in known["unknown"].items()}
            observed = Counter(known["observed"])
            return cls(Account.from_json(known), sums, known["is_last"], observed, unknown)
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise StoreError(
                f"{path.name} is no finished part of predictions ({error}); delete it, and run again"
            ) from error


@dataclass(frozen=True)
class ScoreAccount:
    """Account of the rows of scored files.

    Parameters
    ----------
    samples
        Number of scored samples.
    rows
        Account of the rows, with the files that were skipped.
    unknown
        Number of cells that count as missing, by variable and value.
    targets, measures
        Predicted variables, and `pmflib.model.measures.TargetSums.measure` of each.
    parts
        Number of files with scores.
    targets_absent
        Files without a column of a target, by target.
    outcomes
        Outcomes of the rows to list; by default all, so that a reader can check that they add up.
    """

    samples: int
    rows: DatasetAccount
    unknown: Counts
    targets: Sequence[str]
    measures: Mapping[str, Mapping[str, float]]
    parts: int
    targets_absent: Mapping[str, Sequence[str]] = field(default_factory=dict)
    outcomes: Sequence[str] | None = None

    def to_json(self) -> dict[str, object]:
        """Convert to plain JSON types."""
        rows: Any = self.rows.to_json()
        outcomes = [name for name in rows if name.startswith("rows_")]
        cells = {name: n for name, n in rows["cells_made_missing"].items() if n}
        return {
            "samples": self.samples,
            **{name: rows[name] for name in self.outcomes or outcomes},
            "reasons": rows["reasons"],
            "cells_made_missing": cells,
            "unknown_levels": {
                name: list_unknown(n_cells, self.unknown.get(name, {}))
                for name, n_cells in cells.items()
            },
            "targets": list(self.targets),
            "targets_absent": {name: list(files) for name, files in self.targets_absent.items()},
            "measures": dict(self.measures),
            "parts": self.parts,
            "files_skipped": rows["files_skipped"],
        }


def combine_parts(
    parts: Sequence[PartAccount],
    targets: Sequence[str],
    files_skipped: Mapping[str, str],
    targets_absent: Mapping[str, Sequence[str]],
) -> ScoreAccount:
    """Combine the accounts of all parts.

    Parameters
    ----------
    parts
        In order.
    targets
        Names of the targets.
    files_skipped
        Files without parts, with reasons.
    targets_absent
        Files without a column of a target, by target.

    Raises
    ------
    StoreError
        If the rows read are not those scored and quarantined, or a target was not predicted in all scored rows.
    """
    whole = sum(parts, PartAccount.zero(len(targets)))
    account = whole.account
    # raises an error if rows do not add up
    rows = DatasetAccount.from_json({**account.to_json(), "files_skipped": files_skipped})
    for target, sums in zip(targets, whole.sums, strict=True):
        if sums.judged + sums.missing != account.rows_encoded:
            raise StoreError(
                f"{target!r} was predicted in {sums.judged + sums.missing} of {account.rows_encoded} rows that were "
                "scored; do not use the result, and report this as a defect"
            )
    return ScoreAccount(
        account.rows_encoded,
        rows,
        whole.unknown,
        targets,
        {t: sums.measure() for t, sums in zip(targets, whole.sums, strict=True)},
        len(parts),
        targets_absent,
        # every encoded row is a sample
        ("rows_in", "rows_quarantined"),
    )
