"""A dataset: the ordered partitions that a run works on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pmflib.errors import StoreError
from pmflib.store.artefacts import Reference, Store
from pmflib.store.samples import BlockReference, list_blocks

SAMPLES = "samples"
"""Zarr group of blocks in the folder of a partition."""
QUARANTINE = "quarantine.parquet"
"""Rejected rows, in the folder of whatever step rejected them, and of the dataset for all of them."""


def write_dataset(path: Path, partitions: Sequence[Reference], account: Mapping[str, Any]) -> None:
    """Write the list of partitions, in order, and the account of rows.

    Parameters
    ----------
    path
        Existing folder.
    partitions
        Artefacts that hold a group ``samples``.
    account
        Plain JSON types: rows in, encoded, quarantined.
    """
    content = {
        "partitions": [asdict(reference) for reference in partitions],
        "account": dict(account),
    }
    (path / "dataset.json").write_text(json.dumps(content, indent=1, sort_keys=True), "utf-8")


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


def list_dataset_blocks(
    store: Store, dataset: Reference, folds: Sequence[int]
) -> list[BlockReference]:
    """Blocks of some folds, in the order of partitions and of blocks within them; paths are absolute.

    Raises
    ------
    StoreError
        If the dataset or a partition is not in the store.
    """
    wanted = set(folds)
    blocks = []
    for partition in read_partitions(store, dataset):
        path = (store.locate(partition) / SAMPLES).resolve()
        blocks += [
            replace(block, path=str(path)) for block in list_blocks(path) if block.fold in wanted
        ]
    return blocks
