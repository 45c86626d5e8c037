"""OpenLineage events of a run and of its stages, in the order in which they happen, and their facets.

Every facet names its own schema: https://openlineage.io/docs/spec/facets. Raw files are named by where they are,
artefacts by pipeline and kind.
"""

from __future__ import annotations

import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any, Literal

from pmflib.core.errors import PmfError, SourceError, StoreError
from pmflib.core.texts import mask_secrets
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.ingest.sources import find_sources
from pmflib.store.artefacts import SOURCE, Entry, Reference, Store
from pmflib.store.dataset import list_sources
from pmflib.store.run_records import InputFile
from pmflib_tasks.guards.findings import Finding, find_recorded

Facet = dict[str, Any]
Dataset = dict[str, Any]
Event = dict[str, Any]
State = Literal["START", "COMPLETE", "FAIL", "ABORT"]

PRODUCER = f"urn:pmflib:{version('pmflib')}"
"""URI of what makes the events."""
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
"""Schema of an event."""
_PARTS = ("spill", "spill-list", "cuts", "samples", "census")
"""Kinds of artefacts that are part of a dataset: raw files stand for them, for a dataset may have thousands."""


class RunEvents:
    """Makes the events of one run, and sends them.

    Parameters
    ----------
    send
        Called with each event; must not raise.
    store
        Store of the pipeline.
    namespace
        Namespace of jobs and of artefacts.
    pipeline
        Name of the pipeline: the job of the run; its stages are the jobs ``<pipeline>.<stage>``.
    source_paths
        Where raw files are looked for: a store knows them by the names that they have there.
    run_id
        UUID of the run; by default a new one.
    """

    def __init__(
        self,
        send: Callable[[Event], None],
        store: Store,
        namespace: str,
        pipeline: str,
        source_paths: tuple[str, ...] = (),
        run_id: str | None = None,
    ) -> None:
        self._send, self._store, self._source_paths = send, store, source_paths
        self._namespace, self._pipeline = namespace, pipeline
        self.run_id = run_id or str(uuid.uuid4())
        self._engine = "prefect" if run_id else "pmflib"
        self._dataset: Reference | None = None
        self._started: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def list_seconds(self) -> dict[str, float]:
        """Seconds of each stage so far, in the order in which they ended; of one that was tried again, all of it."""
        return {stage: round(took, 3) for stage, took in self._seconds.items()}

    def start_run(self) -> None:
        """Send the event of a run that starts."""
        self._emit("START", self.run_id, "")

    def end_run(
        self,
        outcome: str,
        *,
        reason: str = "",
        error: BaseException | None = None,
        live: Reference | None = None,
        inputs: Sequence[InputFile] | None = None,
        facts: Mapping[str, Any] | None = None,
        number: int = 0,
    ) -> None:
        """Send the event of a run that has ended.

        Parameters
        ----------
        outcome, reason, live, inputs, facts, number
            As in the record of the run.
        error
            What ended it, if anything did.
        """
        read = self._describe_files(inputs or self._list_files(self._dataset))
        if self._dataset is not None:
            described = self._describe(self._dataset)
            described["inputFacets"] = _describe_quality(facts or {})
            read.append(described)
        promoted = [self._describe(live)] if live is not None and outcome == "promoted" else []
        tags = {"outcome": outcome, "number": number, "reason": mask_secrets(reason)}
        known = {key: value for key, value in tags.items() if value}
        self._emit(_name_state(error), self.run_id, "", read, promoted, error, known)

    def start_stage(self, stage: str, run_id: str) -> None:
        """Send the event of a stage that starts."""
        self._started[run_id] = time.monotonic()
        self._emit("START", run_id, stage)

    def end_stage(
        self, stage: str, run_id: str, made: Sequence[Entry], error: BaseException | None = None
    ) -> None:
        """Send the event of a stage that has ended.

        Parameters
        ----------
        stage
            Name of the stage.
        run_id
            What was given when it started.
        made
            Its artefacts: those that it has made, or has found already made.
        error
            What ended it, if anything did.
        """
        took = time.monotonic() - self._started.pop(run_id, time.monotonic())
        self._seconds[stage] = self._seconds.get(stage, 0.0) + took
        inputs: list[Dataset] = []
        outputs: list[Dataset] = []
        for entry in made:
            if entry.reference.kind == "dataset":
                self._dataset = entry.reference
            inputs += [each for each in self._list_inputs(entry) if each not in inputs]
            outputs += self._list_outputs(entry)
        self._emit(_name_state(error), run_id, stage, inputs, outputs, error)

    def _list_inputs(self, entry: Entry) -> list[Dataset]:
        """Datasets that an artefact was made from; raw files instead of parts of a dataset."""
        whole = [each for each in entry.inputs.values() if each.kind not in (SOURCE, *_PARTS)]
        files = []
        if len(whole) < len(entry.inputs):
            files = self._describe_files(self._list_files(entry.reference))
        return [*files, *map(self._describe, whole)]

    def _list_files(self, reference: Reference | None) -> list[InputFile]:
        """Raw files behind an artefact; none where the store does not know them all any more."""
        try:
            return list_sources(self._store, reference)
        except StoreError:
            return []

    def _describe_files(self, files: Sequence[InputFile]) -> list[Dataset]:
        return [describe_raw_file(file, self._locations.get(file.name, "")) for file in files]

    @cached_property
    def _locations(self) -> dict[str, str]:
        """Path or URL of each raw file that is there, by the name that the store knows it by."""
        try:
            return {source.name: source.url for source in find_sources(self._source_paths)}
        except SourceError:
            return {}

    def _list_outputs(self, entry: Entry) -> list[Dataset]:
        """Dataset of an artefact, and that of the rows in quarantine beside it."""
        output, rows = self._describe(entry.reference), entry.summary
        if entry.reference.kind != "dataset":
            if isinstance(n_rows := rows.get("samples"), int):
                output["outputFacets"] = {"outputStatistics": describe_output(n_rows)}
            return [output]
        written = describe_output(rows["rows_encoded"])
        output["outputFacets"] = {"outputStatistics": written}
        rejected = self._describe(entry.reference)
        rejected["name"] = f"{self._pipeline}.quarantine"
        set_aside = describe_output(rows["rows_quarantined"])
        rejected["outputFacets"] = {"outputStatistics": set_aside}
        return [output, rejected]

    def _describe(self, reference: Reference) -> Dataset:
        return describe_artefact(self._store, self._namespace, self._pipeline, reference)

    def _emit(
        self,
        state: State,
        run_id: str,
        stage: str,
        inputs: Sequence[Dataset] = (),
        outputs: Sequence[Dataset] = (),
        error: BaseException | None = None,
        tags: Mapping[str, object] | None = None,
    ) -> None:
        run = {"processing_engine": describe_engine(self._engine)}
        if stage:
            run["parent"] = describe_parent(self.run_id, self._namespace, self._pipeline)
        if error is not None:
            run["errorMessage"] = describe_error(error)
        if tags:
            run["tags"] = describe_tags(tags)
        name = f"{self._pipeline}.{stage.replace(' ', '_')}" if stage else self._pipeline
        kind = describe_job("STAGE" if stage else "PIPELINE")
        self._send(
            {
                "eventType": state,
                "eventTime": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "run": {"runId": run_id, "facets": run},
                "job": {"namespace": self._namespace, "name": name, "facets": {"jobType": kind}},
                "inputs": list(inputs),
                "outputs": list(outputs),
                "producer": PRODUCER,
                "schemaURL": SCHEMA,
            }
        )


