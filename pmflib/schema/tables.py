"""Conversion of tables in memory, from any library, to Arrow tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.core.arrays import name_type
from pmflib.core.errors import SchemaError
from pmflib.core.texts import abridge_names
from pmflib.schema.drafting.table_draft import CATEGORIES
from pmflib.schema.variable import as_text, is_absent


def as_arrow(table: object) -> pa.Table:
    """Convert a table in memory to an Arrow table.

    Raises
    ------
    SchemaError
        If the object is not a supported table (Arrow table or batch, mapping of columns, pandas or polars DataFrame, or
        an object with the Arrow PyCapsule interface), or if columns differ in length or have the same name.
    """
    if isinstance(table, pa.Table | pa.RecordBatch):
        _refuse_twice(table.schema.names)
        return table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
    if hasattr(table, "collect") and hasattr(table, "collect_schema"):
        raise SchemaError(
            f"table is {name_type(table)}, which is not computed yet; give table.collect()"
        )
    if isinstance(table, Mapping):
        _refuse_twice(table)
        return _join_columns({str(name): values for name, values in table.items()})
    # pandas refuses columns of mixed types here, and does not say which NaN are missing
    if hasattr(table, "__arrow_c_stream__") and not hasattr(table, "iloc"):
        columns = pa.table(table)
        declared = {name for name in columns.column_names if _declares_levels(table, name)}
        return _join_columns(
            dict(zip(columns.column_names, columns.columns, strict=True)), declared
        )
    if hasattr(table, "columns") and hasattr(table, "__getitem__"):
        _refuse_twice(table.columns)
        return _join_columns({str(name): table[name] for name in table.columns})
    raise SchemaError(
        f"table is {name_type(table)}; expected an Arrow table, a mapping of columns, or a pandas or polars frame"
        f"{_name_remedy(table)}"
    )


def _name_remedy(table: object) -> str:
    """Return a remedy for an object that is not a table, if known."""
    if isinstance(table, str | Path):
        return "; read the file first, with pandas.read_csv for one, or have `pmf infer` draft a schema from it"
    if hasattr(table, "to_frame"):
        return "; table.to_frame() is one of a single column"
    if isinstance(table, np.ndarray):
        return "; name its columns: pandas.DataFrame(table, columns=[...])"
    if isinstance(table, Sequence):
        return "; of rows: pandas.DataFrame(rows, columns=[...])"
    return ""


def _refuse_twice(names: Iterable[object]) -> None:
    times = Counter(map(str, names))
    if twice := [name for name, n_times in times.items() if n_times > 1]:
        raise SchemaError(
            f"columns named more than once: {abridge_names(twice)}; rename or drop all but one of each"
        )


def _declares_levels(table: Any, name: str) -> bool:
    """Return whether a column of a polars DataFrame has a fixed list of levels."""
    return hasattr(table, "schema") and type(table.schema[name]).__name__ == "Enum"


def _join_columns(columns: Mapping[str, Any], declared: Collection[str] = ()) -> pa.Table:
    """Make a table from columns; dictionaries that are declared lists of levels are marked in the field's metadata."""
    arrays = {name: _as_column(values) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise SchemaError(f"columns differ in length: {lengths}; give one value per row")
    fields = []
    for name, array in arrays.items():
        kind = type(getattr(columns[name], "dtype", None)).__name__
        is_declared = name in declared or kind in ("CategoricalDtype", "Enum")
        is_coded = pa.types.is_dictionary(array.type)
        known = {CATEGORIES: b""} if is_coded and (is_declared or array.type.ordered) else None
        fields.append(pa.field(name, array.type, metadata=known))
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def _as_column(values: Any) -> pa.Array:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise SchemaError(
            f"a column is {values!r}, {name_type(values)}; give a list of values, one per row, also for a single row"
        )
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _widen_views(values)
    if hasattr(values, "__arrow_c_stream__") and not hasattr(values, "iloc"):
        return _widen_views(pa.chunked_array(values))
    try:
        return _widen_views(pa.array(values, from_pandas=True))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # a column of mixed types: its levels are strings
        return pa.array(
            [None if is_absent(value) else as_text(value) for value in values], pa.string()
        )


def _widen_views(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Convert strings to a type that Arrow can count; those from polars are not supported yet."""
    if column.type == pa.string_view():
        return column.cast(pa.string())
    if pa.types.is_dictionary(column.type) and column.type.value_type == pa.string_view():
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        texts = [
            pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string()))
            for chunk in chunks
        ]
        return pa.chunked_array(texts, pa.dictionary(column.type.index_type, pa.string()))
    return column
