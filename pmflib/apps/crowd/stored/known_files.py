"""Known labels of a stored label log: read from a file, matched with its tasks, and stored by partition and row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.apps.crowd.known_labels import KnownRows, check_known_rows, refuse_useless
from pmflib.apps.crowd.stored.summaries import KnownSummary
from pmflib.base.arrays import IntArray
from pmflib.base.errors import SchemaError
from pmflib.cluster.clients import Client
from pmflib.cluster.item_maps import map_items
from pmflib.ingest.dataset.identifiers import read_identifiers
from pmflib.ingest.dataset.wide import read_texts
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_columns, read_rows
from pmflib.ingest.sources import Source
from pmflib.schema import Variable
from pmflib.store.dataset import Layer
from pmflib.store.file_digests import read_checked
from pmflib.store.objects.local_files import find_local_path
from pmflib.store.sample_blocks import read_origins

KNOWN = "known.parquet"
"""Table of the known labels, in the folder of their artefact."""
QUARANTINE = "quarantine.parquet"
"""Table of the quarantined rows of the file."""
FIELDS = pa.schema([("partition", pa.string()), ("row", pa.int64()), ("class", pa.int32())])
"""Columns of the table, sorted by partition and row: name of the partition's folder, row in it, and class."""


def read_known_rows(source: Source, config: SourceOptions, label: Variable) -> KnownRows:
    """Read a file of known labels: one row per task, with the log's columns for tasks and labels.

    Parameters
    ----------
    source
        The file; other columns are ignored.
    config
        How files of the log are read. This file may have a header even if they have none.
    label
        Classes, and the texts that represent missing values.

    Returns
    -------
    The rows, numbered from 1 as in the quarantine of the log. Unreadable rows are quarantined as "malformed".

    Raises
    ------
    SourceError
        If the file cannot be read, or lacks a column.
    """
    assert config.sample is not None
    assert config.value is not None
    columns = [config.sample, config.value]
    named = config.model_copy(update={"columns": None})
    if config.columns is not None and {*columns} <= {*read_columns(source, named)}:
        config = named
    malformed: list[tuple[int, str | None, str | None, str]] = []

    def list_rows() -> Iterator[tuple[int, str | None, str | None]]:
        for raw in read_rows(source, config, columns):
            malformed.extend((row, None, text, "malformed") for row, text in raw.ragged)
            found = read_identifiers(raw.batch.column(0))
            tasks = [text.strip() if text else None for text in read_texts(found.texts).to_pylist()]
            labels = raw.batch.column(1)
            for row, task, value, text in zip(
                raw.rows.tolist(), tasks, labels.to_pylist(), read_texts(labels), strict=True
            ):
                code = label.encode_value(value)
                said = text.as_py() if code < 0 else label.levels[code]
                yield row, task, None if code == -1 else said

    rows = check_known_rows(list_rows(), label.levels)
    return KnownRows(rows.classes, rows.rows, [*rows.rejected, *malformed])


def write_known(
    client: Client,
    layers: Sequence[Layer],
    rows: KnownRows,
    source: str,
    classes: Sequence[str],
    folder: Path,
    on_partition: Callable[[int, int], None],
) -> KnownSummary:
    """Find the known tasks in the partitions of a log, and write their positions.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread.
    layers
        Partitions, as from `list_layers`.
    rows
        Known labels.
    source
        Name of the file, for errors.
    classes
        Names of the classes.
    folder
        Existing folder.
    on_partition
        Progress callback, given the numbers of searched partitions and of all partitions.

    Raises
    ------
    SchemaError
        If the file has no rows, or none can be used.
    """
    found = map_items(
        client,
        find_known_in_partition,
        [(layer.path, layer.superseded) for layer in layers],
        dict(rows.classes),
        on_result=lambda n_done: on_partition(n_done, len(layers)),
    )
    tables = [table for table, _ in found]
    known = pa.concat_tables([FIELDS.empty_table(), *tables])
    quarantine = rows.set_aside([task for _, tasks in found for task in tasks], classes)
    n_rows = len(rows.classes) + len(rows.rejected)
    if not n_rows:
        raise SchemaError(f"{source}: has no rows; name a file of known labels in crowd.known")
    refuse_useless(n_rows, quarantine, source, classes)
    pq.write_table(known, folder / KNOWN, compression="zstd")
    pq.write_table(quarantine, folder / QUARANTINE, compression="zstd")
    counts = quarantine["reason"].value_counts().to_pylist()
    reasons = {each["values"]: each["counts"] for each in counts}
    return KnownSummary(known.num_rows, dict(sorted(reasons.items())))


def find_known_in_partition(
    partition: tuple[str, IntArray], classes: Mapping[str, int]
) -> tuple[pa.Table, list[str]]:
    """Find the rows and classes of the known tasks of a partition, and their names; superseded rows are ignored."""
    path, superseded = partition
    _, names = read_origins(find_local_path(path))
    gone = {*superseded.tolist()}
    rows = [row for row, name in enumerate(names) if name in classes and row not in gone]
    found = [names[row] for row in rows]
    columns = [
        pa.array([_name_partition(path)] * len(rows), pa.string()),
        pa.array(rows, pa.int64()),
        pa.array([classes[name] for name in found], pa.int32()),
    ]
    return pa.Table.from_arrays(columns, schema=FIELDS), found


def read_known_codes(known: str, path: str, rows: IntArray) -> IntArray:
    """Read the known classes of tasks of a partition, -1 if unknown.

    Parameters
    ----------
    known
        Address of the table written by `write_known`; empty without known labels.
    path
        Zarr group of the partition.
    rows
        int64 of shape (n_rows,), sorted: rows of the partition.

    Returns
    -------
    int64 of shape (n_rows,).
    """
    codes = np.full(rows.size, -1, np.int64)
    found = _load(known).get(_name_partition(path)) if known else None
    if found is not None and rows.size:
        indices = np.searchsorted(rows, found[0])
        indices[indices == rows.size] = 0
        there = rows[indices] == found[0]
        codes[indices[there]] = found[1][there]
    return codes


@lru_cache(maxsize=1)
def _load(known: str) -> dict[str, tuple[IntArray, IntArray]]:
    """Read the rows and classes of the known tasks, by partition."""
    table = pq.read_table(pa.BufferReader(read_checked(find_local_path(known))))
    names = table["partition"].to_numpy(zero_copy_only=False)
    rows = table["row"].to_numpy()
    classes = table["class"].to_numpy().astype(np.int64)
    edges = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), names.size]
    return {
        names[start]: (rows[start:end], classes[start:end])
        for start, end in pairwise(edges)
        if end > start
    }


def _name_partition(path: str) -> str:
    """Return the name of a partition: the folder of its artefact."""
    return str(path).rstrip("/").rsplit("/", 2)[-2]
