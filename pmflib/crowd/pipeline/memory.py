"""Memory of the stages of label logs, computed before they run."""

from __future__ import annotations

from collections.abc import Sequence

from pmflib.counting.worker_pair_counts import GROWTH, MEETINGS
from pmflib.crowd.pipeline.block_groups import MOST_CELLS
from pmflib.em.memory import plan_em
from pmflib.running.memory_plan import MemoryPlan
from pmflib.store.sample_blocks import BlockReference

BLOCK_COPIES = {"multispa": 7, "robust": 9, "equal_weights": 9, "symnmf": 18}
"""Times that a method has the blocks of all pairs in memory at once, itself and the counts; measured."""
TABLE_COPIES = {"designated": 23, "one_pair": 9, "cnmf": 9}
"""Times that a method has one dense matrix of all pairs in memory at once; measured."""


def plan_label_passes(
    groups: Sequence[Sequence[BlockReference]],
    n_workers: int,
    n_classes: int,
    n_threads: int,
    *,
    n_kinds: int = 1,
) -> MemoryPlan:
    """Memory of passes over a label log that is read again each time, and of labelling it.

    Parameters
    ----------
    groups
        Blocks that are worked on together.
    n_workers, n_classes, n_threads
        Sizes.
    n_kinds
        Kinds of tasks of every class.
    """
    parts = dict(plan_em(n_workers * n_classes, n_kinds * n_classes, n_threads).parts)
    n_rows = min(max(map(_count_rows, groups), default=0), max(1, MOST_CELLS // n_classes))
    parts["answers of a group of tasks, by every thread"] = n_threads * _weigh_group(groups)
    # at worst every task is a stratum of its own; weights of strata, and what is made of them
    table = 8 * n_kinds * n_classes * n_rows
    parts[f"votes of {n_rows:,} tasks and their strata, by every thread"] = n_threads * 7 * table
    return MemoryPlan(
        "passes over the answers",
        parts,
        "Use fewer threads, merge labels, or raise cluster.memory_limit.",
    )


def plan_worker_counts(
    groups: Sequence[Sequence[BlockReference]],
    n_workers: int,
    n_classes: int,
    n_threads: int,
    n_meetings: int | None = None,
) -> MemoryPlan:
    """Memory of counting the pairs of workers who share tasks.

    Parameters
    ----------
    groups
        Blocks that are counted together.
    n_workers, n_classes, n_threads
        Sizes.
    n_meetings
        Pairs of answers to the same task, which bound the pairs of workers that share one; None if it is not known.
    """
    n_pairs = n_workers * (n_workers - 1) // 2
    if n_meetings is not None:
        n_pairs = min(n_pairs, n_meetings)
    counts = n_pairs * _weigh_pair(n_classes)
    sorted_at_once = max(MEETINGS, GROWTH * n_pairs)
    if n_meetings is not None:
        sorted_at_once = min(sorted_at_once, n_meetings)
    return MemoryPlan(
        "counting pairs of workers",
        {
            f"counts of up to {n_pairs:,} pairs of {n_workers:,} workers, {n_classes} x {n_classes} answers each": (
                3 * n_threads + 2
            )
            * counts,
            "pairs of answers to be sorted, by every thread": n_threads * 40 * sorted_at_once,
            "answers of a group of tasks, by every thread": n_threads * _weigh_group(groups),
        },
        "Use fewer threads, raise cluster.memory_limit, leave out workers with few answers, or set crowd.method to one "
        "that passes over the tasks: 'auto'.",
    )


def plan_moments(method: str, n_pairs: int, n_workers: int, n_classes: int) -> MemoryPlan:
    """Memory of finding annotators from the pairs of workers, on one machine.

    Parameters
    ----------
    method
        Of `fit_pairs`.
    n_pairs, n_workers, n_classes
        Sizes.
    """
    copies = BLOCK_COPIES.get(method, BLOCK_COPIES["symnmf"])
    parts = {
        f"blocks of {n_pairs:,} pairs of workers, {n_classes} x {n_classes} answers each": copies
        * n_pairs
        * _weigh_pair(n_classes)
    }
    remedy = "Raise cluster.memory_limit, leave out workers with few answers, or set crowd.method to 'auto'"
    if method in TABLE_COPIES:
        n_levels = n_workers * n_classes
        parts[f"matrices of {n_levels:,} x {n_levels:,} levels"] = (
            8 * TABLE_COPIES[method] * n_levels**2
        )
        remedy += ", or to 'robust'"
    return MemoryPlan("annotators from pairs", parts, f"{remedy}.")


def _weigh_pair(n_classes: int) -> int:
    """Bytes of the counts, or the marginal, of one pair of workers."""
    return 8 * n_classes**2 + 24


def _weigh_group(groups: Sequence[Sequence[BlockReference]]) -> int:
    """Bytes of the largest group as it is read, joined and cut, and of what is made of each of its answers."""
    return max(
        (sum(3 * b.nbytes + 24 * b.n_observed for b in group) for group in groups), default=0
    )


def _count_rows(group: Sequence[BlockReference]) -> int:
    return sum(block.n_rows for block in group)
