"""Memory that a stage needs, planned before it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from pmflib.errors import MemoryPlanError


@dataclass(frozen=True)
class MemoryPlan:
    """Memory that a stage holds at once, in a worker and in the client.

    Parameters
    ----------
    stage
        Name of the stage, for messages.
    parts
        Bytes by purpose, in a worker.
    remedy
        Sentences on what a user can change.
    client_parts
        Bytes by purpose, in the client, which has them in memory of its own unless it is the worker as well.
    """

    stage: str
    parts: dict[str, int]
    remedy: str
    client_parts: dict[str, int] = field(default_factory=dict)

    @property
    def needed(self) -> int:
        """Total of a worker in bytes."""
        return sum(self.parts.values())

    def join_client(self) -> MemoryPlan:
        """The same for a worker that is the client: it holds the parts of both."""
        return MemoryPlan(self.stage, self.parts | self.client_parts, self.remedy)

    def take_larger(self, other: MemoryPlan) -> MemoryPlan:
        """The same for two steps, one after the other: of the worker and of the client the larger part each."""
        first, second = (self, other) if self.needed >= other.needed else (other, self)
        ours, theirs = (sum(each.client_parts.values()) for each in (first, second))
        client = first.client_parts if ours >= theirs else second.client_parts
        return MemoryPlan(first.stage, first.parts, first.remedy, client)

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


def format_bytes(n: int) -> str:
    """Write a number of bytes with its binary unit: 1.5 GiB."""
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
