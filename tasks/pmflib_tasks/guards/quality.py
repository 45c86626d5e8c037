"""Stage: guards of quality, after counting and before fitting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pmflib.base.display.progress import report_progress
from pmflib.store.artefacts import Reference, Store
from pmflib.store.file_digests import read_checked
from pmflib.store.run_records import RunRecord
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.guard_limits import GuardLimits
from pmflib_tasks.guards.findings import Finding, summarise
from pmflib_tasks.guards.stored_checks import (
    FINDINGS,
    check_dataset,
    check_dataset_times,
    read_nights,
    write_checks,
)
from pmflib_tasks.guards.time_guards import Clock
from pmflib_tasks.stage import build_artefact, load_schema, open_store, stage

VERSION = 6
COMPARED = ("dataset", "counts")
"""Stages of earlier runs that are used for comparison."""


@stage(name="quality", makes="quality")
def check_quality(
    config: PipelineConfig,
    dataset: Reference,
    counts: Reference,
    live_run: RunRecord | None,
    last_run: RunRecord | None,
    clock: datetime | None = None,
) -> Reference:
    """Run every guard on a dataset; the flow decides what follows from the findings.

    Parameters
    ----------
    config
        The pipeline.
    dataset, counts
        References from `ingest` and `count`.
    live_run
        The run that made the live model; None if there is none.
    last_run
        The last run that reached its end; None if there is none.
    clock
        The current time; by default that of this machine.

    Returns
    -------
    Reference to all findings.

    Raises
    ------
    StoreError
        If an artefact of one of the runs is missing or damaged.
    """
    store, schema = open_store(config), load_schema(config)
    now = {"dataset": dataset, "counts": counts}
    live, last = _find_stages(store, live_run), _find_stages(store, last_run)
    inputs = {
        f"{role} {name}".strip(): reference
        for role, stages in (("", now), ("live", live), ("last", last))
        for name, reference in (stages or {}).items()
    }
    history = read_nights(store, last_run.stages.get("quality") if last_run and last else None)
    hour = Clock(
        clock or datetime.now(UTC),
        None if last_run is None else datetime.fromisoformat(last_run.ended),
    )
    times = check_dataset_times(store, config.quality, hour, now=now, last=last)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        report_progress("quality", 0, 1)
        layout, limits = config.source.layout, config.quality
        if config.schema_.on_duplicate == "first":
            limits = limits.model_copy(update={"superseded_rows": GuardLimits()})
        findings, nights = check_dataset(
            store, schema, layout, limits, now=now, last=last, live=live, history=history
        )
        findings = times + findings
        write_checks(folder, findings, nights)
        summary = summarise(findings)
        said = f"{summary['passed']:,} of {len(findings):,} checks passed"
        report_progress("quality", 1, 1, said)
        return summary

    return build_artefact(
        store,
        "quality",
        inputs=inputs,
        options={
            "schema": schema.digest,
            "layout": config.source.layout,
            "quality": config.quality.model_dump(mode="json"),
            "nights": [asdict(night) for night in history],
            # what passes does not depend on the clock
            "times": [asdict(each) for each in times if not each.passed],
        },
        version=VERSION,
        write=write,
    ).reference


def read_findings(config: PipelineConfig, quality: Reference) -> list[Finding]:
    """Read the findings of `check_quality`."""
    text = read_checked(open_store(config).locate(quality) / FINDINGS).decode("utf-8")
    return [Finding(**{**each, "named": tuple(each["named"])}) for each in json.loads(text)]


def _find_stages(store: Store, run: RunRecord | None) -> dict[str, Reference] | None:
    """Find the stages of a run to compare with; None if the store no longer has them."""
    if run is None or not set(COMPARED) <= set(run.stages):
        return None
    stages = {name: run.stages[name] for name in COMPARED}
    return stages if all(store.find(each.identity) for each in stages.values()) else None
