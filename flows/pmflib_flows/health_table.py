"""Lines of an examination as aligned text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from pmflib.core.texts import show_text
from pmflib_tasks.operations.doctor import HealthLine

STYLES = {"ok": "green", "warn": "yellow", "FAIL": "bold red"}


def list_lines(lines: Sequence[HealthLine]) -> list[Text]:
    """One text a line: state, what, found, and the remedy after an arrow."""
    width = max(len(line.what) for line in lines)
    texts = []
    for line in lines:
        text = Text(f"{line.state:4}", style=STYLES[line.state])
        said = show_text(f"  {line.what:{width}}  {line.found}")
        if line.remedy:
            said += show_text(f"  -> {line.remedy}")
        texts.append(text.append(said, style="default"))
    return texts


def sum_up(lines: Sequence[HealthLine]) -> str:
    """Sentence on how many lines there are of each state."""
    n_failed, n_warned = (sum(line.state == state for line in lines) for state in ("FAIL", "warn"))
    if not n_failed and not n_warned:
        return f"All {len(lines)} checks are fine."
    return f"{len(lines)} checks: {n_failed} failed, {n_warned} warnings."
