"""Count the values of columns of raw files, or of the variables of long logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import IntArray
from pmflib.base.errors import SchemaError
from pmflib.base.texts import natural_key
from pmflib.ingest.chunks import RawRows
from pmflib.ingest.dataset.design_columns import list_design_columns
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_declared, read_rows
from pmflib.ingest.sources import Source
from pmflib.schema.file_columns import declare_levels
from pmflib.schema.value_counts import ValueCounts
from pmflib.schema.variable import as_text

MAX_VARIABLES = 200_000
"""Largest number of distinct values of the variable column of a long log."""
HEAD_ROWS = 10_000
"""Largest number of rows that `count_head` counts."""
LONG_TRACKED = 1024
"""Largest number of distinct values counted per variable of a long log."""


def count_values(
    sources: Sequence[Source],
    config: SourceOptions,
    names: Sequence[str],
    coded: Sequence[str] = (),
) -> dict[str, ValueCounts]:
    """Count the values of some columns, or of some variables of a long log, in all files.

    Parameters
    ----------
    sources, config
        The files, and how they are read.
    names
        Columns or variables.
    coded
        Those of levels, as for `read_rows`.

    Raises
    ------
    SourceError
        If a file cannot be read or lacks a column.
    """
    if config.layout == "long":
        found, _ = count_answers(sources, config, [])
        return {name: found.get(name, ValueCounts()) for name in names}
    value_counts = {name: ValueCounts() for name in names}
    for raw in read_all(sources, config, list(names), [], coded):
        for name, counted in value_counts.items():
            counted.add(raw.batch.column(name))
    declared = read_declared(sources[0], config) if sources else {}
    for name in {*coded} & value_counts.keys() & declared.keys():
        declare_levels(value_counts[name], declared[name])
    return value_counts


def count_answers(
    sources: Sequence[Source], config: SourceOptions, notes: list[str]
) -> tuple[dict[str, ValueCounts], ValueCounts]:
    """Count the values of a long log by variable, in natural order, and the weights."""
    value_counts: dict[str, ValueCounts] = {}
    undecodable = 0
    weights = ValueCounts()
    for raw in read_all(sources, config, _list_columns(config), notes):
        undecodable += _add_answers(raw.batch, config, value_counts)
        if config.weight is not None:
            weights.add(raw.batch.column(config.weight))
        if len(value_counts) > MAX_VARIABLES:
            raise SchemaError(
                f"column {config.variable!r} has more than {MAX_VARIABLES} distinct values; "
                "is source.variable the column that names the question?"
            )
    if undecodable:
        notes.append(describe_undecodable(undecodable, "answers", config))
    return dict(sorted(value_counts.items(), key=lambda item: natural_key(item[0]))), weights


def _list_columns(config: SourceOptions) -> list[str]:
    """List the columns of a source that are no variables: of a long log, all but times."""
    named = config.variable, config.value, config.sample, *list_design_columns(config)
    return list(dict.fromkeys(name for name in named if name is not None))


def _add_answers(
    batch: pa.RecordBatch, config: SourceOptions, value_counts: dict[str, ValueCounts]
) -> int:
    """Count the values of rows of a long log by variable; return the number of undecodable rows."""
    names, variable = _distinct(batch.column(config.variable))
    values, value = _distinct(batch.column(config.value))
    pairs, counts = _count_pairs(variable * len(values) + value, len(names) * len(values))
    undecodable = 0
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        which, what = divmod(pair, len(values))
        name, text = names[which], values[what]
        if name is None or text is None:
            undecodable += count
        elif name:
            value_counts.setdefault(name, ValueCounts()).count(text, count, LONG_TRACKED)
    return undecodable


def count_head(
    source: Source, config: SourceOptions, names: Sequence[str], coded: Sequence[str] = ()
) -> tuple[int, dict[str, ValueCounts]]:
    """Count the values in the first ``HEAD_ROWS`` rows of a file at most, by column, or by variable of a long log.

    Parameters
    ----------
    source
        The file; no more of it is read than its first batch of rows.
    config, names, coded
        As for `count_values`; of a long log, all variables are counted.

    Returns
    -------
    Number of rows, and the values.

    Raises
    ------
    SourceError
        If the file cannot be read or lacks a column.
    """
    columns, is_long = _list_columns(config), config.layout == "long"
    if is_long and config.time is not None:
        columns.append(config.time)
    columns = list(dict.fromkeys([*([] if is_long else names), *columns]))
    value_counts: dict[str, ValueCounts] = {}
    for raw in read_rows(source, config, columns, coded=coded):
        batch = raw.batch.slice(0, HEAD_ROWS)
        if is_long:
            _add_answers(batch, config, value_counts)
        else:
            for name in names:
                value_counts.setdefault(name, ValueCounts()).add(batch.column(name))
        return batch.num_rows, value_counts
    return 0, value_counts


def read_all(
    sources: Sequence[Source],
    config: SourceOptions,
    columns: Sequence[str],
    notes: list[str],
    coded: Sequence[str] = (),
) -> Iterator[RawRows]:
    """Read some columns of all files in order; note ragged rows at the end."""
    n_ragged = n_rows = 0
    for source in sources:
        for raw in read_rows(source, config, columns, coded=coded):
            n_rows += raw.batch.num_rows + len(raw.ragged)
            n_ragged += len(raw.ragged)
            yield raw
    if n_ragged:
        notes.append(
            f"{n_ragged} of {n_rows} rows have too few or too many fields; check source.delimiter and quotation marks"
        )


def describe_undecodable(count: int, what: str, config: SourceOptions) -> str:
    """Make the note on undecodable values."""
    return (
        f"{count} {what} are not in the encoding {config.encoding}: they are not among the levels, and their rows "
        "would go to quarantine; set source.encoding (pmf infer: --encoding cp1252, say), or save the files as UTF-8"
    )


def _distinct(column: pa.Array) -> tuple[list[str | None], IntArray]:
    """Distinct texts of a column, None if undecodable, and the index of each row's text."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts: list[str | None] = []
    for value in [*coded.dictionary.to_pylist(), None]:
        try:
            text = value.decode("utf-8") if isinstance(value, bytes) else value
            texts.append("" if text is None else as_text(text).strip())
        except UnicodeDecodeError:
            texts.append(None)
    indices = coded.indices.cast(pa.int64()).fill_null(len(texts) - 1)
    return texts, indices.to_numpy(zero_copy_only=False)


def _count_pairs(pairs: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Distinct pairs and their counts."""
    if size > 4 * pairs.size + 1024:
        distinct, counts = np.unique(pairs, return_counts=True)
        return distinct, counts
    table = np.bincount(pairs, minlength=size)
    present = np.flatnonzero(table)
    return present, table[present]
