"""What a dataset takes over from an earlier one: everything but the samples whose rows have changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmflib.cluster.clients import Client
from pmflib.cluster.item_maps import map_items
from pmflib.core.hashing import HashArray
from pmflib.core.json_records import from_json
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.ingest.dataset.identifiers import HASH_BITS, list_keys, make_keys, read_sample_hashes
from pmflib.ingest.dataset.spills import Spill, is_among
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.caches import find_local_path
from pmflib.store.dataset import FileStep, Layer, list_file_steps, list_layers, read_content
from pmflib.store.sample_blocks import SAMPLE_COUNTS, read_sample_counts

MOST_WASTE = 0.5
"""Share of a partition's rows that may be superseded; with more, its samples are written again and the partition is
dropped. So the samples of a dataset take at most twice the room of those of a fresh one, and each sample that is
written again has at least one superseded row to pay for it."""
MOST_LAYERS = 32
"""Partitions that increments may add; with more, the smaller half of them are written again as one. Every night opens
all of them, some milliseconds each, and each sample is written again only as often as there are doublings of 16."""
PART_ROWS = 1 << 20
"""Rows of the sources that one partition of an increment is assembled from, about: the memory of one bucket."""


@dataclass(frozen=True)
class Base:
    """An earlier dataset that the next one may be built upon.

    Parameters
    ----------
    entry
        Its manifest entry.
    account
        Its account of rows.
    files
        Its raw files and their spills.
    layers
        Its partitions.
    n_buckets
        Buckets that its files were spilled to.
    since
        Beginning of its window; minus infinity if it has none.
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
    """Open an earlier dataset, if the next one can be built upon it.

    Parameters
    ----------
    store, base
        The earlier dataset.
    origin
        Schema, layout, policy, folds and version of the next dataset: those of the earlier one must be the same.
    n_buckets
        Buckets that the next dataset must have; 0 takes those of the earlier one.

    Returns
    -------
    None if it differs, or a partition of it is no more in the store.

    Raises
    ------
    StoreError
        If it is damaged.
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
    """Whether the spills of all files of an earlier dataset are in the store, once those that there are now are."""
    return all(store.find(file.step.identity) is not None for file in base.files)


def find_touched(
    client: Client, store: Store, base: Base, spills: Sequence[Reference]
) -> HashArray:
    """Keys of the samples that have rows in files which are new, changed or removed: uint64, sorted.

    Parameters
    ----------
    client
        Dask client, or None.
    store
        The store.
    base
        The earlier dataset.
    spills
        Spills of all files that there are now.
    """
    before = {file.step.identity: file.step for file in base.files}
    now = {spill.identity: spill for spill in spills}
    changed = [
        store.address_artefact((before | now)[each]) for each in sorted(before.keys() ^ now.keys())
    ]
    return join_keys(map_items(client, _read_keys, changed))


@dataclass(frozen=True)
class Remainder:
    """What is left of an earlier dataset's partitions, and which samples must be assembled again.

    Parameters
    ----------
    layers
        Partitions that have samples left.
    keys
        uint64, sorted: keys of the samples that are superseded.
    lost
        Sums over these samples: "samples" and `SAMPLE_COUNTS`.
    """

    layers: Sequence[Layer]
    keys: HashArray
    lost: Mapping[str, int]


def supersede_samples(client: Client, base: Base, keys: HashArray) -> Remainder:
    """Leave the samples of some keys out of an earlier dataset, and those of partitions that are worth no more.

    Parameters
    ----------
    client
        Dask client, or None.
    base
        The earlier dataset.
    keys
        uint64, sorted: keys of samples whose rows have changed.
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
    """Split sorted keys into runs of samples that have about ``PART_ROWS`` of some rows each."""
    return [part for part in np.array_split(keys, max(1, -(-n_rows // PART_ROWS))) if part.size]


def _is_worn(layer: Layer) -> bool:
    rows = layer.n_rows + layer.superseded.size
    return bool(layer.n_rows) and layer.superseded.size > MOST_WASTE * rows


def _is_increment(layer: Layer) -> bool:
    """Whether a partition is not of whole buckets, as those of a fresh dataset are."""
    first, last = (list_keys(key >> HASH_BITS) for key in (layer.first_key, layer.last_key))
    return (layer.first_key, layer.last_key) != (first[0], last[1])


def _supersede(client: Client, base: Base, keys: HashArray) -> tuple[list[Layer], dict[str, int]]:
    """All partitions without the samples of some keys, and sums over these."""
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
    gone = is_among(make_keys(read_sample_hashes(find_local_path(layer.path)), n_buckets), keys)
    gone[layer.superseded] = False
    rows = np.flatnonzero(gone)
    if not rows.size:
        return layer, np.zeros(5, np.int64)
    lost = read_sample_counts(find_local_path(layer.path))[rows].sum(axis=0, dtype=np.int64)
    return layer.supersede(rows), np.append(lost, rows.size)


def _list_keys(item: tuple[Layer, int]) -> HashArray:
    """Keys of the samples of a partition that are not superseded."""
    layer, n_buckets = item
    return make_keys(
        np.delete(read_sample_hashes(find_local_path(layer.path)), layer.superseded), n_buckets
    )


def _read_keys(spill: str) -> HashArray:
    return Spill(find_local_path(spill), {}).read_keys()


def join_keys(parts: Sequence[HashArray]) -> HashArray:
    """Keys that are in any of some arrays: uint64, sorted."""
    return np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))
