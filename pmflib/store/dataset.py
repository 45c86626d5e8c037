"""A dataset: the ordered partitions that a run works on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.arrays import IntArray
from pmflib.errors import StoreError
from pmflib.store.artefacts import Reference, Store
from pmflib.store.sample_blocks import BlockReference, list_blocks, read_block

SAMPLES = "samples"
"""Zarr group of blocks in the folder of a partition."""
QUARANTINE = "quarantine.parquet"
"""Rejected rows, in the folder of whatever step rejected them, and of the dataset for all of them."""
BLOCKS = "blocks.parquet"
"""Blocks of all partitions, in the folder of the dataset."""
BLOCKS_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("partition", "start", "stop", "fold", "observed", "nbytes")]
)
"""Columns of the table of blocks: place of the partition, then the fields of `BlockReference`."""
LEVEL_COUNTS = "level_counts.npy"
"""Encoded rows that hold each level, int64 of shape (n_levels,), in the folder of the step that read a file."""
SUPERSEDED = "superseded.parquet"
"""Rows of partitions that are no samples of the dataset, in its folder."""
SUPERSEDED_SCHEMA = pa.schema([("partition", pa.int64()), ("row", pa.int64())])
"""Columns of the table of superseded rows, sorted: place of the partition, and row of it."""


def write_dataset(
    path: Path,
    store: Store,
    partitions: Sequence[Reference],
    account: Mapping[str, Any],
    superseded: Mapping[int, IntArray] | None = None,
) -> None:
    """Write the list of partitions, in order, the table of their blocks, and the account of rows.

    Parameters
    ----------
    path
        Existing folder.
    store
        Store that holds the partitions.
    partitions
        Artefacts that hold a group ``samples``.
    account
        Plain JSON types: rows in, encoded, quarantined.
    superseded
        For partitions of which some rows are no samples any more, by place: these rows, int64, sorted. Blocks that
        lose all of their rows are left out.

    Raises
    ------
    StoreError
        If a partition is not in the store, or damaged.
    """
    superseded = superseded or {}
    content = {
        "partitions": [asdict(reference) for reference in partitions],
        "account": dict(account),
    }
    (path / "dataset.json").write_text(json.dumps(content, indent=1, sort_keys=True), "utf-8")
    # one table: stages that plan need not open every partition
    rows = []
    for place, partition in enumerate(partitions):
        for block in list_blocks(store.locate(partition) / SAMPLES):
            kept = _drop_rows(block, superseded.get(place))
            size = (block.start, block.stop, block.fold, kept.n_observed, block.nbytes)
            if kept.n_rows:
                rows.append((place, *size))
    columns = zip(BLOCKS_SCHEMA.names, zip(*rows, strict=True), strict=True) if rows else ()
    table = pa.table(dict(columns), BLOCKS_SCHEMA) if rows else BLOCKS_SCHEMA.empty_table()
    pq.write_table(table, path / BLOCKS, compression="zstd")
    gone = sorted(superseded.items())
    arrays = [
        np.repeat([place for place, _ in gone], [rows.size for _, rows in gone]).astype(np.int64),
        np.concatenate([np.empty(0, np.int64), *(rows for _, rows in gone)]),
    ]
    pq.write_table(
        pa.Table.from_arrays(list(map(pa.array, arrays)), schema=SUPERSEDED_SCHEMA),
        path / SUPERSEDED,
        compression="zstd",
    )


def read_superseded(store: Store, dataset: Reference) -> dict[int, IntArray]:
    """Rows of partitions that are no samples of a dataset, by place of the partition: int64, sorted.

    Raises
    ------
    StoreError
        If the dataset is not in the store, or damaged.
    """
    table = _read_table(store, dataset, SUPERSEDED)
    places, rows = (table[name].to_numpy() for name in SUPERSEDED_SCHEMA.names)
    return {place: rows[places == place] for place in np.unique(places).tolist()}


def _drop_rows(block: BlockReference, superseded: IntArray | None) -> BlockReference:
    """Block without superseded rows, and with the number of cells that are left."""
    found = _take_between(superseded, block.start, block.stop)
    if found is None:
        return block
    dropped = replace(block, superseded=found)
    return replace(dropped, n_observed=read_block(dropped).n_observed if dropped.n_rows else 0)


def _take_between(rows: IntArray | None, start: int, stop: int) -> IntArray | None:
    """Take the rows of a sorted array in [start, stop); None if there are none."""
    if rows is None:
        return None
    first, last = np.searchsorted(rows, (start, stop))
    return rows[first:last] if last > first else None


def read_partitions(store: Store, dataset: Reference) -> list[Reference]:
    """Partitions of a dataset, in order.

    Raises
    ------
    StoreError
        If the dataset is not in the store, or damaged.
    """
    file = store.locate(dataset) / "dataset.json"
    try:
        return [
            Reference.from_json(item) for item in json.loads(file.read_text("utf-8"))["partitions"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"dataset {dataset.digest[:12]} is damaged ({error}); run the pipeline again"
        ) from error


def list_file_steps(store: Store, dataset: Reference) -> list[tuple[str, Reference, Reference]]:
    """Raw files of a dataset, in order: name, reference of the source, and of the artefact that its rows were read to.

    The summary of that artefact has name, rows_in, rows_encoded and reasons; its folder has ``LEVEL_COUNTS``.

    Raises
    ------
    StoreError
        If the dataset or a step is not in the store.
    """
    entry = store.find(dataset.identity)
    if entry is None:
        raise StoreError(
            f"dataset {dataset.digest[:12]} is not in store {str(store.root)!r}; run the pipeline again"
        )
    found = []
    for reference in entry.inputs.values():
        step = store.find(reference.identity)
        if step is None:
            raise StoreError(
                f"{reference.kind} {reference.digest[:12]} is not in store {str(store.root)!r}; run the pipeline again"
            )
        if "source" in step.inputs:
            found.append((step.options["name"], step.inputs["source"], reference))
    return found


def list_partitions(store: Store, dataset: Reference) -> list[Path]:
    """Zarr groups of a dataset's partitions, in order; paths are absolute.

    Raises
    ------
    StoreError
        If the dataset or a partition is not in the store.
    """
    partitions = read_partitions(store, dataset)
    return [(store.locate(partition) / SAMPLES).resolve() for partition in partitions]


def list_dataset_blocks(
    store: Store, dataset: Reference, folds: Sequence[int]
) -> list[BlockReference]:
    """Blocks of some folds, in the order of partitions and of blocks within them; paths are absolute.

    Raises
    ------
    StoreError
        If the dataset or a partition is not in the store.
    """
    paths = [str(path) for path in list_partitions(store, dataset)]
    superseded = read_superseded(store, dataset)
    table = _read_table(store, dataset, BLOCKS)
    wanted = table.filter(pc.is_in(table["fold"], pa.array(list(folds), pa.int64())))
    found = []
    columns = wanted.to_pydict().values()
    for place, start, stop, fold, n_observed, nbytes in zip(*columns, strict=True):
        gone = _take_between(superseded.get(place), start, stop)
        found.append(BlockReference(paths[place], start, stop, fold, n_observed, nbytes, gone))
    return found


def _read_table(store: Store, dataset: Reference, name: str) -> pa.Table:
    try:
        return pq.read_table(store.locate(dataset) / name)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"dataset {dataset.digest[:12]} is damaged ({error}); run the pipeline again"
        ) from error
