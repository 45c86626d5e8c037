from pmflib.cluster.memory import ClusterMemory, MemoryPlan, WorkerMemory
from pmflib_tasks.operations.doctor.machines import (
    WorkerMachine,
    check_container,
    check_linear_algebra,
    check_memory,
    check_open_files,
    check_own_threads,
    check_threads,
    check_worker_memory,
)
from pmflib_tasks.operations.doctor.processes import LinearAlgebra, find_process_state, find_quota
from tests.operations.doctor.health_cases import PROCESS, states_of, with_process


def plan(n_threads):
    return MemoryPlan("EM", {"tables": n_threads << 20}, "Lower it.", {"models": 3 << 20})


def make_machine(name, n_threads, process=PROCESS):
    return WorkerMachine(WorkerMemory(name, n_threads, 1 << 30), process)


def test_check_worker_memory__names_what_is_needed_and_what_there_is():
    (line,) = check_worker_memory(
        [WorkerMemory("a", 2, 4 << 20), WorkerMemory("b", 1, 9 << 20)], [plan]
    )
    assert line.state == "ok"
    assert "4.0 MiB for data at least; EM needs most, 2.0 MiB" in line.found
    workers = [WorkerMemory("a", 2, 1 << 20, 2 << 20), WorkerMemory("b", 3, 1 << 20)]
    (line,) = check_worker_memory(workers, [plan])
    assert (line.state, line.fault) == ("FAIL", "memory")
    for text in ("2.0 MiB in worker a", "1.0 MiB", "at least", "2 of 2 workers"):
        assert text in line.found
    (line,) = check_worker_memory(workers, [])
    assert line.state == "ok"
    assert "follows from the schema" in line.found
    assert check_worker_memory([], [plan]) == []


def test_check_memory__of_a_client_with_workers_and_alone():
    memory = ClusterMemory.here(5 << 20, 2)
    line = check_memory(memory, [plan], is_alone=False)
    assert (line.state, line.found) == ("ok", "5.0 MiB for data; EM needs most, 3.0 MiB")
    line = check_memory(memory, [plan], is_alone=True)
    assert (line.state, line.found) == ("ok", "5.0 MiB for data; EM needs most, 5.0 MiB")
    line = check_memory(ClusterMemory.here(5 << 20, 3), [plan], is_alone=True)
    assert (line.state, line.fault) == ("FAIL", "memory")
    assert check_memory(ClusterMemory.here(2 << 20), [plan], is_alone=False).state == "FAIL"
    assert check_memory(memory, [], is_alone=True).state == "ok"


def test_check_threads__all_workers_of_a_machine_count():
    two = [make_machine("a", 2), make_machine("b", 2)]
    assert states_of(check_threads(two)) == ["ok"]
    (line,) = check_threads([*two, make_machine("c", 1)])
    assert line.state == "warn"
    assert "one (5 threads on 4 processors)" in line.found
    elsewhere = make_machine("c", 1, with_process(host="two"))
    assert states_of(check_threads([*two, elsewhere])) == ["ok"]
    # a container may have less time than there are processors
    limited = with_process(quota=1.5)
    (line,) = check_threads([make_machine("a", 2, limited)])
    assert "2 threads on 1.5 processors" in line.found
    assert check_threads([]) == []


def test_check_own_threads__more_than_processors():
    assert check_own_threads(PROCESS, 0).state == "ok"
    line = check_own_threads(PROCESS, 8)
    assert (line.state, line.remedy) == ("warn", "set cluster.workers to 4")


def test_check_linear_algebra__more_than_one_thread():
    assert states_of(check_linear_algebra(PROCESS, [make_machine("a", 1)])) == ["ok"]
    busy = with_process(linear_algebra=(LinearAlgebra("mkl", "", 16),))
    (line,) = check_linear_algebra(PROCESS, [make_machine("a", 1, busy)])
    assert line.state == "warn"
    assert "at a (16)" in line.found
    assert states_of(check_linear_algebra(with_process(linear_algebra=()), [])) == ["ok"]


def test_check_open_files__more_workers_need_more():
    low = with_process(open_files=1024)
    assert check_open_files(low, []).state == "ok"
    line = check_open_files(low, [make_machine("a", 1)])
    assert line.state == "warn"
    assert "client (1024)" in line.found
    assert check_open_files(with_process(open_files=0), []).found == "no limit"


def test_check_container__limits_are_named():
    assert "no limits" in check_container(PROCESS, []).found
    limited = with_process(container_memory=2 << 30, quota=1.5)
    line = check_container(PROCESS, [make_machine("a", 1, limited)])
    assert (line.state, line.found) == ("ok", "limits at a (2.0 GiB, 1.5 processors)")


def test_find_quota__of_both_versions(tmp_path):
    two = tmp_path / "cpu.max"
    two.write_text("150000 100000\n")
    assert find_quota((str(two), "none")) == 1.5
    two.write_text("max 100000\n")
    assert find_quota((str(two), "none")) == 0.0
    assert find_quota(("none", "none")) == 0.0


def test_find_process_state__of_this_process():
    state = find_process_state()
    assert state.versions["pmflib"]
    assert state.processors >= 1
    assert state.memory.available > 0
    assert state.linear_algebra
    assert "memory" not in state.versions
