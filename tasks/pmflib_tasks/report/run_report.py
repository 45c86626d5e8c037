"""All that the page of a run says, gathered from its store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from pmflib.core.errors import StoreError
from pmflib.crowd.pipeline.summaries import LabelSummary
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.store.artefacts import SOURCE, Store
from pmflib.store.lineage import list_collected_runs, trace
from pmflib.store.run_records import RunRecord, list_records
from pmflib_tasks.gate_decision import OF_WEIGHTED, GateNumbers
from pmflib_tasks.guards.findings import Finding, find_recorded
from pmflib_tasks.guards.run_differences import RunDifference, compare_runs
from pmflib_tasks.report.data_report import DataReport, gather_data
from pmflib_tasks.report.label_report import LabelReport, gather_labels
from pmflib_tasks.report.model_report import ModelReport, ScoreReport, gather_model, gather_scores

T = TypeVar("T")

RUNS_LISTED = 15
"""Runs of the history that are listed, up to the one reported on."""
PARTS = ("spill", "spill-list", "cuts", "samples", "census")
"""Kinds of artefacts that are parts of a dataset, which may have thousands: they are counted."""
REPORTED = ("run", "labels")
"""What a record may be of for a report of it: a run, of a pipeline or of one for label logs."""
STAGES = ("model", "labels", "start", "counts", "dataset")
"""Stages whose artefact the lineage starts at: the last one that was reached."""


@dataclass(frozen=True)
class LineageStep:
    """One artefact on the way from the model back to the raw files.

    Parameters
    ----------
    depth
        Steps back from the model.
    kind, digest, name
        The artefact; the name of a raw file, else "".
    note
        Whether it was collected or erased.
    """

    depth: int
    kind: str
    digest: str
    name: str
    note: str


@dataclass(frozen=True, eq=False)
class RunReport:
    """What the page of a run says; parts that are None could not be gathered, and ``missing`` says why.

    Parameters
    ----------
    pipeline
        Name of the pipeline.
    record
        The run.
    history
        Runs up to this one, the newest first.
    later
        Records after this one: of runs, and of commands that changed what is live.
    is_live
        Whether its model answers questions now.
    data, model, scores
        What came in, what was learnt, how good it is.
    labels
        What was found in a label log, in place of a model.
    before, changes
        The last run before that reached its end, and what differs from it.
    lineage, n_parts
        Artefacts that the model was made from, and how many more are parts of a dataset.
    missing
        Sentences: what is not shown, and why.
    """

    pipeline: str
    record: RunRecord
    history: list[RunRecord]
    later: list[RunRecord]
    is_live: bool
    data: DataReport
    model: ModelReport | None
    scores: ScoreReport | None
    labels: LabelReport | None
    before: RunRecord | None
    changes: RunDifference | None
    lineage: list[LineageStep]
    n_parts: int
    missing: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """What guards of quality found."""
        return find_recorded(self.record.facts)

    @property
    def crossed(self) -> list[Finding]:
        """Findings that crossed a limit."""
        return [each for each in self.findings if not each.passed]

    @property
    def gate(self) -> GateNumbers:
        """What the gate found."""
        return GateNumbers.find(self.record.facts)

    @property
    def gate_note(self) -> str:
        """What the errors of the gate's gains allow for, where samples have weights; "" where nothing is to be said."""
        rows: Any = self.record.facts.get("rows") or {}
        return OF_WEIGHTED if self.gate.assessed and rows.get("weights") else ""

    @property
    def seconds(self) -> float:
        """Seconds from the start of the run to its end."""
        ends = [datetime.fromisoformat(each) for each in (self.record.started, self.record.ended)]
        return (ends[1] - ends[0]).total_seconds()


def gather_report(store: Store, pipeline: str, number: int) -> RunReport:
    """Gather what the page of a run says.

    Parameters
    ----------
    store
        The store.
    pipeline
        Name of the history: of the pipeline, or of its labels.
    number
        Number of the run.

    Returns
    -------
    The report. Of a run that failed or was held back, what it had reached; of artefacts that were collected or erased,
    why they are not shown.

    Raises
    ------
    StoreError
        If a record is damaged, or there is no such run.
    """
    records = list_records(store, pipeline)
    record = next((each for each in records if each.number == number), None)
    if record is None or record.action not in REPORTED:
        raise StoreError(
            f"record {number} of pipeline {pipeline!r} is no run; `pmf history` lists the runs that there are"
        )
    missing: list[str] = []
    collected = list_collected_runs(store).get(pipeline, set())
    why = " (`pmf gc` has collected what this run made)" if number in collected else ""

    def attempt(what: str, gather: Callable[[], T]) -> T | None:
        try:
            return gather()
        except StoreError as error:
            missing.append(f"{what}: {error}{why}")
            return None

    facts, stages, rows = record.facts, record.stages, DatasetAccount.find(record.facts)
    data = attempt("data", lambda: gather_data(store, stages, record.inputs, rows))
    model = None
    if data is not None and {"model", "counts"} <= stages.keys():
        support, levels = data.support, data.level_counts
        model = attempt("model", lambda: gather_model(store, stages, facts, levels, support))
    scores = None
    if "scores" in stages:
        scores = attempt("scores", lambda: gather_scores(store, stages["scores"], record))
        if scores is None and record.scores.get("hidden_cells"):
            missing.append("scores: an earlier version of pmf made them; run the pipeline again")
    labels = None
    made = store.find(stages["labels"].identity) if "labels" in stages else None
    named = facts if made is None else {**facts, **made.summary}
    if "labels" in stages and (summary := LabelSummary.find(named)) is not None:
        labels = attempt("labels", partial(gather_labels, store, stages["labels"], summary))
    earlier = [each for each in records if each.number < number and each.action in REPORTED]
    before = next((each for each in reversed(earlier) if each.is_complete), None)
    changes = None
    if before is not None and record.action == "run":
        changes = attempt(
            "changes",
            lambda: compare_runs(store, before, record, collected=collected, most_pairs=10),
        )
    steps, n_parts = attempt("lineage", lambda: _list_lineage(store, record)) or ([], 0)
    live = records[-1].live
    return RunReport(
        pipeline,
        record,
        [record, *reversed(earlier)][:RUNS_LISTED],
        [each for each in records if each.number > number],
        live is not None
        and (stages.get("model") == live or (record.outcome, record.live) == ("unchanged", live)),
        DataReport(record.inputs, rows, {}) if data is None else data,
        model,
        scores,
        labels,
        before,
        changes,
        steps,
        n_parts,
        missing,
    )


def choose_run(records: Sequence[RunRecord]) -> RunRecord | None:
    """Run that a report is of by default: the last one, however it ended; None if there is none."""
    return next((each for each in reversed(records) if each.action in REPORTED), None)


def _list_lineage(store: Store, record: RunRecord) -> tuple[list[LineageStep], int]:
    """Artefacts from the last stage back to the raw files, without parts of a dataset, and how many these are."""
    start = next((record.stages[each] for each in STAGES if each in record.stages), None)
    if start is None:
        return [], 0
    found: list[LineageStep] = []
    n_parts = 0
    for step in trace(store, start):
        if step.again:
            continue
        if step.reference.kind in PARTS:
            n_parts += 1
            continue
        name = str(step.entry.options.get("name", "")) if step.entry is not None else ""
        gone = "" if step.entry is not None else "collected"
        found.append(
            LineageStep(
                step.depth,
                "raw file" if step.reference.kind == SOURCE else step.reference.kind,
                step.reference.digest,
                name,
                "erased" if step.erased else gone,
            )
        )
    return found, n_parts
