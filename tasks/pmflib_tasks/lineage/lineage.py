"""OpenLineage events of runs and stages, written to a file of the store or sent by the OpenLineage client.

For the schemas of facets, see https://openlineage.io/docs/spec/facets. Raw files are named by location, artefacts by
pipeline and kind.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import time
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pmflib.base.errors import ConfigError, PmfError, SourceError, StoreError
from pmflib.base.json_files import parse_json
from pmflib.base.texts import mask_secrets
from pmflib.ingest.sources import find_sources
from pmflib.store.artefacts import SOURCE, Entry, Reference, Store
from pmflib.store.dataset import list_sources
from pmflib.store.objects.interface import Objects
from pmflib.store.run_records import InputFile
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.lineage.section import LineageConfig

Json = dict[str, Any]

EVENTS = "lineage/events.jsonl"
"""Events file of a local store, one event per line. In a bucket, each run has its own object in this folder."""
WRITE_SECONDS = 10.0
"""Interval between writes of events to a bucket, seconds."""
CLOSE_SECONDS = 5.0
"""Timeout at the end of a run for events that are sent in the background, seconds."""
CHECKSUM = "checksum"
"""Key of the run tag with the checksum of an event in the store."""
PRODUCER = f"urn:pmflib:{version('pmflib')}"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PARTS = ("spill", "spill-list", "cuts", "samples", "census")
"""Kinds of artefacts that are parts of a dataset; as there may be thousands, events name the raw files instead."""


class RunEvents:
    """Creates the events of one run.

    Parameters
    ----------
    send
        Called with each event; must not raise an error.
    store
        Store of the pipeline.
    namespace
        Namespace of jobs and artefacts.
    pipeline
        Name of the pipeline, which is the name of the job of the run; jobs of stages are ``<pipeline>.<stage>``.
    source_paths
        Paths of the raw files, for mapping their names in the store to locations.
    run_id
        UUID of the flow run in Prefect; None, outside Prefect, generates one.
    """

    def __init__(
        self,
        send: Callable[[Json], None],
        store: Store,
        namespace: str,
        pipeline: str,
        source_paths: tuple[str, ...] = (),
        run_id: str | None = None,
    ) -> None:
        self._send, self._store, self._source_paths = send, store, source_paths
        self._namespace, self._pipeline = namespace, pipeline
        self.run_id = run_id or str(uuid.uuid4())
        self._engine = _facet(
            "ProcessingEngineRunFacet",
            "1-1-1",
            name="Prefect" if run_id else "pmflib",
            version=version("prefect" if run_id else "pmflib"),
            openlineageAdapterVersion=version("pmflib"),
        )
        self._dataset: Reference | None = None

    def start_run(self) -> None:
        """Send the START event of the run."""
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
        """Send the last event of the run: COMPLETE, FAIL or ABORT.

        Parameters
        ----------
        outcome, reason, live, inputs, facts, number
            As in the record of the run.
        error
            Error that ended the run; None on success.
        """
        read = self._describe_files(inputs or self._list_files(self._dataset))
        if self._dataset is not None:
            read.append(
                self._describe(self._dataset)
                | {"inputFacets": _describe_quality(RunFacts(facts or {}))}
            )
        promoted = [self._describe(live)] if live is not None and outcome == "promoted" else []
        tags = {"outcome": outcome, "number": number, "reason": mask_secrets(reason)}
        known = {key: value for key, value in tags.items() if value}
        self._emit(_name_state(error), self.run_id, "", read, promoted, error, known)

    def start_stage(self, stage: str, run_id: str) -> None:
        """Send the START event of a stage."""
        self._emit("START", run_id, stage)

    def end_stage(
        self, stage: str, run_id: str, made: Sequence[Entry], error: BaseException | None = None
    ) -> None:
        """Send the last event of a stage.

        Parameters
        ----------
        stage, run_id
            Name and UUID of the stage, as for `start_stage`.
        made
            Artefacts of the stage, built or found in the store.
        error
            Error that ended the stage; None on success.
        """
        inputs: list[Json] = []
        outputs: list[Json] = []
        for entry in made:
            if entry.reference.kind == "dataset":
                self._dataset = entry.reference
            inputs += [each for each in self._list_inputs(entry) if each not in inputs]
            outputs += self._list_outputs(entry)
        self._emit(_name_state(error), run_id, stage, inputs, outputs, error)

    def _list_inputs(self, entry: Entry) -> list[Json]:
        """Input datasets of an artefact, with raw files instead of parts of a dataset."""
        whole = [each for each in entry.inputs.values() if each.kind not in (SOURCE, *_PARTS)]
        has_parts = len(whole) < len(entry.inputs)
        files = self._list_files(entry.reference) if has_parts else []
        if entry.reference.kind == "pooled":
            made = [x for each in entry.inputs.values() if (x := self._store.find(each.identity))]
            files = [
                InputFile(x.options["name"], x.reference.digest, x.summary["bytes"])
                for x in made
                if x.reference.kind == SOURCE
            ]
        return [*self._describe_files(files), *map(self._describe, whole)]

    def _list_outputs(self, entry: Entry) -> list[Json]:
        """Output dataset of an artefact and, for a dataset of samples, that of its quarantine."""
        output, rows = self._describe(entry.reference), entry.summary
        if entry.reference.kind != "dataset":
            if isinstance(n_rows := rows.get("samples"), int):
                output["outputFacets"] = _count_output(n_rows)
            return [output]
        rejected = output | {"name": f"{self._pipeline}.quarantine"}
        output["outputFacets"] = _count_output(rows["rows_encoded"])
        rejected["outputFacets"] = _count_output(rows["rows_quarantined"])
        return [output, rejected]

    def _list_files(self, reference: Reference | None) -> list[InputFile]:
        """Raw files of an artefact; empty if the store no longer has all entries."""
        try:
            return list_sources(self._store, reference)
        except StoreError:
            return []

    def _describe_files(self, files: Sequence[InputFile]) -> list[Json]:
        described = []
        for file in files:
            namespace, name = name_file(self._locations.get(file.name, file.name))
            size = _facet("InputStatisticsInputDatasetFacet", "1-0-0", size=file.bytes or 0)
            described.append(
                {
                    "namespace": namespace,
                    "name": name,
                    "facets": {"version": _make_version(file.digest)},
                    "inputFacets": {"inputStatistics": size},
                }
            )
        return described

    @cached_property
    def _locations(self) -> dict[str, str]:
        """Path or URL of each existing raw file by its name in the store."""
        try:
            return {source.name: source.url for source in find_sources(self._source_paths)}
        except SourceError:
            return {}

    def _describe(self, reference: Reference) -> Json:
        """Dataset of an artefact, named by pipeline and kind, with the digest as version."""
        facets = {"version": _make_version(reference.digest)}
        if reference.path:
            path = f"{self._store.address}/{reference.path}"
            location = {"namespace": "file", "name": path, "type": "LOCATION"}
            facets["symlinks"] = _facet("SymlinksDatasetFacet", "1-0-1", identifiers=[location])
        name = f"{self._pipeline}.{reference.kind}"
        return {"namespace": self._namespace, "name": name, "facets": facets}

    def _emit(
        self,
        state: str,
        run_id: str,
        stage: str,
        inputs: Sequence[Json] = (),
        outputs: Sequence[Json] = (),
        error: BaseException | None = None,
        tags: Mapping[str, object] | None = None,
    ) -> None:
        facets: dict[str, Json] = {"processing_engine": self._engine}
        if stage:
            ours = {
                "run": {"runId": self.run_id},
                "job": {"namespace": self._namespace, "name": self._pipeline},
            }
            facets["parent"] = _facet("ParentRunFacet", "1-1-0", **ours, root=ours)
        if error is not None:
            facets["errorMessage"] = _describe_error(error)
        if tags:
            facets["tags"] = _make_tags(tags)
        name = f"{self._pipeline}.{stage.replace(' ', '_')}" if stage else self._pipeline
        kind = _facet(
            "JobTypeJobFacet",
            "2-0-3",
            processingType="BATCH",
            integration="PMFLIB",
            jobType="STAGE" if stage else "PIPELINE",
        )
        self._send(
            {
                "eventType": state,
                "eventTime": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "run": {"runId": run_id, "facets": facets},
                "job": {"namespace": self._namespace, "name": name, "facets": {"jobType": kind}},
                "inputs": list(inputs),
                "outputs": list(outputs),
                "producer": PRODUCER,
                "schemaURL": SCHEMA,
            }
        )


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
    # the last part of a chained URL has the host
    last = shown.rpartition("::")[2]
    scheme, is_url, rest = last.partition("://")
    if not is_url:
        return "file", shown
    authority, _, name = rest.partition("/")
    return f"{scheme}://{authority}", name if last == shown else shown


def _name_state(error: BaseException | None) -> str:
    if error is None:
        return "COMPLETE"
    return "FAIL" if isinstance(error, Exception) else "ABORT"


def _facet(name: str, revision: str, /, **content: Any) -> Json:
    schema = f"https://openlineage.io/spec/facets/{revision}/{name}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": schema, **content}


def _make_version(digest: str) -> Json:
    return _facet("DatasetVersionDatasetFacet", "1-0-1", datasetVersion=digest)


def _make_tags(tags: Mapping[str, object]) -> Json:
    pairs = [{"key": k, "value": str(v), "source": "pmflib"} for k, v in tags.items()]
    return _facet("TagsRunFacet", "1-0-0", tags=pairs)


def _count_output(n_rows: int) -> Json:
    facet = _facet("OutputStatisticsOutputDatasetFacet", "1-0-2", rowCount=n_rows)
    return {"outputStatistics": facet}


def _describe_error(error: BaseException) -> Json:
    """Facet of an error, with a stack trace only for defects."""
    content = {"message": mask_secrets(f"{type(error).__name__}: {error}")}
    if not isinstance(error, PmfError):
        content["stackTrace"] = mask_secrets("".join(traceback.format_exception(error)))
    return _facet("ErrorMessageRunFacet", "1-0-1", programmingLanguage="Python", **content)


def _describe_quality(facts: RunFacts) -> dict[str, Json]:
    """Facets of the rows of a dataset and of the findings of the quality guards."""
    described, rows = {}, facts.account
    if rows is not None:
        missing = {name: {"nullCount": n} for name, n in rows.cells_made_missing.items()}
        described["dataQualityMetrics"] = _facet(
            "DataQualityMetricsInputDatasetFacet",
            "1-0-2",
            rowCount=rows.rows_encoded,
            columnMetrics=missing,
        )
    assertions = []
    for finding in facts.findings:
        texts = {
            "name": finding.subject,
            "description": finding.sentence,
            "expected": finding.limit,
            "actual": finding.measured,
        }
        known = {key: mask_secrets(str(text)) for key, text in texts.items() if text is not None}
        severity = "error" if finding.action == "stop" else "warn"
        passed = {"assertion": finding.guard, "success": finding.passed}
        assertions.append({**passed, **known, "severity": severity})
    if assertions:
        described["dataQualityAssertions"] = _facet(
            "DataQualityAssertionsDatasetFacet", "1-1-0", assertions=assertions
        )
    return described


@contextmanager
def open_events(lineage: LineageConfig, store: Store) -> Iterator[Callable[[Json], None]]:
    """Open the configured destination of events.

    Parameters
    ----------
    lineage
        Section ``lineage`` of the configuration.
    store
        Store of the pipeline.

    Yields
    ------
    Function that sends an event and never raises an error.

    Raises
    ------
    ConfigError
        If the OpenLineage client is configured but not installed, or has no transport.

    Warns
    -----
    RuntimeWarning
        At the first event that cannot be written or sent. The run continues, but no more events are sent to the
        OpenLineage client, so that an unreachable server delays the run only once.
    """
    destination: _EventFile | _EventObject | _EventClient
    if lineage.events == "off":
        yield lambda event: None
        return
    if lineage.events == "client":
        destination = _EventClient()
    else:
        destination = _EventObject(store.objects) if store.is_bucket else _EventFile(store.root)
    failed = False

    def attempt(write: Callable[[], None]) -> None:
        nonlocal failed
        if failed and isinstance(destination, _EventClient):
            return
        try:
            write()
        except Exception as error:
            # transports raise errors of their own libraries
            if not failed:
                said = f"lineage events cannot be written: {destination.name} ({error}); the run continues"
                warnings.warn(said, RuntimeWarning, stacklevel=3)
            failed = True

    try:
        yield lambda event: attempt(lambda: destination.send(event))
    finally:
        attempt(destination.close)


class _EventFile:
    """Events file of a local store, to which processes may append concurrently."""

    def __init__(self, root: Path) -> None:
        self._path = root / EVENTS
        self.name = str(self._path)

    def send(self, event: Json) -> None:
        """Append an event as a complete line, or nothing."""
        line = seal_event(event) + b"\n"
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # another process may be in the middle of a line
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = _end_last_line(descriptor)
            if os.write(descriptor, line) < len(line):
                os.ftruncate(descriptor, size)
                raise OSError("no space left for a whole line")
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Do nothing, as every event is written already."""


