"""Tables (task, worker, label), or matrices, to blocks of level indices; what does not fit to quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.core.arrays import BoolArray, IntArray
from pmflib.core.blocks import SparseBlock
from pmflib.core.errors import PmfError, SchemaError
from pmflib.core.texts import list_near
from pmflib.crowd.known_labels import KnownTasks
from pmflib.schema.class_names import make_class_variable, sort_names, unify_classes
from pmflib.schema.tables import as_arrow
from pmflib.schema.variable import DEFAULT_MISSING, MISSING, UNKNOWN, as_text, read_number

SHOWN = 6
"""Classes that an error names."""
COLUMNS = ("task", "worker", "label")

OnRepeated: TypeAlias = Literal["last", "first", "error"]
OnUnknown: TypeAlias = Literal["quarantine", "error"]


@dataclass(frozen=True, eq=False)
class LabelLog:
    """Labels as codes.

    Parameters
    ----------
    block
        Tasks as rows; a label is the level ``worker * n_classes + class``. A task without a label is an empty row.
    tasks, workers, classes
        Arrow arrays: what rows, workers and classes are called, sorted.
    quarantine
        Arrow table of the labels set aside: row (from 0), task, worker, label, reason.
    known
        Tasks whose true label is known; None where none is given.
    is_ordered
        Whether somebody has put the classes in their order.
    """

    block: SparseBlock
    tasks: pa.Array
    workers: pa.Array
    classes: pa.Array
    quarantine: pa.Table
    known: KnownTasks | None = None
    is_ordered: bool = False

    def __repr__(self) -> str:
        """Sizes."""
        return (
            f"LabelLog({self.n_tasks:,} tasks, {self.n_workers:,} workers, {self.n_classes} classes, "
            f"{self.block.n_observed:,} labels, {self.quarantine.num_rows:,} set aside)"
        )

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.tasks)

    @property
    def is_known(self) -> BoolArray:
        """Which tasks' true label is known, (n_tasks,)."""
        return np.zeros(self.n_tasks, bool) if self.known is None else self.known.is_known

    @property
    def n_workers(self) -> int:
        """Number of workers."""
        return len(self.workers)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)


def read_labels(
    table: object,
    *,
    classes: Sequence[Any] | None = None,
    on_repeated: OnRepeated = "last",
    on_unknown: OnUnknown = "quarantine",
) -> LabelLog:
    """Encode a table of labels, as ``pmf crowd`` does.

    Texts are without blanks around them, and an empty one is none. A label is also none where it is one of
    `pmflib.schema.variable.DEFAULT_MISSING`, and labels that differ in case or Unicode composition alone are one.

    Parameters
    ----------
    table
        Columns task, worker and label: a pandas or polars frame, an Arrow table or batch, or a mapping of columns. An
        empty label is none, but its task is known. Or a matrix, a row per task and a column per worker, as an array or
        a frame with none of these columns: see `pmflib.crowd.label_log.list_labels`.
    classes
        Labels that there are, in their order; None takes all that were given, in the order of an ordered categorical
        column, or sorted, with numbers inside texts by their size. If two of them are spelled alike, labels are taken
        as they stand.
    on_repeated
        Several labels of one worker for one task: the last or the first counts, the others go to quarantine; or stop.
    on_unknown
        A label that is not among ``classes``: its row goes to quarantine; or stop.

    Raises
    ------
    SchemaError
        If a column is absent, there is no label at all, or more than a thousand different ones; or a row does not fit
        and the policy is to stop.
    PmfError
        If a policy is unknown.

    Warns
    -----
    SchemaWarning
        If labels that are spelled alike are taken for one, or more than a hundred are different.
    """
    _check_policies(on_repeated, on_unknown)
    if is_matrix(table, COLUMNS):
        table = list_labels(table)
    columns = pick_columns(as_arrow(table))
    tasks, task_names = encode_values(columns["task"])
    workers, worker_names = encode_values(columns["worker"])
    (codes, class_names), is_ordered = encode_labels(columns["label"], classes)
    reason = find_unfit(tasks, workers, codes)
    if on_unknown == "error" and (reason == _REASONS.index("unknown_label")).any():
        row = int(np.flatnonzero(reason == _REASONS.index("unknown_label"))[0])
        raise SchemaError(
            f"label {columns['label'][row].as_py()!r} of row {row} is none of the classes "
            f"{class_names.to_pylist()}; add it, or pass on_unknown='quarantine'"
        )
    n_workers, n_classes = len(worker_names), len(class_names)
    if not n_classes:
        raise SchemaError("no row has a label: pass labels, or the classes that there are")
    given = (reason == 0) & (codes >= 0)
    levels, keys = (workers * n_classes + codes).astype(np.int32), tasks * n_workers + workers
    # sorting takes most memory of all: what it does not need is let go before
    del workers, codes
    if not given.all():
        tasks, levels, keys = tasks[given], levels[given], keys[given]
    kept = _keep_one(keys, on_repeated)
    levels = levels[kept]
    if kept.size < keys.size:
        repeated = np.ones(keys.size, bool)
        repeated[kept] = False
        _set_aside(reason, np.flatnonzero(given)[repeated], "repeated")
        tasks = tasks[kept]
    ends = np.cumsum(np.bincount(tasks, minlength=len(task_names)))
    block = SparseBlock(np.concatenate([[0], ends]).astype(np.int64), levels)
    rejected = list_rejected(columns, reason)
    return LabelLog(block, task_names, worker_names, class_names, rejected, is_ordered=is_ordered)


