"""Report of the data: files, rows, rejected rows, missing answers, samples behind each pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pmflib.base.arrays import IntArray, sum_blocks
from pmflib.counts.folds import count_in_samples
from pmflib.counts.zarr_tables import StoredTables
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.ingest.dataset.quarantine import read_quarantine
from pmflib.schema import Schema
from pmflib.store.array_groups import read_arrays
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import InputFile
from pmflib_tasks.sections import DESTINATIONS

EXAMPLES = 3
"""Maximum number of rejected rows shown per reason."""
RAW_LETTERS = 300
"""Maximum number of characters shown of a raw row."""
LEAST_SUPPORTED = 15
"""Number of pairs of variables listed, those with the fewest samples."""

REASONS = {
    "ragged": "too few or too many fields",
    "undecodable": "bytes that are no text in the encoding of the file",
    "no_sample": "no identifier of the sample",
    "unknown_variable": "a variable that the schema does not have",
    "bad_time": "a time that does not read",
    "bad_weight": "a weight that is no number above 0",
    "no_unit": "no stratum or sampling unit",
    "unknown_level": "a value that is no level of its variable",
    "conflict": "another weight, stratum or unit than other rows of the sample",
    "duplicate": "superseded by another answer of the same sample",
}
"""Descriptions of the reasons for quarantine."""


@dataclass(frozen=True)
class RejectedRow:
    """A rejected row.

    Parameters
    ----------
    file, row
        Name of the file, and number of the row in it, from 1.
    column
        Column that caused the rejection; None for the row as a whole.
    raw
        Its text, shortened if it is long.
    """

    file: str
    row: int
    column: str | None
    raw: str


@dataclass(frozen=True)
class VariableReport:
    """Data of one variable.

    Parameters
    ----------
    name, role, n_levels
        From the schema.
    answers
        Number of samples with an answer.
    missing
        Share of samples without an answer, in [0, 1].
    commonest, share
        The most frequent level and its share of the answers; None and 0 without answers.
    made_missing
        Number of answers with an unknown level, which count as missing.
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
class DataReport:
    """Data of a run.

    Parameters
    ----------
    files
        Raw files.
    rows
        The account of rows; None if the run ended before it had one.
    examples
        Rejected rows by reason.
    variables
        Variables in the order of the schema; empty if nothing was counted.
    level_counts
        int64 of shape (n_levels,): samples that hold each level.
    support
        int64 of shape (n_counted, n_counted): samples that hold both variables, of those whose pairs are counted.
    counted
        Indices of these variables, in order.
    schema
        Variables; None if nothing was counted.
    """

    files: list[InputFile]
    rows: DatasetAccount | None
    examples: dict[str, list[RejectedRow]]
    variables: list[VariableReport] = field(default_factory=list)
    level_counts: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    support: IntArray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    counted: Sequence[int] = ()
    schema: Schema | None = None

    @property
    def destinations(self) -> list[tuple[str, int]]:
        """Numbers of rows by what became of them, in words."""
        numbers = {text: getattr(self.rows, key, 0) for key, text in DESTINATIONS.items()}
        return [(text, number) for text, number in numbers.items() if number]

    @property
    def adds_up(self) -> bool:
        """Whether the account covers every row read."""
        return sum(n for _, n in self.destinations) == (
            0 if self.rows is None else self.rows.rows_in
        )

    @property
    def n_pairs(self) -> int:
        """Number of counted pairs of variables."""
        return len(self.support) * (len(self.support) - 1) // 2

    @property
    def pair_supports(self) -> IntArray:
        """Number of samples that hold each pair of variables, int64 of shape (n_pairs,)."""
        supports: IntArray = self.support[np.triu_indices(len(self.support), 1)]
        return supports

    def list_least_supported(self) -> list[tuple[str, str, int]]:
        """List the pairs with the fewest samples, in rising order: names and number of samples."""
        rows, columns = np.triu_indices(len(self.support), 1)
        order = np.argsort(self.pair_supports, kind="stable")[:LEAST_SUPPORTED]
        names = [self.variables[index].name for index in self.counted]
        return [
            (names[rows[each]], names[columns[each]], int(self.support[rows[each], columns[each]]))
            for each in order.tolist()
        ]


def gather_data(
    store: Store,
    stages: Mapping[str, Reference],
    files: list[InputFile],
    rows: DatasetAccount | None,
) -> DataReport:
    """Gather the data of a run.

    Parameters
    ----------
    store
        The store.
    stages
        Artefacts of the run: dataset and counts, if it reached them. Artefacts without erased samples replace those
        that held them.
    files, rows
        From the record of the run.

    Raises
    ------
    StoreError
        If an artefact is missing or damaged.
    """
    account = rows or DatasetAccount()
    examples = _find_examples(store, stages["dataset"], account) if "dataset" in stages else {}
    if "counts" not in stages:
        return DataReport(files, rows, examples)
    path = store.locate(stages["counts"]) / "pairs"
    stored, arrays = StoredTables(path), read_arrays(path, ["singles", "support"])[0]
    schema, margins = stored.schema, [arrays["singles"].sum(axis=0), arrays["support"]]
    counted, n_samples = count_in_samples(margins, account.samples, stored.weights)
    levels, support = (np.rint(each).astype(np.int64) for each in counted)
    answers = sum_blocks(levels, schema.offsets)
    variables = []
    for index, variable in enumerate(schema.variables):
        mine = levels[schema.rows_of(index)]
        n = int(answers[index])
        variables.append(
            VariableReport(
                variable.name,
                variable.role,
                variable.cardinality,
                n,
                1 - n / n_samples if n_samples else 0.0,
                variable.levels[int(mine.argmax())] if n else None,
                float(mine.max() / n) if n else 0.0,
                account.cells_made_missing[variable.name],
            )
        )
    return DataReport(
        files, rows, examples, variables, levels, support, stored.counted.tolist(), schema
    )


def _find_examples(
    store: Store, dataset: Reference, account: DatasetAccount
) -> dict[str, list[RejectedRow]]:
    """Find the first rows of each reason, reading no more of the quarantine than needed."""
    requested = {reason: min(EXAMPLES, number) for reason, number in account.reasons.items()}
    found: dict[str, list[RejectedRow]] = {reason: [] for reason in requested}
    missing = sum(requested.values())
    if not missing:
        return found
    for batch in read_quarantine(store, dataset):
        for reason in batch.column("reason").unique().to_pylist():
            short = requested.get(reason, 0) - len(found.get(reason, ()))
            if short <= 0:
                continue
            positions = np.flatnonzero(np.asarray(batch.column("reason")) == reason)[:short]
            for row in batch.take(positions).to_pylist():
                raw = row["raw"]
                shown = raw if len(raw) <= RAW_LETTERS else raw[:RAW_LETTERS] + "…"
                found[reason].append(RejectedRow(row["file"], row["row"], row["column"], shown))
            missing -= positions.size
        if missing <= 0:
            break
    return found
