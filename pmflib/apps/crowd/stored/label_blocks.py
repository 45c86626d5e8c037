"""Read the tasks of a stored label log in a canonical order: by fold, then by the hashes of their identifiers.

The partitions of a log that has grown in increments differ from those of a log read at once, and floating-point sums
over different blocks differ in their last bits. Therefore blocks are grouped by fold, which the hash of a task
determines, and the tasks of a group are sorted by hash, so that passes depend only on the labels.

Partitions older than some workers are encoded with a part of the schema; their levels are translated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import IntArray
from pmflib.base.blocks import Block, SparseBlock, concatenate_blocks
from pmflib.base.hashing import HashArray
from pmflib.ingest.dataset.identifiers import read_sample_hashes
from pmflib.schema import Schema
from pmflib.store.array_groups import read_arrays
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import Layer, list_layers
from pmflib.store.sample_blocks import (
    MAX_GROUP,
    MIN_GROUP,
    TARGET_GROUPS,
    BlockReference,
    list_blocks,
    read_blocks,
    read_identifier_texts,
)

B = TypeVar("B", bound=BlockReference)


MOST_REMEMBERED = 1 << 18
"""Maximum number of labels of a partition that a process caches: one or two megabytes for each of 64 partitions."""


@dataclass(frozen=True)
class LabelReference(BlockReference):
    """Location of a block of a label log.

    Parameters
    ----------
    levels
        int32 of shape (n_own_workers, n_own_classes): level in the schema of the log for each level of the partition,
        -1 for levels that the schema does not have; None if the schemas are equal.
    """

    levels: IntArray | None = field(default=None, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        kind, values = super().__reduce__()
        return kind, (*values, self.levels)


def list_label_blocks(
    store: Store, dataset: Reference, schema: Schema, folds: Iterable[int] | None = None
) -> list[LabelReference]:
    """List the blocks of a label log, in the order of their folds.

    Parameters
    ----------
    store, dataset
        Store and dataset of the labels.
    schema
        Schema of the log; partitions can be encoded with a part of it.
    folds
        Folds to list; None lists all.

    Raises
    ------
    StoreError
        If the dataset or a partition is missing from the store, or damaged.
    """
    known: dict[str, IntArray | None] = {schema.digest: None}
    chosen = None if folds is None else {*folds}
    blocks = []
    for layer in list_layers(store, dataset):
        entry = store.find(layer.partition.identity)
        digest = "" if entry is None else str(entry.options.get("schema", ""))
        levels = known[digest] if digest in known else find_part_levels(layer, schema)
        known |= {digest: levels} if digest else {}
        blocks += [
            LabelReference(
                block.path,
                block.start,
                block.stop,
                block.fold,
                block.n_observed,
                block.nbytes,
                block.superseded,
                levels=levels,
            )
            for block in layer.blocks
            if chosen is None or block.fold in chosen
        ]
    return sorted(blocks, key=attrgetter("fold"))


def find_part_levels(layer: Layer, schema: Schema) -> IntArray | None:
    """Map the levels of a partition to those of a schema, as in `LabelReference`; None if they are equal."""
    own_workers, own_classes = _read_names(layer.folder)
    if (own_workers, own_classes) == (schema.names, schema[0].levels):
        return None
    codes = {name: code for code, name in enumerate(schema[0].levels)}
    classes = np.array([codes.get(name, -1) for name in own_classes])
    rows = {name: row for row, name in enumerate(schema.names)}
    workers = np.array([rows.get(name, -1) for name in own_workers])
    levels = workers[:, None] * len(codes) + classes
    levels[(workers[:, None] < 0) | (classes < 0)] = -1
    return np.asarray(levels, np.int32)


@lru_cache(maxsize=64)
def _read_names(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read the workers and classes of a partition."""
    schema = Schema.from_json(read_arrays(path, [])[1]["schema"])
    return schema.names, schema[0].levels


