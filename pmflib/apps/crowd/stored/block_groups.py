"""Dask tasks on groups of blocks of a stored label log, and memory plans of the stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.apps.crowd.copied_labels import BYTES_OF_PAIR, MOST_LABEL_PAIRS
from pmflib.apps.crowd.e_step import (
    LogWeights,
    VotedBlock,
    add_votes,
    score_tasks,
    split_sparse_block,
)
from pmflib.apps.crowd.label_counts import LabelCounts
from pmflib.apps.crowd.labelling import MOST_CELLS, LabelRule, ScoredBlock
from pmflib.apps.crowd.left_out_labels import CHUNK_CELLS
from pmflib.apps.crowd.methods import CROWD_METHODS
from pmflib.apps.crowd.pairs.annotator_model import CrowdModel
from pmflib.apps.crowd.pairs.worker_marginals import check_levels
from pmflib.apps.crowd.stored.classifier_files import read_predictions
from pmflib.apps.crowd.stored.known_files import read_known_codes
from pmflib.apps.crowd.stored.label_blocks import join_neighbours, read_task_names, read_tasks
from pmflib.apps.crowd.stored.label_tables import (
    list_questions,
    make_label_fields,
    make_label_table,
    make_question_fields,
    pick_uncertain,
)
from pmflib.apps.crowd.stored.worker_models import sum_gains
from pmflib.apps.crowd.worker_pair_counts import (
    SORTED_PAIRS,
    SORTED_PER_COUNTED,
    WorkerPairCounts,
    count_label_pairs,
    count_worker_pairs,
)
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import SparseBlock
from pmflib.cluster.maps import report_count
from pmflib.cluster.memory import MemoryPlan
from pmflib.em.memory import plan_em
from pmflib.store.checkpoints import find_out, hand_in
from pmflib.store.sample_blocks import BlockReference

R = TypeVar("R")


def load_voted(
    group: Sequence[BlockReference], n_workers: int, n_classes: int, known: str = ""
) -> list[VotedBlock]:
    """Read the blocks of a group as one, with their votes, in parts of limited size.

    Parameters
    ----------
    group
        References to blocks.
    n_workers, n_classes
        Number of workers and of classes.
    known
        Table of the known labels, as for `read_known_codes`.
    """
    return _read_voted(join_neighbours(group), n_workers, n_classes, known)[0]


def _read_voted(
    group: Sequence[BlockReference], n_workers: int, n_classes: int, known: str
) -> tuple[list[VotedBlock], IntArray]:
    """Do `load_voted` for joined references; also return the row of each task."""
    offsets = np.arange(n_workers + 1, dtype=np.int64) * n_classes
    joined, order = read_tasks(group, offsets)
    n_rows = max(1, MOST_CELLS // n_classes)
    parts = [joined] if joined.n_rows <= n_rows else split_sparse_block(joined, n_rows)
    if not known:
        return [add_votes(part, n_classes) for part in parts], order
    codes = np.concatenate([read_known_codes(known, one.path, one.rows) for one in group])[order]
    starts = range(0, joined.n_rows, n_rows)
    return [
        add_votes(part, n_classes, codes[start : start + n_rows])
        for start, part in zip(starts, parts, strict=True)
    ], order


def count_worker_pairs_of_groups(
    groups: Sequence[Sequence[BlockReference]], n_workers: int, n_classes: int, topic: str
) -> WorkerPairCounts:
    """Count the pairs of workers of several groups, one group after another to limit the memory.

    Parameters
    ----------
    groups
        Groups of blocks.
    n_workers, n_classes
        Number of workers and of classes.
    topic
        Topic under which the number of tasks of each counted group is reported.
    """
    total = WorkerPairCounts.zero(n_workers, n_classes)
    for group in groups:
        block = _read_joined(group, n_workers, n_classes)
        counts = count_worker_pairs(block, n_workers, n_classes)
        total = WorkerPairCounts.merge([total, counts])
        report_count(topic, block.n_rows)
    return total


def count_group_label_pairs(group: Sequence[BlockReference], n_workers: int, n_classes: int) -> int:
    """Count the pairs of labels of the same task in a group."""
    return count_label_pairs(_read_joined(group, n_workers, n_classes))


def _read_joined(group: Sequence[BlockReference], n_workers: int, n_classes: int) -> SparseBlock:
    """Read the blocks of a group as one, tasks in the order of their hashes."""
    offsets = np.arange(n_workers + 1, dtype=np.int64) * n_classes
    return read_tasks(join_neighbours(group), offsets)[0]


def work_on_blocks(
    group: Sequence[BlockReference] | Sequence[VotedBlock],
    n_workers: int,
    n_classes: int,
    known: str,
    function: Callable[..., R],
    *shared: Any,
) -> R:
    """Call a function with the blocks of a group, which `load_voted` reads unless they are already in memory."""
    references = [block for block in group if isinstance(block, BlockReference)]
    if references:
        return function(load_voted(references, n_workers, n_classes, known), *shared)
    return function([block for block in group if isinstance(block, VotedBlock)], *shared)


def work_on_scored(
    blocks: Sequence[VotedBlock], weights: LogWeights, function: Callable[..., R], *shared: Any
) -> R:
    """Call a function with the tasks of blocks and their posterior under some weights."""
    scored = (
        ScoredBlock(block.labels, score_tasks(block, weights), block.codes) for block in blocks
    )
    return function(scored, *shared)


def call_with_groups(
    groups: Sequence[Sequence[BlockReference]],
    n_workers: int,
    n_classes: int,
    known: str,
    weights: LogWeights,
    function: Callable[..., R],
    *shared: Any,
) -> R:
    """Call a function with the tasks of all groups, which are read one after another."""
    blocks = (block for group in groups for block in load_voted(group, n_workers, n_classes, known))
    scored = (ScoredBlock(each.labels, score_tasks(each, weights), each.codes) for each in blocks)
    return function(scored, *shared)


def compare_fold(item: tuple[Sequence[BlockReference], CrowdModel, CrowdModel]) -> FloatArray:
    """Sum the gains over the tasks of a fold that was held out from both models: see `sum_gains`."""
    group, new, live = item
    return sum_gains(_read_joined(group, new.n_workers, new.n_classes), new, live)


@dataclass(frozen=True, eq=False)
class FoldReader:
    """Reads the tasks of a fold, with their posterior.

    Parameters
    ----------
    classes
        Names of the classes.
    known
        Table of the known labels, as for `read_known_codes`.
    weights
        Weights under which tasks are scored.
    predictions
        Folder of the predictions of a classifier, as for `read_predictions`; empty without one.
    """

    classes: Sequence[str]
    known: str
    weights: LogWeights
    predictions: str = ""

    @property
    def n_workers(self) -> int:
        """Number of workers."""
        return len(self.weights.labels) // len(self.classes)

    def read(self, blocks: Sequence[BlockReference]) -> Iterator[tuple[ScoredBlock, pa.Array]]:
        """Read the blocks of a fold, at least one: tasks in the order of their hashes, and their names."""
        group = join_neighbours(blocks)
        parts, order = _read_voted(group, self.n_workers, len(self.classes), self.known)
        names, at = read_task_names(group, order), 0
        said = read_predictions(self.predictions, blocks[0].fold) if self.predictions else None
        for block in parts:
            stop = at + block.labels.n_rows
            mine = None if said is None else said[at:stop]
            posterior = score_tasks(block, self.weights)
            yield (
                ScoredBlock(block.labels, posterior, block.codes, mine),
                names.slice(at, block.labels.n_rows),
            )
            at = stop


def work_on_fold(
    blocks: Sequence[BlockReference], reader: FoldReader, function: Callable[..., R], *shared: Any
) -> R:
    """Call a function with the tasks of a fold."""
    return function((block for block, _ in reader.read(blocks)), *shared)


def label_fold(
    part: tuple[Sequence[BlockReference], str], reader: FoldReader, rule: LabelRule
) -> tuple[LabelCounts, pa.Table]:
    """Label the tasks of a fold.

    Parameters
    ----------
    part
        Blocks of the fold, and the Parquet file to write.
    reader
        Reader of the tasks.
    rule
        Rule for computing their probabilities.

    Returns
    -------
    Sums over these tasks, and the least certain ones, as from `list_questions`.
    """
    out, classes = find_out(part[1]), reader.classes
    counts = [LabelCounts.zero(reader.n_workers, len(classes))]
    uncertain = make_question_fields(classes).empty_table()
    with pq.ParquetWriter(out, make_label_fields(classes), compression="zstd") as writer:
        for block, names in reader.read(part[0]):
            assert block.codes is not None
            labels, is_known = block.labels, block.codes >= 0
            probabilities = rule.apply(block)
            chosen = probabilities.argmax(axis=1)
            n_labels = np.diff(labels.indptr)
            table = make_label_table(names, chosen, probabilities, n_labels, is_known, classes)
            writer.write_table(table)
            counts.append(
                LabelCounts.from_labels(
                    labels, block.posterior, probabilities, reader.n_workers, is_known
                )
            )
            uncertain = pick_uncertain([uncertain, list_questions(table, labels)])
    hand_in(out)
    return LabelCounts.merge(counts), uncertain


def check_method(method: str, n_workers: int, n_classes: int) -> None:
    """Check that a co-occurrence method can process the number of workers, before their pairs are counted.

    Raises
    ------
    MemoryPlanError
        If the method needs a dense matrix of all pairs, which would be too large.
    """
    if CROWD_METHODS[method].matrix_copies:
        check_levels(n_workers, n_classes)


def plan_label_passes(
    groups: Sequence[Sequence[BlockReference]],
    n_workers: int,
    n_classes: int,
    n_threads: int,
    *,
    n_subclasses: int = 1,
    n_waiting: int = 10,
) -> MemoryPlan:
    """Plan the memory of passes that read a label log again each time, and of labelling its tasks.

    Parameters
    ----------
    groups
        Groups of blocks.
    n_workers, n_classes, n_threads
        Numbers of workers of the log, of classes, and of threads of a worker of the cluster.
    n_subclasses
        Number of subclasses of every class.
    n_waiting
        As for `plan_em`.
    """
    passes = plan_em(
        n_workers * n_classes, n_subclasses * n_classes, n_threads, n_waiting=n_waiting
    )
    parts = {}
    most_rows = max((sum(block.n_rows for block in group) for group in groups), default=0)
    n_rows = min(most_rows, max(1, MOST_CELLS // n_classes))
    parts["labels of a group of tasks, by every thread"] = n_threads * _weigh_group(groups)
    # in the worst case every task is a stratum; weights of strata, and temporary arrays
    table = 8 * n_subclasses * n_classes * n_rows
    parts[f"votes of {n_rows:,} tasks and their strata, by every thread"] = n_threads * 7 * table
    rounds = 2 * 8 * n_workers * n_classes**2
    parts["confusion matrices of the calibration, and labels of a chunk, by every thread"] = (
        n_threads * (rounds + 12 * 8 * CHUNK_CELLS)
    )
    parts["pairs of labels, to find workers with the same mistakes"] = BYTES_OF_PAIR * min(
        sum(map(_count_label_pairs, groups)), MOST_LABEL_PAIRS
    )
    remedy = "Use fewer threads, merge labels, or raise cluster.memory_limit."
    return MemoryPlan("passes over the labels", parts, remedy).add(passes)


def plan_worker_counts(
    groups: Sequence[Sequence[BlockReference]],
    n_workers: int,
    n_classes: int,
    n_threads: int,
    n_label_pairs: int | None = None,
) -> MemoryPlan:
    """Plan the memory of counting the pairs of workers who share tasks.

    Parameters
    ----------
    groups
        Groups of blocks.
    n_workers, n_classes, n_threads
        Numbers of workers of the log, of classes, and of threads of a worker of the cluster.
    n_label_pairs
        Number of pairs of labels of the same task, an upper bound of the pairs of workers; None if unknown.
    """
    n_pairs = n_workers * (n_workers - 1) // 2
    if n_label_pairs is not None:
        n_pairs = min(n_pairs, n_label_pairs)
    counts = n_pairs * _weigh_pair(n_classes)
    sorted_at_once = max(SORTED_PAIRS, SORTED_PER_COUNTED * n_pairs)
    if n_label_pairs is not None:
        sorted_at_once = min(sorted_at_once, n_label_pairs)
    return MemoryPlan(
        "counting pairs of workers",
        {
            f"counts of up to {n_pairs:,} pairs of {n_workers:,} workers, {n_classes} x {n_classes} labels each": (
                3 * n_threads + 2
            )
            * counts,
            "pairs of labels to be sorted, by every thread": n_threads * 40 * sorted_at_once,
            "labels of a group of tasks, by every thread": n_threads * _weigh_group(groups),
        },
        "Use fewer threads, raise cluster.memory_limit, leave out workers with few labels, or set crowd.method to one "
        "that passes over the tasks: 'auto'.",
    )


def plan_pair_method(method: str, n_pairs: int, n_workers: int, n_classes: int) -> MemoryPlan:
    """Plan the memory of finding a crowd model from the pairs of workers, on one machine.

    Parameters
    ----------
    method
        Name of a method of `fit_worker_pairs`.
    n_pairs, n_workers, n_classes
        Number of pairs that share tasks, of workers and of classes.
    """
    needs = CROWD_METHODS[method]
    parts: dict[str, int] = {
        f"blocks of {n_pairs:,} pairs of workers, {n_classes} x {n_classes} labels each": needs.block_copies
        * n_pairs
        * _weigh_pair(n_classes)
    }
    remedy = "Raise cluster.memory_limit, leave out workers with few labels, or set crowd.method to 'auto'"
    if needs.matrix_copies:
        n_levels = n_workers * n_classes
        parts[f"matrices of {n_levels:,} x {n_levels:,} levels"] = (
            8 * needs.matrix_copies * n_levels**2
        )
        remedy += ", or to 'robust'"
    return MemoryPlan("crowd model from pairs", {}, f"{remedy}.", parts)


def _weigh_pair(n_classes: int) -> int:
    """Return the memory of the counts, or of the marginal, of one pair of workers, in bytes."""
    return 8 * n_classes**2 + 24


def _weigh_group(groups: Sequence[Sequence[BlockReference]]) -> int:
    """Return the memory of the largest group while it is read, joined and split, in bytes."""
    return max(
        (sum(3 * b.nbytes + 24 * b.n_observed for b in group) for group in groups), default=0
    )


def _count_label_pairs(group: Sequence[BlockReference]) -> int:
    """Estimate the number of pairs of labels of the same task, as if all tasks of a block had equally many labels."""
    return sum(block.n_observed**2 // max(2 * block.n_rows, 1) for block in group)
