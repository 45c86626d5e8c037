"""Report of a run: its content, gathered from the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar

from pmflib.base.errors import StoreError
from pmflib.store.artefacts import SOURCE, Store
from pmflib.store.lineage import list_collected_runs, trace
from pmflib.store.run_records import RunRecord, list_records
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.features import FEATURES
from pmflib_tasks.gate.gate_decision import GateNumbers
from pmflib_tasks.gate.run_differences import RunDifference, compare_runs
from pmflib_tasks.guards.findings import Finding
from pmflib_tasks.report.data_report import DataReport, gather_data
from pmflib_tasks.report.model_report import ModelReport, ScoreReport, gather_model, gather_scores
from pmflib_tasks.sections import ReportPart, Section, list_sections

T = TypeVar("T")

RUNS_LISTED = 15
"""Maximum number of runs listed, up to the reported one."""
PARTS = ("spill", "spill-list", "cuts", "samples", "census")
"""Kinds of artefacts that are parts of a dataset; there may be thousands, which are only counted."""
REPORTED = ("run", "labels")
"""Actions that have a report: runs of a pipeline, and of a label log."""
STAGES = ("model", "labels", "start", "counts", "dataset")
"""Stages at whose artefact the lineage may start; the first one reached is used."""


@dataclass(frozen=True)
class LineageStep:
    """An artefact between the model and the raw files.

    Parameters
    ----------
    depth
        Number of steps from the model.
    kind, digest, name
        The artefact; ``name`` is empty except for raw files.
    note
        Whether it was collected or erased, in a word.
    """

    depth: int
    kind: str
    digest: str
    name: str
    note: str


@dataclass(frozen=True, eq=False)
class RunReport:
    """Content of the report of a run; parts that could not be gathered are None, and ``missing`` has the reasons.

    Parameters
    ----------
    pipeline
        Name of the pipeline.
    record
        The run.
    history
        Runs up to this one, the newest first.
    later
        Later records: of runs, and of commands that changed the live model.
    is_live
        Whether its model is the live one.
    data, model, scores
        Data, model, and scores of the model.
    parts
        What features add.
    before, changes
        The last complete run before, and the differences from it.
    lineage, n_parts
        Artefacts behind the model, and the number of further ones that are parts of a dataset.
    missing
        Sentences that name what is not shown, with reasons.
    """

    pipeline: str
    record: RunRecord
    history: list[RunRecord]
    later: list[RunRecord]
    is_live: bool
    data: DataReport
    model: ModelReport | None
    scores: ScoreReport | None
    parts: list[ReportPart]
    before: RunRecord | None
    changes: RunDifference | None
    lineage: list[LineageStep]
    n_parts: int
    missing: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """Findings of the guards."""
        return RunFacts(self.record.facts).findings

    @property
    def crossed(self) -> list[Finding]:
        """Findings beyond a limit."""
        return [each for each in self.findings if not each.passed]

    @property
    def gate(self) -> GateNumbers:
        """Results of the gate."""
        return RunFacts(self.record.facts).gate

    @property
    def sections(self) -> list[Section]:
        """What the run has to say, and what features add to it."""
        facts = {**self.record.facts, "outcome": self.record.outcome}
        if self.model is not None:
            facts["model"] = self.model.summary
        own = [section for part in self.parts for section in part.sections]
        return [*list_sections(facts), *own]

    @property
    def seconds(self) -> float:
        """Duration of the run, seconds."""
        ends = [datetime.fromisoformat(each) for each in (self.record.started, self.record.ended)]
        return (ends[1] - ends[0]).total_seconds()


def gather_report(store: Store, pipeline: str, number: int) -> RunReport:
    """Gather the report of a run.

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
    The report; for a run that failed or was held back, of the stages that it reached. For artefacts that were collected
    or erased, it has the reasons why they are not shown.

    Raises
    ------
    StoreError
        If a record is damaged, or the run does not exist.
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

    facts, stages = RunFacts(record.facts), record.stages
    rows = facts.account
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
    gathered = [
        attempt(feature.name, partial(feature.report.load(), store, record))
        for feature in FEATURES
        if feature.report is not None
    ]
    parts: list[ReportPart] = [part for part in gathered if part is not None]
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
        parts,
        before,
        changes,
        steps,
        n_parts,
        missing,
    )


def choose_run(records: Sequence[RunRecord]) -> RunRecord | None:
    """Choose the run that is reported on by default: the last one, however it ended; None if there is none."""
    return next((each for each in reversed(records) if each.action in REPORTED), None)


def _list_lineage(store: Store, record: RunRecord) -> tuple[list[LineageStep], int]:
    """List the artefacts from the last stage to the raw files without parts of a dataset, and count these parts."""
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
