"""Matrices of labels, tasks by workers with gaps, as label logs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.errors import SchemaError
from pmflib.schema.schema import as_arrow
from pmflib.schema.variable import MISSING


def is_matrix(table: object, columns: tuple[str, ...]) -> bool:
    """Whether a table has a column per worker: an array, or a frame with none of a log's columns.

    Parameters
    ----------
    table
        What was given for labels.
    columns
        Columns of a label log.
    """
    if isinstance(table, np.ndarray):
        return True
    if isinstance(table, pa.Table | pa.RecordBatch):
        names = set(table.schema.names)
    elif hasattr(table, "columns") and hasattr(table, "shape"):
        names = set(map(str, table.columns))
    else:
        return False
    return not names.intersection(columns)


def list_labels(matrix: Any) -> pa.Table:
    """Label log of a matrix.

    Parameters
    ----------
    matrix
        Array of shape (n_tasks, n_workers), or a frame with a column per worker; null, NaN, or -1 among the integers
        of an array, where the worker gave no label.

    Returns
    -------
    Columns task, worker, label: tasks are the numbers of the rows, or what the index of a pandas frame has; workers are
    the numbers or names of the columns. A task without a label has a row without one.

    Raises
    ------
    SchemaError
        If the matrix has another shape, or a task stands twice in the index.
    """
    table, tasks, workers = _open(matrix)
    if table.ndim != 2 or not table.size:
        raise SchemaError(
            f"labels is an array of shape {table.shape}; give one of shape (n_tasks, n_workers), at least one each"
        )
    label = as_arrow({"label": table.ravel()})["label"].combine_chunks()
    absent = label.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    if pa.types.is_integer(label.type):
        absent |= (label.fill_null(MISSING).to_numpy() == MISSING) & isinstance(matrix, np.ndarray)
    elif pa.types.is_floating(label.type):
        numbers = label.fill_null(0).to_numpy()
        if np.all((numbers == np.round(numbers)) | absent):
            # gaps make floats of integers
            label = pa.array(np.where(absent, 0, numbers).astype(np.int64))
    given = ~absent.reshape(table.shape)
    # a task without a label keeps a row, and is known
    given[~given.any(axis=1), 0] = True
    rows, columns = np.nonzero(given)
    places = np.flatnonzero(given)
    labels = label.take(pa.array(places))
    known = pc.if_else(pa.array(~absent[places]), labels, pa.scalar(None, labels.type))
    return pa.table(
        {
            "task": tasks.take(pa.array(rows)),
            "worker": workers.take(pa.array(columns)),
            "label": known,
        }
    )


def _open(matrix: Any) -> tuple[np.ndarray[Any, Any], pa.Array, pa.Array]:
    """Cells of a matrix, its tasks and its workers."""
    if isinstance(matrix, np.ndarray):
        n_workers = matrix.shape[-1] if matrix.ndim else 0
        return matrix, pa.array(np.arange(len(np.atleast_1d(matrix)))), pa.array(range(n_workers))
    if isinstance(matrix, pa.Table | pa.RecordBatch):
        table = np.empty(matrix.shape, object)
        for place, column in enumerate(matrix.columns):
            table[:, place] = column.to_pylist()
        return table, pa.array(np.arange(matrix.num_rows)), pa.array(matrix.schema.names)
    tasks = pa.array(np.arange(len(matrix)))
    if hasattr(matrix, "iloc"):
        if not matrix.index.is_unique:
            raise SchemaError("labels has a task twice in its index; give a row per task")
        tasks = pa.array(matrix.index)
    return np.asarray(matrix), tasks, pa.array([str(name) for name in matrix.columns])
