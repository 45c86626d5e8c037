"""Memory that a stage needs, planned before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from pmflib.em.row_tables import MAX_TABLE_BYTES
from pmflib.errors import MemoryPlanError
from pmflib.running.maps import FAN_IN
from pmflib.store.sample_blocks import BLOCK_BYTES


@dataclass(frozen=True)
class MemoryPlan:
    """Memory that a stage holds at once.

    Parameters
    ----------
    stage
        What needs the memory, for messages.
    parts
        Bytes by purpose.
    remedy
        Sentences on what a user can change.
    """

    stage: str
    parts: dict[str, int]
    remedy: str

    @property
    def needed(self) -> int:
        """Total in bytes."""
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


def plan_em(n_levels: int, rank: int, n_threads: int, n_models: int = 1) -> MemoryPlan:
    """Memory of EM passes, samples aside: they are read again in each pass where they do not fit.

    Models that run side by side take as much as one of their summed rank.
    """
    table = 8 * n_levels * rank * n_models
    several = f"{n_models} models of " if n_models > 1 else ""
    return MemoryPlan(
        "EM",
        {
            f"parameters of {several}{n_levels} levels x rank {rank} and their logarithms": 10
            * table,
            f"sufficient statistics, {FAN_IN} to merge by each thread": (n_threads + 1)
            * (FAN_IN + 2)
            * table,
            "scaled tables of every thread": n_threads * (4 * table + 2 * MAX_TABLE_BYTES),
            "sample blocks": n_threads * 4 * BLOCK_BYTES,
        },
        "Lower the rank, merge levels, use fewer threads, or raise cluster.memory_limit.",
    )


def format_bytes(n: int) -> str:
    """Write a number of bytes with its binary unit: 1.5 GiB."""
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