def _name_state(error: BaseException | None) -> State:
    """State in which an error leaves a run: none, one of ours or of the data, or a signal."""
    if error is None:
        return "COMPLETE"
    return "FAIL" if isinstance(error, Exception) else "ABORT"


def _describe_quality(facts: Mapping[str, Any]) -> dict[str, Facet]:
    """Facets of the rows of a dataset, and of what guards of quality found in it."""
    described, rows = {}, DatasetAccount.find(facts)
    if rows is not None:
        described["dataQualityMetrics"] = describe_row_counts(
            rows.rows_encoded, rows.cells_made_missing
        )
    if findings := find_recorded(facts):
        described["dataQualityAssertions"] = describe_findings(findings)
    return described


def _make(facet: str, revision: str, /, **content: Any) -> Facet:
    schema = f"https://openlineage.io/spec/facets/{revision}/{facet}.json#/$defs/{facet}"
    return {"_producer": PRODUCER, "_schemaURL": schema, **content}


def describe_parent(run_id: str, namespace: str, name: str) -> Facet:
    """Facet of the run that a stage is part of."""
    run, job = {"runId": run_id}, {"namespace": namespace, "name": name}
    return _make("ParentRunFacet", "1-1-0", run=run, job=job, root={"run": run, "job": job})


@cache
def describe_engine(package: str) -> Facet:
    """Facet of what runs the stages: the package prefect, or pmflib alone."""
    return _make(
        "ProcessingEngineRunFacet",
        "1-1-1",
        name={"prefect": "Prefect"}.get(package, package),
        version=version(package),
        openlineageAdapterVersion=version("pmflib"),
    )


