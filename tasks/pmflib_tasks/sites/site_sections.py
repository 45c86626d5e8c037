"""What a run says of counts of other sites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pmflib_tasks.sections import Section


def describe_sites(facts: Mapping[str, Any]) -> Iterator[Section]:
    """List the sites whose counts the model of a run was fitted to."""
    if sites := (facts.get("model") or {}).get("sites"):
        rows = [
            (f"counts of {name}", site["rows"], site["minimum"]) for name, site in sites.items()
        ]
        yield Section.of_values("data", "Other sites", ("what", "rows", "minimum"), rows)