def _end_last_line(descriptor: int) -> int:
    """End the last line of an events file, or remove it if a crash has cut it off; return the size of the file."""
    size = os.fstat(descriptor).st_size
    if not size or os.pread(descriptor, 1, size - 1) == b"\n":
        return size
    content = os.pread(descriptor, size, 0)
    start = content.rfind(b"\n") + 1
    try:
        parse_json(content[start:])
    except ValueError:
        os.ftruncate(descriptor, start)
        return start
    return size + os.write(descriptor, b"\n")


class _EventObject:
    """Object with the events of one run in a bucket, where appending is impossible.

    The object is written at the first event, every `WRITE_SECONDS`, and at the end. A killed run loses the events since
    the last write.
    """

    def __init__(self, objects: Objects) -> None:
        started = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self._objects, self.name = objects, f"lineage/{started}-{uuid.uuid4().hex[:12]}.jsonl"
        self._lines: list[bytes] = []
        self._n_written, self._at = 0, -math.inf

    def send(self, event: Json) -> None:
        """Add an event, and write the object if it is due."""
        self._lines.append(seal_event(event) + b"\n")
        if time.monotonic() - self._at >= WRITE_SECONDS:
            self.close()

    def close(self) -> None:
        """Write the object if there are new events."""
        if self._n_written < len(self._lines):
            self._objects.put(self.name, b"".join(self._lines))
            self._n_written, self._at = len(self._lines), time.monotonic()


