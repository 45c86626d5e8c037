"""A scheduler with two worker processes on loopback, asked as `pmf doctor` asks it."""

import sys

import pytest
from distributed import Client, LocalCluster
from distributed.security import Security

from pmflib.health.cluster_facts import find_cluster_facts
from pmflib.health.worker_view import Places, WorkerView
from pmflib.kernels.kernel_facts import KernelFacts


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    (folder / "a.csv").write_text("x\n1\n")
    (folder / "store").mkdir()
    return Places(str(folder / "store"), "", (str(folder / "a.csv"),), (".csv",), skip_empty=False)


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


def test_find_cluster_facts__two_processes_with_tls(encrypted, places, tmp_path):
    facts = find_cluster_facts(encrypted.scheduler_address, places, encrypted.security)
    assert (facts.error, facts.unwritten) == ("", "")
    assert isinstance(facts.versions, dict)
    assert facts.versions["pmflib"]
    assert isinstance(facts.skew, float)
    assert [each.whose for each in facts.certificates] == ["scheduler", "client", "authority"]
    assert all(each.error == "" and each.days > 300 for each in facts.certificates)
    addresses = {worker.address for worker in facts.workers}
    assert len(addresses) == 2
    for worker in facts.workers:
        view = worker.view
        assert isinstance(view, WorkerView)
        assert isinstance(worker.kernels, KernelFacts)
        assert isinstance(worker.skew, float)
        assert (view.unread, view.unwritten, worker.unseen, worker.unfetched) == ("", "", "", "")
        assert {worker.fetched_from} == addresses - {worker.address}
        assert view.sources.n_files == 1
    # nothing is left behind
    assert list(tmp_path.glob("*")) == []
    assert find_files(places) == []


def find_files(places):
    import os

    return os.listdir(places.store)


def test_find_cluster_facts__without_the_keys(encrypted, places):
    facts = find_cluster_facts(encrypted.scheduler_address, places)
    assert facts.error
    assert facts.workers == ()


def test_find_cluster_facts__a_worker_without_pmflib(encrypted, places):
    facts = None
    with Client(encrypted.scheduler_address, security=encrypted.security) as client:
        one, other = sorted(client.scheduler_info(n_workers=-1)["workers"])
        try:
            client.run(hide_package, workers=[one])
            facts = find_cluster_facts(encrypted.scheduler_address, places, encrypted.security)
        finally:
            client.run(show_package, workers=[one])
    views = {worker.address: worker.view for worker in facts.workers}
    assert "pmflib" in str(views[one])
    assert isinstance(views[other], WorkerView)
    assert find_files(places) == []


def test_find_cluster_facts__no_workers_and_no_scheduler(places):
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        address = cluster.scheduler_address
        facts = find_cluster_facts(address, places)
        assert (facts.error, facts.workers, facts.certificates) == ("", (), ())
        assert facts.dashboard.startswith("http://127.0.0.1:")
        assert facts.dashboard_error == ""
    assert find_cluster_facts(address, places).error == "Connection refused"


def hide_package():
    """Let a worker find no module of pmflib any more."""
    sys.modules["pmflib.health.worker_view"] = None


def show_package():
    del sys.modules["pmflib.health.worker_view"]


# what this module defines is sent by value: workers have no tests
hide_package.__module__ = show_package.__module__ = "__main__"
