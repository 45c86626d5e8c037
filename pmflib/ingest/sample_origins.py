"""Where a stored sample came from: its partition, its block, and the rows of raw files that it was made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.errors import SourceError, StoreError
from pmflib.ingest.buckets import find_buckets, make_keys
from pmflib.ingest.identifiers import hash_identifiers
from pmflib.ingest.spills import Spill
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import SAMPLES, read_partitions, read_superseded
from pmflib.store.sample_blocks import list_blocks, read_origins


@dataclass(frozen=True)
class FileRows:
    """Rows of one raw file.

    Parameters
    ----------
    name, digest
        Name of the file, and SHA-256 of its bytes.
    rows
        Numbers of the rows, in order: 1 is the first row of data.
    """

    name: str
    digest: str
    rows: list[int]


@dataclass(frozen=True)
class SampleOrigin:
    """Where one sample of a dataset is, and what it was made of.

    Parameters
    ----------
    sample
        Its identifier, or its file and row.
    partition
        Partition that holds it.
    place
        Place of the partition in the dataset, and of its predictions.
    row
        Row of the partition.
    start, stop, fold
        Rows of the partition that its block holds, and the fold of the block.
    files
        Rows of raw files that were encoded for it, also those that later ones superseded.
    """

    sample: str
    partition: Reference
    place: int
    row: int
    start: int
    stop: int
    fold: int
    files: list[FileRows]


def find_sample(store: Store, dataset: Reference, sample: str) -> SampleOrigin:
    """Find a sample of a dataset; of samples with identifiers only what one bucket holds is read.

    Parameters
    ----------
    store
        Store of the dataset.
    dataset
        The dataset.
    sample
        Identifier of the sample; of wide files without identifiers, name of the file and row: "survey.csv:17".

    Raises
    ------
    SourceError
        If the dataset has no such sample.
    StoreError
        If the dataset, a partition or a spill is gone or damaged.
    """
    entry = _read_entry(store, dataset)
    spills = [each for _, each in sorted(entry.inputs.items()) if each.kind == "spill"]
    if not spills:
        return _find_row(store, dataset, sample)
    opened = [Spill(store.locate(spill), {}) for spill in spills]
    identifier = pa.array([sample.strip().encode()], pa.binary())
    # the same for all spills of a dataset
    keys = make_keys(hash_identifiers(identifier), int(opened[0].metadata["buckets"]))
    files = []
    for reference, spill in zip(spills, opened, strict=True):
        table = spill.read_samples(keys)
        mine = table.filter(pc.equal(table["sample"], identifier[0]))
        if mine.num_rows:
            files.append(_name_file(store, reference, sorted(mine["row"].to_pylist())))
    bucket, superseded = int(find_buckets(keys)[0]), read_superseded(store, dataset)
    for place, partition in _list_layers(store, dataset, bucket):
        _, samples = read_origins(store.locate(partition) / SAMPLES)
        gone = superseded.get(place, np.empty(0, np.int64))
        rows = [row for row, name in enumerate(samples) if name == sample.strip()]
        for row in sorted({*rows} - {*gone.tolist()}):
            return _locate(store, partition, place, row, sample, files)
    raise SourceError(f"sample {sample!r} is not in dataset {dataset.digest[:12]}: {_hint(files)}")


def _hint(files: list[FileRows]) -> str:
    if files:
        return f"its rows in {files[0].name} belong to no sample of it"
    return "check the spelling; rows in quarantine belong to no sample"


def _list_layers(store: Store, dataset: Reference, bucket: int) -> Iterator[tuple[int, Reference]]:
    """Partitions that may hold samples of a bucket, the last one first."""
    partitions = list(enumerate(read_partitions(store, dataset)))
    for place, partition in reversed(partitions):
        # a partition of several buckets names none
        if _read_entry(store, partition).options.get("bucket", bucket) == bucket:
            yield place, partition


def _find_row(store: Store, dataset: Reference, sample: str) -> SampleOrigin:
    """Find a row of a wide file without identifiers."""
    name, _, number = sample.rpartition(":")
    partitions = list(enumerate(read_partitions(store, dataset)))
    known = {}
    for place, partition in partitions:
        known[str(_read_entry(store, partition).options["name"])] = place, partition
    if not number.isdecimal() or name not in known:
        raise SourceError(
            f"sample {sample!r} is no file and row of dataset {dataset.digest[:12]}, whose samples have no "
            f"identifiers: give one as '{next(iter(known), 'FILE')}:1'; it has {sorted(known)[:5]}"
        )
    place, partition = known[name]
    numbers, _ = read_origins(store.locate(partition) / SAMPLES)
    found = np.flatnonzero(numbers == int(number))
    if not found.size:
        raise SourceError(
            f"row {number} of {name} is no sample of dataset {dataset.digest[:12]}: "
            "it is in quarantine, or the file is shorter"
        )
    source = _read_entry(store, partition).inputs["source"]
    files = [FileRows(name, source.digest, [int(number)])]
    return _locate(store, partition, place, int(found[0]), sample, files)


def _locate(
    store: Store, partition: Reference, place: int, row: int, sample: str, files: list[FileRows]
) -> SampleOrigin:
    blocks = list_blocks(store.locate(partition) / SAMPLES)
    block = next(block for block in blocks if block.start <= row < block.stop)
    return SampleOrigin(sample, partition, place, row, block.start, block.stop, block.fold, files)


def _name_file(store: Store, spill: Reference, rows: list[int]) -> FileRows:
    entry = _read_entry(store, spill)
    return FileRows(str(entry.options["name"]), entry.inputs["source"].digest, rows)


def _read_entry(store: Store, reference: Reference) -> Entry:
    entry = store.find(reference.identity)
    if entry is None:
        raise StoreError(
            f"{reference.kind} {reference.digest[:12]} is not in the manifest; run the pipeline again"
        )
    return entry
