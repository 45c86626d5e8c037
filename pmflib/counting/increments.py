"""Whether counts of a dataset are found from those of an earlier one, or by counting all of its samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pmflib.counting.stored_tables import PAIRS, StoredTables
from pmflib.errors import StoreError
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import list_dataset_blocks
from pmflib.store.dataset_changes import DatasetChange, compare_blocks


@dataclass(frozen=True)
class Increment:
    """What leads from counts that there are to those that are wanted.

    Parameters
    ----------
    counts
        Counts to start from.
    tables
        Their tables.
    change
        Samples to add to them, and to take away.
    """

    counts: Reference
    tables: StoredTables
    change: DatasetChange


def find_counts(
    store: Store,
    dataset: Reference,
    base: tuple[Reference, Reference],
    options: Mapping[str, Any],
    version: int,
) -> Entry | None:
    """Find the counts of a dataset that has not changed, without opening them; arguments as for `plan_increment`.

    Returns
    -------
    Entry of the counts of the base, where the base is the dataset and they are all in the store; None otherwise.
    """
    entry = _find_base(store, base, options, version)
    if entry is None or base[0].digest != dataset.digest:
        return None
    # differences refer to the counts that they are to be added to
    below: Entry | None = entry
    while below is not None and "base" in below.inputs:
        below = store.find(below.inputs["base"].identity)
    return None if below is None else entry


def _find_base(
    store: Store, base: tuple[Reference, Reference], options: Mapping[str, Any], version: int
) -> Entry | None:
    """Entry of the counts to start from; None if they were made otherwise, or are of another dataset."""
    earlier, counts = base
    entry = store.find(counts.identity)
    if entry is None or (entry.options, entry.version) != (options, version):
        return None
    same = entry.reference == counts and entry.inputs["dataset"].digest == earlier.digest
    return entry if same else None


def plan_increment(
    store: Store,
    dataset: Reference,
    base: tuple[Reference, Reference],
    options: Mapping[str, Any],
    version: int,
) -> Increment | None:
    """Compare a dataset with one that is counted.

    Parameters
    ----------
    store
        Store that holds all of them.
    dataset
        Dataset to count.
    base
        An earlier dataset, and its counts.
    options, version
        Schema and folds, and version of the algorithm: those that the counts must have been made with.

    Returns
    -------
    What to count; None where all samples must be: the base is of another schema or other folds, or no longer whole in
    the store, or the two datasets differ by more observed cells than the new one has.

    Raises
    ------
    StoreError
        If the dataset is not in the store, or the counts are damaged.
    """
    earlier, counts = base
    if _find_base(store, base, options, version) is None:
        return None
    tables = StoredTables(store.locate(counts) / PAIRS)
    if tables.list_missing():
        return None
    folds = range(tables.n_folds)
    blocks = list_dataset_blocks(store, dataset, folds)
    try:
        known = list_dataset_blocks(store, earlier, folds)
    except StoreError:
        # samples that are gone from the store cannot be taken away
        return None
    change = compare_blocks(known, blocks)
    if change.n_observed > sum(block.n_observed for block in blocks):
        return None
    return Increment(counts, tables, change)
