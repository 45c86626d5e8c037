"""Tables with a row per answer: sample, item and rating."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FloatArray
from pmflib.base.blocks import SparseBlock
from pmflib.base.errors import SchemaError
from pmflib.base.texts import abridge_names
from pmflib.schema import Schema
from pmflib.schema.tables import as_arrow
from pmflib.schema.variable import Variable


@dataclass(frozen=True, eq=False)
class RatingTable:
    """Answers of samples.

    Parameters
    ----------
    schema
        Items, sorted, which all have the same levels.
    samples
        Names of the samples, sorted.
    block
        Their answers.
    """

    schema: Schema
    samples: Any
    block: SparseBlock


def read_ratings(table: object, schema: Schema | None = None) -> RatingTable:
    """Read the first columns of a table: sample, item and, if there is a third one, a number. Cells may not be null.

    Parameters
    ----------
    table
        Arrow table, mapping of columns, or DataFrame, with a row per answer, the last of a sample to an item counts.
    schema
        Items of other samples; answers to others are left out.

    Raises
    ------
    SchemaError
        If a column is absent or has nulls, the third one is not numeric or, with a schema, has a number of no level.
    """
    found = as_arrow(table)
    names = found.column_names[:3]
    if len(names) < 2:
        raise SchemaError(
            f"ratings have the columns {abridge_names(names)}; pass sample, item and rating, or a schema for tables "
            "with a row per sample"
        )
    for name in names:
        if found[name].null_count:
            raise SchemaError(f"column {name!r} of ratings has nulls; leave these rows out")
    people, items = (_as_array(found[name]) for name in names[:2])
    numbers = (
        np.ones(found.num_rows) if len(names) < 3 else _read_numbers(found[names[2]], names[2])
    )
    samples, rows = np.unique(people, return_inverse=True)
    if schema is None:
        known, columns = np.unique(items, return_inverse=True)
        levels = np.unique(numbers)
        labels = tuple(f"{level:g}" for level in levels.tolist())
        schema = Schema(
            tuple(Variable(str(name), labels, tuple(levels.tolist())) for name in known.tolist())
        )
    else:
        position = {name: index for index, name in enumerate(schema.names)}
        columns = np.array([position.get(str(name), -1) for name in items.tolist()], np.int64)
        levels = schema[0].numeric_values()
    codes = np.searchsorted(levels, numbers).clip(max=levels.size - 1)
    if unknown := sorted({*numbers[levels[codes] != numbers].tolist()}):
        raise SchemaError(f"ratings have {unknown[:3]}, which are none of {levels.tolist()}")
    known_items = np.flatnonzero(columns >= 0)
    cells = (rows * schema.n_variables + columns)[known_items]
    # the last of each cell, in the order of cells
    kept = known_items[cells.size - 1 - np.unique(cells[::-1], return_index=True)[1]]
    indices = (schema.offsets[columns[kept]] + codes[kept]).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=samples.size))])
    return RatingTable(schema, samples, SparseBlock(indptr.astype(np.int64), indices))


def _as_array(column: pa.ChunkedArray) -> Any:
    """Return the names of samples or items: whole numbers, or texts."""
    if pa.types.is_integer(column.type):
        return column.to_numpy()
    return np.array(column.cast(pa.string()).to_pylist(), np.str_)


def _read_numbers(column: pa.ChunkedArray, name: str) -> FloatArray:
    try:
        numbers: FloatArray = column.cast(pa.float64()).to_numpy()
    except pa.ArrowException as error:
        raise SchemaError(f"column {name!r} of ratings is no column of numbers ({error})") from None
    if not np.isfinite(numbers).all():
        raise SchemaError(
            f"column {name!r} of ratings has numbers that are not finite; leave them out"
        )
    return numbers
