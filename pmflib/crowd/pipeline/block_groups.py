"""Label logs in a store: what one Dask task does with a group of blocks, or with a partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.arrays import FloatArray
from pmflib.blocks import SparseBlock, concatenate_blocks
from pmflib.counting.worker_pair_counts import (
    WorkerPairCounts,
    count_label_pairs,
    count_worker_pairs,
)
from pmflib.crowd.confidence import Calibration
from pmflib.crowd.copied_labels import Copies, find_copies
from pmflib.crowd.e_step import LogWeights, evaluate_blocks, score_tasks, split_rows
from pmflib.crowd.known_intercepts import KnownScores, score_known
from pmflib.crowd.label_tally import LabelTally
from pmflib.crowd.left_out import LeftOutSums, Round, start_sums, sum_block
from pmflib.crowd.pipeline.known_files import read_known_codes
from pmflib.crowd.pipeline.label_tables import (
    list_questions,
    make_label_fields,
    make_label_table,
    make_question_fields,
    pick_uncertain,
)
from pmflib.crowd.votes import VotedBlock, add_votes
from pmflib.em.statistics import EMStatistics
from pmflib.running.grouping import group_blocks
from pmflib.running.worker_messages import report_count
from pmflib.solvers.crowd.annotator_model import CrowdModel
from pmflib.store.handed_files import find_out, hand_in
from pmflib.store.mirrors import find_place
from pmflib.store.sample_blocks import BlockReference, list_blocks, read_blocks, read_origins

MOST_CELLS = 1 << 21
"""Most tasks times classes that are worked on at a time: each task may be a stratum of its own."""


def load_voted(
    group: Sequence[BlockReference], n_workers: int, n_classes: int, known: str = ""
) -> list[VotedBlock]:
    """Read the blocks of a group as one, with their votes: tables are made once for as many as fit.

    Parameters
    ----------
    group
        References to blocks.
    n_workers, n_classes
        Number of workers and of classes.
    known
        Table of the known labels, as for `read_known_codes`.
    """
    joined = _read_joined(group, n_workers, n_classes)
    n_rows = max(1, MOST_CELLS // n_classes)
    parts = [joined] if joined.n_rows <= n_rows else split_rows(joined, n_rows)
    if not known:
        return [add_votes(part, n_classes) for part in parts]
    codes = np.concatenate([read_known_codes(known, one.path, one.rows) for one in group])
    starts = range(0, joined.n_rows, n_rows)
    return [
        add_votes(part, n_classes, codes[start : start + n_rows])
        for start, part in zip(starts, parts, strict=True)
    ]


def count_groups(
    groups: Sequence[Sequence[BlockReference]], n_workers: int, n_classes: int, topic: str
) -> WorkerPairCounts:
    """Count the pairs of workers of several groups, one after the other: few results wait to be merged.

    Parameters
    ----------
    groups
        Blocks that are counted together.
    n_workers, n_classes
        Number of workers and of classes.
    topic
        Where the number of tasks of each group is reported when they are counted.
    """
    total = WorkerPairCounts.zero(n_workers, n_classes)
    for group in groups:
        block = _read_joined(group, n_workers, n_classes)
        counts = count_worker_pairs(block, n_workers, n_classes)
        total = WorkerPairCounts.merge([total, counts])
        report_count(topic, block.n_rows)
    return total


def count_group_label_pairs(group: Sequence[BlockReference], n_workers: int, n_classes: int) -> int:
    """Number of pairs of labels of the same task in a group."""
    return count_label_pairs(_read_joined(group, n_workers, n_classes))


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
    known: str,
    weights: LogWeights,
) -> EMStatistics:
    """Sufficient statistics of a group, loaded or not, in which case known labels are looked up."""
    n_workers = len(weights.labels) // n_classes
    return evaluate_blocks(_load_group(group, n_workers, n_classes, known), weights)


def sum_group(
    group: Sequence[BlockReference] | Sequence[VotedBlock],
    n_classes: int,
    known: str,
    weights: LogWeights,
    rounds: Sequence[Round],
    every: int,
) -> LeftOutSums:
    """Sums of a group, loaded or not, for the calibration of its posteriors: see `pmflib.crowd.left_out.sum_block`."""
    n_workers = len(weights.labels) // n_classes
    sums = start_sums(rounds, n_workers, n_classes)
    for block in _load_group(group, n_workers, n_classes, known):
        posterior = score_tasks(block, weights)
        sum_block(block.labels, posterior, rounds, sums, known=block.codes, every=every)
    return sums


def score_known_group(
    group: Sequence[BlockReference] | Sequence[VotedBlock],
    n_classes: int,
    known: str,
    model: CrowdModel,
    every: int,
) -> KnownScores:
    """Score the known tasks of a group, loaded or not: see `pmflib.crowd.known_intercepts.score_known`."""
    return score_known(_load_group(group, model.n_workers, n_classes, known), model, every)


def find_copies_in_groups(
    groups: Sequence[Sequence[BlockReference]],
    n_classes: int,
    known: str,
    weights: LogWeights,
    confusion: FloatArray,
    every: int,
) -> list[Copies]:
    """Pairs of workers with the same mistakes, in one task of so many of each group.

    Parameters
    ----------
    groups
        Blocks, read again.
    n_classes
        Number of classes.
    known
        Table of the known labels, as for `read_known_codes`.
    weights
        What tasks are scored under.
    confusion
        As for `pmflib.crowd.copied_labels.find_copies`.
    every
        Which tasks are looked at.
    """
    n_workers = len(confusion)
    offsets = np.arange(n_workers + 1, dtype=np.int64) * n_classes
    parts, posteriors = [SparseBlock(np.zeros(1, np.int64), np.zeros(0, np.int32))], []
    for group in groups:
        for block in load_voted(group, n_workers, n_classes, known):
            rows = np.arange(0, block.labels.n_rows, every)
            parts.append(block.labels.take(rows))
            posteriors.append(score_tasks(block, weights)[rows])
    joined = concatenate_blocks(parts, offsets).to_sparse(offsets)
    return find_copies(joined, np.concatenate([np.zeros((0, n_classes)), *posteriors]), confusion)


def _load_group(
    group: Sequence[BlockReference] | Sequence[VotedBlock],
    n_workers: int,
    n_classes: int,
    known: str,
) -> list[VotedBlock]:
    """Blocks of a group with their votes, read if they are not loaded."""
    references = [block for block in group if isinstance(block, BlockReference)]
    if references:
        return load_voted(references, n_workers, n_classes, known)
    return [block for block in group if isinstance(block, VotedBlock)]


def label_partition(
    files: tuple[str, str],
    classes: Sequence[str],
    known: str,
    weights: LogWeights,
    calibration: Calibration,
) -> tuple[LabelTally, pa.Table]:
    """Label the tasks of a partition.

    Parameters
    ----------
    files
        Zarr group of the partition, and the Parquet file to write.
    classes
        Names of the classes.
    known
        Table of the known labels, as for `read_known_codes`.
    weights
        What tasks are scored under.
    calibration
        How confidence is found.

    Returns
    -------
    Sums over these tasks, and those that are least certain, as from `list_questions`.
    """
    path, out = files[0], find_out(files[1])
    _, names = read_origins(find_place(path))
    n_classes = len(classes)
    n_workers = len(weights.labels) // n_classes
    tallies = [LabelTally.zero(n_workers, n_classes)]
    uncertain = make_question_fields(classes).empty_table()
    with pq.ParquetWriter(out, make_label_fields(classes), compression="zstd") as writer:
        for group in group_blocks(list_blocks(find_place(path))):
            at = group[0].start
            for block in load_voted(group, n_workers, n_classes, known):
                labels = block.labels
                posterior = score_tasks(block, weights)
                tasks = names[at : at + labels.n_rows]
                at += labels.n_rows
                n_labels = np.diff(labels.indptr)
                probabilities = calibration.apply(labels, posterior, block.codes)
                chosen = posterior.argmax(axis=1)
                table = make_label_table(
                    tasks, chosen, probabilities, n_labels, block.is_known, classes
                )
                writer.write_table(table)
                tallies.append(LabelTally.from_labels(labels, posterior, n_workers, block.is_known))
                uncertain = pick_uncertain([uncertain, list_questions(table, labels)])
    hand_in(out)
    return LabelTally.merge(tallies), uncertain
