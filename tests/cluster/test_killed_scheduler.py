"""A scheduler that is killed while a client waits for its tasks."""

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pmflib.base import LostSchedulerError
from pmflib.cluster import open_client

SERVE = """
from distributed import LocalCluster
import sys
with LocalCluster(
    n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1",
    dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
) as cluster:
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""


class Records(logging.Handler):
    """What a logger is given."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def serve() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A scheduler with a worker, in a process of its own, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def wait_in_vain() -> None:
    with serve() as (process, address), open_client(address) as client:
        future = client.submit(time.sleep, 60)
        while not any(client.processing().values()):
            time.sleep(0.01)
        process.kill()
        future.result()


def test_open_client__killed_scheduler_without_a_traceback_of_dask() -> None:
    records, logger = Records(), logging.getLogger("distributed.client")
    logger.addHandler(records)
    try:
        with pytest.raises(LostSchedulerError, match="scheduler"):
            wait_in_vain()
    finally:
        logger.removeHandler(records)
    assert records.messages == []
    assert logger.filters == []
