"""Origin of a stored sample: its partition, its block, and its rows in raw files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.base.errors import SourceError, StoreError
from pmflib.ingest.dataset.identifiers import hash_identifiers, make_keys
from pmflib.ingest.dataset.spills import Spill
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import (
    SAMPLES,
    list_file_steps,
    read_content,
    read_partitions,
    read_superseded,
)
from pmflib.store.sample_blocks import list_blocks, read_origins


@dataclass(frozen=True)
class FileRows:
    """Rows of one raw file.

    Parameters
    ----------
    name, digest
        Name of the file, and SHA-256 of its bytes.
    rows
        Sorted row numbers, from 1 for the first row of data.
    """

    name: str
    digest: str
    rows: list[int]


@dataclass(frozen=True)
class SampleOrigin:
    """Location and raw rows of one sample of a dataset.

    Parameters
    ----------
    sample
        Identifier, or file and row.
    partition
        Partition with the sample.
    partition_index
        Index of the partition in the dataset, and of its predictions.
    row
        Row in the partition.
    start, stop, fold
        Range of rows of its block in the partition, and fold of the block.
    files
        Raw rows that were encoded for it, including superseded ones.
    """

    sample: str
    partition: Reference
    partition_index: int
    row: int
    start: int
    stop: int
    fold: int
    files: list[FileRows]


def find_sample(store: Store, dataset: Reference, sample: str) -> SampleOrigin:
    """Find a sample of a dataset; for samples with identifiers, only one bucket is read.

    Parameters
    ----------
    store
        Store of the dataset.
    dataset
        The dataset.
    sample
        Identifier of the sample; without identifiers, name of the file and row: "survey.csv:17".

    Raises
    ------
    SourceError
        If the dataset does not have the sample.
    StoreError
        If the dataset, a partition or a spill is gone or damaged.
    """
    steps = list_file_steps(store, dataset)
    if not any(step.step.kind == "spill" for step in steps):
        return _find_row(store, dataset, sample)
    opened = [Spill(store.locate(step.step), {}) for step in steps]
    identifier = pa.array([sample.strip().encode()], pa.binary())
    # the same for all spills of a dataset
    keys = make_keys(hash_identifiers(identifier), int(opened[0].metadata["buckets"]))
    files: list[FileRows] = []
    for step, spill in zip(steps, opened, strict=True):
        table = spill.read_samples(keys)
        mine = table.filter(pc.equal(table["sample"], identifier[0]))
        if mine.num_rows:
            rows = sorted(mine["row"].to_pylist())
            if files and files[-1].name == step.name:
                # chunks of a file are in the order of their rows
                files[-1].rows.extend(rows)
            else:
                files.append(FileRows(step.name, step.source.digest, rows))
    superseded = read_superseded(store, dataset)
    for partition_index, partition in _list_layers(store, dataset, int(keys[0])):
        _, samples = read_origins(store.locate(partition) / SAMPLES)
        gone = superseded.get(partition_index, np.empty(0, np.int64))
        rows = [row for row, name in enumerate(samples) if name == sample.strip()]
        for row in sorted({*rows} - {*gone.tolist()}):
            return _locate(store, partition, partition_index, row, sample, files)
    raise SourceError(f"sample {sample!r} is not in dataset {dataset.digest[:12]}: {_hint(files)}")


def _hint(files: list[FileRows]) -> str:
    if files:
        return f"its rows in {files[0].name} belong to no sample of it"
    return "check the spelling; rows in quarantine belong to no sample"


def _list_layers(store: Store, dataset: Reference, key: int) -> Iterator[tuple[int, Reference]]:
    """Partitions that may contain samples with a key, last first."""
    partitions = read_partitions(store, dataset)
    keys = read_content(store, dataset)["keys"]
    for partition_index, (first, last) in reversed([*enumerate(keys)]):
        if first <= key <= last:
            yield partition_index, partitions[partition_index]


def _find_row(store: Store, dataset: Reference, sample: str) -> SampleOrigin:
    """Find a row of a wide file without identifiers."""
    name, _, number = sample.rpartition(":")
    known: dict[str, list[tuple[int, Reference]]] = {}
    for partition_index, partition in enumerate(read_partitions(store, dataset)):
        own = str(_read_entry(store, partition).options["name"])
        known.setdefault(own, []).append((partition_index, partition))
    if not number.isdecimal() or name not in known:
        raise SourceError(
            f"sample {sample!r} is not a file and row of dataset {dataset.digest[:12]}, whose samples have no "
            f"identifiers: pass one as '{next(iter(known), 'FILE')}:1'; it has {sorted(known)[:5]}"
        )
    for partition_index, partition in known[name]:
        numbers, _ = read_origins(store.locate(partition) / SAMPLES)
        found = np.flatnonzero(numbers == int(number))
        if found.size:
            source = _read_entry(store, partition).inputs["source"]
            files = [FileRows(name, source.digest, [int(number)])]
            return _locate(store, partition, partition_index, int(found[0]), sample, files)
    raise SourceError(
        f"row {number} of {name} is no sample of dataset {dataset.digest[:12]}: "
        "it is in quarantine, or the file is shorter"
    )


def _locate(
    store: Store,
    partition: Reference,
    partition_index: int,
    row: int,
    sample: str,
    files: list[FileRows],
) -> SampleOrigin:
    blocks = list_blocks(store.locate(partition) / SAMPLES)
    block = next(block for block in blocks if block.start <= row < block.stop)
    return SampleOrigin(
        sample, partition, partition_index, row, block.start, block.stop, block.fold, files
    )


def _read_entry(store: Store, reference: Reference) -> Entry:
    entry = store.find(reference.identity)
    if entry is None:
        raise StoreError(
            f"{reference.kind} {reference.digest[:12]} is not in the manifest; run the pipeline again"
        )
    return entry
