"""Section ``lineage`` of the configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pmflib.ingest.options import Section
from pmflib_tasks.feature import FeatureSection


class LineageConfig(Section, FeatureSection):
    """OpenLineage events: what each run read and wrote. Nothing here changes the results."""

    changes_results: ClassVar[bool] = False
    events: Literal["file", "client", "off"] = "file"
    """Destination of events: lineage/events.jsonl in the store; the destination configured for the OpenLineage client
    by openlineage.yml or OPENLINEAGE_URL (pip install pmflib[lineage]); or none.
    """
    namespace: Annotated[str, Field(min_length=1)] = "pmf"
    """Namespace of jobs and artefacts."""