def check_class_order(classes: Sequence[object], *, given: bool) -> None:
    """Check that classes are in order: as they were given, or as numbers.

    Parameters
    ----------
    classes
        Names of the classes, in their order.
    given
        Whether the order is somebody's choice.

    Raises
    ------
    SchemaError
        If it is not, and the names are no increasing numbers.
    """
    numbers = [read_number(as_text(name)) for name in classes]
    rising = all(a is not None and b is not None and a < b for a, b in pairwise(numbers))
    if given or (rising and None not in numbers):
        return
    raise SchemaError(
        f"ordinal is true, but nothing says how the classes {list(classes)[:SHOWN]} are ordered; give classes from the "
        "lowest to the highest"
    )


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
    indices = np.flatnonzero(given)
    labels = label.take(pa.array(indices))
    known = pc.if_else(pa.array(~absent[indices]), labels, pa.scalar(None, labels.type))
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
        for index, column in enumerate(matrix.columns):
            table[:, index] = column.to_pylist()
        return table, pa.array(np.arange(matrix.num_rows)), pa.array(matrix.schema.names)
    tasks = pa.array(np.arange(len(matrix)))
    if hasattr(matrix, "iloc"):
        if not matrix.index.is_unique:
            raise SchemaError("labels has a task twice in its index; give a row per task")
        tasks = pa.array(matrix.index)
    return np.asarray(matrix), tasks, pa.array([str(name) for name in matrix.columns])


_REASONS = ("", "no_task", "no_worker", "unknown_label", "repeated")


def _check_policies(on_repeated: str, on_unknown: str) -> None:
    if on_repeated not in ("last", "first", "error"):
        raise PmfError(f"on_repeated is {on_repeated!r}; give 'last', 'first' or 'error'")
    if on_unknown not in ("quarantine", "error"):
        raise PmfError(f"on_unknown is {on_unknown!r}; give 'quarantine' or 'error'")


def pick_columns(table: pa.Table) -> pa.Table:
    """Columns task, worker and label of a table.

    Raises
    ------
    SchemaError
        If one is absent, or holds no single values.
    """
    if absent := [name for name in COLUMNS if name not in table.column_names]:
        near = [list_near(name, table.column_names, 1) for name in absent]
        renamed = {found[0]: name for name, found in zip(absent, near, strict=True) if found}
        hint = f"; of a pandas frame: table.rename(columns={renamed})" if renamed else ""
        raise SchemaError(
            f"columns {absent} are absent; the table has {table.column_names[:12]}: name them {list(COLUMNS)}{hint}"
        )
    columns = table.select(list(COLUMNS))
    for index, field in enumerate(columns.schema):
        if pa.types.is_nested(field.type):
            raise SchemaError(
                f"column {field.name!r} holds {field.type}; a value is a text, a number or a boolean, one label per row"
            )
        if field.type == pa.string_view():
            # Arrow can neither sort nor take them yet
            columns = columns.set_column(index, field.name, columns[index].cast(pa.string()))
    return columns


def encode_labels(
    column: pa.ChunkedArray, classes: Sequence[Any] | None
) -> tuple[tuple[IntArray, pa.Array], bool]:
    """Codes of labels and the classes that they mean, and whether somebody has put these in their order.

    Parameters
    ----------
    column
        Labels as they were given.
    classes
        As for `read_labels`; what is none of them has code ``UNKNOWN``.
    """
    label = encode_values(column)
    if classes is not None:
        return _restrict(label, classes), True
    ranks = _rank_categories(column)
    return _unify(label, ranks), ranks is not None


def encode_values(column: pa.ChunkedArray) -> tuple[IntArray, pa.Array]:
    """Codes of values in their sorted order, -1 where there is none; and the values."""
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        return np.full(len(column), -1, np.int64), pa.array([], pa.string())
    if pa.types.is_integer(column.type) and len(column) and not column.null_count:
        values = column.to_numpy()
        low, high = int(values.min()), int(values.max())
        if high - low < 2 * values.size:
            return _encode_integers(values, low, high, column.type)
    coded = column.combine_chunks().dictionary_encode()
    values, indices = coded.dictionary, coded.indices
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        trimmed = pc.utf8_trim_whitespace(values)
        trimmed = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, trimmed.type), trimmed)
        if not trimmed.equals(values):
            again = trimmed.dictionary_encode()
            values, indices = again.dictionary, again.indices.take(indices)
    order = np.asarray(pc.sort_indices(values), np.int64)
    ranks = np.empty(order.size + 1, np.int64)
    ranks[order], ranks[-1] = np.arange(order.size), -1
    codes = indices.cast(pa.int64()).fill_null(order.size).to_numpy(zero_copy_only=False)
    return ranks[codes], values.take(pa.array(order))


