"""What a run says of known margins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pmflib_tasks.sections import Section
from pmflib_tasks.wording import as_percent


def describe_margins(facts: Mapping[str, Any]) -> Iterator[Section]:
    """Compare the shares of levels in the population, among the samples, and after raking."""
    found = (facts.get("rows") or {}).get("raking")
    if not found:
        return
    low, high = found["factors"]
    columns = ("level", ">in the population", ">in the samples", ">after raking")
    rows = [
        (name, *(as_percent(share, 1) for share in shares)) for name, *shares in found["levels"]
    ]
    title = "Known margins: shares among the samples with a value"
    raked = f"weights were raked by factors from {low:.3f} to {high:.3f} times the mean factor"
    yield Section.of_texts("data", title, columns, rows, raked)
