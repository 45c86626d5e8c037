"""Datasets: ordered partitions of samples."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.base.arrays import IntArray
from pmflib.base.blocks import Block, DenseBlock, concatenate_blocks
from pmflib.base.errors import StoreError
from pmflib.base.hooks import find_offers
from pmflib.base.json_files import parse_json
from pmflib.base.json_records import from_json
from pmflib.base.weights import WeightSums
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.file_digests import read_checked
from pmflib.store.objects.local_files import find_local_path, name_for_workers
from pmflib.store.run_records import InputFile
from pmflib.store.sample_blocks import (
    SUMS,
    BlockReference,
    list_blocks,
    pack_sums,
    read_block,
    read_sample_counts,
    read_units,
    sum_units,
    unpack_sums,
)

SAMPLES = "samples"
"""Name of the Zarr group of samples in a partition."""
CONTENT = "dataset.json"
"""File with the description of a dataset."""
OWN_CONTENT = frozenset(("partitions", "keys", "files", "origin", "account"))
"""Keys of the description, beside one of reweighting: see `write_layers`."""
LEVEL_COUNTS = "level_counts.npy"
"""File in the artefact of a raw file with the number of encoded rows with each level, before duplicates are dropped:
int64 of shape (n_levels,)."""
BLOCKS = "blocks.parquet"
"""File with the table of the blocks of all partitions."""
BLOCKS_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("partition", "start", "stop", "fold", "observed", "nbytes")]
)
"""Columns of the table of blocks: index of the partition and fields of `BlockReference`."""
WEIGHTED_SCHEMA = pa.schema([*BLOCKS_SCHEMA, *((name, pa.int64()) for name in SUMS)])
"""Columns of the table of blocks of weighted samples, with `SUMS`."""
SUPERSEDED = "superseded.parquet"
"""File with the table of superseded rows."""
SUPERSEDED_SCHEMA = pa.schema([("partition", pa.int64()), ("row", pa.int64())])
"""Columns of the sorted table of superseded rows: index of the partition and row."""


@dataclass(frozen=True)
class FileStep:
    """One raw file of a dataset, or a chunk of one, with the artefact of its rows.

    Parameters
    ----------
    name
        Name of the file.
    source
        Reference to the raw file.
    step
        Its spill or, without identifiers, its partition.
    """

    name: str
    source: Reference
    step: Reference


@dataclass(frozen=True)
class Layer:
    """One partition of a dataset, without its superseded rows.

    Parameters
    ----------
    partition
        The partition.
    path
        Absolute path or URL of its Zarr group, the same on every machine: see `folder`.
    first_key, last_key
        Inclusive range of the keys of its samples: see `pmflib.ingest.dataset.identifiers.make_keys`.
    blocks
        Its nonempty blocks.
    superseded
        Rows of the partition that are not samples of the dataset, int64, sorted.
    """

    partition: Reference
    path: str
    first_key: int
    last_key: int
    blocks: tuple[BlockReference, ...]
    superseded: IntArray

    @property
    def folder(self) -> Path:
        """The Zarr group on this machine, where files are fetched when they are read."""
        return find_local_path(self.path)

    @property
    def n_rows(self) -> int:
        """Number of samples."""
        return sum(block.n_rows for block in self.blocks)

    def supersede(self, rows: IntArray) -> Layer:
        """Supersede more rows, int64, sorted."""
        gone = np.union1d(self.superseded, rows)
        sample_counts = read_sample_counts(self.folder)
        units = np.empty(0, np.int64)
        if any(block.weights is not None for block in self.blocks):
            units = read_units(self.folder)
        blocks = []
        for block in self.blocks:
            dropped = replace(block, superseded=_take_between(gone, block.start, block.stop))
            if dropped.n_rows:
                observed = int(sample_counts[dropped.rows, 2].sum())
                weights = dropped.weights
                if weights is not None:
                    weights = sum_units(units[dropped.rows], weights.decimals)
                blocks.append(replace(dropped, n_observed=observed, weights=weights))
        return replace(self, blocks=tuple(blocks), superseded=gone)


LAST_KEY = 2**63 - 1
"""Largest possible key, for partitions with unknown keys."""


def write_dataset(
    path: Path,
    store: Store,
    partitions: Sequence[Reference],
    account: Mapping[str, Any],
    superseded: Mapping[int, IntArray] | None = None,
    *,
    keys: Sequence[tuple[int, int]] | None = None,
    files: Sequence[FileStep] = (),
    origin: Mapping[str, Any] | None = None,
) -> None:
    """Write a dataset of partitions in a store.

    Parameters
    ----------
    path, account, files, origin
        As for `write_layers`.
    store
        Store that holds the partitions.
    partitions
        The partitions in order.
    superseded
        Superseded rows by index of the partition, int64, sorted; blocks that lose all rows are left out.
    keys
        First and last possible key of each partition; None if unknown.

    Raises
    ------
    StoreError
        If a partition is missing or damaged.
    """
    layers = []
    for index, partition in enumerate(partitions):
        layer = open_layer(store, partition, keys[index] if keys else (0, LAST_KEY))
        gone = (superseded or {}).get(index)
        layers.append(layer if gone is None else layer.supersede(gone))
    write_layers(path, layers, account, files, origin)


def open_layer(store: Store, partition: Reference, keys: tuple[int, int]) -> Layer:
    """Open a partition without superseded rows; ``keys`` are the first and last possible key of its samples.

    Raises
    ------
    StoreError
        If it is missing or damaged.
    """
    path = store.locate(partition).resolve() / SAMPLES
    nothing = np.empty(0, np.int64)
    return Layer(partition, name_for_workers(path), *keys, tuple(list_blocks(path)), nothing)


def write_layers(
    path: Path,
    layers: Sequence[Layer],
    account: Mapping[str, Any],
    files: Sequence[FileStep] = (),
    origin: Mapping[str, Any] | None = None,
    reweighting: Mapping[str, Any] | None = None,
) -> None:
    """Write the list of partitions, the table of their blocks, and the account of rows.

    Parameters
    ----------
    path
        Existing folder.
    layers
        The partitions.
    account
        Account of rows, plain JSON types.
    files
        Raw files, sorted by name.
    origin
        Options that a dataset built upon this one must share, plain JSON types.
    reweighting
        By a name of the hook ``"stored_weights"``, which is that of a Zarr group beside: what is known of the weights
        that the dataset has in place of those of its samples, plain JSON types; None if weights are as stored.
    """
    content = {
        "partitions": [asdict(layer.partition) for layer in layers],
        "keys": [[layer.first_key, layer.last_key] for layer in layers],
        "files": [asdict(file) for file in files],
        "origin": dict(origin or {}),
        "account": dict(account),
        **(reweighting or {}),
    }
    (path / CONTENT).write_text(json.dumps(content, indent=1, sort_keys=True), "utf-8")
    # in one table, so that planning need not open every partition
    rows = [
        (
            *(index, block.start, block.stop, block.fold, block.n_observed, block.nbytes),
            *(() if block.weights is None else pack_sums(block.weights)),
        )
        for index, layer in enumerate(layers)
        for block in layer.blocks
    ]
    schema = WEIGHTED_SCHEMA if rows and len(rows[0]) > len(BLOCKS_SCHEMA) else BLOCKS_SCHEMA
    columns = zip(schema.names, zip(*rows, strict=True), strict=True) if rows else ()
    table = pa.table(dict(columns), schema) if rows else schema.empty_table()
    pq.write_table(table, path / BLOCKS, compression="zstd")
    gone = [layer.superseded for layer in layers]
    arrays = [
        np.repeat(np.arange(len(gone)), [rows.size for rows in gone]).astype(np.int64),
        np.concatenate([np.empty(0, np.int64), *gone]),
    ]
    pq.write_table(
        pa.Table.from_arrays(list(map(pa.array, arrays)), schema=SUPERSEDED_SCHEMA),
        path / SUPERSEDED,
        compression="zstd",
        use_dictionary=False,
        # differences of sorted rows take about one byte
        column_encoding=dict.fromkeys(SUPERSEDED_SCHEMA.names, "DELTA_BINARY_PACKED"),
    )


def sum_weights(path: Path) -> WeightSums | None:
    """Sums of the sample weights of a dataset, read from its folder; None without weights."""
    table = pq.ParquetFile(path / BLOCKS).read()
    if not table.num_rows or SUMS[0] not in table.column_names:
        return None
    # one by one, as each addition checks for overflow
    rows = zip(*(table[name].to_pylist() for name in SUMS), strict=True)
    parts = [unpack_sums(row) for row in rows]
    return functools.reduce(WeightSums.add, [each for each in parts if each is not None])


def list_layers(store: Store, dataset: Reference) -> list[Layer]:
    """List the partitions of a dataset in order, with their blocks.

    Raises
    ------
    StoreError
        If the dataset or a partition is missing, or the dataset is damaged.
    """
    partitions, paths = read_partitions(store, dataset), list_partitions(store, dataset)
    superseded = read_superseded(store, dataset)
    keys = read_content(store, dataset)["keys"]
    blocks: dict[int, list[BlockReference]] = {}
    for index, block in _list_blocks(store, dataset, None):
        blocks.setdefault(index, []).append(block)
    nothing = np.empty(0, np.int64)
    return [
        Layer(
            partition,
            paths[index],
            int(keys[index][0]),
            int(keys[index][1]),
            tuple(blocks.get(index, ())),
            superseded.get(index, nothing),
        )
        for index, partition in enumerate(partitions)
    ]


def list_file_steps(store: Store, dataset: Reference) -> list[FileStep]:
    """List the raw files of a dataset, sorted by name, with the artefacts of their rows.

    A large file is listed once per chunk, in the order of rows. The manifest entry of each artefact contains the
    account of its rows, and its folder ``LEVEL_COUNTS``.

    Raises
    ------
    StoreError
        If the dataset is not in the store, or damaged.
    """
    return from_json(list[FileStep], read_content(store, dataset)["files"])


def list_sources(store: Store, dataset: Reference | None) -> list[InputFile]:
    """List the raw files of a dataset for the record of a run; empty without a dataset.

    Raises
    ------
    StoreError
        If the dataset is not in the store, or damaged.
    """
    sources: list[InputFile] = []
    for file in [] if dataset is None else list_file_steps(store, dataset):
        if not sources or sources[-1].name != file.name:
            source = store.find(file.source.identity)
            n_bytes = None if source is None else source.summary["bytes"]
            sources.append(InputFile(file.name, file.source.digest, n_bytes))
        step = store.find(file.step.identity)
        if step is not None:
            n_rows = (sources[-1].rows or 0) + step.summary["rows_in"]
            sources[-1] = replace(sources[-1], rows=n_rows)
    return sources


def read_source(store: Store, dataset: Reference) -> dict[str, Any]:
    """Read the options with which the files of a dataset were read, including the sampling design.

    Raises
    ------
    StoreError
        If the dataset is not in the store, or damaged.
    """
    return dict(read_content(store, dataset)["origin"].get("source", {}))


def read_content(store: Store, dataset: Reference) -> dict[str, Any]:
    """Read the description of a dataset: partitions, keys, files, origin and account, plain JSON types.

    Raises
    ------
    StoreError
        If the dataset is not in the store, or damaged.
    """
    file = store.locate(dataset) / CONTENT
    try:
        content = parse_json(read_checked(file))
        if not isinstance(content, dict) or len(content["keys"]) != len(content["partitions"]):
            raise ValueError("it is not a list of partitions with their keys")
    except StoreError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"dataset {dataset.digest[:12]} is damaged ({error}); run the pipeline again"
        ) from error
    return content


def read_superseded(store: Store, dataset: Reference) -> dict[int, IntArray]:
    """Read the superseded rows of a dataset by index of the partition: int64, sorted.

    Raises
    ------
    StoreError
        If the dataset is not in the store, or damaged.
    """
    table = _read_table(store, dataset, SUPERSEDED)
    # `to_numpy` would import pandas
    indices, rows = (
        np.concatenate([np.empty(0, np.int64), *map(np.from_dlpack, table[name].chunks)])
        for name in SUPERSEDED_SCHEMA.names
    )
    return {index: rows[indices == index] for index in np.unique(indices).tolist()}


def _take_between(rows: IntArray | None, start: int, stop: int) -> IntArray | None:
    """Select the elements of a sorted array in [start, stop); None if there are none."""
    if rows is None:
        return None
    first, last = np.searchsorted(rows, (start, stop))
    return rows[first:last] if last > first else None


def read_partitions(store: Store, dataset: Reference) -> list[Reference]:
    """Read the partitions of a dataset in order.

    Raises
    ------
    StoreError
        If the dataset is not in the store, or damaged.
    """
    try:
        return from_json(list[Reference], read_content(store, dataset)["partitions"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"dataset {dataset.digest[:12]} is damaged ({error}); run the pipeline again"
        ) from error


def list_partitions(store: Store, dataset: Reference) -> list[str]:
    """Absolute paths or URLs of the Zarr groups of a dataset's partitions, in order.

    Raises
    ------
    StoreError
        If the dataset or a partition is missing; in a bucket, partitions are checked only when they are read.
    """
    partitions = read_partitions(store, dataset)
    if not store.is_bucket:
        for partition in partitions:
            store.locate(partition)
    return [f"{store.address}/{partition.path}/{SAMPLES}" for partition in partitions]


def list_dataset_blocks(
    store: Store, dataset: Reference, folds: Sequence[int] | None
) -> list[BlockReference]:
    """List the blocks of some folds, or of all for None, in the order of partitions and blocks.

    Raises
    ------
    StoreError
        If the dataset or a partition is not in the store.
    """
    return [block for _, block in _list_blocks(store, dataset, folds)]


def _list_blocks(
    store: Store, dataset: Reference, folds: Sequence[int] | None
) -> list[tuple[int, BlockReference]]:
    """Blocks of some folds or all, with the indices of their partitions."""
    paths = list_partitions(store, dataset)
    superseded = read_superseded(store, dataset)
    reweighting = _find_reweighting(store, dataset)
    found = []
    columns = _read_table(store, dataset, BLOCKS).to_pydict().values()
    for index, start, stop, fold, n_observed, nbytes, *sums in zip(*columns, strict=True):
        if folds is not None and fold not in folds:
            continue
        gone = _take_between(superseded.get(index), start, stop)
        sizes = start, stop, fold, n_observed, nbytes
        block = BlockReference(
            paths[index], *sizes, gone, unpack_sums(sums), reweighting=reweighting
        )
        found.append((index, block))
    return found


def _find_reweighting(store: Store, dataset: Reference) -> str | None:
    """Path or URL of the group by which a dataset changes its weights; None if they are as stored."""
    for kind in sorted(read_content(store, dataset).keys() - OWN_CONTENT):
        if kind not in find_offers("stored_weights"):
            raise StoreError(
                f"dataset {dataset.digest[:12]} changes the weights of its samples by {kind!r}, which no feature of "
                "this installation does; add it to pmflib.features.FEATURES"
            )
        return f"{store.address}/{dataset.path}/{kind}"
    return None


def _read_table(store: Store, dataset: Reference, name: str) -> pa.Table:
    try:
        content = pa.BufferReader(read_checked(store.locate(dataset) / name))
        # `read_table` would import pyarrow.dataset, and with it pandas
        return pq.ParquetFile(content).read()
    except StoreError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"dataset {dataset.digest[:12]} is damaged ({error}); run the pipeline again"
        ) from error


N_BLOCKS = 16
"""Number of blocks to sample from, spread over the dataset, as sources are often sorted."""


def take_block(
    blocks: Sequence[BlockReference], schema: Schema, n_samples: int, n_blocks: int = N_BLOCKS
) -> DenseBlock:
    """Read some samples from blocks spread over a dataset.

    Parameters
    ----------
    blocks
        All blocks, in order.
    schema
        Variables of the dataset.
    n_samples
        Largest number of samples.
    n_blocks
        Number of blocks to read, at least `N_BLOCKS`.

    Returns
    -------
    At most n_samples samples, with the weights of their blocks.
    """
    filled = [block for block in blocks if block.n_rows]
    positions = np.linspace(0, len(filled) - 1, min(max(n_blocks, N_BLOCKS), len(filled)))
    chosen = [filled[position] for position in np.unique(positions.astype(np.int64))]
    # some blocks may be small
    is_all = sum(block.n_rows for block in chosen) <= n_samples
    share = n_samples if is_all else n_samples // len(chosen)
    samples: list[Block] = [
        DenseBlock(np.empty((0, schema.n_variables), schema.code_dtype)),
        *(read_block(block).cut(0, min(share, block.n_rows)) for block in chosen),
    ]
    taken = concatenate_blocks(samples, schema.offsets)
    assert isinstance(taken, DenseBlock)
    return taken
