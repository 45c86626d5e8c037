"""Read label logs: tables (task, worker, label) or matrices, encoded as level indices."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.apps.crowd.class_names import (
    ABSTENTION,
    make_class_variable,
    refuse_abstention,
    sort_names,
    unify_classes,
)
from pmflib.apps.crowd.known_labels import KnownTasks
from pmflib.base.arrays import BoolArray, IntArray
from pmflib.base.blocks import SparseBlock
from pmflib.base.constraints import OneOf, check
from pmflib.base.errors import SchemaError, SchemaWarning
from pmflib.base.texts import abridge_names, list_near
from pmflib.schema.tables import as_arrow
from pmflib.schema.variable import (
    DEFAULT_MISSING,
    MISSING,
    UNKNOWN,
    as_text,
    is_absent,
    read_number,
)

SHOWN = 6
"""Number of classes in an error message."""
COLUMNS = ("task", "worker", "label")

OnRepeated: TypeAlias = Literal["last", "first", "error"]
OnUnknown: TypeAlias = Literal["quarantine", "error"]


@dataclass(frozen=True, eq=False)
class LabelLog:
    """Labels as codes.

    Parameters
    ----------
    block
        Tasks as rows; a label is the level ``worker * n_classes + class``. A task without labels is an empty row.
    tasks, workers, classes
        Arrow arrays: names of the rows, workers and classes, sorted.
    quarantine
        Arrow table of the labels set aside: row (from 0), task, worker, label, reason.
    known
        Tasks whose true label is known; None if none is given.
    is_ordered
        Whether the order of the classes was given.
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
        """Whether the true label of each task is known, (n_tasks,)."""
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

    Texts are stripped; empty texts are missing. Labels among `pmflib.schema.variable.DEFAULT_MISSING` are missing, too.
    Labels that differ only in case or Unicode composition are the same.

    Parameters
    ----------
    table
        Columns task, worker and label: a pandas or polars frame, an Arrow table or batch, or a mapping of columns. A
        row without a label still adds its task. Or a matrix with a row per task and a column per worker, as an array or
        a frame without these columns: see `pmflib.apps.crowd.label_log.list_labels`.
    classes
        All possible labels, in order. None takes all labels of the table, in the order of an ordered categorical
        column, or else sorted, with numbers inside texts by value. If two classes differ only in spelling, labels are
        compared exactly.
    on_repeated
        What to do with several labels of one worker for one task: keep the "last" or the "first" and set the others
        aside, or raise an "error".
    on_unknown
        What to do with a label that is not among ``classes``: set its row aside ("quarantine"), or raise an "error".

    Raises
    ------
    SchemaError
        If a column is absent, there are no labels, or more than a thousand different ones; or if a policy is "error"
        and a row violates it.
    PmfError
        If a policy is unknown.

    Warns
    -----
    SchemaWarning
        If labels are not among ``classes``, labels with different spellings are merged, or there are more than a
        hundred different labels.
    """
    _check_policies(on_repeated, on_unknown)
    if is_matrix(table):
        table = list_labels(table, classes)
    columns = pick_columns(as_arrow(table, COLUMNS))
    tasks, task_names = encode_values(columns["task"])
    workers, worker_names = encode_values(columns["worker"])
    (codes, class_names), is_ordered = encode_labels(columns["label"], classes)
    reason = find_unfit(tasks, workers, codes)
    if on_unknown == "error" and (reason == _REASONS.index("unknown_label")).any():
        row = int(np.flatnonzero(reason == _REASONS.index("unknown_label"))[0])
        raise SchemaError(
            f"label {columns['label'][row].as_py()!r} of row {row} is not among the classes "
            f"{class_names.to_pylist()}; add it, or pass on_unknown='quarantine'"
        )
    n_unknown = int((reason == _REASONS.index("unknown_label")).sum())
    if n_unknown:
        row = int(np.flatnonzero(reason == _REASONS.index("unknown_label"))[0])
        warnings.warn(
            f"{n_unknown:,} of {len(reason):,} labels, as {columns['label'][row].as_py()!r} of row {row}, are not "
            f"among the classes {abridge_names(class_names.to_pylist(), SHOWN)}, and are set aside; add them to "
            "classes, or take these rows out",
            SchemaWarning,
            stacklevel=3,
        )
    n_workers, n_classes = len(worker_names), len(class_names)
    if not n_classes:
        raise SchemaError("no row has a label; pass labels, or the possible labels as classes")
    given = (reason == 0) & (codes >= 0)
    levels, keys = (workers * n_classes + codes).astype(np.int32), tasks * n_workers + workers
    # sorting takes most memory: free what it does not need
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
    """Check that classes are ordered: because the order was given, or as increasing numbers.

    Parameters
    ----------
    classes
        Names of the classes, in their order.
    given
        Whether the order was given.

    Raises
    ------
    SchemaError
        If it was not, and the names are not increasing numbers.
    """
    numbers = [read_number(as_text(name)) for name in classes]
    rising = all(a is not None and b is not None and a < b for a, b in pairwise(numbers))
    if given or (rising and None not in numbers):
        return
    raise SchemaError(
        f"ordinal is true, but the order of the classes {list(classes)[:SHOWN]} is unknown; give classes from the "
        "lowest to the highest"
    )


_WORDS = {
    "task": "task item id question unit example document doc image text sample object case instance",
    "worker": "worker annotator user rater coder labeler labeller crowdworker reviewer",
    "label": "label choice answer annotation class category judgment judgement response rating vote value verdict",
}
"""Usual names of the columns of a label log, in lower case."""


def is_matrix(table: object) -> bool:
    """Whether a table is a matrix with a column per worker: an array, or a frame whose columns share values.

    A frame of which a column is named as one of a label log is none, nor one that has a column with mostly values of
    its own, such as the tasks.

    Raises
    ------
    SchemaError
        If it is neither a matrix nor a label log, with the columns that may be meant.
    """
    if isinstance(table, np.ndarray):
        return True
    if isinstance(table, pa.Table | pa.RecordBatch):
        names = list(map(str, table.schema.names))
    elif hasattr(table, "columns") and hasattr(table, "shape"):
        names = list(map(str, table.columns))
    else:
        return False
    if set(names) & set(COLUMNS):
        return False
    if any(map(_find_meaning, names)):
        return False
    odd = _find_odd(table)
    if odd is None or len(names) == len(COLUMNS):
        return odd is None
    raise SchemaError(
        f"column {names[odd]!r} has mostly values that no other of the {len(names)} columns has: pass a table with the "
        f"columns {list(COLUMNS)}, or, if a column is a worker, a matrix of labels alone: "
        f"table.set_index({names[odd]!r}) takes the tasks out of it, table.to_numpy() takes all columns for workers"
    )


MOST_COMPARED = 1000
"""Number of rows whose cells are compared."""


def _find_meaning(name: str) -> str:
    """Find the column of a label log that a name means, such as "annotator" or "task_id"; "" for another name."""
    words = re.sub(r"[\s_.-]*(id|name|nr|no)$", "", name.strip().casefold()) or name.casefold()
    return next((column for column, known in _WORDS.items() if words in known.split()), "")


def _find_odd(table: Any) -> int | None:
    """Position of a column most cells of which hold values that no other column has; None if there is none."""
    cells = _open(table)[0][:MOST_COMPARED].astype(object)
    columns = [[as_text(cell) for cell in column if not is_absent(cell)] for column in cells.T]
    holders = Counter(text for column in columns for text in set(column))
    for place, column in enumerate(columns):
        alone = sum(holders[text] == 1 for text in column)
        if len(columns) > 1 and 2 * alone > len(column) and len(set(column)) > 1:
            return place
    return None


def list_labels(matrix: Any, classes: Sequence[Any] | None = None) -> pa.Table:
    """Convert a matrix to a label log.

    Parameters
    ----------
    matrix
        Array of shape (n_tasks, n_workers), or a frame with a column per worker. Missing labels are null, NaN, or -1 in
        a matrix of integers without other negative ones.
    classes
        All possible labels; with -1 among them, it is no missing label.

    Returns
    -------
    Columns task, worker, label: tasks are row numbers, or the index of a pandas frame; workers are column numbers or
    names. A task without labels has a row without a label.

    Raises
    ------
    SchemaError
        If the matrix has another shape, or the index repeats a task.
    """
    table, tasks, workers = _open(matrix)
    if table.ndim != 2 or not table.size:
        raise SchemaError(
            f"labels is an array of shape {table.shape}; pass one of shape (n_tasks, n_workers), at least one each"
        )
    label = as_arrow({"label": table.ravel()})["label"].combine_chunks()
    absent = label.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    takes_gaps = classes is None or ABSTENTION not in list(classes)
    if takes_gaps and pa.types.is_signed_integer(label.type) and not absent.any():
        codes = label.to_numpy()
        absent = (codes == ABSTENTION) & (codes.min() == ABSTENTION)
    elif pa.types.is_floating(label.type):
        numbers = label.fill_null(0).to_numpy()
        if np.all((np.isfinite(numbers) & (numbers == np.round(numbers))) | absent):
            # gaps turn integers into floats
            label = pa.array(np.where(absent, 0, numbers).astype(np.int64))
    given = ~absent.reshape(table.shape)
    # a task without labels keeps a row
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
            raise SchemaError("labels has a task twice in its index; pass a row per task")
        tasks = pa.array(matrix.index)
    return np.asarray(matrix), tasks, pa.array([str(name) for name in matrix.columns])


_REASONS = ("", "no_task", "no_worker", "unknown_label", "repeated")


def _check_policies(on_repeated: str, on_unknown: str) -> None:
    check(OneOf(("last", "first", "error")), on_repeated=on_repeated)
    check(OneOf(("quarantine", "error")), on_unknown=on_unknown)


def pick_columns(table: pa.Table) -> pa.Table:
    """Select the columns task, worker and label of a table.

    Raises
    ------
    SchemaError
        If one is absent.
    """
    if absent := [name for name in COLUMNS if name not in table.column_names]:
        renamed = guess_columns(table.column_names, absent)
        hint = f"; of a pandas frame: table.rename(columns={renamed})" if renamed else ""
        raise SchemaError(
            f"columns {absent} are absent; the table has {table.column_names[:12]}: name them {list(COLUMNS)}{hint}"
        )
    return table.select(list(COLUMNS))


def guess_columns(names: Sequence[str], absent: Sequence[str]) -> dict[str, str]:
    """Guess which columns are meant by absent ones: by their meaning, by similar names, or as the only one left.

    Parameters
    ----------
    names
        Columns of a table.
    absent
        Columns of a label log that the table lacks.

    Returns
    -------
    The absent column that each found one may be.
    """
    left = [name for name in names if name not in COLUMNS]
    found: dict[str, str] = {}
    for wanted in absent:
        free = [name for name in left if name not in found]
        meant = [name for name in free if _find_meaning(name) == wanted]
        near = meant or list_near(wanted, free, 1)
        if near:
            found[near[0]] = wanted
    if len(left) == len(absent) == len(found) + 1:
        last = next(name for name in absent if name not in found.values())
        found[next(name for name in left if name not in found)] = last
    return found


def encode_labels(
    column: pa.ChunkedArray, classes: Sequence[Any] | None
) -> tuple[tuple[IntArray, pa.Array], bool]:
    """Codes of labels with their classes, and whether the order of these was given.

    Parameters
    ----------
    column
        Labels as given.
    classes
        As for `read_labels`; other labels have code ``UNKNOWN``.
    """
    label = encode_values(column)
    if classes is not None:
        return _restrict(label, classes), True
    ranks = _rank_categories(column)
    return _unify(label, ranks), ranks is not None


def encode_values(column: pa.ChunkedArray) -> tuple[IntArray, pa.Array]:
    """Codes of values, in sorted order, -1 for missing ones; and the distinct values."""
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
    """Do `encode_values` for integers in a range that is not much longer than the column."""
    # of unsigned numbers of 64 bits, only the differences fit into int64
    wide = values if values.dtype == np.uint64 else values.astype(np.int64, copy=False)
    first = wide.dtype.type(low)
    indices = (wide - first).astype(np.int64, copy=False)
    seen = np.zeros(high - low + 1, bool)
    seen[indices] = True
    ranks = np.cumsum(seen, dtype=np.int64) - 1
    return ranks[indices], pa.array(np.flatnonzero(seen).astype(wide.dtype) + first, kind)


def _restrict(
    label: tuple[IntArray, pa.Array], classes: Sequence[Any]
) -> tuple[IntArray, pa.Array]:
    """Codes among the given classes."""
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise SchemaError(f"classes is {classes!r}; pass a list of the possible labels")
    names = tuple(map(as_text, classes))
    if len(set(names)) < len(names) or not names:
        raise SchemaError(f"classes is {list(classes)!r}; pass at least one, all different")
    variable = make_class_variable("label", names)
    indices = [variable.encode_value(value) for value in label[1].to_pylist()]
    return np.array([*indices, MISSING], np.int64)[label[0]], pa.array(list(classes))


def _unify(
    label: tuple[IntArray, pa.Array], ranks: Mapping[str, int] | None
) -> tuple[IntArray, pa.Array]:
    """Codes of labels; different spellings have the same code, missing labels -1."""
    values = [_decode(value) for value in label[1].to_pylist()]
    is_text = not label[1].type.equals(pa.bool_()) and not _is_number(label[1].type)
    given = [text for text in values if not is_text or text not in DEFAULT_MISSING]
    refuse_abstention(given)
    if is_text and ranks is None:
        given = list(sort_names(given))
    elif ranks is not None:
        given.sort(key=lambda text: ranks[text])
    times = np.bincount(label[0][label[0] >= 0], minlength=len(values)).tolist()
    names = unify_classes(given, dict(zip(values, times, strict=True)))
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
    """Rank of each category of an ordered categorical column; None for other columns."""
    if not pa.types.is_dictionary(column.type) or not column.type.ordered:
        return None
    categories = column.combine_chunks().dictionary.to_pylist()
    return {_decode(value).strip(): index for index, value in enumerate(categories)}


def find_unfit(task: IntArray, worker: IntArray, label: IntArray) -> IntArray:
    """Reason why each row is set aside, an index of ``_REASONS``; negative codes are missing tasks or workers."""
    reason = np.zeros(len(task), np.int8)
    _set_aside(reason, label == UNKNOWN, "unknown_label")
    _set_aside(reason, worker < 0, "no_worker")
    _set_aside(reason, task < 0, "no_task")
    return reason


def _set_aside(reason: IntArray, rows: BoolArray | IntArray, name: str) -> None:
    reason[rows] = _REASONS.index(name)


def _keep_one(keys: IntArray, on_repeated: str) -> IntArray:
    """Position of the label to keep for each key, sorted by key."""
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
    """Sort keys; ties keep their order.

    Parameters
    ----------
    keys
        int64 of shape (n_keys,), at least 0.

    Returns
    -------
    int64 of shape (n_keys,), equal to ``np.argsort(keys, kind="stable")``.

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
    """List the rows that are set aside, with row number and reason, as from `find_unfit`."""
    rows = np.flatnonzero(reason)
    rejected = columns.take(pa.array(rows)).add_column(0, "row", pa.array(rows))
    return rejected.append_column("reason", pa.array([_REASONS[code] for code in reason[rows]]))