def describe_error(error: BaseException) -> Facet:
    """Facet of an error: its message; its line in the code, too, unless it is something for a person to correct."""
    content = {"message": mask_secrets(f"{type(error).__name__}: {error}")}
    if not isinstance(error, PmfError):
        content["stackTrace"] = mask_secrets("".join(traceback.format_exception(error)))
    return _make("ErrorMessageRunFacet", "1-0-1", programmingLanguage="Python", **content)


def describe_tags(tags: Mapping[str, object]) -> Facet:
    """Facet of what no facet of the specification is for: pairs of name and text."""
    pairs = [{"key": k, "value": str(v), "source": "pmflib"} for k, v in tags.items()]
    return _make("TagsRunFacet", "1-0-0", tags=pairs)


def describe_job(kind: str) -> Facet:
    """Facet of a job: a "PIPELINE" or a "STAGE"."""
    return _make(
        "JobTypeJobFacet", "2-0-3", processingType="BATCH", integration="PMFLIB", jobType=kind
    )


def describe_version(digest: str) -> Facet:
    """Facet of the version of a dataset: the digest of its content."""
    return _make("DatasetVersionDatasetFacet", "1-0-1", datasetVersion=digest)


def describe_folder(path: str) -> Facet:
    """Facet of the folder that holds a version of a dataset."""
    location = {"namespace": "file", "name": path, "type": "LOCATION"}
    return _make("SymlinksDatasetFacet", "1-0-1", identifiers=[location])


def describe_size(n_bytes: int) -> Facet:
    """Facet of the size of an input, bytes."""
    return _make("InputStatisticsInputDatasetFacet", "1-0-0", size=n_bytes)


def describe_output(n_rows: int) -> Facet:
    """Facet of the number of rows written."""
    return _make("OutputStatisticsOutputDatasetFacet", "1-0-2", rowCount=n_rows)


def describe_row_counts(n_rows: int, made_missing: Mapping[str, int]) -> Facet:
    """Facet of the rows of a dataset, and of the values of each variable that are no level and count as missing."""
    columns = {name: {"nullCount": n} for name, n in made_missing.items()}
    return _make(
        "DataQualityMetricsInputDatasetFacet", "1-0-2", rowCount=n_rows, columnMetrics=columns
    )


def describe_findings(findings: Sequence[Finding]) -> Facet:
    """Facet of what guards of quality found, also what passed."""
    assertions = []
    for finding in findings:
        assertion: Facet = {"assertion": finding.guard, "success": finding.passed}
        described = {
            "name": finding.subject,
            "description": finding.sentence,
            "expected": finding.limit,
            "actual": finding.measured,
        }
        assertion |= {k: mask_secrets(str(v)) for k, v in described.items() if v is not None}
        assertion["severity"] = "error" if finding.action == "stop" else "warn"
        assertions.append(assertion)
    return _make("DataQualityAssertionsDatasetFacet", "1-1-0", assertions=assertions)


def name_file(path: str) -> tuple[str, str]:
    """Namespace and name of a raw file, without secrets.

    Examples
    --------
    >>> name_file("/data/a.csv")
    ('file', '/data/a.csv')
    >>> name_file("s3://key:secret@bucket/2026/a.csv")
    ('s3://***@bucket', '2026/a.csv')
    >>> name_file("zip://a.csv::https://host/all.zip?token=t")
    ('https://host', 'zip://a.csv::https://host/all.zip?token=***')
    """
    shown = mask_secrets(path)
    # of an address in parts the last says where the file is
    last = shown.rpartition("::")[2]
    scheme, is_url, rest = last.partition("://")
    if not is_url:
        return "file", shown
    authority, _, name = rest.partition("/")
    return f"{scheme}://{authority}", name if last == shown else shown


def describe_raw_file(file: InputFile, location: str = "") -> Dataset:
    """Dataset of a raw file that a run has read.

    Parameters
    ----------
    file
        The file, as a run records it.
    location
        Path or URL; by default the name.
    """
    namespace, name = name_file(location or file.name)
    return {
        "namespace": namespace,
        "name": name,
        "facets": {"version": describe_version(file.digest)},
        "inputFacets": {"inputStatistics": describe_size(file.bytes or 0)},
    }


def describe_artefact(store: Store, namespace: str, pipeline: str, reference: Reference) -> Dataset:
    """Dataset of an artefact: one for each kind of artefact of a pipeline, with the digest as its version."""
    facets = {"version": describe_version(reference.digest)}
    if reference.path:
        facets["symlinks"] = describe_folder(f"{store.address}/{reference.path}")
    return {"namespace": namespace, "name": f"{pipeline}.{reference.kind}", "facets": facets}
