"""Label logs in a store: what one Dask task does with a group of blocks, and tables of what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import SparseBlock, concatenate_blocks
from pmflib.counting.worker_pair_counts import WorkerPairCounts, count_meetings, count_worker_pairs
from pmflib.crowd.passes import evaluate_blocks, score_items, split_rows
from pmflib.crowd.votes import VotedBlock, add_votes
from pmflib.em.statistics import EMStatistics
from pmflib.running.grouping import group_blocks
from pmflib.running.worker_messages import report_count
from pmflib.solvers.crowd.annotator_model import Annotators
from pmflib.store.sample_blocks import BlockReference, list_blocks, read_blocks, read_origins

MOST_CELLS = 1 << 21
"""Items times classes that are worked on at a time: each may be a stratum of its own."""


def load_voted(group: Sequence[BlockReference], n_workers: int, n_classes: int) -> list[VotedBlock]:
    """Read the blocks of a group as one, with their votes: tables are made once for as many as fit."""
    joined = _read_joined(group, n_workers, n_classes)
    n_rows = max(1, MOST_CELLS // n_classes)
    parts = [joined] if joined.n_rows <= n_rows else split_rows(joined, n_rows)
    return [add_votes(part, n_classes) for part in parts]


def count_groups(
    groups: Sequence[Sequence[BlockReference]], n_workers: int, n_classes: int, topic: str
) -> WorkerPairCounts:
    """Count the pairs of workers of several groups, one after the other: whoever merges the result holds few of them.

    Parameters
    ----------
    groups
        Blocks that are counted together.
    n_workers, n_classes
        Sizes.
    topic
        Where the tasks of each group are told when they are counted.
    """
    total = WorkerPairCounts.zero(n_workers, n_classes)
    for group in groups:
        block = _read_joined(group, n_workers, n_classes)
        counts = count_worker_pairs(block, n_workers, n_classes)
        total = WorkerPairCounts.merge([total, counts])
        report_count(topic, block.n_rows)
    return total


def count_group_meetings(group: Sequence[BlockReference], n_workers: int, n_classes: int) -> int:
    """Pairs of answers of a group to the same task."""
    return count_meetings(_read_joined(group, n_workers, n_classes))


def _read_joined(group: Sequence[BlockReference], n_workers: int, n_classes: int) -> SparseBlock:
    """Read the blocks of a group as one."""
    offsets = np.arange(n_workers + 1, dtype=np.int64) * n_classes
    blocks = [block.to_sparse(offsets) for block in read_blocks(_join_neighbours(group))]
    return concatenate_blocks(blocks, offsets).to_sparse(offsets)


def _join_neighbours(group: Sequence[BlockReference]) -> list[BlockReference]:
    """References to the same rows, those that follow each other as one: blocks of label logs are small to read."""
    joined: list[BlockReference] = []
    for block in group:
        last = joined[-1] if joined else None
        if last is None or (last.path, last.stop) != (block.path, block.start):
            joined.append(block)
            continue
        observed, nbytes = last.n_observed + block.n_observed, last.nbytes + block.nbytes
        joined[-1] = replace(last, stop=block.stop, n_observed=observed, nbytes=nbytes)
    return joined


def evaluate_group(
    group: Sequence[BlockReference] | Sequence[VotedBlock],
    n_classes: int,
    log_prior: FloatArray,
    weights: FloatArray,
    gains: FloatArray,
) -> EMStatistics:
    """Sufficient statistics of a group, loaded or not."""
    read = [item for item in group if isinstance(item, BlockReference)]
    blocks = [item for item in group if isinstance(item, VotedBlock)]
    if read:
        blocks = load_voted(read, len(weights) // n_classes, n_classes)
    return evaluate_blocks(blocks, log_prior, weights, gains)


def label_partition(
    item: tuple[str, str],
    classes: Sequence[str],
    log_prior: FloatArray,
    weights: FloatArray,
    gains: FloatArray,
) -> IntArray:
    """Label the tasks of a partition.

    Parameters
    ----------
    item
        Zarr group of the partition, and the Parquet file to write.
    classes
        Labels that there are.
    log_prior, weights, gains
        Of the states, of answers, and of a class by its votes.

    Returns
    -------
    Answers of each worker, int64 of shape (n_workers,).
    """
    path, out = item
    _, names = read_origins(Path(path))
    n_classes = len(classes)
    n_workers = len(weights) // n_classes
    n_answers = np.zeros(n_workers, np.int64)
    with pq.ParquetWriter(out, make_label_fields(classes), compression="zstd") as writer:
        for group in group_blocks(list_blocks(Path(path))):
            at = group[0].start
            for block in load_voted(group, n_workers, n_classes):
                answers = block.answers
                posterior = score_items(block, log_prior, weights, gains)
                mine = names[at : at + answers.n_rows]
                at += answers.n_rows
                answered = np.diff(answers.indptr)
                writer.write_table(make_label_table(mine, posterior, answered, classes))
                n_answers += np.bincount(answers.indices // n_classes, minlength=n_workers)
    return n_answers


def make_label_fields(classes: Sequence[str]) -> pa.Schema:
    """Columns of `make_label_table`."""
    fields = [
        pa.field("task", pa.string()),
        pa.field("label", pa.string()),
        pa.field("confidence", pa.float64()),
        pa.field("n_answers", pa.int64()),
    ]
    return pa.schema(
        [*fields, *(pa.field(f"probability.{name}", pa.float64()) for name in classes)]
    )


def make_label_table(
    tasks: Sequence[str], posterior: FloatArray, n_answers: IntArray, classes: Sequence[str]
) -> pa.Table:
    """A row per task: its most probable label, how sure that is, answers it had, probability of every label."""
    best = posterior.argmax(axis=1)
    columns = [
        pa.array(list(tasks), pa.string()),
        pa.array(list(classes), pa.string()).take(pa.array(best)),
        pa.array(posterior[np.arange(best.size), best]),
        pa.array(n_answers, pa.int64()),
        *(pa.array(column) for column in posterior.T),
    ]
    return pa.Table.from_arrays(columns, schema=make_label_fields(classes))


def make_worker_table(
    workers: Sequence[str], annotators: Annotators, n_answers: IntArray, classes: Sequence[str]
) -> pa.Table:
    """A row per worker: accuracy, answers given, and the PMF of the answers by true label."""
    confusion = annotators.confusion
    right = np.diagonal(confusion, axis1=1, axis2=2) @ annotators.prior
    columns = {"worker": pa.array(list(workers)), "accuracy": right, "n_answers": n_answers}
    for true, name in enumerate(classes):
        for answer, given in enumerate(classes):
            columns[f"probability.{given}|{name}"] = confusion[:, answer, true]
    return pa.table(columns)
