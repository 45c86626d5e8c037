"""The command `pmf` in processes forked from one that has loaded everything: a page of many commands loads it once.

As a program it serves commands on a socket; `serve_commands` runs it, and writes the command that asks it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 120.0
PACKAGES = ("pmflib", "pmflib_tasks", "pmflib_flows")
LATE = (
    "dask.array",
    "distributed",
    "zarr",
    "matplotlib.figure",
    "pyarrow.csv",
    "pyarrow.parquet",
    "jinja2",
)
"""What functions of these packages import when they are called."""
CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
job = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(job).to_bytes(8, "big")], [0, 1, 2])
server.sendall(job)
sys.exit(int(server.recv(8) or b"1"))
"""
"""The command: it gives the server its arguments, folder, environment and streams, and ends as the process there."""


@contextmanager
def serve_commands(environment: Mapping[str, str]) -> Iterator[Path]:
    """Run the server; the folder of a command `pmf` that asks it, for PATH.

    Parameters
    ----------
    environment
        Of the server: what is read from it while modules load, all commands share.
    """
    with tempfile.TemporaryDirectory(prefix="pmf-") as folder:
        address = f"{folder}/socket"
        command = Path(folder) / "pmf"
        command.write_text(CLIENT.format(python=sys.executable, address=address))
        command.chmod(0o755)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm_commands", address],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not os.path.exists(address):
                assert process.poll() is None, "the server of commands has ended"
                assert time.monotonic() < deadline, "the server of commands does not start"
                time.sleep(0.05)
            yield command.parent
        finally:
            process.kill()
            process.wait()


def main() -> None:
    """Load everything, then run each command that is asked for in a process of its own."""
    tests = os.getppid()
    for package in map(importlib.import_module, PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    # who forks while threads run may find their locks held for ever
    assert threading.active_count() == 1
    # that a power cut loses nothing is not what pages show
    os.fsync = lambda fd: None
    gc.freeze()
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{sys.argv[1]}-")
    server.listen()
    os.rename(f"{sys.argv[1]}-", sys.argv[1])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server.settimeout(5)
    # it ends with the tests, however these end
    while os.getppid() == tests:
        try:
            asked, _ = server.accept()
        except TimeoutError:
            continue
        if not os.fork():
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _answer(asked)
            return
        asked.close()


def _answer(asked: socket.socket) -> None:
    """Run a command in a process of its own, and send its exit code."""
    size, streams, _, _ = socket.recv_fds(asked, 8, 3)
    job = bytearray()
    while len(job) < int.from_bytes(size, "big"):
        job += asked.recv(1 << 16)
    if command := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
        asked.sendall(str(code if code >= 0 else 128 - code).encode())
        os._exit(0)
    asked.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    words, folder, environment = json.loads(job)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["pmf", *words]
    from pmflib_flows.__main__ import main as run

    run()


if __name__ == "__main__":
    main()
