"""The process around a Prefect worker, without a server."""

import importlib.util
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "deploy" / "start_worker.py"


@pytest.fixture
def start_worker(monkeypatch):
    spec = importlib.util.spec_from_file_location("start_worker", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield module
    for number, handler in before.items():
        signal.signal(number, handler)


def test_main__a_stop_while_runs_are_named_is_not_lost(start_worker, monkeypatch):
    real = subprocess.Popen
    started = []

    def start(command, **options):
        started.append(
            real([sys.executable, "-c", "import sys, time; time.sleep(20); sys.exit(3)"], **options)
        )
        return started[-1]

    def name_runs():
        # errors of a server are suppressed there
        with suppress(Exception):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(start_worker.subprocess, "Popen", start)
    monkeypatch.setattr(start_worker, "name_next_runs", name_runs)
    monkeypatch.setattr(start_worker, "NAMING_SECONDS", 0.5)
    assert start_worker.main() == 0
    assert started[0].poll() is not None
