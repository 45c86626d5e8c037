"""Rows of some buckets, from the spills of all files, and how those that are superseded are shown to people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.errors import SchemaError, SourceError, StoreError
from pmflib.ingest.dataset.quarantine import raw_text
from pmflib.ingest.dataset.sample_weights import find_decimals
from pmflib.ingest.dataset.spill_lists import find_levels
from pmflib.ingest.dataset.spills import REPLICATES, UNITS, WEIGHT, Spill
from pmflib.ingest.options import SourceOptions
from pmflib.schema import Schema


@dataclass(frozen=True)
class SpilledRows:
    """Rows of some buckets, spill after spill, each in its order.

    ``samples`` are identifiers; ``values`` are level indices (long: shape (n_rows,), -1 missing) or codes (wide: shape
    (n_rows, n_variables)); ``times`` are float64 or None; ``files`` and ``numbers`` are each row's spill and
    its number in the file; ``time_format`` says how times are written; ``weights`` are float64, whole numbers of units,
    ``units`` hashes of strata and sampling units, int64 of shape (n_rows, 2), and ``replicates`` replicate weights in
    units, int64 of shape (n_rows, n_replicates); or None.
    """

    samples: pa.BinaryArray
    values: IntArray
    times: FloatArray | None
    files: IntArray
    numbers: IntArray
    names: Sequence[str]
    time_format: str = ""
    weights: FloatArray | None = None
    units: IntArray | None = None
    replicates: IntArray | None = None

    def name_rows(self, indices: IntArray) -> list[tuple[str, int]]:
        """File of each row, and its number there."""
        files = [self.names[file] for file in self.files[indices].tolist()]
        return list(zip(files, self.numbers[indices].tolist(), strict=True))


def read_spilled_rows(
    spills: Sequence[Path],
    names: Sequence[str],
    schema: Schema,
    layout: str,
    since: float,
    read: Callable[[Spill], pa.Table],
) -> SpilledRows:
    """Read the rows that ``read`` takes out of each spill; the other parameters are those of `assemble_buckets`."""
    if len(spills) != len(names) or not spills:
        raise StoreError(
            f"{len(spills)} spills for {len(names)} names; give one name per spill, at least one"
        )
    tables = []
    formats: dict[str, str] = {}
    for spill, name in zip(spills, names, strict=True):
        levels = find_levels(spill, schema)
        whole_schema = {} if levels is not None else {"schema": schema.digest}
        opened = Spill(spill, {"layout": layout, **whole_schema}, since)
        table = read(opened)
        if levels is not None:
            column = table.schema.get_field_index("level")
            stored = pa.array(levels[table["level"].to_numpy()], pa.int32())
            table = table.set_column(column, table.schema.field(column), stored)
        if (written := opened.metadata.get("time", "None")) != "None":
            formats.setdefault(written, name)
        tables.append(table)
    if len(formats) > 1:
        raise SourceError(
            f"times of {formats['number']} are numbers, those of {formats['instant']} are ISO 8601; "
            "they cannot be compared: write all in one format"
        )
    whole = pa.concat_tables(tables)
    if layout == "long":
        values = whole["level"].to_numpy()
    else:
        values = unpack_codes(whole["codes"], schema)
    return SpilledRows(
        whole["sample"].combine_chunks(),
        values,
        whole["time"].to_numpy() if "time" in whole.column_names else None,
        np.repeat(np.arange(len(tables)), [table.num_rows for table in tables]),
        whole["row"].to_numpy(),
        names,
        next(iter(formats), ""),
        whole[WEIGHT].to_numpy().astype(np.float64) if WEIGHT in whole.column_names else None,
        np.column_stack([whole[name].to_numpy() for name in UNITS])
        if UNITS[0] in whole.column_names
        else None,
        _unpack(whole[REPLICATES], np.dtype(np.int64))
        if REPLICATES in whole.column_names
        else None,
    )


def unpack_codes(column: pa.ChunkedArray, schema: Schema) -> IntArray:
    """Codes of wide rows of a spill: shape (n_rows, n_variables)."""
    return _unpack(column, schema.code_dtype)


def _unpack(column: pa.ChunkedArray, dtype: np.dtype[Any]) -> IntArray:
    """Integers of a type that were packed row by row, little-endian: a row of each, as many columns as bytes hold."""
    n_columns, written = column.type.byte_width // dtype.itemsize, dtype.newbyteorder("<")
    parts = [np.empty((0, n_columns), written)]
    for chunk in column.chunks:
        # the buffer of a page is padded to whole words
        stop = (chunk.offset + len(chunk)) * n_columns
        content = np.frombuffer(chunk.buffers()[1], written)[:stop] if len(chunk) else parts[0]
        parts.append(content.reshape(-1, n_columns)[chunk.offset :])
    return np.concatenate(parts).astype(dtype)


def describe_answers(
    rows: SpilledRows, indices: IntArray, schema: Schema, config: SourceOptions
) -> list[str]:
    """Text of some rows of a long log, with their times and weights."""
    # a sample, and a level's variable and label, are written once, not once a row
    # which variable a row without an answer is of is not kept
    labels = {-1: raw_text(["", "", ""], config.separator)}
    for level in np.unique(rows.values[indices][rows.values[indices] >= 0]).tolist():
        variable = int(np.searchsorted(schema.offsets, level, side="right")) - 1
        label = schema[variable].levels[level - int(schema.offsets[variable])]
        labels[level] = raw_text(["", schema[variable].name, label], config.separator)
    coded = rows.samples.take(pa.array(indices)).dictionary_encode()
    samples = [raw_text([sample], config.separator) for sample in coded.dictionary.to_pylist()]
    pairs = zip(coded.indices.to_pylist(), rows.values[indices].tolist(), strict=True)
    texts = [samples[sample] + labels[level] for sample, level in pairs]
    decimals, more = find_decimals(schema, config), list[list[object]]()
    if rows.times is not None:
        more.append(rows.times[indices].tolist())
    if rows.weights is not None and decimals is not None:
        more.append([_write_weight(each, decimals) for each in rows.weights[indices].tolist()])
    for column in more:
        texts = [
            text + raw_text(["", value], config.separator)
            for text, value in zip(texts, column, strict=True)
        ]
    return texts


def _write_weight(units: float, decimals: int) -> str:
    """Write a weight with the decimals that it has."""
    text = f"{Decimal(int(units)).scaleb(-decimals):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def describe_rows(
    rows: SpilledRows, indices: IntArray, schema: Schema, config: SourceOptions
) -> list[str]:
    """Text of some wide rows."""
    samples = rows.samples.take(pa.array(indices)).to_pylist()
    texts = []
    for sample, codes in zip(samples, rows.values[indices].tolist(), strict=True):
        labels = [
            variable.levels[code] if code >= 0 else ""
            for variable, code in zip(schema.variables, codes, strict=True)
        ]
        texts.append(raw_text([*labels, sample], config.separator))
    return texts


def describe_winners(
    rows: SpilledRows, lost: IntArray, winners: IntArray
) -> Iterator[tuple[str, int, str | None, bool]]:
    """File, number and time of the row that supersedes each of some others, and whether it says the same."""
    same = rows.values[lost] == rows.values[winners]
    same = same if same.ndim == 1 else same.all(axis=1)
    if rows.values.ndim == 1 and rows.weights is not None:
        same &= rows.weights[lost] == rows.weights[winners]
        if rows.units is not None:
            same &= (rows.units[lost] == rows.units[winners]).all(axis=1)
    agrees = same.tolist()
    times: list[str | None] = [None] * lost.size
    if rows.times is not None:
        times = [write_time(time, rows.time_format) for time in rows.times[winners].tolist()]
    for (file, number), time, is_same in zip(rows.name_rows(winners), times, agrees, strict=True):
        yield file, number, time, is_same


def write_time(time: float, time_format: str) -> str:
    """Write a time of a log for a person: an instant in UTC, or a number as it stands in the file."""
    if time_format != "instant":
        return f"{time:.17g}"
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=time)).isoformat()
    except OverflowError:
        return f"{time:.17g} microseconds after 1970"


def conflict_error(rows: SpilledRows, others: IntArray, drawn: IntArray) -> SchemaError:
    """Say where the first conflict is, in the order of the files, and the row that it differs from."""
    place = np.lexsort((rows.numbers[others], rows.files[others]))[:1]
    ((file, number),) = rows.name_rows(others[place])
    ((own_file, own_number),) = rows.name_rows(drawn[place])
    return SchemaError(
        f"{file} row {number} gives a sample another weight, stratum or unit than {own_file} row {own_number} "
        f"({others.size} such rows in this partition). Correct one, or set schema.on_duplicate to 'last' or 'first'"
    )


def duplicate_error(rows: SpilledRows, lost: IntArray, keys: list[IntArray]) -> SchemaError:
    """Say where the first duplicate is, in the order of the files, and a row it collides with; not whose they are."""
    first_lost = int(lost[np.lexsort((rows.numbers[lost], rows.files[lost]))[0]])
    twins = np.ones(rows.numbers.size, np.bool_)
    for key in keys:
        twins &= key == key[first_lost]
    twins[first_lost] = False
    if rows.values.ndim == 1:
        twins &= rows.values >= 0
    other = int(np.flatnonzero(twins)[0])
    first, second = (
        f"{rows.names[rows.files[p]]} row {rows.numbers[p]}"
        for p in sorted((first_lost, other), key=lambda p: (rows.files[p], rows.numbers[p]))
    )
    what = (
        "answer the same variable for the same sample" if len(keys) > 1 else "are the same sample"
    )
    return SchemaError(
        f"{first} and {second} {what} "
        f"({lost.size} such rows in this partition). Remove one, or set schema.on_duplicate to 'last' or 'first'"
    )
