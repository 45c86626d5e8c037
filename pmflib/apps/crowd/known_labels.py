"""Known true labels of some tasks: test questions, or a sample labelled by an expert."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.apps.crowd.class_names import make_class_variable
from pmflib.base.arrays import BoolArray, IntArray
from pmflib.base.errors import SchemaError
from pmflib.schema.tables import as_arrow
from pmflib.schema.variable import MISSING, as_text, is_absent

COLUMNS = ("task", "label")
REJECTED = pa.schema(
    [
        pa.field("row", pa.int64()),
        pa.field("task", pa.string()),
        pa.field("label", pa.string()),
        pa.field("reason", pa.string()),
    ]
)
"""Columns of the rows that are set aside."""
SHOWN = 6
"""Number of rows in an error message."""


@dataclass(frozen=True, eq=False)
class KnownTasks:
    """Known true labels of the tasks of a log.

    Parameters
    ----------
    codes
        int64 of shape (n_tasks,): class of each task, -1 where it is unknown.
    quarantine
        Arrow table of the rows set aside: row (from 0), task, label, reason.
    """

    codes: IntArray
    quarantine: pa.Table

    @property
    def is_known(self) -> BoolArray:
        """Whether the true label of each task is known, (n_tasks,)."""
        return np.asarray(self.codes >= 0)


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Checked rows of known labels, not yet matched with the tasks of a log.

    Parameters
    ----------
    classes
        Class of each task, by its text.
    rows
        Number of the row of each task, by its text.
    rejected
        Rows set aside: number, task, label and reason of each.
    """

    classes: Mapping[str, int]
    rows: Mapping[str, int]
    rejected: Sequence[tuple[int, str | None, str | None, str]]

    def set_aside(self, found: Iterable[str], names: Sequence[str]) -> pa.Table:
        """List all rows that are set aside, in order, including those of unknown tasks.

        Parameters
        ----------
        found
            Texts of the tasks of the log.
        names
            Names of the classes.
        """
        unknown = self.classes.keys() - set(found)
        lost = [
            (self.rows[task], task, names[self.classes[task]], "unknown_task") for task in unknown
        ]
        listed = sorted([*self.rejected, *lost], key=lambda row: row[0])
        columns = zip(*listed, strict=True) if listed else ((),) * len(REJECTED)
        return pa.Table.from_arrays(
            [
                pa.array(list(each), field.type)
                for each, field in zip(columns, REJECTED, strict=True)
            ],
            schema=REJECTED,
        )


def check_known_rows(
    rows: Iterable[tuple[int, str | None, str | None]], classes: Sequence[str]
) -> KnownRows:
    """Check rows of known labels.

    Parameters
    ----------
    rows
        Number, task and label of each; None for missing ones.
    classes
        Names of the classes.

    Returns
    -------
    The known labels. Rows are set aside if they have no task ("no_task"), no label ("no_label"), a label that is no
    class ("unknown_label"), or repeat another row ("repeated"). If the rows of a task differ, all of them are set aside
    ("contradictory").
    """
    variable = make_class_variable("label", classes)
    given: dict[str, list[tuple[int, str, int]]] = {}
    rejected: list[tuple[int, str | None, str | None, str]] = []
    for row, task, label in rows:
        code = variable.encode_value(label)
        if task is None:
            rejected.append((row, task, label, "no_task"))
        elif label is None or code == MISSING:
            rejected.append((row, task, label, "no_label"))
        elif code < 0:
            rejected.append((row, task, label, "unknown_label"))
        else:
            given.setdefault(task, []).append((row, label, code))
    known, numbers = {}, {}
    for task, said in given.items():
        if len({code for _, _, code in said}) > 1:
            rejected += [(row, task, label, "contradictory") for row, label, _ in said]
            continue
        rejected += [(row, task, label, "repeated") for row, label, _ in said[1:]]
        numbers[task], _, known[task] = said[0]
    return KnownRows(known, numbers, rejected)


def find_known(known: object, tasks: pa.Array, classes: pa.Array) -> KnownTasks:
    """Find the tasks of a log whose label is known.

    Parameters
    ----------
    known
        Labels by task: a mapping, or a table with columns task and label, as `read_labels` takes tables.
    tasks, classes
        Names of the tasks and classes of the log.

    Raises
    ------
    SchemaError
        If a column is absent, or no row can be used.
    """
    table = _open(known)
    read = [[_as_text(value) for value in table[name].to_pylist()] for name in COLUMNS]
    names = [as_text(name) for name in classes.to_pylist()]
    rows = check_known_rows(zip(range(table.num_rows), *read, strict=True), names)
    texts = [as_text(task) for task in tasks.to_pylist()]
    codes = np.array([rows.classes.get(task, -1) for task in texts], np.int64)
    quarantine = rows.set_aside(texts, names)
    refuse_useless(table.num_rows, quarantine, "known", names)
    return KnownTasks(codes, quarantine)


def refuse_useless(n_rows: int, quarantine: pa.Table, source: str, classes: Sequence[str]) -> None:
    """Refuse known labels of which none can be used: they probably belong to another log.

    Raises
    ------
    SchemaError
        If all rows were set aside.
    """
    if not n_rows or quarantine.num_rows < n_rows:
        return
    first = quarantine.select(["task", "label", "reason"]).slice(0, SHOWN).to_pylist()
    shown = "; ".join(f"{row['task']!r}, {row['label']!r}: {row['reason']}" for row in first)
    raise SchemaError(
        f"{source}: none of its {n_rows} rows gives the label of a task of the log ({shown}); the classes are "
        f"{list(classes[:SHOWN])}: write tasks and labels as the log does"
    )


def _open(known: object) -> pa.Table:
    """Convert known labels, a table or a mapping of tasks to labels, to a table."""
    if isinstance(known, Mapping) and not set(COLUMNS) <= {*map(str, known)}:
        for label in known.values():
            if not isinstance(label, str) and hasattr(label, "__len__"):
                raise SchemaError(
                    f"known has the columns {sorted(map(str, known))[:SHOWN]}; name them {list(COLUMNS)}, or pass a "
                    "mapping of tasks to labels"
                )
        columns = (list(known), list(known.values()))
        return pa.table(
            {
                name: pa.array([_as_text(value) for value in values], pa.string())
                for name, values in zip(COLUMNS, columns, strict=True)
            }
        )
    table = as_arrow(known, COLUMNS)
    if absent := [name for name in COLUMNS if name not in table.column_names]:
        raise SchemaError(
            f"known lacks the columns {absent}; it has {table.column_names[:12]}: name them {list(COLUMNS)}"
        )
    return table


def _as_text(value: Any) -> str | None:
    return None if is_absent(value) else as_text(value).strip() or None
