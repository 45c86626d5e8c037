from functools import partial

import pytest

from pmflib.base import MachineMemory, MemoryPlanError
from pmflib.cluster import ClusterMemory, MemoryPlan, WorkerMemory, read_workers
from pmflib.cluster.memory import OWN_BYTES, find_least_limit
from pmflib.counts import choose_n_runs, plan_counting
from pmflib.em import plan_em

GIB = 1 << 30


def make_cluster(n_workers, n_threads, spare, client=8 * GIB):
    workers = (WorkerMemory(f"tcp://{n}", n_threads, spare) for n in range(n_workers))
    return ClusterMemory(tuple(workers), client, is_shared=False)


def plan_count(n_levels, n_cluster_threads):
    return lambda n: plan_counting(n_levels, n, choose_n_runs(20, n_cluster_threads))


def test_check__few_levels_on_a_thousand_threads_fit():
    cluster = make_cluster(1000, 1, GIB)
    cluster.check(plan_count(150, 1000))
    cluster.check(lambda n: plan_em(150, 20, n, n_waiting=73))


def test_check__many_levels_are_assessed_by_the_threads_of_each_worker():
    make_cluster(100, 1, 4 * GIB).check(plan_count(5000, 100))
    with pytest.raises(MemoryPlanError, match=r"tcp://0.*16\.0 GiB"):
        make_cluster(1, 100, 16 * GIB).check(plan_count(5000, 100))


def test_check__the_client_has_memory_of_its_own():
    apart = make_cluster(2, 1, GIB, client=GIB)
    apart.check(lambda n: MemoryPlan("a stage", {"a": GIB}, "", {"b": GIB}))
    with pytest.raises(MemoryPlanError, match=r"a stage .*2\.0 GiB.* b\. Less\."):
        apart.check(lambda n: MemoryPlan("a stage", {"a": GIB}, "Less.", {"b": 2 * GIB}))
    shared = ClusterMemory.here(GIB, 2)
    with pytest.raises(MemoryPlanError, match=r"1\.5 GiB.*1\.0 GiB"):
        shared.check(lambda n: MemoryPlan("a stage", {"a": GIB}, "", {"b": GIB // 2}))


def test_check__says_the_least_limit():
    plan = MemoryPlan("a stage", {"a": 7 * GIB}, "Less.")
    worker = WorkerMemory("tcp://0", 2, GIB, 2 * GIB)
    cluster = ClusterMemory((worker,), GIB, is_shared=False)
    said = r"7\.0 GiB.*tcp://0.*1\.0 GiB.*2\.0 GiB.*2 threads.*10\.4 GiB\. Less"
    with pytest.raises(MemoryPlanError, match=said):
        cluster.check(lambda n: plan)
    info = {"tcp://0": {"host": "one", "nthreads": 2, "memory_limit": find_least_limit(plan)}}
    (enough,) = read_workers(info, {}, 0)
    ClusterMemory((enough,), GIB, is_shared=False).check(lambda n: plan)


def test_find_spare__what_all_workers_have_left():
    nothing = partial(MemoryPlan, "a stage", {"a": GIB}, "")
    assert make_cluster(1000, 1, 3 * GIB).find_spare(lambda n: nothing()) == 2000 * GIB
    # threads hold equal shares: what the smaller worker cannot hold, it is not given
    workers = (WorkerMemory("a", 1, 2 * GIB), WorkerMemory("b", 3, 31 * GIB))
    assert ClusterMemory(workers, 0, False).find_spare(lambda n: nothing()) == 4 * GIB
    assert make_cluster(10, 1, GIB // 2).find_spare(lambda n: nothing()) == 0


def test_read_workers__those_of_one_machine_share_it():
    info = {f"tcp://{n}": {"host": "ab"[n > 1], "nthreads": 1, "memory_limit": 0} for n in range(3)}
    machine = MachineMemory(available=18 * GIB, resident=GIB, limit=1 << 63)
    spare = [worker.spare for worker in read_workers(info, dict.fromkeys(info, machine), 0)]
    assert spare == [int(0.7 * 10 * GIB) - OWN_BYTES] * 2 + [int(0.7 * 19 * GIB) - OWN_BYTES]


@pytest.mark.parametrize(
    ("limit", "allowed", "configured", "spare"),
    [
        (10 * GIB, 1 << 63, 0, int(0.7 * 10 * GIB) - OWN_BYTES),
        (0, 5 * GIB, 0, int(0.7 * 5 * GIB) - OWN_BYTES),
        (10 * GIB, 5 * GIB, 0, int(0.7 * 5 * GIB) - OWN_BYTES),
        (10 * GIB, 5 * GIB, 77, 77),
        (GIB // 8, 1 << 63, 0, 0),
    ],
)
def test_read_workers__the_least_of_what_holds(limit, allowed, configured, spare):
    info = {"tcp://0": {"host": "a", "nthreads": 1, "memory_limit": limit}}
    machine = MachineMemory(available=64 * GIB, resident=0, limit=allowed)
    (found,) = read_workers(info, {"tcp://0": machine}, configured)
    assert (found.spare, found.limit) == (spare, limit)
