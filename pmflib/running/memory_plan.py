"""Plans made before anything runs: which blocks go together, and whether it all fits in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pmflib.errors import MemoryPlanError
from pmflib.store.sample_blocks import BLOCK_BYTES, BlockReference

FAN_IN = 8
"""Partial results merged at a time."""

MIN_GROUP = 1 << 22
MAX_GROUP = 1 << 26
"""Observed cells in a group of blocks, one Dask task: from about ten milliseconds of work to about a second. A task
costs Dask one to three milliseconds."""
WANTED_GROUPS = 64
COUNTING = 4
"""Coarseness of groups that are counted: that is quicker than an EM pass, and several folds are counted at a time."""
BLOCK_COST = 1 << 15
"""What opening a block costs, in observed cells: many small blocks are work too."""


def group_blocks(
    blocks: Sequence[BlockReference], coarseness: int = 1
) -> list[list[BlockReference]]:
    """Put consecutive blocks together until a group is worth a task.

    The groups depend on the blocks alone, never on the workers: floating-point sums over them are the same bits
    wherever they run.

    Parameters
    ----------
    blocks
        In the order of the dataset.
    coarseness
        How many times larger groups may be than those of an EM pass.

    Returns
    -------
    Groups in order; none for no blocks.
    """
    total = sum(block.n_observed + BLOCK_COST for block in blocks)
    target = min(MAX_GROUP, max(MIN_GROUP, total // WANTED_GROUPS) * coarseness)
    groups: list[list[BlockReference]] = []
    filled = target
    for block in blocks:
        if filled >= target:
            groups.append([])
            filled = 0
        groups[-1].append(block)
        filled += block.n_observed + BLOCK_COST
    return groups


@dataclass(frozen=True)
class MemoryPlan:
    """What a stage will hold at once.

    Parameters
    ----------
    stage
        For messages.
    parts
        Bytes by what they are for.
    remedy
        What a person can change.
    """

    stage: str
    parts: dict[str, int]
    remedy: str

    @property
    def needed(self) -> int:
        """Bytes in all."""
        return sum(self.parts.values())

    def check(self, limit: int) -> None:
        """Refuse a plan that does not fit.

        Parameters
        ----------
        limit
            Bytes that may be used.

        Raises
        ------
        MemoryPlanError
            With both numbers, what takes most, and a remedy.
        """
        if self.needed > limit:
            worst = max(self.parts, key=self.parts.__getitem__)
            raise MemoryPlanError(
                f"{self.stage} would need {format_bytes(self.needed)}, above the {format_bytes(limit)} it may use; "
                f"most of it ({format_bytes(self.parts[worst])}) is {worst}. {self.remedy}"
            )


def plan_counting(n_levels: int, n_threads: int) -> MemoryPlan:
    """Memory of counting pairs: independent of the number of samples."""
    table = 8 * n_levels * n_levels
    return MemoryPlan(
        "counting pairs",
        {
            # a kernel adds int32 sums, half a table, up beside its table
            f"count tables of {n_levels} x {n_levels} levels, one per thread": n_threads
            * table
            * 3
            // 2,
            f"count tables waiting to be merged, {FAN_IN} at a time": (FAN_IN + 2) * table,
            "sample blocks, bit planes and tiles": n_threads * (6 * BLOCK_BYTES + 2048 * n_levels),
        },
        "Leave variables out of the schema, merge levels, use fewer threads, or raise cluster.memory_limit.",
    )


def format_bytes(n: int) -> str:
    """Bytes for people: 1.5 GiB."""
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