class _EventClient:
    """The OpenLineage client, configured by openlineage.yml or OPENLINEAGE_URL."""

    name = "see the configuration of OpenLineage"

    def __init__(self) -> None:
        try:
            from openlineage.client import OpenLineageClient

            self._client = OpenLineageClient()
            if self._client.transport.kind == "console" and not self._client.config.transport:
                raise ValueError("no transport is configured")
        except Exception as error:
            raise ConfigError(
                f"lineage.events = 'client': the OpenLineage client cannot be set up ({error}); install "
                "pmflib[lineage], correct openlineage.yml or OPENLINEAGE_URL, or set lineage.events = 'file'"
            ) from error

    def send(self, event: Json) -> None:
        """Convert an event to the classes of the client and send it; of its facets, the client needs only the tags."""
        from openlineage.client import event_v2
        from openlineage.client.facet_v2 import tags_run

        facets = dict(event["run"]["facets"])
        if "tags" in facets:
            pairs = [tags_run.TagsRunFacetFields(**tag) for tag in facets["tags"]["tags"]]
            facets["tags"] = tags_run.TagsRunFacet(tags=pairs, producer=event["producer"])
        self._client.emit(
            event_v2.RunEvent(
                eventType=event_v2.RunState(event["eventType"]),
                eventTime=event["eventTime"],
                run=event_v2.Run(event["run"]["runId"], facets=facets),
                job=event_v2.Job(**event["job"]),
                inputs=[event_v2.InputDataset(**dataset) for dataset in event["inputs"]],
                outputs=[event_v2.OutputDataset(**dataset) for dataset in event["outputs"]],
                producer=event["producer"],
            )
        )

    def close(self) -> None:
        """Wait for events that are sent in the background."""
        if not self._client.close(CLOSE_SECONDS):
            raise TimeoutError(f"not all were sent within {CLOSE_SECONDS:g} s of the end")