def _encode_integers(
    values: IntArray, low: int, high: int, kind: pa.DataType
) -> tuple[IntArray, pa.Array]:
    """Do `encode_values` where there are hardly more integers between the smallest and the largest than values."""
    indices = values - low if low else values
    seen = np.zeros(high - low + 1, bool)
    seen[indices] = True
    ranks = np.cumsum(seen, dtype=np.int64) - 1
    return ranks[indices], pa.array(np.flatnonzero(seen) + low, kind)


def _restrict(
    label: tuple[IntArray, pa.Array], classes: Sequence[Any]
) -> tuple[IntArray, pa.Array]:
    """Codes among the classes given, in their order."""
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise SchemaError(f"classes is {classes!r}; give a list of the labels that there are")
    names = tuple(map(as_text, classes))
    if len(set(names)) < len(names) or not names:
        raise SchemaError(f"classes is {list(classes)!r}; give at least one, all different")
    variable = make_class_variable("label", names)
    indices = [variable.encode_value(value) for value in label[1].to_pylist()]
    return np.array([*indices, MISSING], np.int64)[label[0]], pa.array(list(classes))


def _unify(
    label: tuple[IntArray, pa.Array], ranks: Mapping[str, int] | None
) -> tuple[IntArray, pa.Array]:
    """Codes of labels in their order, those that are spelled alike as one, -1 for those that mean "not given"."""
    values = [_decode(value) for value in label[1].to_pylist()]
    is_text = not label[1].type.equals(pa.bool_()) and not _is_number(label[1].type)
    given = [text for text in values if not is_text or text not in DEFAULT_MISSING]
    if is_text and ranks is None:
        given = list(sort_names(given))
    elif ranks is not None:
        given.sort(key=lambda text: ranks[text])
    names = unify_classes(given)
    if not names:
        return np.full(len(label[0]), MISSING), label[1].slice(0, 0)
    variable = make_class_variable("label", names)
    indices = [variable.encode_value(text) for text in values]
    first = [values.index(name) for name in names]
    return np.array([*indices, MISSING], np.int64)[label[0]], label[1].take(pa.array(first))


def _decode(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else as_text(value)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _rank_categories(column: pa.ChunkedArray) -> dict[str, int] | None:
    """Place of each category of an ordered categorical column, by its text; None of another column."""
    if not pa.types.is_dictionary(column.type) or not column.type.ordered:
        return None
    categories = column.combine_chunks().dictionary.to_pylist()
    return {_decode(value).strip(): index for index, value in enumerate(categories)}


def find_unfit(task: IntArray, worker: IntArray, label: IntArray) -> IntArray:
    """Reason by which each row is set aside, a number of ``_REASONS``: codes below 0 are of no task, no worker."""
    reason = np.zeros(len(task), np.int8)
    _set_aside(reason, label == UNKNOWN, "unknown_label")
    _set_aside(reason, worker < 0, "no_worker")
    _set_aside(reason, task < 0, "no_task")
    return reason


def _set_aside(reason: IntArray, rows: BoolArray | IntArray, name: str) -> None:
    reason[rows] = _REASONS.index(name)


def _keep_one(keys: IntArray, on_repeated: str) -> IntArray:
    """Place of the label that counts for each key, by key."""
    order = _sort_stably(keys)
    ordered = keys[order]
    changes = ordered[1:] != ordered[:-1]
    if on_repeated == "error" and not changes.all():
        n_repeated = int((~changes).sum())
        raise SchemaError(
            f"{n_repeated} labels repeat a task and worker; pass on_repeated='last' or 'first'"
        )
    if not keys.size:
        return order
    if changes.all():
        return order
    edge = np.append(changes, True) if on_repeated == "last" else np.append(True, changes)
    kept: IntArray = order[edge]
    return kept


DIGIT_BITS = 16
"""NumPy sorts integers of 16 bits by counting, three times as fast as wider ones."""


def _sort_stably(keys: IntArray) -> IntArray:
    """Find the order of keys; equals stay in the order given.

    Parameters
    ----------
    keys
        int64 of shape (n_keys,), at least 0.

    Returns
    -------
    int64 of shape (n_keys,): as ``np.argsort(keys, kind="stable")``.

    References
    ----------
    Knuth (1998), The Art of Computer Programming 3, section 5.2.5: sorting by least significant digits first.
    """
    order = np.arange(keys.size)
    if keys.size and (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys.astype(np.uint16), kind="stable")
        for shift in range(DIGIT_BITS, int(keys.max()).bit_length(), DIGIT_BITS):
            digits = (keys >> shift).astype(np.uint16)
            order = order[np.argsort(digits[order], kind="stable")]
    return order


def list_rejected(columns: pa.Table, reason: IntArray) -> pa.Table:
    """Rows that are set aside, with the number of the row and the reason, as from `find_unfit`."""
    rows = np.flatnonzero(reason)
    rejected = columns.take(pa.array(rows)).add_column(0, "row", pa.array(rows))
    return rejected.append_column("reason", pa.array([_REASONS[code] for code in reason[rows]]))
