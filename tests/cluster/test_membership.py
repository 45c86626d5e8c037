import re
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
from distributed import LocalCluster
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

import pmflib as pmf
from pmflib.base import (
    ClusterError,
    ClusterWarning,
    ConfigError,
    LostSchedulerError,
    MemoryPlanError,
    Notice,
    listen,
)
from pmflib.cluster import (
    MemoryPlan,
    check_workers,
    count_threads,
    find_memory,
    find_versions,
    map_items,
    membership,
    open_client,
    run_blocks,
)
from pmflib.store import StoreAccess
from pmflib_tasks.config import ClusterConfig

GIB = 1 << 30
STORE = StoreAccess("/store")


@contextmanager
def start_cluster(n_workers, memory_limit=8 * GIB, n_threads=1):
    """Scheduler and workers of this process that talk over TCP, as those of other machines do."""
    with LocalCluster(
        n_workers=n_workers,
        threads_per_worker=n_threads,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
        memory_limit=memory_limit,
    ) as cluster:
        yield cluster


def later(call, seconds=0.5):
    timer = threading.Timer(seconds, call)
    timer.start()
    return timer


def open_patiently(cluster, patience, **options):
    address = cluster.scheduler_address
    return open_client(address, ClusterConfig(address=address, patience=patience, **options))


@pytest.fixture(autouse=True)
def _look_often(monkeypatch):
    monkeypatch.setattr(membership, "LOOK_SECONDS", 0.1)


def test_open_client__no_worker_comes():
    with (
        start_cluster(0) as cluster,
        pytest.raises(ClusterError, match=r"tcp://127.*0\.3 seconds.*patience"),
        open_patiently(cluster, 0.3),
    ):
        pass


def test_open_client__workers_may_come_late():
    with start_cluster(0) as cluster:
        later(lambda: cluster.scale(1))
        with open_patiently(cluster, 30) as client:
            assert run_blocks(client, abs, [-1, -2], sum) == 3


over = threading.Event()


def wait_long(item):
    """Work that lasts until the test is over: closing a cluster waits for its threads."""
    over.wait(20)
    return item


def use(cluster, patience, work, **options):
    """Work on a cluster, as a stage does."""
    over.clear()
    try:
        with open_patiently(cluster, patience, **options) as client:
            return work(client)
    finally:
        over.set()


@pytest.mark.parametrize("function", [run_blocks, map_items])
def test_open_client__all_workers_go(function):
    merge = [list] if function is run_blocks else []

    def work(client):
        (address,) = client.nthreads()
        remove = cluster.scheduler.remove_worker
        later(lambda: cluster.sync(remove, address, stimulus_id="test"))
        function(client, wait_long, [1, 2], *merge)

    with start_cluster(1) as cluster, pytest.raises(ClusterError, match="0 workers"):
        use(cluster, 0.5, work)


def test_explain__a_scheduler_that_goes_is_worth_another_attempt():
    lost = FutureCancelledError("key", "scheduler-connection-lost")
    cancelled = FutureCancelledError("key", "unknown")
    with start_cluster(1) as cluster, open_patiently(cluster, 1) as client:
        explained = [membership_of(client).explain(each) for each in (lost, cancelled)]
    assert [type(each) for each in explained] == [LostSchedulerError, ClusterError]
    assert "tcp://" in str(explained[0])


def test_open_client__errors_of_the_work_are_the_callers():
    with start_cluster(1) as cluster, pytest.raises(ZeroDivisionError):
        use(cluster, 1, lambda client: run_blocks(client, lambda item: 1 // item, [0], list))


def test_open_client__a_worker_that_is_too_small_is_named_at_once():
    said = r"64\.0 MiB.*tcp://127.*200\.0 MiB.*54\d\.\d MiB"
    with (
        start_cluster(1, memory_limit=200 << 20) as cluster,
        pytest.raises(MemoryPlanError, match=said),
        open_patiently(cluster, 1),
    ):
        pass


def plan_two_gib(n_threads):
    return MemoryPlan("counting", {"tables": 2 * GIB * n_threads}, "Use fewer levels.")


def test_open_client__a_small_worker_that_joins_late_ends_the_run():
    said = r"counting .*2\.0 GiB.*1\.0 GiB.*Use fewer levels"

    def work(client):
        find_memory(client).check(plan_two_gib)
        later(lambda: add_worker(cluster, GIB))
        run_blocks(client, wait_long, [1, 2], list)

    with start_cluster(1) as cluster, pytest.raises(MemoryPlanError, match=said):
        use(cluster, 1, work)


def add_worker(cluster, memory_limit):
    cluster.worker_spec["late"] = {
        **cluster.new_spec,
        "options": {**cluster.new_spec["options"], "memory_limit": memory_limit},
    }
    cluster.sync(cluster._correct_state)


def test_find_memory__each_worker_has_its_own():
    with start_cluster(2, 4 * GIB, n_threads=3) as cluster, open_patiently(cluster, 1) as client:
        memory = find_memory(client)
        assert [worker.n_threads for worker in memory.workers] == [3, 3]
        assert {worker.limit for worker in memory.workers} == {4 * GIB}
        # what nobody plans, and the program itself, come off
        assert all(0 < worker.spare < 0.7 * 4 * GIB for worker in memory.workers)
        assert not memory.is_shared
        with pytest.raises(MemoryPlanError, match=r"6\.0 GiB.*3 threads"):
            memory.check(plan_two_gib)


def test_find_memory__what_is_configured_counts_for_each_worker():
    with start_cluster(2) as cluster, open_patiently(cluster, 1, memory_limit=1000) as client:
        assert [worker.spare for worker in find_memory(client).workers] == [1000, 1000]


def test_count_threads__as_many_as_are_expected():
    with start_cluster(1) as cluster:
        with open_patiently(cluster, 1, workers=7) as client:
            assert count_threads(client) == 7
        with open_patiently(cluster, 1) as client:
            assert count_threads(client) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"versions": find_versions() | {"pmflib": "0.0.1"}},
            r"pmflib 0\.0\.1 .*tcp",
        ),
        (
            {"obstacles": {STORE: pmf.PmfError("no such folder there")}},
            r"/store.*tcp.*no such folder there",
        ),
        (ImportError("no pmflib"), r"tcp.*ImportError: no pmflib"),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_open_client__workers_that_do_not_fit(changes, said, late, monkeypatch):
    described = membership.describe_worker([])

    def describe(required):
        if isinstance(changes, Exception):
            raise changes
        return replace(described, **changes)

    def change():
        monkeypatch.setattr(membership, "describe_worker", describe)

    def work(client):
        if late:
            # without asking those that are there, which have no such store either
            membership_of(client)._required.append(STORE)
            change()
            later(lambda: cluster.scale(2), 0.1)
            run_blocks(client, wait_long, [1], list)
        check_workers(client, STORE)

    if not late:
        change()
    with start_cluster(1) as cluster, pytest.raises(ConfigError, match=said):
        use(cluster, 5, work)


