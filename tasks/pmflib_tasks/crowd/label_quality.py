"""Stage: guards of a label log, before its workers are modelled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.apps.crowd.stored.label_changes import count_new_pairs
from pmflib.apps.crowd.stored.log_names import check_label_schema
from pmflib.base.display.progress import report_progress
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import RunRecord
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.crowd.label_guards import (
    LabelFile,
    join_names,
    measure_agreement,
    measure_label_files,
    measure_worker_names,
    read_label_files,
)
from pmflib_tasks.guards.file_ledger import measure_losses
from pmflib_tasks.guards.findings import Measurement, assess, summarise
from pmflib_tasks.guards.row_guards import Changes
from pmflib_tasks.guards.stored_checks import FINDINGS, check_dataset_times, measure_files
from pmflib_tasks.guards.time_guards import Clock
from pmflib_tasks.stage import build_artefact, load_schema, open_store, stage

VERSION = 5  # forms and spellings of identifiers


@stage(name="quality", makes="quality")
def check_label_quality(
    config: PipelineConfig,
    dataset: Reference,
    last_run: RunRecord | None,
    clock: datetime | None = None,
) -> Reference:
    """Run every guard of label logs; the flow decides what follows from the findings.

    Parameters
    ----------
    config
        The pipeline.
    dataset
        Reference from `ingest`.
    last_run
        Last run that reached its end; None if there is none.
    clock
        The current time; by default that of this machine.

    Returns
    -------
    Reference to all findings, which `pmflib_tasks.guards.quality.read_findings` reads.
    """
    store, schema = open_store(config), check_label_schema(load_schema(config))
    last = None if last_run is None else last_run.stages["dataset"]
    if last is not None and store.find(last.identity) is None:
        last = None
    ended = None if last_run is None else datetime.fromisoformat(last_run.ended)
    times = check_dataset_times(
        store,
        config.quality,
        Clock(clock or datetime.now(UTC), ended),
        now={"dataset": dataset},
        last=None if last is None else {"dataset": last},
    )

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        report_progress("quality", 0, 1)
        measured, changes = measure_files(store, config.quality, dataset, last)
        if changes.new:
            files = read_label_files(store, dataset, schema)
            before = [] if last is None else read_label_files(store, last, schema)
            measured += measure_worker_names(files, before, schema.names)
            if last is not None:
                measured += _measure_losses(config, store, dataset, last, changes)
                measured += _compare(config, store, (dataset, last), schema, (files, before))
        findings = times + assess(measured, config.quality)
        content = json.dumps([asdict(each) for each in findings], indent=1, ensure_ascii=False)
        (folder / FINDINGS).write_text(content, "utf-8")
        summary = summarise(findings)
        passed = f"{summary['passed']:,} of {len(findings):,} checks passed"
        report_progress("quality", 1, 1, passed)
        return summary

    return build_artefact(
        store,
        "quality",
        inputs={"dataset": dataset} | ({} if last is None else {"last dataset": last}),
        options={
            "schema": schema.digest,
            "layout": "labels",
            "quality": config.quality.model_dump(mode="json"),
            # what passes does not depend on the clock
            "times": [asdict(each) for each in times if not each.passed],
        },
        version=VERSION,
        write=write,
    ).reference


def _measure_losses(
    config: PipelineConfig, store: Store, dataset: Reference, last: Reference, changes: Changes
) -> list[Measurement]:
    """Measure the labels that changed files have lost."""
    if config.quality.removals_expected:
        return []
    both = join_names(store, (dataset, last))
    return [*measure_losses(store, dataset, last, changes, both, config.source.layout)]


def _compare(
    config: PipelineConfig,
    store: Store,
    datasets: tuple[Reference, Reference],
    schema: Schema,
    both: tuple[list[LabelFile], list[LabelFile]],
) -> list[Measurement]:
    """Measure new labels against those of the last run: datasets and files of this run, and of the last."""
    (dataset, last), (files, before) = datasets, both
    entry = store.find(dataset.identity)
    account = DatasetAccount.from_json({} if entry is None else entry.summary)
    per_task = max(account.observed / max(account.samples, 1), 1.0)
    found = count_new_pairs(store, dataset, last, schema)
    usual = {"pairs": found.pairs, "agreeing": found.agreeing}
    earlier = np.sum([file.given.sum(axis=1) for file in before], axis=0)
    return [
        *measure_label_files(files, before, schema, per_task, config.quality),
        *measure_agreement(found.new, found.n_tasks, usual, schema.names, earlier == 0),
    ]
