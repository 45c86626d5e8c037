"""A dataset: the ordered partitions that a run works on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.errors import StoreError
from pmflib.store.artefacts import Reference, Store
from pmflib.store.sample_blocks import BlockReference, list_blocks

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


def write_dataset(
    path: Path, store: Store, partitions: Sequence[Reference], account: Mapping[str, Any]
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

    Raises
    ------
    StoreError
        If a partition is not in the store, or damaged.
    """
    content = {
        "partitions": [asdict(reference) for reference in partitions],
        "account": dict(account),
    }
    (path / "dataset.json").write_text(json.dumps(content, indent=1, sort_keys=True), "utf-8")
    # one table: stages that plan need not open every partition
    rows = [
        (place, block.start, block.stop, block.fold, block.n_observed, block.nbytes)
        for place, partition in enumerate(partitions)
        for block in list_blocks(store.locate(partition) / SAMPLES)
    ]
    columns = zip(BLOCKS_SCHEMA.names, zip(*rows, strict=True), strict=True) if rows else ()
    table = pa.table(dict(columns), BLOCKS_SCHEMA) if rows else BLOCKS_SCHEMA.empty_table()
    pq.write_table(table, path / BLOCKS, compression="zstd")


def read_partitions(store: Store, dataset: Reference) -> list[Reference]:
    """Partitions of a dataset, in order.

    Raises
    ------
    StoreError
        If the dataset is not in the store, or damaged.
    """
    file = store.locate(dataset) / "dataset.json"
    try:
        return [Reference(**item) for item in json.loads(file.read_text("utf-8"))["partitions"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"dataset {dataset.digest[:12]} is damaged ({error}); run the pipeline again"
        ) from error


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
    try:
        table = pq.read_table(store.locate(dataset) / BLOCKS)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"dataset {dataset.digest[:12]} is damaged ({error}); run the pipeline again"
        ) from error
    wanted = table.filter(pc.is_in(table["fold"], pa.array(list(folds), pa.int64())))
    return [
        BlockReference(paths[place], *rest)
        for place, *rest in zip(*wanted.to_pydict().values(), strict=True)
    ]
