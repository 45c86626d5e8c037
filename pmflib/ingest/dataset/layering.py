"""What a dataset takes over from an earlier one: everything but the samples whose rows have changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmflib.base.hashing import HashArray
from pmflib.base.json_records import from_json
from pmflib.cluster.clients import Client
from pmflib.cluster.item_maps import map_items
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.ingest.dataset.identifiers import HASH_BITS, list_keys, make_keys, read_sample_hashes
from pmflib.ingest.dataset.spills import Spill, is_among
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import FileStep, Layer, list_file_steps, list_layers, read_content
from pmflib.store.objects.local_files import find_local_path
from pmflib.store.sample_blocks import SAMPLE_COUNTS, read_sample_counts

MOST_WASTE = 0.5
"""Share of superseded rows above which a partition is dropped and its other samples are written again. A dataset thus
takes at most twice the space of a fresh one, and for each sample written again there is at least one superseded row."""
MOST_LAYERS = 32
"""Number of partitions of increments above which the smaller half of them is merged into one. Every run opens all
partitions, at some milliseconds each; the number of times a sample is written again grows logarithmically."""
PART_ROWS = 1 << 20
"""Approximate number of raw rows per partition of an increment, about the memory of one bucket."""


@dataclass(frozen=True)
class Base:
    """An earlier dataset to build upon.

    Parameters
    ----------
    entry
        Manifest entry.
    account
        Account of rows.
    files
        Raw files and their spills.
    layers
        Partitions.
    n_buckets
        Number of buckets of the spills.
    since
        Start of the window; minus infinity without one.
    """

    entry: Entry
    account: DatasetAccount
    files: Sequence[FileStep]
    layers: Sequence[Layer]
    n_buckets: int
    since: float


def open_base(
    store: Store, base: Reference, origin: Mapping[str, Any], n_buckets: int
) -> Base | None:
    """Open an earlier dataset if the next one can be built upon it.

    Parameters
    ----------
    store, base
        The earlier dataset.
    origin
        Options of the next dataset, which must equal those of the earlier one: see `BuildJob.origin`.
    n_buckets
        Required number of buckets; 0 for any.

    Returns
    -------
    None if the options differ, or a partition is no longer in the store.

    Raises
    ------
    StoreError
        If the earlier dataset is damaged.
    """
    entry = store.find(base.identity)
    if entry is None:
        return None
    content = read_content(store, base)
    found = dict(content["origin"])
    buckets = found.pop("buckets", None)
    since = found.pop("since", -math.inf)
    if found != origin or buckets is None or n_buckets not in (0, buckets):
        return None
    files = list_file_steps(store, base)
    parts = from_json(list[Reference], content["partitions"])
    if any(store.find(part.identity) is None for part in parts):
        return None
    account = DatasetAccount.from_json(content["account"])
    return Base(entry, account, files, list_layers(store, base), buckets, since)


def has_spills(store: Store, base: Base) -> bool:
    """Whether the spills of all files of an earlier dataset are in the store, with their rows."""
    return all(store.find_before(file.step.identity) is not None for file in base.files)


def find_touched(
    client: Client, store: Store, base: Base, spills: Sequence[Reference]
) -> HashArray:
    """Keys of the samples with rows in new, changed or removed files: uint64, sorted.

    Parameters
    ----------
    client
        Dask client, or None.
    store
        The store.
    base
        The earlier dataset.
    spills
        Spills of all present files.
    """
    before = {file.step.identity: file.step for file in base.files}
    now = {spill.identity: spill for spill in spills}
    changed = [
        store.address_artefact((before | now)[each]) for each in sorted(before.keys() ^ now.keys())
    ]
    return join_keys(map_items(client, _read_keys, changed))


@dataclass(frozen=True)
class Remainder:
    """Remaining partitions of an earlier dataset, and the samples to assemble again.

    Parameters
    ----------
    layers
        Partitions with remaining samples.
    keys
        Keys of the samples to assemble again, uint64, sorted.
    lost
        Sums over these samples: "samples" and `SAMPLE_COUNTS`.
    """

    layers: Sequence[Layer]
    keys: HashArray
    lost: Mapping[str, int]


def supersede_samples(client: Client, base: Base, keys: HashArray) -> Remainder:
    """Remove samples with changed rows from an earlier dataset, and dissolve partitions with too much waste.

    Parameters
    ----------
    client
        Dask client, or None.
    base
        The earlier dataset.
    keys
        Keys of samples whose rows have changed, uint64, sorted.
    """
    layers, lost = _supersede(client, base, keys)
    worn = [layer for layer in layers if _is_worn(layer)]
    added = sorted((x for x in layers if _is_increment(x)), key=lambda x: x.n_rows)
    if len(added) > MOST_LAYERS:
        worn += [layer for layer in added[: MOST_LAYERS // 2] if layer not in worn]
    if worn:
        items = [(layer, base.n_buckets) for layer in worn]
        keys = join_keys([keys, *map_items(client, _list_keys, items)])
        layers, lost = _supersede(client, base, keys)
    return Remainder([layer for layer in layers if layer.n_rows], keys, lost)


def split_keys(keys: HashArray, n_rows: int) -> list[HashArray]:
    """Split sorted keys into runs of about ``PART_ROWS`` rows each."""
    return [part for part in np.array_split(keys, max(1, -(-n_rows // PART_ROWS))) if part.size]


def _is_worn(layer: Layer) -> bool:
    rows = layer.n_rows + layer.superseded.size
    return bool(layer.n_rows) and layer.superseded.size > MOST_WASTE * rows


def _is_increment(layer: Layer) -> bool:
    """Whether a partition does not consist of whole buckets, as those of a fresh dataset do."""
    first, last = (list_keys(key >> HASH_BITS) for key in (layer.first_key, layer.last_key))
    return (layer.first_key, layer.last_key) != (first[0], last[1])


def _supersede(client: Client, base: Base, keys: HashArray) -> tuple[list[Layer], dict[str, int]]:
    """Remove samples with some keys from all partitions; return the partitions and sums over the samples."""
    bounds = [
        np.searchsorted(keys, np.array([layer.first_key, layer.last_key + 1], np.uint64))
        for layer in base.layers
    ]
    indices = [index for index, (start, stop) in enumerate(bounds) if start < stop]
    items = [(base.layers[p], keys[bounds[p][0] : bounds[p][1]], base.n_buckets) for p in indices]
    layers, totals = list(base.layers), np.zeros(5, np.int64)
    for index, (layer, lost) in zip(
        indices, map_items(client, _supersede_layer, items), strict=True
    ):
        layers[index] = layer
        totals += lost
    return layers, dict(zip((*SAMPLE_COUNTS, "samples"), totals.tolist(), strict=True))


def _supersede_layer(item: tuple[Layer, HashArray, int]) -> tuple[Layer, np.ndarray[Any, Any]]:
    layer, keys, n_buckets = item
    gone = is_among(make_keys(read_sample_hashes(layer.folder), n_buckets), keys)
    gone[layer.superseded] = False
    rows = np.flatnonzero(gone)
    if not rows.size:
        return layer, np.zeros(5, np.int64)
    lost = read_sample_counts(layer.folder)[rows].sum(axis=0, dtype=np.int64)
    return layer.supersede(rows), np.append(lost, rows.size)


def _list_keys(item: tuple[Layer, int]) -> HashArray:
    """Keys of the samples of a partition, without superseded ones."""
    layer, n_buckets = item
    return make_keys(np.delete(read_sample_hashes(layer.folder), layer.superseded), n_buckets)


def _read_keys(spill: str) -> HashArray:
    return Spill(find_local_path(spill), {}).read_keys()


def join_keys(parts: Sequence[HashArray]) -> HashArray:
    """Union of arrays of keys: uint64, sorted."""
    return np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))
