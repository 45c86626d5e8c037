"""Events of a run and of its stages, in the order in which they happen."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

from pmflib.errors import SourceError, StoreError
from pmflib.ingest.source_urls import mask_secrets
from pmflib.ingest.sources import find_sources
from pmflib.open_lineage import facets
from pmflib.open_lineage.event_datasets import Dataset, describe_artefact, describe_file
from pmflib.store.artefacts import SOURCE, Entry, Reference, Store
from pmflib.store.dataset import list_sources

Event = dict[str, Any]
State = Literal["START", "COMPLETE", "FAIL", "ABORT"]

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

    def list_seconds(self) -> list[dict[str, Any]]:
        """Time of each stage so far, in the order in which they ended; of one that was tried again, all of it."""
        return [
            {"stage": stage, "seconds": round(took, 3)} for stage, took in self._seconds.items()
        ]

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
        inputs: Sequence[Mapping[str, Any]] | None = None,
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
            described["inputFacets"] = _judge(facts or {})
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
        """Datasets that an artefact was made from; raw files in place of parts of a dataset."""
        whole = [each for each in entry.inputs.values() if each.kind not in (SOURCE, *_PARTS)]
        files = []
        if len(whole) < len(entry.inputs):
            files = self._describe_files(self._list_files(entry.reference))
        return [*files, *map(self._describe, whole)]

    def _list_files(self, reference: Reference | None) -> list[dict[str, Any]]:
        """Raw files behind an artefact; none where the store does not know them all any more."""
        try:
            return list_sources(self._store, reference)
        except StoreError:
            return []

    def _describe_files(self, files: Sequence[Mapping[str, Any]]) -> list[Dataset]:
        return [describe_file(file, self._places.get(str(file["name"]), "")) for file in files]

    @cached_property
    def _places(self) -> dict[str, str]:
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
                output["outputFacets"] = {"outputStatistics": facets.describe_output(n_rows)}
            return [output]
        written = facets.describe_output(rows["rows_encoded"])
        output["outputFacets"] = {"outputStatistics": written}
        rejected = self._describe(entry.reference)
        rejected["name"] = f"{self._pipeline}.quarantine"
        set_aside = facets.describe_output(rows["rows_quarantined"])
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
        run = {"processing_engine": facets.describe_engine(self._engine)}
        if stage:
            run["parent"] = facets.describe_parent(self.run_id, self._namespace, self._pipeline)
        if error is not None:
            run["errorMessage"] = facets.describe_error(error)
        if tags:
            run["tags"] = facets.describe_tags(tags)
        name = f"{self._pipeline}.{stage.replace(' ', '_')}" if stage else self._pipeline
        kind = facets.describe_job("STAGE" if stage else "PIPELINE")
        self._send(
            {
                "eventType": state,
                "eventTime": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "run": {"runId": run_id, "facets": run},
                "job": {"namespace": self._namespace, "name": name, "facets": {"jobType": kind}},
                "inputs": list(inputs),
                "outputs": list(outputs),
                "producer": facets.PRODUCER,
                "schemaURL": SCHEMA,
            }
        )


def _name_state(error: BaseException | None) -> State:
    """State in which an error leaves a run: none, one of ours or of the data, or a signal."""
    if error is None:
        return "COMPLETE"
    return "FAIL" if isinstance(error, Exception) else "ABORT"


def _judge(facts: Mapping[str, Any]) -> dict[str, facets.Facet]:
    """Facets of the rows of a dataset, and of what guards of quality found in it."""
    judged, rows = {}, facts.get("rows", {})
    if "rows_encoded" in rows:
        missing = rows.get("cells_made_missing", {})
        judged["dataQualityMetrics"] = facets.describe_rows(rows["rows_encoded"], missing)
    if findings := facts.get("quality"):
        judged["dataQualityAssertions"] = facets.describe_findings(findings)
    return judged