def seal_event(event: Json) -> bytes:
    """Serialise an event as a line, with a run tag that contains the SHA-256 of the rest."""
    facets, ours = event["run"].get("facets", {}), _make_tags({CHECKSUM: _sum_event(event)})
    others = facets.get("tags", {}).get("tags", [])
    sealed = {**facets, "tags": {**ours, "tags": [*others, *ours["tags"]]}}
    content = {**event, "run": {**event["run"], "facets": sealed}}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def unseal_event(line: bytes) -> Json:
    """Parse a line of `seal_event`, and remove the tag; events without a tag are returned unchanged.

    Raises
    ------
    ValueError
        If the line cannot be parsed or was edited.
    """
    event: Json = parse_json(line)
    try:
        facets = event["run"].get("facets", {})
        tags = facets.get("tags", {}).get("tags", [])
        others = [tag for tag in tags if tag["key"] != CHECKSUM]
        checksums = [tag["value"] for tag in tags if tag["key"] == CHECKSUM]
        if not checksums:
            return event
        facets["tags"]["tags"] = others
        if not others:
            del facets["tags"]
        if checksums == [_sum_event(event)]:
            return event
    except (KeyError, TypeError, AttributeError):
        raise ValueError("it is not an event of a run") from None
    raise ValueError("it has been edited")


def _sum_event(event: Json) -> str:
    """SHA-256 of an event in canonical form, in which empty facets are left out."""
    run = {key: value for key, value in event["run"].items() if key != "facets" or value}
    return hashlib.sha256(json.dumps({**event, "run": run}, sort_keys=True).encode()).hexdigest()
