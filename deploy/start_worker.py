"""Prefect worker whose runs end before it does, as by Ctrl-C, when it is stopped.

    python deploy/start_worker.py --pool pmf --type process

The arguments are those of `prefect worker start`. Scheduled runs get names of deployment, pipeline and time. A worker
of Prefect's own kills its runs when it stops: the server takes them for alive, and the next run waits five minutes for
their place. Here SIGINT and SIGTERM reach the runs first; each says that it was ended, and the next one goes on from
its checkpoints.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from types import FrameType
from typing import NoReturn

import psutil

from pmflib_flows.scheduled_runs import name_next_runs

NAMING_SECONDS = 20
"""How long a run may have been scheduled without a name of its own."""
RUN_SECONDS = 80
"""How long runs have to end; then they are killed."""
WORKER_SECONDS = 20
"""How long the worker then has."""


class _Stop(BaseException):
    """Somebody stops the process; no exception, which the naming of runs would suppress."""


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise _Stop


def end_runs(worker: subprocess.Popen[bytes]) -> None:
    """Interrupt the runs of a worker and wait for them; those of a busy one may be the next in the queue."""
    try:
        while runs := psutil.Process(worker.pid).children():
            for run in runs:
                run.send_signal(signal.SIGINT)
            _, alive = psutil.wait_procs(runs, timeout=RUN_SECONDS)
            for run in alive:
                run.kill()
    except psutil.NoSuchProcess:
        return


def main() -> int:
    """Run the worker until it ends or is stopped; return its exit code, 0 if it was stopped."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    command = [sys.executable, "-m", "prefect", "worker", "start", *sys.argv[1:]]
    # in a session of its own: Ctrl-C of a terminal reaches this process alone
    worker = subprocess.Popen(command, start_new_session=True)
    try:
        while True:
            try:
                return worker.wait(NAMING_SECONDS)
            except subprocess.TimeoutExpired:
                name_next_runs()
    except _Stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    end_runs(worker)
    worker.send_signal(signal.SIGINT)
    try:
        worker.wait(WORKER_SECONDS)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
