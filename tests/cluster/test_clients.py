import resource
import threading
from functools import partial

import numpy as np
import pytest
from distributed import LocalCluster

from pmflib.base import ClusterError, ClusterWarning, ConfigError
from pmflib.cluster import (
    check_workers,
    clients,
    count_threads,
    open_client,
    share_workers,
    start_workers,
)
from pmflib.cluster.clients import LateClient, start_client
from pmflib.cluster.workers import use_workers
from pmflib.store import StoreAccess
from pmflib_tasks.config import ClusterConfig


def test_open_client__a_scheduler_that_does_not_answer_is_waited_for(monkeypatch):
    monkeypatch.setattr(clients, "CONNECT_SECONDS", 0.1)
    cluster = ClusterConfig(address="tcp://127.0.0.1:9", patience=0.5)
    with (
        pytest.raises(ClusterError, match=r"address = 'tcp://127\.0\.0\.1:9'"),
        pytest.warns(ClusterWarning, match=r"0\.5 seconds"),
        open_client("tcp://127.0.0.1:9", cluster),
    ):
        pass


@pytest.mark.parametrize(
    ("address", "error"), [("tcp://127.0.0.1:9", OSError), ("nonsense", ValueError)]
)
def test_start_client__one_that_does_not_connect_leaves_no_thread_behind(address, error):
    before = threading.enumerate()
    # the error holds the client, which the collector of garbage cannot close before the threads are looked at
    with pytest.raises(error):
        start_client(address, 0.2)
    assert "IO loop" not in {each.name for each in threading.enumerate() if each not in before}


def test_open_client__what_is_no_address_is_not_tried_again():
    with (
        pytest.raises(ConfigError, match="address = 'nonsense'"),
        open_client("nonsense"),
    ):
        pass


def test_start_workers__an_address_is_taken_as_it_is(monkeypatch):
    monkeypatch.delenv("PMF_DASK_ADDRESS", raising=False)
    with start_workers(ClusterConfig(address="tcp://one:1")) as address:
        assert address == "tcp://one:1"
    monkeypatch.setenv("PMF_DASK_ADDRESS", "tcp://two:2")
    with start_workers(ClusterConfig(address="tcp://one:1")) as address:
        assert address == "tcp://two:2"


def count_clusters(monkeypatch):
    """List that gets an entry for every cluster that starts on this machine."""
    started = []
    monkeypatch.delenv("PMF_DASK_ADDRESS", raising=False)
    monkeypatch.setattr("distributed.LocalCluster", partial(_note_cluster, started, LocalCluster))
    return started


def _note_cluster(started, cluster, *args, **options):
    started.append(options)
    return cluster(*args, **options)


def test_share_workers__start_when_a_stage_works_and_are_shared(monkeypatch):
    started = count_clusters(monkeypatch)
    with share_workers(ClusterConfig(workers=1)) as address:
        assert (address, started) == ("", [])
        with use_workers(ClusterConfig(workers=1)) as first, open_client(first) as client:
            assert client.submit(sum, [1, 2]).result() == 3
        with use_workers(ClusterConfig(workers=1)) as second, open_client(second) as client:
            assert client.submit(sum, [1, 2]).result() == 3
    assert first == second
    assert len(started) == 1
    # they have ended with the run: nobody answers, and who works after it starts others
    with pytest.raises((OSError, ValueError)):
        start_client(first, 0.5)
    with use_workers(ClusterConfig(workers=1)) as alone, open_client(alone):
        assert alone != first
    assert len(started) == 2


def test_share_workers__nothing_starts_where_a_scheduler_is_named(monkeypatch):
    started = count_clusters(monkeypatch)
    with share_workers(ClusterConfig(address="tcp://one:1")) as address:
        with use_workers(ClusterConfig(address="tcp://one:1")) as used:
            assert (address, used) == ("tcp://one:1", "tcp://one:1")
    assert started == []


def test_share_workers__a_start_that_failed_is_tried_again(monkeypatch):
    monkeypatch.delenv("PMF_DASK_ADDRESS", raising=False)
    attempts = []

    def fail_once(*args, **options):
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("no port")
        return LocalCluster(*args, **options)

    monkeypatch.setattr("distributed.LocalCluster", fail_once)
    with share_workers(ClusterConfig(workers=1)):
        with pytest.raises(OSError, match="no port"), use_workers(ClusterConfig(workers=1)):
            pass
        with use_workers(ClusterConfig(workers=1)) as address, open_client(address) as client:
            assert client.submit(sum, [1, 2]).result() == 3


def test_check_workers__a_folder_that_is_there(thread_client, tmp_path):
    check_workers(thread_client, StoreAccess(str(tmp_path)))
    with pytest.raises(ConfigError, match=r"nowhere' .*inproc"):
        check_workers(thread_client, StoreAccess(str(tmp_path / "nowhere")))


def test_start_workers__processes_keep_the_memory_of_blocks(monkeypatch):
    # each process that Dask starts leaves its options in the environment, and what is there takes precedence
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
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


def test_late_client__connects_when_it_is_used(thread_client, tmp_path):
    connected = []

    def connect():
        connected.append(1)
        return thread_client

    late = LateClient(connect)
    check_workers(late, StoreAccess(str(tmp_path)))
    assert connected == []
    assert late.submit(sum, [1, 2]).result() == 3
    assert count_threads(late) == 2
    assert connected == [1]


def test_late_client__workers_that_do_not_see_a_folder(thread_client, tmp_path):
    late = LateClient(lambda: thread_client)
    check_workers(late, StoreAccess(str(tmp_path / "nowhere")))
    with pytest.raises(ConfigError, match="nowhere"):
        late.submit(sum, [1, 2])
