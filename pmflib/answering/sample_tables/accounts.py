"""Accounts of scored rows: numbers of rows by outcome, and values that are not levels of the schema."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True)
class UnknownLevels:
    """Values of a column that are not levels.

    Parameters
    ----------
    cells
        Number of cells with such a value.
    counts
        Number of cells by value, for at most ``MOST_VALUES`` values.
    """

    cells: int
    counts: Mapping[str, int]

    @property
    def most(self) -> list[tuple[str, int]]:
        """Values with their counts, by falling count; ties keep the order of appearance."""
        return sorted(self.counts.items(), key=lambda each: -each[1])

    def to_json(self) -> dict[str, object]:
        """Convert to plain JSON types: cells, the most frequent values, and the number of other values."""
        most = self.most
        return {
            "cells": self.cells,
            "values": dict(most[:VALUES_LISTED]),
            "more_values": max(0, len(most) - VALUES_LISTED),
        }


def describe_unknown(column: str, found: Mapping[str, Any], *, is_target: bool) -> str:
    """Describe the values of a column that are not levels, from the result of `UnknownLevels.to_json`.

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
    """Refuse a file if most of its rows are rejected, or if no value of a column is a level.

    Parameters
    ----------
    name
        Name of the file.
    account
        Account of its rows.
    observed
        Number of cells with a level, by variable.
    unknown
        Number of cells without one, by variable and value.
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
            + f"; {variable.list_known()}. No scores are published: write the values "
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
    unknown: dict[str, dict[str, dict[str, int]]] = {source.name: {} for source in used}
    for source in used:
        names = [name for name, n in files[source.name].rows.cells_made_missing.items() if n]
        columns = list(dict.fromkeys(schema[name].column for name in names))
        found = count_values([source], config, columns, schema.coded_columns) if names else {}
        for name in names:
            texts = found[schema[name].column].counts
            codes = {text: schema[name].encode_cell(text) for text in texts}
            own = {
                text.strip()[:LONGEST_VALUE]: n
                for text, n in texts.items()
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
        Numbers of rows by outcome, with the keys of `pmflib.ingest.dataset.accounts.DatasetAccount`: "rows_in" and
        "rows_quarantined"; for rows that were sorted into samples, all keys.
    reasons, cells_made_missing
        Number of rows in quarantine by reason, and of values by variable that are not levels and count as missing.
    unknown
        Number of cells that count as missing, by variable and value.
    targets, measures
        Predicted variables, and `pmflib.model.measures.TargetSums.measure` of each.
    parts
        Number of files with scores.
    targets_absent
        Files without a column of a target, by target.
    files_skipped
        Unreadable files that were skipped, with reasons; None if none may be skipped.
    """

    samples: int
    rows: Mapping[str, int]
    reasons: Mapping[str, int]
    cells_made_missing: Mapping[str, int]
    unknown: Counts
    targets: Sequence[str]
    measures: Mapping[str, Mapping[str, float]]
    parts: int
    targets_absent: Mapping[str, Sequence[str]] = field(default_factory=dict)
    files_skipped: Mapping[str, str] | None = None

    @classmethod
    def of_dataset(
        cls,
        dataset: DatasetAccount,
        n_samples: int,
        unknown: Counts,
        measures: Mapping[str, Mapping[str, float]],
        parts: int,
    ) -> ScoreAccount:
        """Build the account of rows that were sorted into samples.

        Parameters
        ----------
        dataset
            Account of the rows.
        n_samples, unknown, measures, parts
            As above; the targets are those of the measures.
        """
        # all keys, so that a reader can check that they add up
        content: Any = dataset.to_json()
        rows = {name: n for name, n in content.items() if name.startswith("rows_")}
        cells = {name: n for name, n in sorted(dataset.cells_made_missing.items()) if n}
        return cls(
            *(n_samples, rows, dataset.list_reasons(), cells, unknown, list(measures), measures),
            parts,
            files_skipped=dataset.files_skipped,
        )

    def to_json(self) -> dict[str, object]:
        """Convert to plain JSON types."""
        skipped = self.files_skipped
        return {
            "samples": self.samples,
            **self.rows,
            "reasons": dict(self.reasons),
            "cells_made_missing": dict(self.cells_made_missing),
            "unknown_levels": {
                name: UnknownLevels(n_cells, self.unknown.get(name, {})).to_json()
                for name, n_cells in self.cells_made_missing.items()
            },
            "targets": list(self.targets),
            "targets_absent": {name: list(files) for name, files in self.targets_absent.items()},
            "measures": dict(self.measures),
            "parts": self.parts,
            **({} if skipped is None else {"files_skipped": dict(sorted(skipped.items()))}),
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
    account.to_json()
    for target, sums in zip(targets, whole.sums, strict=True):
        if sums.judged + sums.missing != account.rows_encoded:
            raise StoreError(
                f"{target!r} was predicted in {sums.judged + sums.missing} of {account.rows_encoded} rows that were "
                "scored; do not use the result, and report this as a defect"
            )
    return ScoreAccount(
        account.rows_encoded,
        {"rows_in": account.rows_in, "rows_quarantined": account.rows_quarantined},
        account.list_reasons(),
        dict(sorted(account.cells_made_missing.items())),
        whole.unknown,
        targets,
        {t: sums.measure() for t, sums in zip(targets, whole.sums, strict=True)},
        len(parts),
        targets_absent,
        files_skipped,
    )
