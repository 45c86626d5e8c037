import resource

import numpy as np
import pytest
from distributed import Client

from pmflib.config import ClusterConfig
from pmflib.errors import ConfigError
from pmflib.running.clients import (
    check_workers_see,
    count_threads,
    find_memory_limit,
    open_client,
    start_workers,
)


def test_open_client__unreachable_scheduler(monkeypatch):
    # half a minute is for people, not for tests
    monkeypatch.setattr(
        "distributed.Client", lambda *args, **kw: Client(*args, **{**kw, "timeout": 0.2})
    )
    for address, reason in (("tcp://127.0.0.1:9", "Timed out"), ("nonsense", "missing port")):
        with (
            pytest.raises(
                ConfigError, match=rf"address = '{address}': no Dask scheduler.*{reason}"
            ),
            open_client(address),
        ):
            pass


def test_start_workers__an_address_is_taken_as_it_is(monkeypatch):
    monkeypatch.delenv("PMF_DASK_ADDRESS", raising=False)
    with start_workers(ClusterConfig(address="tcp://one:1")) as address:
        assert address == "tcp://one:1"
    monkeypatch.setenv("PMF_DASK_ADDRESS", "tcp://two:2")
    with start_workers(ClusterConfig(address="tcp://one:1")) as address:
        assert address == "tcp://two:2"


def test_count_threads__those_that_work_for_the_client(thread_client):
    assert count_threads(None) == 1
    assert count_threads(thread_client) == 2


def test_check_workers_see__a_folder_that_is_there(thread_client, tmp_path):
    check_workers_see(thread_client, str(tmp_path))
    with pytest.raises(ConfigError, match=r"store '.*nowhere' is not seen by workers \['inproc"):
        check_workers_see(thread_client, str(tmp_path / "nowhere"))


def test_find_memory_limit__leaves_room():
    import psutil

    assert 0 < find_memory_limit() < psutil.virtual_memory().total


def test_start_workers__processes_keep_the_memory_of_blocks():
    with (
        start_workers(ClusterConfig(processes=True, workers=1)) as address,
        open_client(address) as client,
    ):
        faults = client.submit(_touch_blocks).result()
    # a block of 2 MiB is 512 pages, and all but the first find theirs
    assert faults < 10 * 512


def _touch_blocks():
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(100):
            np.ones(2 << 20, np.int8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