def group_folds(blocks: Sequence[LabelReference]) -> list[list[LabelReference]]:
    """Group the blocks of one fold, or of several consecutive folds, until a group is large enough for a task.

    Groups depend only on the number of labels of each fold.

    Parameters
    ----------
    blocks
        Blocks in the order of their folds.
    """
    n_labels = sum(block.n_observed for block in blocks)
    target = min(MAX_GROUP, max(MIN_GROUP, n_labels // TARGET_GROUPS))
    groups: list[list[LabelReference]] = []
    filled = target
    for _, fold in groupby(blocks, key=attrgetter("fold")):
        if filled >= target:
            groups.append([])
            filled = 0
        groups[-1] += fold
        filled = sum(block.n_observed for block in groups[-1])
    return groups


def read_tasks(group: Sequence[BlockReference], offsets: IntArray) -> tuple[SparseBlock, IntArray]:
    """Read the tasks of a group as one block, sorted by the hashes of their identifiers.

    Parameters
    ----------
    group
        As from `join_neighbours`, at least one reference.
    offsets
        int64 of shape (n_workers + 1,): levels of the workers in the schema of the log.

    Returns
    -------
    The labels, and int64 of shape (n_tasks,): row of each task in the group. Tasks with equal hashes keep their order.
    """
    parts: list[Block] = []
    found = []
    for reference in group:
        block, hashes = _read_rows(reference)
        levels = reference.levels if isinstance(reference, LabelReference) else None
        if levels is not None:
            own = np.arange(len(levels) + 1, dtype=np.int64) * levels.shape[1]
            labels = block.to_sparse(own)
            block = _drop_unknown(labels.indptr, levels.ravel()[labels.indices])
        parts.append(block.to_sparse(offsets))
        found.append(hashes)
    joined = concatenate_blocks(parts, offsets).to_sparse(offsets)
    order = np.argsort(np.concatenate(found), kind="stable")
    return joined.take(order), order


def _read_rows(reference: BlockReference) -> tuple[Block, HashArray]:
    """Read the labels of a reference, as levels of its partition, and the hashes of their tasks."""
    path = reference.folder
    n_labels, rows = _count_labels(path), reference.rows
    if n_labels <= MOST_REMEMBERED:
        block, hashes = _remember_partition(path)
        return block.take(rows), hashes[rows]
    return next(read_blocks([reference])), read_sample_hashes(path)[rows]


@lru_cache(maxsize=256)
def _count_labels(path: Path) -> int:
    """Count the labels of a partition."""
    return sum(block.n_observed for block in list_blocks(path))


@lru_cache(maxsize=64)
def _remember_partition(path: Path) -> tuple[Block, HashArray]:
    """Read and cache all rows of a small partition, because opening many small ones takes longer than reading them."""
    blocks = list_blocks(path)
    if not blocks:
        return SparseBlock(np.zeros(1, np.int64), np.zeros(0, np.int32)), np.zeros(0, np.uint64)
    whole = replace(blocks[0], stop=blocks[-1].stop)
    return next(read_blocks([whole])), read_sample_hashes(path)


@lru_cache(maxsize=32)
def _remember_names(path: Path) -> pa.StringArray:
    """Read and cache the tasks of a small partition, in the order of its rows."""
    return _read_names_of_tasks(path)


def _read_names_of_tasks(path: Path) -> pa.StringArray:
    """Read the tasks of a partition, in the order of its rows."""
    texts, lengths = read_identifier_texts(path)
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    return pa.StringArray.from_buffers(lengths.size, pa.py_buffer(ends), pa.py_buffer(texts))


def _drop_unknown(indptr: IntArray, levels: IntArray) -> SparseBlock:
    """Drop labels with level -1, of workers that are no longer in the schema."""
    known = levels >= 0
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(known, dtype=np.int64)])
    return SparseBlock(before[indptr], levels[known])


def join_neighbours(group: Sequence[B]) -> list[B]:
    """Sort references by partition, and join adjacent ones, because single blocks are too small to read efficiently."""
    joined: list[B] = []
    for block in sorted(group, key=attrgetter("path", "start")):
        last = joined[-1] if joined else None
        if last is None or (last.path, last.stop) != (block.path, block.start):
            joined.append(block)
            continue
        gone = [each for each in (last.superseded, block.superseded) if each is not None]
        joined[-1] = replace(
            last,
            stop=block.stop,
            n_observed=last.n_observed + block.n_observed,
            nbytes=last.nbytes + block.nbytes,
            superseded=np.concatenate(gone) if gone else None,
        )
    return joined


def read_task_names(group: Sequence[BlockReference], order: IntArray) -> pa.StringArray:
    """Read the identifiers of the tasks of a group, in the order that `read_tasks` returned."""
    names = []
    for reference in group:
        path = reference.folder
        is_small = _count_labels(path) <= MOST_REMEMBERED
        mine = _remember_names(path) if is_small else _read_names_of_tasks(path)
        names.append(mine.take(pa.array(reference.rows)))
    return pa.concat_arrays(names).take(pa.array(order))
