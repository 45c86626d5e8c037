"""All guards of a dataset in a store, against the last run and the one that made the live model."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.config import QualityConfig
from pmflib.core.arrays import IntArray
from pmflib.core.errors import StoreError
from pmflib.counting.cell_changes import merge_changes
from pmflib.counting.pair_counts import PairCounts, load_fold_singles, load_shape
from pmflib.counting.stored_tables import StoredTables
from pmflib.ingest.dataset.accounts import Account
from pmflib.ingest.dataset.quarantine import read_quarantine
from pmflib.quality.drift import (
    MOST_LEVELS,
    DriftTests,
    LiveData,
    assess_drift,
    find_file_drift,
    find_pair_drift,
    subtract_tables,
)
from pmflib.quality.findings import Finding, abstain
from pmflib.quality.row_guards import (
    Changes,
    FileAccount,
    assess_rows,
    check_columns,
    check_sizes,
    find_file_changes,
)
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import LEVEL_COUNTS, list_file_steps
from pmflib.store.file_digests import read_checked

PAIRS = "pairs"
"""Group of the pair counts in the folder of the counts."""
FILE_GUARDS = ("variable_drift", "scale_drift", "answer_drift")
"""Guards that compare level counts of files."""
PAIR_GUARDS = ("pair_drift", "dependence_drift")
"""Guards that compare pair counts of samples."""


def check_dataset(
    store: Store,
    schema: Schema,
    layout: str,
    config: QualityConfig,
    *,
    now: Mapping[str, Reference],
    last: Mapping[str, Reference] | None,
    live: Mapping[str, Reference] | None,
) -> list[Finding]:
    """Run every guard.

    Parameters
    ----------
    store
        Store that holds the artefacts.
    schema
        Variables and levels.
    layout
        Layout of the sources: "wide" or "long".
    config
        Limits.
    now, last, live
        Stages "dataset" and "counts" of this run, of the last one that reached its end, and of the one that made the
        live model; None where there is none.

    Returns
    -------
    Findings, also those that passed.

    Raises
    ------
    StoreError
        If an artefact is missing or damaged.
    """
    findings, changes = check_files(
        store,
        config,
        now["dataset"],
        None if last is None else last["dataset"],
        () if last is None else _schema_of(store, last).names,
    )
    if live is None or last is None:
        reason = "there is no live model whose data could be compared"
        return findings + [abstain(guard, "all", reason) for guard in FILE_GUARDS + PAIR_GUARDS]
    if any(_schema_of(store, each).digest != schema.digest for each in (live, last)):
        reason = "the schema has changed since the live model was made"
        return findings + [abstain(guard, "all", reason) for guard in FILE_GUARDS + PAIR_GUARDS]
    tests: list[DriftTests] = []
    if any(change.file.rows.rows_encoded for change in changes.new):
        singles = load_fold_singles(store.locate(live["counts"]) / PAIRS)
        data = LiveData(read_files(store, live["dataset"]), singles)
        tests = find_file_drift(schema, layout, data, changes.new)
    else:
        findings += [abstain(guard, "all", "no new rows to compare") for guard in FILE_GUARDS]
    if now["counts"].digest == last["counts"].digest:
        findings += [abstain(guard, "all", "no new samples to compare") for guard in PAIR_GUARDS]
    elif schema.n_levels > MOST_LEVELS:
        reason = f"{schema.n_levels:,} levels; pairs of at most {MOST_LEVELS:,} are compared"
        findings += [abstain(guard, "all", reason) for guard in PAIR_GUARDS]
    else:
        tests += _compare_pairs(store, schema, now, last, live)
    return findings + assess_drift(tests, config)


def check_files(
    store: Store,
    config: QualityConfig,
    dataset: Reference,
    last: Reference | None,
    columns: Sequence[str] = (),
) -> tuple[list[Finding], Changes]:
    """Run the guards of rows, files and columns, which any layout has.

    Parameters
    ----------
    store, config
        Store that holds the artefacts, and limits.
    dataset, last
        Datasets of this run and of the last one that reached its end; None where there is none.
    columns
        Variables of the last run: a column may have been one until now.

    Returns
    -------
    Findings, also those that passed, and how the files differ.

    Raises
    ------
    StoreError
        If an artefact is missing or damaged.
    """
    files = read_files(store, dataset)
    last_files = [] if last is None else files if last == dataset else read_files(store, last)
    changes = find_file_changes(files, last_files)
    findings = assess_rows(
        Account.from_json(_summary(store, dataset)),
        files,
        None if last is None else Account.from_json(_summary(store, last)),
        changes,
        config,
    )
    findings += check_sizes(changes, last_files, config)
    known = None
    if last is not None:
        known = {*columns, *(name for file in last_files for name in file.ignored_columns)}
    return findings + check_columns(files, changes, known, config), changes


def read_files(store: Store, dataset: Reference) -> list[FileAccount]:
    """Accounts of the raw files of a dataset, in order.

    Raises
    ------
    StoreError
        If the dataset or a step is missing or damaged.
    """
    accounts: list[FileAccount] = []
    for file in list_file_steps(store, dataset):
        step = file.step
        summary = _summary(store, step)
        path = store.locate(step) / LEVEL_COUNTS
        try:
            counts = np.load(io.BytesIO(read_checked(path)), allow_pickle=False)
        except StoreError:
            raise
        except (OSError, ValueError, EOFError) as error:
            raise StoreError(
                f"{step.kind} {step.digest[:12]} is damaged ({error}); delete {str(path.parent)!r} and run again"
            ) from error
        account = FileAccount(
            file.name,
            file.source.digest,
            Account.from_json(summary),
            counts,
            ignored_columns=tuple(summary["ignored_columns"]),
        )
        if accounts and accounts[-1].name == file.name:
            account = accounts.pop() + account
        accounts.append(account)
    repeated = count_duplicates(store, dataset)
    return [replace(each, duplicates=repeated[each.name]) for each in accounts]


def count_duplicates(store: Store, dataset: Reference) -> Counter[str]:
    """Number of rows that other rows supersede, by file.

    Raises
    ------
    StoreError
        If the dataset is missing or damaged.
    """
    found: Counter[str] = Counter()
    for batch in read_quarantine(store, dataset):
        table = pa.Table.from_batches([batch]).group_by(["file", "reason"])
        for row in table.aggregate([([], "count_all")]).to_pylist():
            if row["reason"] == "duplicate":
                found[row["file"]] += row["count_all"]
    return found


def _compare_pairs(
    store: Store,
    schema: Schema,
    now: Mapping[str, Reference],
    last: Mapping[str, Reference],
    live: Mapping[str, Reference],
) -> list[DriftTests]:
    """Compare pairs of the samples that were added since the last run; of all samples, if some were removed."""
    before = _load_table(store, last["counts"])
    same = last["counts"].digest == live["counts"].digest
    reference = before if same else _load_table(store, live["counts"])
    stored = StoredTables(store.locate(now["counts"]) / PAIRS)
    if stored.base == last["counts"].digest:
        # a night's own changes are read in a fraction of the time that all the tables before them take
        changes = merge_changes([stored.read_changes(fold) for fold in range(stored.n_folds)])
        new = np.zeros_like(before)
        if not changes.add_to(new):
            new += before
    else:
        table = _load_table(store, now["counts"])
        added = subtract_tables(table, before)
        new = table if added is None else added
    return find_pair_drift(schema, new, reference)


def _load_table(store: Store, counts: Reference) -> IntArray:
    table: IntArray = PairCounts.load_total(store.locate(counts) / PAIRS).tables[0]
    return table


def _schema_of(store: Store, stages: Mapping[str, Reference]) -> Schema:
    return load_shape(store.locate(stages["counts"]) / PAIRS)[0]


def _summary(store: Store, reference: Reference) -> Mapping[str, Any]:
    entry = store.find(reference.identity)
    if entry is None:
        raise StoreError(
            f"{reference.kind} {reference.digest[:12]} is not in store {store.name!r}; run the pipeline again"
        )
    return entry.summary
