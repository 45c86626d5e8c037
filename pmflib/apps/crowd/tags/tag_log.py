"""Read logs of tags, in which a worker may give a task several labels.

A tag that a worker did not give to a task counts as a "no" of the worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.apps.crowd.label_log import (
    COLUMNS,
    encode_labels,
    encode_values,
    find_unfit,
    list_rejected,
    pick_columns,
)
from pmflib.base.arrays import IntArray
from pmflib.base.errors import SchemaError
from pmflib.schema.tables import as_arrow
from pmflib.schema.variable import split_answers


@dataclass(frozen=True, eq=False)
class TagLog:
    """Tags as codes.

    Parameters
    ----------
    taggings
        int64 of shape (n_taggings, 2): task and worker of each tagging, sorted and distinct.
    given
        int64 of shape (n_given, 2): tagging and tag of each given tag, sorted and distinct.
    tasks, workers, tags
        Arrow arrays: names.
    quarantine
        Arrow table of the rows set aside: row (from 0), task, worker, label, reason.
    """

    taggings: IntArray
    given: IntArray
    tasks: pa.Array
    workers: pa.Array
    tags: pa.Array
    quarantine: pa.Table

    def __repr__(self) -> str:
        """Sizes."""
        return (
            f"TagLog({self.n_tasks:,} tasks, {self.n_workers:,} workers, {self.n_tags} tags, {len(self.taggings):,} "
            f"taggings with {len(self.given):,} tags, {self.quarantine.num_rows:,} rows set aside)"
        )

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.tasks)

    @property
    def n_workers(self) -> int:
        """Number of workers."""
        return len(self.workers)

    @property
    def n_tags(self) -> int:
        """Number of tags."""
        return len(self.tags)


def read_tags(
    table: object, *, tags: Sequence[Any] | None = None, split: str | None = None
) -> TagLog:
    """Encode a table of tags.

    Parameters
    ----------
    table
        Columns task, worker and label: a pandas or polars frame, an Arrow table, or a mapping of columns. A row has one
        tag that a worker gave a task, or a list of tags; a tagging without tags is a row without a label, or with an
        empty list. Texts are read as by `pmflib.apps.crowd.read_labels`; repeated tags count once.
    tags
        All possible tags, in order; None takes all tags of the table, sorted.
    split
        Sign between several tags in a text, such as ";" in "sea;sky".

    Raises
    ------
    SchemaError
        If a column is absent, or there is no tag or no tagging; if no text has the sign.
    """
    given = as_arrow(table, COLUMNS, lists=("label",))
    columns = pick_columns(_unroll(given if split is None else _split(given, split)))
    (tasks, task_names), (workers, worker_names) = (
        encode_values(columns[name]) for name in ("task", "worker")
    )
    (labels, names), _ = encode_labels(columns["label"], tags)
    reason = find_unfit(tasks, workers, labels)
    rows = np.flatnonzero(reason == 0)
    if not len(names) or not rows.size:
        raise SchemaError(
            "no row has a task, a worker and a tag; pass such rows, or the possible tags as tags"
        )
    pairs = tasks[rows] * len(worker_names) + workers[rows]
    distinct, tagging = np.unique(pairs, return_inverse=True)
    taggings = np.stack(np.divmod(distinct, len(worker_names)), axis=1)
    has_tag = labels[rows] >= 0
    cells = np.unique(tagging[has_tag] * len(names) + labels[rows][has_tag])
    given = np.stack(np.divmod(cells, len(names)), axis=1)
    rejected = list_rejected(columns, reason)
    return TagLog(taggings, given, task_names, worker_names, names, rejected)


def _split(table: pa.Table, sign: str) -> pa.Table:
    """Split texts of several tags into lists, without empty ones and blanks around them."""
    index = table.schema.get_field_index("label")
    texts = table.column(index).to_pylist() if index >= 0 else []
    if not sign or not any(sign in str(text) for text in texts):
        raise SchemaError(
            f"split is {sign!r}, and no label holds it; pass the sign between several tags, or leave split out"
        )
    cells = [[] if text is None else sorted(split_answers(str(text), sign, ())) for text in texts]
    return table.set_column(index, "label", pa.array(cells, pa.list_(pa.string())))


def _unroll(table: pa.Table) -> pa.Table:
    """Expand lists of tags to one row per tag; an empty list becomes a row without a tag."""
    index = table.schema.get_field_index("label")
    if index < 0 or not isinstance(table.schema.field(index).type, pa.ListType | pa.LargeListType):
        return table
    lists = table.column(index).combine_chunks()
    sizes = pc.list_value_length(lists).fill_null(0)
    empty = np.flatnonzero(sizes.to_numpy(zero_copy_only=False) == 0)
    values = pc.list_flatten(lists)
    parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    order = np.argsort(np.concatenate([parents, empty]), kind="stable")
    rows = pa.array(np.concatenate([parents, empty])[order])
    none = pa.nulls(empty.size, values.type)
    return table.take(rows).set_column(
        index, "label", pa.concat_arrays([values, none]).take(pa.array(order))
    )