def membership_of(client):
    from pmflib.cluster import clients

    # a client's own part in the run, whose explanations a run meets only when workers die
    return clients._members[client]


def test_open_client__versions_that_change_the_last_bits_are_warned_of(monkeypatch):
    described = membership.describe_worker([])
    other = replace(described, versions={**described.versions, "numba": "0.1"})
    monkeypatch.setattr(membership, "describe_worker", lambda required: other)
    warned = pytest.warns(ClusterWarning, match=r"numba 0\.1 .*tcp.* 1 more")
    with start_cluster(2) as cluster, warned, open_patiently(cluster, 5):
        pass


@pytest.mark.parametrize("package", ["numba", "zarr"])
def test_open_client__a_worker_without_a_package_ends_the_run(package, monkeypatch):
    described = membership.describe_worker([])
    lacking = replace(described, versions={**described.versions, package: ""})
    monkeypatch.setattr(membership, "describe_worker", lambda required: lacking)
    said = rf"{package} .*tcp"
    with (
        start_cluster(1) as cluster,
        pytest.raises(ConfigError, match=said),
        open_patiently(cluster, 5),
    ):
        pass


def test_open_client__says_which_workers_come_and_go():
    said, heard = [], threading.Event()

    def hear(notice):
        said.append(notice.text)
        heard.set()

    def wait():
        assert heard.wait(10)
        heard.clear()

    with start_cluster(1) as cluster, listen(hear, Notice), open_patiently(cluster, 5) as client:
        (first,) = client.nthreads()
        cluster.scale(2)
        wait()
        cluster.sync(cluster.scheduler.remove_worker, first, stimulus_id="test")
        wait()
    assert re.search(r"worker tcp://\S+ .*2", said[0])
    assert first in said[1]


def test_open_client__says_how_long_it_has_no_workers(monkeypatch):
    monkeypatch.setattr(membership, "SILENT_SECONDS", 0.0)
    said: list[Notice] = []
    with (
        start_cluster(0) as cluster,
        listen(said.append, Notice),
        pytest.raises(ClusterError),
        open_patiently(cluster, 0.5),
    ):
        pass
    assert said[0].is_waiting
    assert "patience" in said[0].text


def test_explain__workers_that_were_killed():
    with start_cluster(1, 3 * GIB) as cluster, open_patiently(cluster, 1) as client:
        find_memory(client).check(lambda n: MemoryPlan("EM", {"tables": GIB}, ""))
        (worker,) = cluster.scheduler.workers.values()
        error = KilledWorker(("refine-pass-0003-01234567", "items-0001"), worker, 3)
        explained = membership_of(client).explain(error)
        worker.memory_limit = 0
        unlimited = membership_of(client).explain(error)
        worker.memory_limit = 3 * GIB
    assert isinstance(explained, MemoryPlanError)
    for named in ("refine-pass-0003-01234567-items-0001", worker.address, "3.0 GiB", "1.0 GiB"):
        assert named in str(explained)
    assert isinstance(unlimited, ClusterError)


def test_open_client__an_adaptive_cluster_starts_its_first_worker():
    with start_cluster(0) as cluster:
        cluster.adapt(minimum=0, maximum=1, interval="100ms", wait_count=100)
        with open_patiently(cluster, 30, workers=1) as client:
            assert run_blocks(client, abs, [-1, -2], sum) == 3
