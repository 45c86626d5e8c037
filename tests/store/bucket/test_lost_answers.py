"""Requests to a bucket whose answer is lost or cut: they are repeated, and the writer knows its own object again."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from pmflib.store import ObjectChangedError, open_objects
from tests.faults.faulty_server import FaultyServer, Storm


@pytest.fixture
def server(object_server: str) -> Iterator[FaultyServer]:
    server = FaultyServer(urlsplit(object_server).port or 0, 0)
    yield server
    server.close()


@pytest.fixture
def objects(server, bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
    return open_objects(f"s3://{bucket}/some/place")


def test_create__answer_lost(server, objects):
    server.storm = Storm(("lost create",), 1.0, most=1)
    objects.create("runs/p/000001.json", b"mine")
    assert server.seen["lost create"] == 1
    assert objects.read("runs/p/000001.json")[0] == b"mine"


def test_create__answer_lost_and_the_object_of_another(server, objects):
    objects.create("runs/p/000001.json", b"the same")
    server.storm = Storm(("lost answer",), 1.0, most=1)
    with pytest.raises(FileExistsError):
        # its request is refused, that answer is lost, and what it finds then is not its own
        objects.create("runs/p/000001.json", b"the same")
    assert server.storm.most == 0


def test_replace__answer_lost(server, objects):
    objects.put("a", b"1")
    _, tag = objects.read("a")
    server.storm = Storm(("lost answer",), 1.0, most=1)
    objects.replace("a", b"2", tag)
    assert server.seen["lost answer"] == 1
    assert objects.read("a")[0] == b"2"


def test_replace__answer_lost_and_changed_by_another(server, objects):
    objects.put("a", b"1")
    _, tag = objects.read("a")
    objects.put("a", b"of another")
    server.storm = Storm(("lost answer",), 1.0, most=1)
    with pytest.raises(ObjectChangedError):
        objects.replace("a", b"2", tag)
    assert server.storm.most == 0
    assert objects.read("a")[0] == b"of another"


def test_delete__answer_lost(server, objects):
    objects.put("a", b"1")
    server.storm = Storm(("lost answer",), 1.0, most=1)
    objects.delete(["a"])
    assert server.seen["lost answer"] == 1
    assert not objects.exists("a")


def test_read__cut_within_its_content(server, objects, tmp_path):
    content = bytes(range(256)) * 1000
    objects.put("a", content)
    server.storm = Storm(("cut body",), 1.0, most=1)
    assert objects.read("a")[0] == content
    server.storm = Storm(("cut body",), 1.0, most=1)
    objects.fetch_file("a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == content
    assert server.seen["cut body"] == 2


def test_list_and_check__cut_within_the_answer(server, objects):
    objects.put("folder/a", b"1")
    for number, ask in enumerate(
        (
            lambda: [metadata.name for metadata in objects.list_objects("folder/")] == ["folder/a"],
            lambda: objects.list_folders("") == ["folder"],
            lambda: objects.check() is None,
        )
    ):
        server.storm = Storm(("cut body",), 1.0, most=1)
        assert ask()
        assert server.seen["cut body"] == number + 1
