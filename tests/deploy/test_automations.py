"""An automation of `deploy/automations.py` fires on a server of its own, and somebody gets the call."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from tests.deploy.test_deployment import PREFECT, ROOT, Site, make_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

AUTOMATIONS = (sys.executable, "deploy/automations.py")
CALL_SECONDS = 120

SAVE_BLOCK = """
import sys
from prefect.blocks.webhook import Webhook
Webhook(url=sys.argv[1], headers={"content-type": "application/json"}).save("night-watch")
"""
RUN = """
import sys
from prefect import tags
from pmflib_flows import etl as flows_etl
from pmflib_tasks.steps import Walk
from pmflib.base.errors import QualityError

def refuse(*arguments, **options):
    raise QualityError("v1 has moved")

if "hold" in sys.argv:
    Walk.reach = refuse
with tags(*sys.argv[2:3]):
    flows_etl.etl(sys.argv[1])
"""
PIPELINE = """
[source]
path = "a.csv"
layout = "wide"
[model]
rank = 2
"""


@contextmanager
def receive_calls() -> Iterator[tuple[str, "Queue[Any]"]]:
    """Listen on loopback: the address, and the bodies of what is posted to it."""
    calls: Queue[Any] = Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            calls.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", calls
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A Prefect server with its triggers on."""
    site = Site(tmp_path, make_environment(tmp_path))
    try:
        site.start("server", *PREFECT, "server", "start")
        site.run(*PREFECT, "server", "status", "--wait", "--timeout", "180")
        yield site
    finally:
        site.stop()


def run_flow(site: Site, *words: str) -> int:
    """Exit code of a process that runs the flow."""
    command = [sys.executable, "-c", RUN, *words]
    return subprocess.run(command, cwd=ROOT, env=os.environ | site.environment).returncode


def test_automations__a_failed_and_a_held_back_run_are_reported(site: Site, tmp_path: Path) -> None:
    good, broken = tmp_path / "good.toml", tmp_path / "broken.toml"
    good.write_text(PIPELINE)
    broken.write_text("nonsense = 1")
    with receive_calls() as (url, calls):
        site.run(sys.executable, "-c", SAVE_BLOCK, url)
        # made, and made again
        for _ in range(2):
            said = site.run(*AUTOMATIONS, "webhook/night-watch").splitlines()
            names = [line.partition(":")[0] for line in said]
            assert names == [f"pmf {each}" for each in ("failed", "crashed", "late", "held back")]
        # a run without the tag is somebody else's
        assert run_flow(site, str(broken), "other") != 0
        assert run_flow(site, str(broken), "pmf") != 0
        failed = calls.get(timeout=CALL_SECONDS)
        assert (failed["run"], failed["state"]) == ("broken", "Failed")
        assert "unknown option" in failed["message"]
        assert failed["page"].startswith("http")
        assert run_flow(site, str(good), "pmf", "hold") != 0
        held_back = calls.get(timeout=CALL_SECONDS)
        assert held_back["run"].startswith("pipeline-")
        assert (held_back["state"], held_back["message"]) == ("HeldBack", "v1 has moved")
        with pytest.raises(Empty):
            calls.get(timeout=5)


def test_automations__a_block_that_is_not_there(site: Site) -> None:
    command = [*AUTOMATIONS, "webhook/nobody"]
    said = subprocess.run(command, cwd=ROOT, env=site.environment, capture_output=True, text=True)
    assert said.returncode == 2
    assert "webhook/nobody" in said.stderr
