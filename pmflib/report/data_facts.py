"""What came in: rows and where they went, files, rows that did not fit, missing answers, samples behind each pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pmflib.arrays import IntArray
from pmflib.counting.pair_counts import load_shape, load_singles
from pmflib.ingest.rejected_rows import read_quarantine
from pmflib.level_blocks import sum_blocks
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.zarr_arrays import read_arrays

EXAMPLES = 3
"""Rows that are shown of each reason why rows did not fit."""
RAW_LETTERS = 300
"""Letters of a raw row that are shown, at most."""
LEAST_SUPPORTED = 15
"""Pairs of variables with the fewest samples that are listed."""

WHERE_ROWS_WENT = {
    "rows_encoded": "used",
    "rows_quarantined": "did not fit, and are in quarantine",
    "rows_left_out": "answers to variables left out on purpose",
    "rows_outside": "outside the window of time",
    "rows_erased": "of erased samples",
}
"""Words for the keys of an account of rows that add up to the rows read."""

REASONS = {
    "ragged": "too few or too many fields",
    "undecodable": "bytes that are no text in the encoding of the file",
    "no_sample": "no identifier of the sample",
    "unknown_variable": "a variable that the schema does not have",
    "bad_time": "a time that does not read",
    "unknown_level": "a value that is no level of its variable",
    "duplicate": "superseded by another answer of the same sample",
}
"""Words for the reasons of the quarantine."""


@dataclass(frozen=True)
class RejectedRow:
    """A row that did not fit.

    Parameters
    ----------
    file, row
        Where it is: name of the file, and number of the row in it, from 1.
    column
        Column at fault; None where it is the row as a whole.
    raw
        Its text, cut where it is long.
    """

    file: str
    row: int
    column: str | None
    raw: str


@dataclass(frozen=True)
class VariableFacts:
    """One variable in the data.

    Parameters
    ----------
    name, role, n_levels
        From the schema.
    answers
        Samples that hold it.
    missing
        Share of the samples that do not, in [0, 1].
    commonest, share
        Its most frequent level, and that level's share of the answers; None and 0 without answers.
    made_missing
        Answers with an unknown level, which were taken as missing.
    """

    name: str
    role: str
    n_levels: int
    answers: int
    missing: float
    commonest: str | None
    share: float
    made_missing: int


@dataclass(frozen=True, eq=False)
class DataFacts:
    """What came in.

    Parameters
    ----------
    files
        Name, bytes, digest and rows of each raw file.
    rows
        The account of rows: numbers by key.
    examples
        By reason, rows that did not fit.
    variables
        Variables in the order of the schema; empty where nothing was counted.
    level_counts
        int64 of shape (n_levels,): samples that hold each level.
    support
        int64 of shape (n_variables, n_variables): samples that hold both variables.
    schema
        Variables; None where nothing was counted.
    """

    files: list[dict[str, Any]]
    rows: dict[str, Any]
    examples: dict[str, list[RejectedRow]]
    variables: list[VariableFacts] = field(default_factory=list)
    level_counts: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    support: IntArray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    schema: Schema | None = None

    @property
    def destinations(self) -> list[tuple[str, int]]:
        """Where the rows went, in words, and how many."""
        return [
            (text, int(self.rows[key]))
            for key, text in WHERE_ROWS_WENT.items()
            if self.rows.get(key)
        ]

    @property
    def adds_up(self) -> bool:
        """Whether every row that was read is accounted for."""
        return sum(n for _, n in self.destinations) == int(self.rows.get("rows_in", 0))

    @property
    def n_pairs(self) -> int:
        """Number of pairs of variables."""
        return len(self.support) * (len(self.support) - 1) // 2

    @property
    def pair_supports(self) -> IntArray:
        """Samples that hold each pair of variables: int64 of shape (n_pairs,)."""
        supports: IntArray = self.support[np.triu_indices(len(self.support), 1)]
        return supports

    def list_least_supported(self) -> list[tuple[str, str, int]]:
        """Pairs with the fewest samples: names and samples, the fewest first."""
        rows, columns = np.triu_indices(len(self.support), 1)
        order = np.argsort(self.pair_supports, kind="stable")[:LEAST_SUPPORTED]
        names = [each.name for each in self.variables]
        return [
            (names[rows[each]], names[columns[each]], int(self.support[rows[each], columns[each]]))
            for each in order.tolist()
        ]


def gather_data(
    store: Store, stages: Mapping[str, Reference], files: list[dict[str, Any]], rows: dict[str, Any]
) -> DataFacts:
    """Gather what came in.

    Parameters
    ----------
    store
        The store.
    stages
        Artefacts of the run: dataset and counts, as far as it reached them. Of what held erased samples, those that
        took its place.
    files, rows
        From the record of the run.

    Raises
    ------
    StoreError
        If an artefact is not in the store, or damaged.
    """
    examples = _find_examples(store, stages["dataset"], rows) if "dataset" in stages else {}
    if "counts" not in stages:
        return DataFacts(files, rows, examples)
    path = store.locate(stages["counts"]) / "pairs"
    schema = load_shape(path)[0]
    levels = load_singles(path)
    support: IntArray = read_arrays(path, ["support"])[0]["support"]
    n_samples = int(rows.get("samples", 0))
    answers = sum_blocks(levels, schema.offsets)
    made_missing = rows.get("cells_made_missing", {})
    variables = []
    for place, variable in enumerate(schema.variables):
        mine = levels[schema.rows_of(place)]
        n = int(answers[place])
        variables.append(
            VariableFacts(
                variable.name,
                variable.role,
                variable.cardinality,
                n,
                1 - n / n_samples if n_samples else 0.0,
                variable.levels[int(mine.argmax())] if n else None,
                float(mine.max() / n) if n else 0.0,
                int(made_missing.get(variable.name, 0)),
            )
        )
    return DataFacts(files, rows, examples, variables, levels, support, schema)


def _find_examples(
    store: Store, dataset: Reference, rows: Mapping[str, Any]
) -> dict[str, list[RejectedRow]]:
    """First rows of each reason; the quarantine is read as far as it takes."""
    wanted = {
        reason: min(EXAMPLES, int(number)) for reason, number in rows.get("reasons", {}).items()
    }
    found: dict[str, list[RejectedRow]] = {reason: [] for reason in wanted}
    missing = sum(wanted.values())
    if not missing:
        return found
    for batch in read_quarantine(store, dataset):
        for reason in batch.column("reason").unique().to_pylist():
            short = wanted.get(reason, 0) - len(found.get(reason, ()))
            if short <= 0:
                continue
            places = np.flatnonzero(np.asarray(batch.column("reason")) == reason)[:short]
            for row in batch.take(places).to_pylist():
                raw = row["raw"]
                cut = raw if len(raw) <= RAW_LETTERS else raw[:RAW_LETTERS] + "…"
                found[reason].append(RejectedRow(row["file"], row["row"], row["column"], cut))
            missing -= places.size
        if missing <= 0:
            break
    return found
