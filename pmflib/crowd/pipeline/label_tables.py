"""Tables of true labels and of workers, as the pipeline writes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.arrays import FloatArray, IntArray
from pmflib.solvers.crowd.annotator_model import CrowdModel

N_UNCERTAIN = 10
"""Tasks that are worth another label, and are named in a summary."""


def make_label_fields(classes: Sequence[str]) -> pa.Schema:
    """Columns of `make_label_table`."""
    fields = [
        pa.field("task", pa.string()),
        pa.field("label", pa.string()),
        pa.field("confidence", pa.float64()),
        pa.field("n_labels", pa.int64()),
    ]
    return pa.schema(
        [*fields, *(pa.field(f"probability.{name}", pa.float64()) for name in classes)]
    )


def make_label_table(
    tasks: Sequence[str], posterior: FloatArray, n_labels: IntArray, classes: Sequence[str]
) -> pa.Table:
    """Make a row per task: its most probable class, that class's probability, its labels' number, all probabilities.

    Parameters
    ----------
    tasks
        Names of the tasks.
    posterior
        float64 of shape (n_tasks, n_classes).
    n_labels
        int64 of shape (n_tasks,): number of labels that each task had.
    classes
        Names of the classes.
    """
    best = posterior.argmax(axis=1)
    columns = [
        pa.array(list(tasks), pa.string()),
        pa.array(list(classes), pa.string()).take(pa.array(best)),
        pa.array(posterior[np.arange(best.size), best]),
        pa.array(n_labels, pa.int64()),
        *(pa.array(column) for column in posterior.T),
    ]
    return pa.Table.from_arrays(columns, schema=make_label_fields(classes))


def pick_uncertain(tables: Sequence[pa.Table]) -> pa.Table:
    """Pick the ``N_UNCERTAIN`` tasks that are least certain from label tables, at least one; of equals by name."""
    joined = pa.concat_tables(tables)
    order = pc.sort_indices(joined, [("confidence", "ascending"), ("task", "ascending")])
    return joined.take(order[:N_UNCERTAIN])


def make_worker_table(
    workers: Sequence[str], model: CrowdModel, n_labels: IntArray, classes: Sequence[str]
) -> pa.Table:
    """Make a row per worker: accuracy, number of labels given, and the PMF of the labels by true class.

    Parameters
    ----------
    workers
        Names of the workers.
    model
        Prior and confusion matrices.
    n_labels
        int64 of shape (n_workers,): number of labels that each worker gave.
    classes
        Names of the classes.
    """
    confusion = model.confusion
    right = np.diagonal(confusion, axis1=1, axis2=2) @ model.prior
    columns = {"worker": pa.array(list(workers)), "accuracy": right, "n_labels": n_labels}
    for true, name in enumerate(classes):
        for label, given in enumerate(classes):
            columns[f"probability.{given}|{name}"] = confusion[:, label, true]
    return pa.table(columns)
