"""What orchestration costs: wall time of ``pmf run`` on a ten-row log.

    python -m benchmarks.pipeline.orchestration

prints medians over fresh stores: without a Prefect server, as the command line runs by default, and with a server that
runs already, next to the same stages called as plain functions, and to a second run that finds everything done; of a
night with nothing new the processor time of the client, user and system.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

ROWS = "q1,q2,q3\n" + "\n".join(f"{i % 2},{i % 3},{i % 2}" for i in range(10)) + "\n"

PLAIN = """
import sys
from pmflib_tasks.config import load_config
from pmflib_tasks.ingest import ingest
from pmflib_tasks.count import count
from pmflib_tasks.fit import fit
from pmflib_tasks.refine import refine
from pmflib_tasks.evaluate import evaluate
config = load_config(sys.argv[1])
dataset = ingest.fn(config)
counts = count.fn(config, dataset)
model = refine.fn(config, dataset, counts, fit.fn(config, counts))
evaluate.fn(config, dataset, counts, model)
"""

NIGHT = """
import resource, sys
sys.argv = ["pmf", "run", sys.argv[1], "--json"]
from pmflib_flows.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, file=sys.stderr)
"""
NIGHTS = 5
"""Nights that are measured: the median of their times is shown."""


def main() -> None:
    """Time all ways in turn, and print the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    times: dict[str, list[float]] = {}

    def note(name: str, call: Callable[..., None], *words: str, **environment: str) -> None:
        start = time.perf_counter()
        call(*words, **environment)
        times.setdefault(name, []).append(time.perf_counter() - start)

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for repeat in range(options.repeats):
            plain, alone = make(root / f"plain{repeat}"), make(root / f"alone{repeat}")
            note("plain functions, no Prefect", python, "-c", PLAIN, plain)
            note("no server", pmf, alone)
            note("no server, everything done already", pmf, alone)
        quiet = make(root / "quiet")
        for _ in range(2):
            pmf(quiet)
        nights = {"no": [measure_night(quiet) for _ in range(NIGHTS)]}
        with server(root / "server") as url:
            quiet = make(root / "quiet served")
            for _ in range(2):
                pmf(quiet, PREFECT_API_URL=url)
            nights["a running"] = [measure_night(quiet, PREFECT_API_URL=url) for _ in range(NIGHTS)]
            for repeat in range(options.repeats):
                config = make(root / f"served{repeat}")
                note("running server", pmf, config, PREFECT_API_URL=url)
                note(
                    "running server, everything done already",
                    pmf,
                    config,
                    PREFECT_API_URL=url,
                )
    for name, seconds in times.items():
        show(name, seconds)
    for name, seconds in nights.items():
        show(f"{name} server, a night with nothing new: processor time of the client", seconds)


def show(name: str, seconds: list[float]) -> None:
    """Print the median of some times, and their range."""
    least, most = min(seconds), max(seconds)
    print(f"{statistics.median(seconds):6.2f} s  {name}  ({least:.2f} to {most:.2f})")


def measure_night(config: str, **environment: str) -> float:
    """Processor time of a run that finds everything done, user and system, seconds: without that of its server."""
    process = subprocess.Popen(
        [sys.executable, "-c", NIGHT, config],
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = process.communicate()[1]
    if process.returncode:
        raise RuntimeError(said)
    return float(said.splitlines()[-1])


def make(folder: Path) -> str:
    """Write a ten-row log, and draft its pipeline; return the configuration's path."""
    folder.mkdir(parents=True)
    (folder / "log.csv").write_text(ROWS)
    python(
        "-m",
        "pmflib_flows",
        "infer",
        str(folder / "log.csv"),
        "--output",
        str(folder),
        "--rank",
        "2",
        "--json",
    )
    return str(folder / "pipeline.toml")


def pmf(config: str, **environment: str) -> None:
    """Run the pipeline as a user does."""
    python("-m", "pmflib_flows", "run", config, "--json", **environment)


def python(*words: str, **environment: str) -> None:
    """Run Python, quietly."""
    env = os.environ | environment
    subprocess.run(
        [sys.executable, *words],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
    )


class server:
    """A Prefect server on loopback for as long as the context lasts."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __enter__(self) -> str:
        """Start it, and wait until it answers."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        env = os.environ | {
            "PREFECT_HOME": str(self.home),
            "DO_NOT_TRACK": "1",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        }
        command = [
            sys.executable,
            "-m",
            "prefect",
            "server",
            "start",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        url = f"http://127.0.0.1:{port}/api"
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1)
                return url
            except OSError:
                time.sleep(0.2)
        raise TimeoutError("the Prefect server does not answer")

    def __exit__(self, *error: object) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(timeout=30)


if __name__ == "__main__":
    main()
