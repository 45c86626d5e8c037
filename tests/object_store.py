"""A server of S3's protocol on loopback, and its buckets: fixtures `object_server` and `bucket` give one of each."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SECRET = "n0t-in-any-artefact-or-log"
"""Secret key of the tests, which must be found nowhere."""


@contextmanager
def serve_objects(log: Path) -> Iterator[str]:
    """Run a server in a process of its own; its address.

    Parameters
    ----------
    log
        File for what the server says: a line for each request.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=out,
            stderr=out,
        )
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def describe_access(endpoint: str, mirror: Path) -> dict[str, str]:
    """Environment of a process that uses the server, with a mirror in a folder."""
    return {
        "AWS_ACCESS_KEY_ID": "pmf-tests",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "PMF_MIRROR": str(mirror),
    }


def make_bucket(endpoint: str) -> str:
    """Make a bucket with a name of its own."""
    name = f"pmf-{uuid.uuid4().hex[:12]}"
    request = urllib.request.Request(f"{endpoint}/{name}", method="PUT")
    urllib.request.urlopen(request, timeout=60).close()
    return name


def count_requests(log: Path) -> dict[str, int]:
    """Requests that the server has answered so far, by method."""
    found: dict[str, int] = {}
    for line in log.read_text("utf-8", "replace").splitlines():
        parts = line.partition('] "')[2].split()
        method = parts[0].lstrip("\x1b[0123456789m") if parts else ""
        if method in ("GET", "PUT", "HEAD", "POST", "DELETE"):
            found[method] = found.get(method, 0) + 1
    return found


def read_bucket(address: str) -> dict[str, bytes]:
    """All objects of a store, by name."""
    from pmflib.store.objects.addresses import open_objects

    objects = open_objects(address)
    return {facts.name: objects.read(facts.name)[0] for facts in objects.list_objects("")}


def forget_cache(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Go on as on another machine, whose mirror is in an empty folder."""
    assert not folder.exists()
    monkeypatch.setitem(os.environ, "PMF_MIRROR", str(folder))
