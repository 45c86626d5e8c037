"""Memory of the stages of label logs, computed before they run."""

from __future__ import annotations

from collections.abc import Sequence

from pmflib.counting.worker_pair_counts import SORTED_PAIRS, SORTED_PER_COUNTED
from pmflib.crowd.copied_labels import BYTES_OF_PAIR, MOST_LABEL_PAIRS
from pmflib.crowd.left_out import PIECE_CELLS
from pmflib.crowd.pipeline.block_groups import MOST_CELLS
from pmflib.em.memory import plan_em
from pmflib.methods import CROWD_METHODS
from pmflib.running.memory_plan import MemoryPlan
from pmflib.solvers.crowd.worker_marginals import check_levels
from pmflib.store.sample_blocks import BlockReference


def check_method(method: str, n_workers: int, n_classes: int) -> None:
    """Check that a method of co-occurrences can take so many workers, before their pairs are counted.

    Raises
    ------
    MemoryPlanError
        If the method needs all pairs in one dense matrix, and there are too many.
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
    n_held: int = 10,
) -> MemoryPlan:
    """Plan the memory of passes over a label log that is read again each time, and of labelling its tasks.

    Parameters
    ----------
    groups
        Blocks that are worked on together.
    n_workers, n_classes, n_threads
        Number of workers, of classes and of threads of a worker of the cluster.
    n_subclasses
        Number of subclasses of every class.
    n_held
        As for `plan_em`.
    """
    passes = plan_em(n_workers * n_classes, n_subclasses * n_classes, n_threads, n_held=n_held)
    parts = dict(passes.parts)
    n_rows = min(max(map(_count_rows, groups), default=0), max(1, MOST_CELLS // n_classes))
    parts["labels of a group of tasks, by every thread"] = n_threads * _weigh_group(groups)
    # at worst every task is a stratum of its own; weights of strata, and what is made of them
    table = 8 * n_subclasses * n_classes * n_rows
    parts[f"votes of {n_rows:,} tasks and their strata, by every thread"] = n_threads * 7 * table
    rounds = 2 * 8 * n_workers * n_classes**2
    parts["confusion matrices of the calibration, and labels that it works on, by every thread"] = (
        n_threads * (rounds + 12 * 8 * PIECE_CELLS)
    )
    parts["pairs of labels, to find workers with the same mistakes"] = BYTES_OF_PAIR * min(
        sum(map(_count_label_pairs, groups)), MOST_LABEL_PAIRS
    )
    return MemoryPlan(
        "passes over the labels",
        parts,
        "Use fewer threads, merge labels, or raise cluster.memory_limit.",
        passes.client_parts,
    )


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
        Blocks that are counted together.
    n_workers, n_classes, n_threads
        Number of workers, of classes and of threads of a worker of the cluster.
    n_label_pairs
        Number of pairs of labels of the same task, which bounds the pairs of workers that share one; None if it is not
        known.
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


def join_plans(first: MemoryPlan, *others: MemoryPlan) -> MemoryPlan:
    """Plan the memory of what is done at once; the first names it."""
    parts: dict[str, int] = {}
    client_parts: dict[str, int] = {}
    for plan in (first, *others):
        parts |= plan.parts
        client_parts |= plan.client_parts
    return MemoryPlan(first.stage, parts, first.remedy, client_parts)


def _weigh_pair(n_classes: int) -> int:
    """Bytes of the counts, or of the marginal, of one pair of workers."""
    return 8 * n_classes**2 + 24


def _weigh_group(groups: Sequence[Sequence[BlockReference]]) -> int:
    """Bytes of the largest group as it is read, joined and cut, and of what is made of each of its labels."""
    return max(
        (sum(3 * b.nbytes + 24 * b.n_observed for b in group) for group in groups), default=0
    )


def _count_rows(group: Sequence[BlockReference]) -> int:
    return sum(block.n_rows for block in group)


def _count_label_pairs(group: Sequence[BlockReference]) -> int:
    """Pairs of labels of the same task, where tasks of a block have as many labels."""
    return sum(block.n_observed**2 // max(2 * block.n_rows, 1) for block in group)
