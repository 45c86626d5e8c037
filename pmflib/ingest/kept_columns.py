"""Columns of raw files beside the predictions for their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.config import SourceConfig
from pmflib.errors import SourceError
from pmflib.ingest.identifiers import as_binary
from pmflib.ingest.readers import read_rows
from pmflib.ingest.sources import Source, find_sources
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_file_steps, list_layers
from pmflib.table_files import write_file


def write_with_columns(
    store: Store,
    dataset: Reference,
    predictions: Path,
    paths: str | tuple[str, ...],
    config: SourceConfig,
    columns: Sequence[str],
    out: Path,
) -> int:
    """Write predictions for rows without identifiers into one file, with columns that are read again.

    Parameters
    ----------
    store, dataset
        The samples; their layout is wide, and a partition holds the rows of one file.
    predictions
        Folder of Parquet files, one per partition, with a column ``row``.
    paths, config
        The raw files, and how they are read.
    columns
        Names of columns of the raw files.
    out
        As for `write_file`.

    Returns
    -------
    Number of rows.

    Raises
    ------
    SourceError
        If a file is gone, has changed since it was read, or has no such column.
    ConfigError
        If the suffix is neither .csv nor .parquet.
    """
    parts = sorted(predictions.glob("*.parquet"))
    schema = pq.read_schema(parts[0])
    for name in columns:
        schema = schema.append(pa.field(name, pa.string()))
    files = {step.step.identity: step for step in list_file_steps(store, dataset)}
    found = {source.name: source for source in find_sources(paths, config.suffixes)}

    def join() -> Iterator[pa.Table]:
        for part, layer in zip(parts, list_layers(store, dataset), strict=True):
            file = files[layer.partition.identity]
            if file.name not in found:
                raise SourceError(
                    f"{file.name}: is not there any more, and its columns {list(columns)} were to be kept; put it "
                    "back, or leave them out"
                )
            table = pq.read_table(part).sort_by("row")
            source = replace(found[file.name], digest=file.source.digest)
            kept = _read_columns(source, config, columns)
            places = np.searchsorted(kept["row"].to_numpy(), table["row"].to_numpy())
            for name in columns:
                table = table.append_column(name, kept[name].take(pa.array(places)))
            yield table.cast(schema)

    return write_file(out, schema, join())


def _read_columns(source: Source, config: SourceConfig, columns: Sequence[str]) -> pa.Table:
    """Numbers of the rows of a file, and their texts; null where there is none, or it does not decode."""
    rows: list[pa.Array] = []
    texts: dict[str, list[pa.Array]] = {name: [] for name in columns}
    for raw in read_rows(source, config, columns):
        rows.append(pa.array(raw.rows))
        for name in columns:
            texts[name].append(_decode(as_binary(raw.batch.column(name))))
    table = {"row": pa.chunked_array(rows, pa.int64())}
    return pa.table(
        table | {name: pa.chunked_array(each, pa.string()) for name, each in texts.items()}
    )


def _decode(column: pa.BinaryArray) -> pa.StringArray:
    column = pc.if_else(pc.equal(pc.binary_length(column), 0), None, column)
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        found = []
        for text in column.to_pylist():
            try:
                found.append(None if text is None else text.decode("utf-8"))
            except UnicodeDecodeError:
                found.append(None)
        return pa.array(found, pa.string())
