"""A scheduler that is killed while a client waits for its tasks."""

import logging
import subprocess
import sys
import time

import pytest

from pmflib.errors import LostSchedulerError
from pmflib.running.clients import open_client

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


@pytest.fixture
def cluster():
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    process.address = process.stdout.readline().strip()
    yield process
    process.kill()
    process.communicate()


def wait_in_vain(cluster):
    with open_client(cluster.address) as client:
        future = client.submit(time.sleep, 60)
        while not any(client.processing().values()):
            time.sleep(0.01)
        cluster.kill()
        future.result()


def test_open_client__killed_scheduler_without_a_traceback_of_dask(cluster):
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("distributed.client")
    logger.addHandler(handler)
    try:
        with pytest.raises(LostSchedulerError, match="start it again"):
            wait_in_vain(cluster)
    finally:
        logger.removeHandler(handler)
    assert [record.getMessage() for record in records] == []
    assert logger.level < logging.CRITICAL
