"""What stages of a run have used, beside what was planned for it before: for its record, and for the next plan."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from pmflib.core.errors import PmfError
from pmflib.core.process_usage import ProcessUsage
from pmflib.store.artefacts import Store
from pmflib.store.run_records import RunRecord, find_last_run, list_records
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import load_schema
from pmflib_tasks.stage_events import StageRun

PLANNED_SECONDS = 2.0
"""Time of all stages from which a run is compared with its plan, seconds: to make the plan takes a part of one."""


class StageUsage:
    """What the stages of a run under way have used so far; it listens to them."""

    def __init__(self) -> None:
        self._client: dict[str, list[ProcessUsage]] = {}
        self._workers: dict[str, list[ProcessUsage]] = {}

    def note(self, stage: StageRun) -> None:
        """Add a run of a stage that has ended."""
        if stage.is_over:
            self._client.setdefault(stage.stage, []).append(stage.client)
            self._workers.setdefault(stage.stage, []).extend(stage.workers)

    def list_timings(self, seconds: Mapping[str, float]) -> list[dict[str, Any]]:
        """Section "timings" of the facts of a run.

        Parameters
        ----------
        seconds
            Time that each stage took.
        """
        found = []
        for stage, took in seconds.items():
            client, workers = (
                ProcessUsage.add(each.get(stage, ())) for each in (self._client, self._workers)
            )
            found.append(
                {
                    "stage": stage,
                    "seconds": took,
                    "processor_seconds": round(client.seconds + workers.seconds, 3),
                    "client_memory": client.peak_bytes,
                    "worker_memory": workers.peak_bytes,
                    "read_bytes": client.read_bytes + workers.read_bytes,
                    "written_bytes": client.written_bytes + workers.written_bytes,
                }
            )
        return found


def compare_with_plan(config: PipelineConfig, store: Store, record: RunRecord) -> RunRecord:
    """Add to the record of a run that is to be written what was planned for it, and what the next plan learns of it.

    The plan is that of a run from scratch, made of what was known before it. It is learnt from where all was done:
    in the first run of a pipeline. A run that did next to nothing hands on what was learnt.
    """
    facts = dict(record.facts)
    before = find_last_run(store, config.name)
    if before is not None and "learnt" in before.facts:
        facts["learnt"] = before.facts["learnt"]
    if sum(record.seconds.values()) >= PLANNED_SECONDS and record.is_complete:
        # a plan is no reason for a run to fail
        with suppress(PmfError, OSError):
            facts |= _compare(config, store, record, before)
    return replace(record, facts=facts)


def _compare(
    config: PipelineConfig, store: Store, record: RunRecord, before: RunRecord | None
) -> dict[str, object]:
    from pmflib_tasks.operations.planning.learning import learn, list_planned
    from pmflib_tasks.operations.planning.pipeline_sizes import (
        LastRun,
        measure_fit,
        measure_log,
        summarize_run,
    )
    from pmflib_tasks.operations.planning.sizes import ClusterSize
    from pmflib_tasks.operations.planning.speeds import Speeds
    from pmflib_tasks.operations.planning.whole_run import RunPlan

    schema = load_schema(config)
    cluster = ClusterSize.of_run(config.cluster)

    def plan(last: LastRun) -> RunPlan:
        log, _ = measure_log(config, schema, last)
        fit, _ = measure_fit(config, schema, last)
        return RunPlan(log, fit, cluster, known.apply(Speeds()))

    if before is None:
        last = LastRun()
    else:
        earlier = [each.facts for each in list_records(store, config.name)]
        last = summarize_run(store, before, earlier)
    known = last.learnt
    planned = {stage: asdict(each) for stage, each in list_planned(plan(last)).items()}
    found: dict[str, object] = {"planned": planned}
    timings: Any = record.facts["timings"]
    if before is None and not config.cluster.address:
        found["learnt"] = learn(plan(summarize_run(store, record)), timings, known).to_json()
    return found
