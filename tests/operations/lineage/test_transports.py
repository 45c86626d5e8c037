import json
import subprocess
import sys

import pytest

from pmflib.core.errors import ConfigError
from pmflib.store.artefacts import Store
from pmflib_tasks.config.pipeline import LineageConfig
from pmflib_tasks.operations.lineage import transports
from pmflib_tasks.operations.lineage.run_events import RunEvents
from pmflib_tasks.operations.lineage.transports import (
    EVENTS,
    EventFile,
    open_transport,
    seal_event,
    unseal_event,
)
from tests.operations.lineage.event_schema import check_event

APPEND = """
import sys
from pathlib import Path
from pmflib_tasks.operations.lineage.transports import EventFile
file = EventFile(Path(sys.argv[1]))
for number in range(400):
    file.send({"writer": sys.argv[2], "number": number, "run": {}, "text": "x" * 3000})
"""


def make_events(tmp_path):
    """The two events of a run."""
    events = []
    run = RunEvents(events.append, Store(tmp_path / "store"), "pmf", "nightly")
    run.start_run()
    run.end_run("kept", reason="too few cells", number=3)
    return events


def test_event_file__two_processes_write_whole_lines(tmp_path):
    path = tmp_path / "events.jsonl"
    command = [sys.executable, "-c", APPEND, str(path)]
    writers = [subprocess.Popen([*command, name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for name in "ab":
        assert [e["number"] for e in events if e["writer"] == name] == list(range(400))
    assert path.stat().st_mode & 0o077 == 0


def test_event_file__goes_on_after_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"number": 1}\n{"numb')
    EventFile(path).send({"number": 2, "run": {"facets": {}}})
    assert path.read_text().splitlines()[:2] == ['{"number": 1}', '{"numb']
    assert unseal_event(path.read_bytes().splitlines()[2]) == {"number": 2, "run": {"facets": {}}}


def test_seal_event__an_edited_event_does_not_read(tmp_path):
    for event in make_events(tmp_path):
        line = seal_event(event)
        check_event(json.loads(line))
        assert unseal_event(line) == json.loads(json.dumps(event))
        for edited in (line.replace(b"nightly", b"nightlx"), line[:-1], b"{}", b"[]", b"3"):
            with pytest.raises(ValueError, match=r"edited|no event|Expecting"):
                unseal_event(edited)


def test_open_transport__the_file_is_in_the_store(tmp_path):
    with open_transport(LineageConfig(), Store(tmp_path)) as transport:
        for event in make_events(tmp_path):
            transport.send(event)
    states = [
        json.loads(line)["eventType"] for line in (tmp_path / EVENTS).read_text().splitlines()
    ]
    assert states == ["START", "COMPLETE"]


@pytest.fixture
def library(monkeypatch, tmp_path):
    """The client library, which finds no configuration but what a test gives."""
    pytest.importorskip("openlineage.client")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def write_transport(tmp_path, **options):
    (tmp_path / "openlineage.yml").write_text(json.dumps({"transport": options}))


def test_client__events_as_the_library_writes_them(library, tmp_path):
    sent = tmp_path / "sent"
    write_transport(tmp_path, type="file", log_file_path=str(sent), append=True)
    events = make_events(tmp_path)
    with open_transport(LineageConfig(events="client"), Store(tmp_path)) as transport:
        for event in events:
            transport.send(event)
    received = [json.loads(line) for line in sent.read_text().splitlines()]
    for event, other in zip(events, received, strict=True):
        other["job"]["facets"].pop("sourceCodeLocation", None)
        for facets in (other["run"]["facets"], event["run"]["facets"]):
            facets.pop("tags", None)
        assert {**other, "schemaURL": event["schemaURL"]} == event
    assert not (tmp_path / EVENTS).exists()


@pytest.mark.timeout(45)
def test_client__a_transport_that_does_not_answer_delays_a_run_by_seconds(library, tmp_path):
    library.setattr(transports, "CLOSE_SECONDS", 0.5)
    # nothing answers there
    write_transport(tmp_path, type="http", url="http://192.0.2.1:9", timeout=60)
    with open_transport(LineageConfig(events="client"), Store(tmp_path)) as transport:
        for event in make_events(tmp_path):
            transport.send(event)
        with pytest.warns(RuntimeWarning, match="2 of 2 events of lineage were not delivered"):
            transport.close()
        library.setattr(type(transport), "close", lambda self: None)


def test_client__needs_a_transport(library, tmp_path):
    with (
        pytest.raises(ConfigError, match="no transport of OpenLineage is configured"),
        open_transport(LineageConfig(events="client"), Store(tmp_path)),
    ):
        pass
    write_transport(tmp_path, type="nonsense")
    with (
        pytest.raises(ConfigError, match="cannot be set up"),
        open_transport(LineageConfig(events="client"), Store(tmp_path)),
    ):
        pass
