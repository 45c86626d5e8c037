"""Accounts of the raw files of a stored dataset."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import IntArray
from pmflib.base.errors import StoreError
from pmflib.base.json_records import from_json
from pmflib.ingest.dataset.accounts import Account, StepSummary, TimeSpan
from pmflib.ingest.dataset.quarantine import read_quarantine
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import LEVEL_COUNTS, list_file_steps
from pmflib.store.file_digests import read_checked


@dataclass(frozen=True, eq=False)
class FileAccount:
    """Account of one raw file.

    Parameters
    ----------
    name
        Name of the source.
    digest
        SHA-256 of its bytes.
    rows
        Numbers of rows read, encoded and quarantined.
    level_counts
        Number of encoded rows with each level, int64 of shape (n_levels,).
    duplicates
        Number of superseded rows.
    ignored_columns
        Columns that are not used.
    times
        Time span of the rows; None without times.
    forms
        Number of encoded rows by form of the identifier; empty without identifiers.
    superseded_by
        Number of superseded rows by the file of the superseding row.
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
        """Join the account of a later part of the same file."""
        rows, counts = self.rows + other.rows, self.level_counts + other.level_counts
        forms = Counter(self.forms) + Counter(other.forms)
        times = self.times if other.times is None else other.times.join(self.times)
        return replace(self, rows=rows, level_counts=counts, forms=forms, times=times)


def read_files(store: Store, dataset: Reference, *, counted: bool = True) -> list[FileAccount]:
    """Read the accounts of the raw files of a dataset, in order.

    Parameters
    ----------
    store, dataset
        The dataset.
    counted
        Whether to count levels and superseded rows, for which more than the manifest must be read.

    Raises
    ------
    StoreError
        If the dataset or an artefact of a file is missing or damaged.
    """
    accounts: list[FileAccount] = []
    for file in list_file_steps(store, dataset):
        step = file.step
        summary = find_summary(store, step)
        known = from_json(StepSummary, summary, is_part=True)
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
    """Count superseded rows by file and by the file of the superseding row.

    Raises
    ------
    StoreError
        If the dataset is missing or damaged.
    """
    import pyarrow.compute as pc

    found: dict[str, Counter[str]] = {}
    for batch in read_quarantine(store, dataset):
        lost = pa.Table.from_batches([batch.filter(pc.equal(batch["reason"], "duplicate"))])
        counted = lost.group_by(["file", "winner_file"]).aggregate([([], "count_all")])
        for row in counted.to_pylist():
            found.setdefault(row["file"], Counter())[row["winner_file"]] += row["count_all"]
    return found


def find_summary(store: Store, reference: Reference) -> Mapping[str, Any]:
    """Read the summary of an artefact from the manifest."""
    entry = store.find(reference.identity)
    if entry is None:
        raise StoreError(
            f"{reference.kind} {reference.digest[:12]} is not in store {store.name!r}; run the pipeline again"
        )
    return entry.summary
