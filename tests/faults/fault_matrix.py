"""What was done to runs, and how they ended: the matrix that a test run prints."""

from __future__ import annotations

from collections import Counter, defaultdict

FAULTS_SEEN: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
"""Exit codes of disturbed runs, by fault and by what was being written."""


def note_fault(kind: str, night: str, being_written: str, code: int) -> None:
    """Keep the outcome of a fault after which the same command ended with the same bits."""
    FAULTS_SEEN[f"{kind}, {night} night", being_written][code] += 1


def write_matrix() -> list[str]:
    """Lines of a Markdown table."""
    lines = ["| fault | while writing | exit code of the disturbed run: times |", "|---|---|---|"]
    for (kind, being_written), codes in sorted(FAULTS_SEEN.items()):
        outcome = ", ".join(f"{code}: {times}" for code, times in sorted(codes.items()))
        lines.append(f"| {kind} | {being_written} | {outcome} |")
    return lines
