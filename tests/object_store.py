"""A server of S3's protocol on loopback, and its buckets: fixtures `object_server` and `bucket` give one of each."""

import json
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
from typing import Any

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
    """All files of a store, by name: objects, and what is packed in them."""
    from pmflib.store import open_objects, unpack

    objects, found = open_objects(address), {}
    for facts in objects.list_objects(""):
        content, folder = objects.read(facts.name)[0], facts.name.removesuffix(".digests")
        if folder != facts.name:
            content, packed = unpack(content)
            found |= {f"{folder}{name}": part for name, part in packed.items()}
        found[facts.name] = content
    return found


def replace_packed(objects: Any, folder: str, name: str, content: bytes | None) -> None:
    """Put another content in the place of a file that is packed with the list of its artefact; None takes it out."""
    from pmflib.store import unpack

    listing, packed = unpack(objects.read(f"{folder}/.digests")[0])
    packed.pop(name)
    packed |= {} if content is None else {name: content}
    index = json.dumps({each: len(part) for each, part in packed.items()}).encode()
    objects.put(f"{folder}/.digests", b"\0".join((listing, index, b"".join(packed.values()))))


def forget_cache(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Go on as on another machine, whose mirror is in an empty folder."""
    assert not folder.exists()
    monkeypatch.setitem(os.environ, "PMF_MIRROR", str(folder))
