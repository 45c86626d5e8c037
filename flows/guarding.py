"""Guards of quality in a flow: what they find goes to the record of the run, and may hold it back."""

from __future__ import annotations

from dataclasses import asdict

from flows.recording import RunDraft
from pmflib.config import PipelineConfig
from pmflib.quality.row_guards import check_reason
from pmflib.quality.verdict import accept, condense, hold_back, refuse_empty
from pmflib.store.artefacts import Reference
from pmflib.store.run_records import find_last_run, find_run_of
from tasks.quality import check_quality, read_findings
from tasks.stage import open_store


def hold_back_undecodable(config: PipelineConfig, dataset: Reference) -> None:
    """Hold a label log back whose rows are not in its encoding, so far as the guard of that reason does not allow it.

    Raises
    ------
    QualityError
        If there are too many such rows.
    """
    entry = open_store(config).find(dataset.identity)
    if entry is not None:
        hold_back([check_reason("undecodable", entry.summary, config.quality)])


def guard(config: PipelineConfig, run: RunDraft, *, accepted: bool) -> None:
    """Run the guards on the dataset and the counts of a run.

    Parameters
    ----------
    config
        The pipeline.
    run
        Run under way; its facts get the findings.
    accepted
        Whether the run goes on whatever guards say.

    Raises
    ------
    SourceError
        If there is nothing to learn from: this is never accepted.
    QualityError
        If a guard holds the run back.
    """
    store, stages = open_store(config), run.stages
    live_run = None if run.live is None else find_run_of(store, config.name, run.live)
    stages["quality"] = check_quality(
        config, stages["dataset"], stages["counts"], live_run, find_last_run(store, config.name)
    )
    findings = read_findings(config, stages["quality"])
    if accepted:
        findings = accept(findings)
    run.facts["quality"] = [asdict(each) for each in condense(findings)]
    entry = store.find(stages["dataset"].identity)
    refuse_empty({} if entry is None else entry.summary)
    hold_back(findings)
