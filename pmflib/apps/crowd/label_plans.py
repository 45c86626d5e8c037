"""Plans of a label log: tasks and labels per task for an error of the confusion matrices, and pairs who share tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import SparseBlock
from pmflib.base.constraints import at_least, check
from pmflib.base.errors import PmfError, RankError
from pmflib.inference.planning.sample_sizes import check_accuracy, sample_size
from pmflib.model import JointPMF
from pmflib.schema import Schema

MOST_ENTRIES = 600
"""Limit of the entries of the confusion matrices in a plan, and so of its workers: their information takes a second."""
LABELS_PER_TASK = (2, 3, 4, 5, 7, 10, 15, 20, 30)
"""Labels per task that are compared."""


@dataclass(frozen=True, eq=False)
class LabelPlan:
    """Labels for an error of the confusion matrices.

    Parameters
    ----------
    accuracy
        Root mean square error of the entries of the confusion matrices.
    table
        Arrow table with a row for each number of labels per task: labels_per_task, tasks, labels. Without a row where
        no number of tasks determines the matrices.
    pairs
        Arrow table with a row for each pair of workers who share too few tasks: worker, other, shared, missing. Each
        worker has two others, `anchors`, with whom estimates of pairs connect them to all.
    anchors
        The two workers, by name.
    """

    accuracy: float
    table: pa.Table
    pairs: pa.Table
    anchors: tuple[object, object]


def plan_labels(
    prior: FloatArray,
    confusion: FloatArray,
    labels: SparseBlock,
    workers: pa.Array,
    accuracy: float,
) -> LabelPlan:
    """Plan the labels for an error of the confusion matrices, with a fitted log as the pilot.

    Parameters
    ----------
    prior, confusion
        Parameters of the log: (n_classes,), and (n_workers, n_classes, n_classes), labels by true class.
    labels
        Its tasks as rows, labels as levels ``worker * n_classes + class``.
    workers
        Names of the workers.
    accuracy
        Root mean square error of the entries, in (0, 1).

    Raises
    ------
    PmfError
        If there are fewer than three workers, or no number of labels determines the matrices.

    References
    ----------
    Information as in `pmflib.inference.planning.sample_sizes`. Ibrahim and Fu (2021), "Crowdsourcing via Annotator
    Co-occurrence
    Imputation and Provable Symmetric Nonnegative Matrix Factorization": (7)-(8), two designated annotators with whom
    all others share tasks; theorems 1 and 2, the error of a pair is as 1 / sqrt(tasks that both label).
    """
    check_accuracy(accuracy)
    n_workers = len(confusion)
    check(at_least(3, "as two never determine both confusion matrices"), n_workers=n_workers)
    anchors = _choose_anchors(prior, confusion, labels)
    rows = _plan_tasks(prior, confusion, accuracy)
    if not rows:
        raise PmfError(
            "no number of labels per task determines the confusion matrices of this log: some classes are labelled "
            "alike by all workers; leave one of them out, or find other workers"
        )
    table = pa.table(
        dict(zip(("labels_per_task", "tasks", "labels"), zip(*rows, strict=True), strict=True))
    )
    pairs = _list_pairs(prior, confusion, labels, anchors, accuracy)
    names: list[object] = workers.to_pylist()
    pairs |= {key: [names[each] for each in pairs[key]] for key in ("worker", "other")}
    return LabelPlan(accuracy, table, pa.table(pairs), (names[anchors[0]], names[anchors[1]]))


def _plan_tasks(
    prior: FloatArray, confusion: FloatArray, accuracy: float
) -> list[tuple[int, int, int]]:
    """Labels per task, tasks, and labels in all, where the matrices are determined."""
    n_workers, n_classes, _ = confusion.shape
    n_kept = max(3, min(n_workers, MOST_ENTRIES // n_classes**2))
    # evenly spaced in order of accuracy, so that they are as good as all
    order = np.argsort(np.einsum("wcc,c->w", confusion, prior), kind="stable")
    kept = order[np.linspace(0, n_workers - 1, n_kept).round().astype(int)]
    schema = Schema.from_cardinalities([n_classes] * n_kept)
    model = JointPMF(prior, np.concatenate(confusion[kept]), schema)
    rows = []
    for per_task in [each for each in LABELS_PER_TASK if each <= n_kept]:
        try:
            found = sample_size(model, accuracy, observed=per_task / n_kept, of="factors")
        except RankError:
            continue
        if not found.n_undetermined:
            # each worker has as many labels as with all workers
            n_tasks = math.ceil(found.n_rows * n_workers / n_kept)
            rows.append((per_task, n_tasks, n_tasks * per_task))
    return rows


def _choose_anchors(
    prior: FloatArray, confusion: FloatArray, labels: SparseBlock
) -> tuple[int, int]:
    """Choose two workers with many labels of tasks that others label too, whose matrices are far from singular."""
    n_workers, n_classes, _ = confusion.shape
    lengths = np.diff(labels.indptr)
    is_shared = np.repeat(lengths > 1, lengths)
    n_labels = np.bincount(labels.indices[is_shared] // n_classes, minlength=n_workers)
    least = np.linalg.svd(confusion * np.sqrt(prior), compute_uv=False)[:, -1]
    best = np.argsort(-least * np.sqrt(n_labels), kind="stable")[:2]
    return int(best[0]), int(best[1])


def _list_pairs(
    prior: FloatArray,
    confusion: FloatArray,
    labels: SparseBlock,
    anchors: tuple[int, int],
    accuracy: float,
) -> dict[str, list[Any]]:
    """List pairs with an anchor whose shares of both labels have a larger error than the accuracy."""
    n_workers, n_classes, _ = confusion.shape
    owners = labels.indices // n_classes
    tasks = np.repeat(np.arange(labels.n_rows), np.diff(labels.indptr))
    found: dict[str, list[Any]] = {"worker": [], "other": [], "shared": [], "missing": []}
    for place, anchor in enumerate(anchors):
        is_shared = np.isin(tasks, tasks[owners == anchor])
        shared: IntArray = np.bincount(owners[is_shared], minlength=n_workers)
        joint = np.einsum("wac,bc,c->wab", confusion, confusion[anchor], prior)
        needed = np.ceil((joint * (1 - joint)).mean(axis=(1, 2)) / accuracy**2).astype(int)
        skipped = {anchor, *anchors[:place]}
        for worker in range(n_workers):
            if worker not in skipped and shared[worker] < needed[worker]:
                found["worker"].append(worker)
                found["other"].append(anchor)
                found["shared"].append(int(shared[worker]))
                found["missing"].append(int(needed[worker] - shared[worker]))
    return found
