"""Compare a label log with that of the last run: new pairs of labels of the same task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmflib.apps.crowd.stored.label_blocks import (
    LabelReference,
    join_neighbours,
    list_label_blocks,
    read_tasks,
)
from pmflib.apps.crowd.worker_pair_counts import WorkerPairCounts, count_worker_pairs
from pmflib.base.arrays import IntArray
from pmflib.base.blocks import SparseBlock
from pmflib.counts.increments import compare_blocks
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store

MOST_COMPARED = 1_000_000
"""Approximate maximum number of new labels whose pairs are counted; if there are more, only some folds are used."""
MOST_BEFORE = 200_000
"""Approximate maximum number of labels of the last run in the comparison, enough to estimate the agreement to a tenth
of a per cent."""


@dataclass(frozen=True, eq=False)
class NewPairs:
    """Pairs of labels of the same task.

    Parameters
    ----------
    new
        Pairs with at least one label that is new since the last run, minus removed pairs.
    n_tasks
        Number of tasks that may have such pairs.
    pairs, agreeing
        Number of pairs of the last run, and number of those with two equal labels.
    """

    new: WorkerPairCounts
    n_tasks: int
    pairs: int
    agreeing: int


def count_new_pairs(store: Store, dataset: Reference, last: Reference, schema: Schema) -> NewPairs:
    """Count the pairs of labels in a label log that are not in the last one.

    Parameters
    ----------
    store, dataset, last
        Store, current labels, and labels of the last run.
    schema
        Current schema of the log.

    Raises
    ------
    StoreError
        If a dataset is missing from the store, or damaged.
    """
    now, before = (list_label_blocks(store, each, schema) for each in (dataset, last))
    change = compare_blocks(before, now)
    folds = {block.fold for block in now}
    chosen = _choose_folds([*change.added, *change.removed], folds)
    added, removed = (
        [each for each in blocks if isinstance(each, LabelReference) and each.fold in chosen]
        for blocks in (change.added, change.removed)
    )
    gone = _count_pairs(removed, schema)
    gone = replace(gone, counts=-gone.counts, n_labels=-gone.n_labels)
    new = WorkerPairCounts.merge([_count_pairs(added, schema), gone])
    # removals can exceed additions
    new = replace(new, counts=np.maximum(new.counts, 0), n_labels=np.maximum(new.n_labels, 0))
    few = _choose_folds(before, folds, MOST_BEFORE)
    labels = _read([block for block in before if block.fold in few], schema)
    pairs, agreeing = count_agreement(labels.indptr, labels.indices, schema[0].cardinality)
    return NewPairs(new, sum(block.n_rows for block in added), pairs, agreeing)


def count_agreement(indptr: IntArray, levels: IntArray, n_classes: int) -> tuple[int, int]:
    """Count the pairs of labels of the same task, and those with two equal labels.

    Parameters
    ----------
    indptr, levels
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    n_classes
        Number of classes.
    """
    lengths = np.diff(indptr)
    tasks = np.repeat(np.arange(lengths.size), lengths)
    votes = np.bincount(tasks * n_classes + levels % n_classes, minlength=lengths.size * n_classes)
    return int((lengths * (lengths - 1)).sum()) // 2, int((votes * (votes - 1)).sum()) // 2


def _choose_folds(blocks: Sequence[object], folds: set[int], most: int = MOST_COMPARED) -> set[int]:
    """Choose folds with about ``most`` labels: all, or the first ones."""
    n_labels = sum(block.n_observed for block in blocks if isinstance(block, LabelReference))
    n_chosen = max(1, len(folds) * most // max(n_labels, most))
    return {*sorted(folds)[:n_chosen]}


def _count_pairs(blocks: Sequence[LabelReference], schema: Schema) -> WorkerPairCounts:
    sizes = schema.n_variables, schema[0].cardinality
    return count_worker_pairs(_read(blocks, schema), *sizes)


def _read(blocks: Sequence[LabelReference], schema: Schema) -> SparseBlock:
    if not blocks:
        return SparseBlock(np.zeros(1, np.int64), np.zeros(0, np.int32))
    return read_tasks(join_neighbours(blocks), schema.offsets)[0]
