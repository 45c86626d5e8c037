"""Accounts of the raw files that a stored dataset was built from."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.core.arrays import IntArray
from pmflib.core.errors import StoreError
from pmflib.ingest.dataset.accounts import Account, StepSummary, TimeSpan
from pmflib.ingest.dataset.quarantine import read_quarantine
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import LEVEL_COUNTS, list_file_steps
from pmflib.store.file_digests import read_checked


@dataclass(frozen=True, eq=False)
class FileAccount:
    """Account of one raw file of a dataset.

    Parameters
    ----------
    name
        Name of the source.
    digest
        SHA-256 of its bytes.
    rows
        Rows of the file, rows that were encoded, and rows in quarantine.
    level_counts
        int64 of shape (n_levels,): encoded rows that hold each level.
    duplicates
        Encoded rows that other rows supersede.
    ignored_columns
        Columns that are neither variables nor named in the configuration.
    times
        Times of its rows; None of sources without.
    forms
        Encoded rows by the form of their identifiers; empty of sources without.
    superseded_by
        Encoded rows that others supersede, by the file of the others.
    """

    name: str
    digest: str
    rows: Account
    level_counts: IntArray
    duplicates: int = 0
    ignored_columns: tuple[str, ...] = ()
    times: TimeSpan | None = None
    forms: Mapping[str, int] = field(default_factory=dict)
    superseded_by: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: FileAccount) -> FileAccount:
        """Account of a file of which the other is a later part."""
        rows, counts = self.rows + other.rows, self.level_counts + other.level_counts
        forms = Counter(self.forms) + Counter(other.forms)
        times = self.times if other.times is None else other.times.join(self.times)
        return replace(self, rows=rows, level_counts=counts, forms=forms, times=times)


def read_files(store: Store, dataset: Reference, *, counted: bool = True) -> list[FileAccount]:
    """Accounts of the raw files of a dataset, in order.

    Parameters
    ----------
    store, dataset
        The dataset.
    counted
        Whether levels and superseded rows are counted too, for which more than the manifest is read.

    Raises
    ------
    StoreError
        If the dataset or a step is missing or damaged.
    """
    accounts: list[FileAccount] = []
    for file in list_file_steps(store, dataset):
        step = file.step
        summary = find_summary(store, step)
        known = StepSummary.from_json(summary)
        counts = _read_level_counts(store, step) if counted else np.zeros(0, np.int64)
        account = FileAccount(
            file.name,
            file.source.digest,
            known.account,
            counts,
            ignored_columns=tuple(summary["ignored_columns"]),
            times=known.times,
            forms=known.forms or {},
        )
        if accounts and accounts[-1].name == file.name:
            account = accounts.pop() + account
        accounts.append(account)
    repeated = count_duplicates(store, dataset) if counted else {}
    return [
        replace(each, duplicates=by.total(), superseded_by=by)
        for each in accounts
        for by in [repeated.get(each.name, Counter())]
    ]


def _read_level_counts(store: Store, step: Reference) -> IntArray:
    path = store.locate(step) / LEVEL_COUNTS
    try:
        counts: IntArray = np.load(io.BytesIO(read_checked(path)), allow_pickle=False)
    except StoreError:
        raise
    except (OSError, ValueError, EOFError) as error:
        raise StoreError(
            f"{step.kind} {step.digest[:12]} is damaged ({error}); delete {str(path.parent)!r} and run again"
        ) from error
    return counts


def count_duplicates(store: Store, dataset: Reference) -> dict[str, Counter[str]]:
    """Number of rows that other rows supersede, by file and by the file of the others.

    Raises
    ------
    StoreError
        If the dataset is missing or damaged.
    """
    found: dict[str, Counter[str]] = {}
    for batch in read_quarantine(store, dataset):
        lost = pa.Table.from_batches([batch.filter(pc.equal(batch["reason"], "duplicate"))])
        counted = lost.group_by(["file", "winner_file"]).aggregate([([], "count_all")])
        for row in counted.to_pylist():
            found.setdefault(row["file"], Counter())[row["winner_file"]] += row["count_all"]
    return found


def find_summary(store: Store, reference: Reference) -> Mapping[str, Any]:
    """Summary of an artefact, from the manifest."""
    entry = store.find(reference.identity)
    if entry is None:
        raise StoreError(
            f"{reference.kind} {reference.digest[:12]} is not in store {store.name!r}; run the pipeline again"
        )
    return entry.summary
