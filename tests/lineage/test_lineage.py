import json
import os
import subprocess
import sys

import pytest

from pmflib.base import ConfigError
from pmflib.store import Store, verify_store
from pmflib_tasks.lineage.lineage import (
    EVENTS,
    RunEvents,
    open_events,
    seal_event,
    unseal_event,
)
from pmflib_tasks.lineage.section import LineageConfig
from tests.lineage.event_schema import check_event

APPEND = """
import sys
from pmflib.store.artefacts import Store
from pmflib_tasks.lineage.section import LineageConfig
from pmflib_tasks.lineage.lineage import open_events
with open_events(LineageConfig(), Store(sys.argv[1])) as send:
    for number in range(400):
        send({"writer": sys.argv[2], "number": number, "run": {}, "text": "x" * 3000})
"""


def make_events(tmp_path):
    """The two events of a run."""
    events = []
    run = RunEvents(events.append, Store(tmp_path / "store"), "pmf", "nightly")
    run.start_run()
    run.end_run("kept", reason="too few cells", number=3)
    return events


def test_events_file__two_processes_write_whole_lines(tmp_path):
    command = [sys.executable, "-c", APPEND, str(tmp_path)]
    writers = [subprocess.Popen([*command, name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    path = tmp_path / EVENTS
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for name in "ab":
        assert [e["number"] for e in events if e["writer"] == name] == list(range(400))
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("last", "kept"), [('{"numb', []), ("", []), ('{"number": 3}', ['{"number": 3}'])]
)
def test_events_file__replaces_a_last_line_that_was_cut_off(tmp_path, last, kept):
    path = tmp_path / EVENTS
    path.parent.mkdir()
    path.write_text('{"number": 1}\n' + last)
    with open_events(LineageConfig(), Store(tmp_path)) as send:
        send({"number": 2, "run": {"facets": {}}})
    *before, event = path.read_text().splitlines()
    assert before == ['{"number": 1}', *kept]
    assert unseal_event(event.encode()) == {"number": 2, "run": {"facets": {}}}


def test_events_file__takes_back_a_short_write(tmp_path, monkeypatch):
    store, write, events = Store(tmp_path / "store"), os.write, make_events(tmp_path)
    path = store.root / EVENTS
    with open_events(LineageConfig(), store) as send:
        send(events[0])
        before = path.read_bytes()
        monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:40]))
        with pytest.warns(RuntimeWarning, match="no space left"):
            send(events[1])
        monkeypatch.undo()
        assert path.read_bytes() == before
        send(events[1])
    lines = path.read_bytes().splitlines()
    assert [unseal_event(line)["eventType"] for line in lines] == ["START", "COMPLETE"]
    assert verify_store(store, read_event=unseal_event).damages == ()


def test_seal_event__an_edited_event_does_not_read(tmp_path):
    for event in make_events(tmp_path):
        line = seal_event(event)
        check_event(json.loads(line))
        assert unseal_event(line) == json.loads(json.dumps(event))
        for edited in (line.replace(b"nightly", b"nightlx"), line[:-1], b"{}", b"[]", b"3"):
            with pytest.raises(ValueError):
                unseal_event(edited)


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
    with open_events(LineageConfig(events="client"), Store(tmp_path)) as send:
        for event in events:
            send(event)
    received = [json.loads(line) for line in sent.read_text().splitlines()]
    for event, other in zip(events, received, strict=True):
        other["job"]["facets"].pop("sourceCodeLocation", None)
        for facets in (other["run"]["facets"], event["run"]["facets"]):
            facets.pop("tags", None)
        assert {**other, "schemaURL": event["schemaURL"]} == event
    assert not (tmp_path / EVENTS).exists()


def test_client__a_server_that_does_not_answer_is_tried_once(library, tmp_path):
    write_transport(tmp_path, type="http", url="http://127.0.0.1:9", retry={"total": 0})
    first, second = make_events(tmp_path)
    with open_events(LineageConfig(events="client"), Store(tmp_path)) as send:
        with pytest.warns(RuntimeWarning, match="lineage"):
            send(first)
        # a second warning would be an error
        send(second)


@pytest.mark.parametrize("transport", [None, "nonsense"])
def test_client__needs_a_transport(library, tmp_path, transport):
    if transport:
        write_transport(tmp_path, type=transport)
    events = open_events(LineageConfig(events="client"), Store(tmp_path))
    with pytest.raises(ConfigError, match="OPENLINEAGE_URL"):
        events.__enter__()
