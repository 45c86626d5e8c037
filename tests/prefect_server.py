"""A Prefect server for tests, as a user has one running."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

START_SECONDS = 120.0
WAIT_SECONDS = 30.0


@contextmanager
def serve_prefect(home: Path) -> Iterator[str]:
    """Run a Prefect server on loopback, and let this process and its children use it; give its address."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {
        "PREFECT_HOME": str(home),
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    command = ("-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port))
    process = subprocess.Popen(
        [sys.executable, *command],
        env=os.environ | own,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}/api"
    try:
        wait_until(lambda: _answers(url), START_SECONDS)
        with pytest.MonkeyPatch.context() as patch, temporary_settings({PREFECT_API_URL: url}):
            patch.setenv("PREFECT_API_URL", url)
            yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait_until(look: Callable[[], T], seconds: float = WAIT_SECONDS) -> T:
    """What a function gives, once that is true: the server stores what a run sends it a little later."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
    return found


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/health", timeout=1)
    except OSError:
        return False
    return True
