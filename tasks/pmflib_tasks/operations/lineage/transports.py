"""Where events go: a file of the store, or whatever the OpenLineage client library is configured for."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import queue
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pmflib.core.errors import ConfigError, PmfError
from pmflib.core.json_files import parse_json
from pmflib.store.objects.interface import Objects
from pmflib_tasks.operations.lineage.run_events import Event, describe_tags

if TYPE_CHECKING:
    from pmflib.store.artefacts import Store
    from pmflib_tasks.config.pipeline import LineageConfig

EVENTS = "lineage/events.jsonl"
"""The file, relative to a store on a disk: an event a line. In a bucket there is one for each run, in its folder."""
WRITE_SECONDS = 10.0
"""Time between writes of the events of a run to a bucket, seconds."""
CHECKSUM = "checksum"
"""Key of the tag of a run that holds the checksum of its event."""
CLOSE_SECONDS = 5.0
"""Longest wait at the end of a run for events that are on their way, seconds."""


class Transport(Protocol):
    """Takes events; never raises, and never waits for a network."""

    def send(self, event: Event) -> None:
        """Take an event."""

    def close(self) -> None:
        """Deliver what is left, within `CLOSE_SECONDS`."""


@contextmanager
def open_transport(lineage: LineageConfig, store: Store) -> Iterator[Transport]:
    """Open the transport that a configuration names.

    Parameters
    ----------
    lineage
        Section ``lineage`` of the configuration.
    store
        Store of the pipeline.

    Raises
    ------
    ConfigError
        If the client library is asked for, and is not installed or not configured.
    """
    transport: Transport
    if lineage.events == "file":
        transport = (
            EventObject(store.objects) if store.is_bucket else EventFile(store.root / EVENTS)
        )
    elif lineage.events == "client":
        transport = ClientTransport()
    else:
        transport = _Nowhere()
    try:
        yield transport
    finally:
        transport.close()


def seal_event(event: Event) -> bytes:
    """Write an event as a line without its end; a tag of its run is the SHA-256 of all the rest."""
    facets, ours = event["run"].get("facets", {}), describe_tags({CHECKSUM: _sum_event(event)})
    others = facets.get("tags", {}).get("tags", [])
    sealed = {**facets, "tags": {**ours, "tags": [*others, *ours["tags"]]}}
    content = {**event, "run": {**event["run"], "facets": sealed}}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def unseal_event(line: bytes) -> Event:
    """Read what `seal_event` wrote, without the tag; an event of an earlier version has none, and is taken as it is.

    Raises
    ------
    ValueError
        If it does not read, or has been edited since.
    """
    event: Event = parse_json(line)
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
        raise ValueError("it is no event of a run") from None
    raise ValueError("it has been edited")


def _sum_event(event: Event) -> str:
    """SHA-256 of an event in its one canonical form; without facets and with none of them are the same."""
    run = {key: value for key, value in event["run"].items() if key != "facets" or value}
    return hashlib.sha256(json.dumps({**event, "run": run}, sort_keys=True).encode()).hexdigest()


class EventFile:
    """Appends events to a file, each as one whole line, in the order in which they are sent.

    Several processes may append at the same time: each locks the file for its line.

    Parameters
    ----------
    path
        The file; made with its folder at the first event, for its owner alone.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._warned = path, False

    def send(self, event: Event) -> None:
        """Append an event; where that is not possible, warn once: the run goes on."""
        line = seal_event(event) + b"\n"
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                # the end of a line that another process is writing may not be there yet
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    # a line that a full disk has cut off stays the only one that is lost
                    line = b"\n" + line
                if os.write(descriptor, line) < len(line):
                    raise OSError("no space left for a whole line")
            finally:
                os.close(descriptor)
        except OSError as error:
            if not self._warned:
                warnings.warn(
                    f"events of lineage cannot be appended to {str(self._path)!r} ({error}); the run goes on without "
                    "them",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._warned = True

    def close(self) -> None:
        """Do nothing: every line is in the file already."""


class EventObject:
    """Keeps the events of a run in an object of its own, for objects of a bucket cannot be appended to.

    It is written at the first event, at the last, and in between when `WRITE_SECONDS` have passed: a run that is killed
    may leave out the events of that time.

    Parameters
    ----------
    objects
        Objects of the store; the events are below ``lineage/``, in order of name as the runs were started.
    """

    def __init__(self, objects: Objects) -> None:
        started = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self._objects, self._name = objects, f"lineage/{started}-{uuid.uuid4().hex[:12]}.jsonl"
        self._lines: list[bytes] = []
        self._written, self._at, self._warned = 0, -math.inf, False

    def send(self, event: Event) -> None:
        """Keep an event; it is written now, or with one of the next."""
        self._lines.append(seal_event(event) + b"\n")
        if time.monotonic() - self._at >= WRITE_SECONDS:
            self._write()

    def close(self) -> None:
        """Write what is left."""
        if self._written < len(self._lines):
            self._write()

    def _write(self) -> None:
        try:
            self._objects.put(self._name, b"".join(self._lines))
            self._written, self._at = len(self._lines), time.monotonic()
        except (PmfError, OSError) as error:
            if not self._warned:
                warnings.warn(
                    f"events of lineage cannot be written to {self._name} of the store ({error}); the run goes on "
                    "without them",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._warned = True


class ClientTransport:
    """Hands events to the OpenLineage client library, which is configured by its own files and variables.

    A thread does it, so that a transport that does not answer delays a run by `CLOSE_SECONDS` at most, at its end.

    Raises
    ------
    ConfigError
        If the library is not installed, or not configured.
    """

    def __init__(self) -> None:
        self._client = _make_client()
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._n_sent = self._n_delivered = 0
        self._error: Exception | None = None
        # a daemon: what is still under way when the process ends is given up
        self._thread = threading.Thread(target=self._deliver, name="lineage", daemon=True)
        self._thread.start()

    def send(self, event: Event) -> None:
        """Queue an event."""
        self._n_sent += 1
        self._events.put(event)

    def close(self) -> None:
        """Wait at most `CLOSE_SECONDS` for what is queued; warn of what was not delivered."""
        deadline = time.monotonic() + CLOSE_SECONDS
        self._events.put(None)
        self._thread.join(CLOSE_SECONDS)
        if not self._thread.is_alive():
            try:
                self._client.close(max(0.0, deadline - time.monotonic()))
            except Exception as error:
                self._error = error
        if self._n_delivered < self._n_sent or self._error is not None:
            missing = self._n_sent - self._n_delivered
            reason = f" ({self._error})" if self._error is not None else ""
            warnings.warn(
                f"{missing} of {self._n_sent} events of lineage were not delivered within {CLOSE_SECONDS:g} s of the "
                f"end of the run{reason}; the run is not affected: see the configuration of OpenLineage",
                RuntimeWarning,
                stacklevel=2,
            )

    def _deliver(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._client.emit(_convert(event))
                self._n_delivered += 1
            except Exception as error:
                self._error = error


class _Nowhere:
    """Takes events, and forgets them."""

    def send(self, event: Event) -> None:
        """Forget an event."""

    def close(self) -> None:
        """Do nothing."""


def _make_client() -> Any:
    try:
        from openlineage.client import OpenLineageClient
    except ImportError as error:
        raise ConfigError(
            f"lineage.events = 'client' needs the package openlineage-python ({error}); install pmflib[lineage], or "
            "set lineage.events = 'file'"
        ) from None
    try:
        client = OpenLineageClient()
    except Exception as error:
        raise ConfigError(
            f"lineage.events = 'client': the transport of OpenLineage cannot be set up ({error}); correct "
            "openlineage.yml or the variables OPENLINEAGE_*"
        ) from error
    if client.transport.kind == "console" and not client.config.transport:
        raise ConfigError(
            "lineage.events = 'client', and no transport of OpenLineage is configured; set OPENLINEAGE_URL, or write "
            "openlineage.yml, or set lineage.events = 'file'"
        )
    return client


def _convert(event: Event) -> Any:
    """Event as the class of the library; facets stay as they are, but for tags, to which it may add some."""
    from openlineage.client.event_v2 import (
        InputDataset,
        Job,
        OutputDataset,
        Run,
        RunEvent,
        RunState,
    )
    from openlineage.client.facet_v2 import tags_run

    run_facets = dict(event["run"]["facets"])
    if "tags" in run_facets:
        pairs = [tags_run.TagsRunFacetFields(**tag) for tag in run_facets["tags"]["tags"]]
        run_facets["tags"] = tags_run.TagsRunFacet(tags=pairs, producer=event["producer"])
    return RunEvent(
        eventType=RunState(event["eventType"]),
        eventTime=event["eventTime"],
        run=Run(event["run"]["runId"], facets=run_facets),
        job=Job(**event["job"]),
        inputs=[InputDataset(**dataset) for dataset in event["inputs"]],
        outputs=[OutputDataset(**dataset) for dataset in event["outputs"]],
        producer=event["producer"],
    )
