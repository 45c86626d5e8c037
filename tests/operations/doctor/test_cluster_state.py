"""A scheduler with two worker processes on loopback, asked as `pmf doctor` asks it."""

import sys

import pytest
from distributed import Client, LocalCluster
from distributed.security import Security

from pmflib.kernels.readiness import KernelState
from pmflib_tasks.operations.doctor.clusters import find_cluster_state
from pmflib_tasks.operations.doctor.storage import PipelinePaths, WorkerView


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    (folder / "a.csv").write_text("x\n1\n")
    (folder / "store").mkdir()
    return PipelinePaths(
        str(folder / "store"), "", (str(folder / "a.csv"),), (".csv",), skip_empty=False
    )


@pytest.fixture(scope="module")
def encrypted():
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        security=Security.temporary(),
    ) as cluster:
        yield cluster


def test_find_cluster_state__two_processes_with_tls(encrypted, paths, tmp_path):
    state = find_cluster_state(encrypted.scheduler_address, paths, encrypted.security)
    assert (state.error, state.unwritten) == ("", "")
    assert isinstance(state.versions, dict)
    assert state.versions["pmflib"]
    assert isinstance(state.skew, float)
    assert [each.whose for each in state.certificates] == ["scheduler", "client", "authority"]
    assert all(each.error == "" and each.days > 300 for each in state.certificates)
    addresses = {worker.address for worker in state.workers}
    assert len(addresses) == 2
    for worker in state.workers:
        view = worker.view
        assert isinstance(view, WorkerView)
        assert isinstance(worker.kernels, KernelState)
        assert isinstance(worker.skew, float)
        assert (view.unread, view.unwritten, worker.unseen, worker.unfetched) == ("", "", "", "")
        assert {worker.fetched_from} == addresses - {worker.address}
        assert view.sources.n_files == 1
    # nothing is left behind
    assert list(tmp_path.glob("*")) == []
    assert find_files(paths) == []


def find_files(paths):
    import os

    return os.listdir(paths.store)


def test_find_cluster_state__without_the_keys(encrypted, paths):
    state = find_cluster_state(encrypted.scheduler_address, paths)
    assert state.error
    assert state.workers == ()


def test_find_cluster_state__a_worker_without_pmflib(encrypted, paths):
    state = None
    with Client(encrypted.scheduler_address, security=encrypted.security) as client:
        one, other = sorted(client.scheduler_info(n_workers=-1)["workers"])
        try:
            client.run(hide_package, workers=[one])
            state = find_cluster_state(encrypted.scheduler_address, paths, encrypted.security)
        finally:
            client.run(show_package, workers=[one])
    views = {worker.address: worker.view for worker in state.workers}
    assert "pmflib" in str(views[one])
    assert isinstance(views[other], WorkerView)
    assert find_files(paths) == []


def test_find_cluster_state__no_workers_and_no_scheduler(paths):
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        address = cluster.scheduler_address
        state = find_cluster_state(address, paths)
        assert (state.error, state.workers, state.certificates) == ("", (), ())
        assert state.dashboard.startswith("http://127.0.0.1:")
        assert state.dashboard_error == ""
    assert find_cluster_state(address, paths).error == "Connection refused"


def hide_package():
    """Let a worker find no module of pmflib any more."""
    sys.modules["pmflib_tasks.operations.doctor.storage"] = None


def show_package():
    del sys.modules["pmflib_tasks.operations.doctor.storage"]


# what this module defines is sent by value: workers have no tests
hide_package.__module__ = show_package.__module__ = "__main__"
