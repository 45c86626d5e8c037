"""Worker processes killed in the middle of a stage: the run goes on, to the same bits."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import LocalCluster

from pmflib.base import Progress, listen
from pmflib.cluster import open_client, start_workers
from pmflib_tasks.config import ClusterConfig, load_config
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.fit import fit
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.refine import refine
from tests.faults.fault_runs import (
    MAX_PASSES,
    check_store,
    count_passes,
    finish,
    frozen,
    list_kinds,
    read_digests,
    run_stages,
    running_pmf,
    wait_until,
    write_config,
)

pytestmark = [
    pytest.mark.slow,
    # runs say that they wait
    pytest.mark.filterwarnings("ignore::pmflib.base.errors.ClusterWarning"),
]

Undisturbed = tuple[Path, dict[str, str]]


@pytest.fixture
def ingested(undisturbed: Undisturbed, large_log: Path, tmp_path: Path) -> Path:
    """Configuration whose store holds the dataset, and nothing after it."""
    path = write_config(tmp_path, large_log)
    _copy_until(
        undisturbed[0], tmp_path / "store", {"source", "spill", "spill-list", "samples", "dataset"}
    )
    return path


def _copy_until(store: Path, target: Path, kept: set[str]) -> None:
    shutil.copytree(store, target)
    for kind, entries in list_kinds(target).items():
        if kind not in kept:
            shutil.rmtree(target / kind)
            for identity in entries:
                (target / "manifest" / f"{identity}.json").unlink()


@contextmanager
def _kill_one(address: str, task: str, is_under_way: Callable[[], bool]) -> Iterator[list[int]]:
    """Kill, once, a worker process that is seen to be at work on a kind of task; yields its pid when done."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        with open_client(address) as client:
            pids = client.run(os.getpid)
            while not over.is_set():
                for worker, keys in client.processing().items():
                    mine = [key for key in keys if key[0].startswith(task)]
                    if mine and is_under_way():
                        with frozen(psutil.Process(pids[worker])):
                            # frozen: a task that is its own now stays so
                            if mine[0] in client.processing()[worker] and is_under_way():
                                os.kill(pids[worker], signal.SIGKILL)
                                killed.append(pids[worker])
                                return

    with ThreadPoolExecutor(1) as pool:
        watcher = pool.submit(watch)
        try:
            yield killed
        finally:
            over.set()
            watcher.result()


@pytest.mark.parametrize("workers", [1, 2])
def test_refine__worker_killed(workers: int, ingested: Path, undisturbed: Undisturbed) -> None:
    store = ingested.parent / "store"
    cluster = ClusterConfig(workers=workers, processes=True)
    with (
        start_workers(cluster) as address,
        _kill_one(
            address, "refine-pass", lambda: 2 <= count_passes(store) <= MAX_PASSES - 5
        ) as killed,
    ):
        assert run_stages(ingested, address) == undisturbed[1]
    assert len(killed) == 1
    assert not psutil.pid_exists(killed[0])
    check_store(store)


@pytest.mark.parametrize("workers", [1, 2])
def test_count__worker_killed(workers: int, ingested: Path, undisturbed: Undisturbed) -> None:
    store = ingested.parent / "store"
    lost: list[int] = []

    def kill(progress: Progress) -> None:
        # the stage waits for this function: folds are counted, and others are on workers or to be counted
        if progress.stage == "count" and progress.done == 3:
            with open_client(address) as client:
                held = {
                    worker: [key for key in keys if key[0].startswith("count-fold")]
                    for worker, keys in client.has_what().items()
                }
                held = {w: [*held[w], *keys] for w, keys in client.processing().items()}
                victim = max(held, key=lambda worker: len(held[worker]))
                pid = client.run(os.getpid, workers=[victim])[victim]
                os.kill(pid, signal.SIGKILL)
                lost.append(len(held[victim]))
            assert "counts" not in list_kinds(store)

    cluster = ClusterConfig(workers=workers, processes=True)
    with start_workers(cluster) as address, listen(kill, Progress):
        assert run_stages(ingested, address) == undisturbed[1]
    assert len(lost) == 1
    assert lost[0] > 0
    check_store(store)


def test_run__worker_killed(ingested: Path, undisturbed: Undisturbed, large_log: Path) -> None:
    write_config(ingested.parent, large_log, cluster="workers = 2\nprocesses = true")
    store = ingested.parent / "store"
    with running_pmf(ingested) as process:
        wait_until(lambda: 2 <= count_passes(store) <= 10, process)
        children = psutil.Process(process.pid).children(recursive=True)
        workers = [child for child in children if "--multiprocessing-fork" in child.cmdline()]
        workers[0].kill()
        assert "model" not in list_kinds(store)
        finish(process)
    assert read_digests(ingested) == undisturbed[1]
    check_store(store)


@pytest.mark.parametrize("change", ["joins", "leaves", "restarts"])
def test_stages__workers_come_and_go(
    change: str, ingested: Path, undisturbed: Undisturbed, large_log: Path
) -> None:
    # twice as many workers as processors, too
    write_config(ingested.parent, large_log, cluster="workers = 4")
    changed: list[int] = []
    with LocalCluster(
        n_workers=1 if change == "joins" else 4,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
    ) as cluster:

        def act(progress: Progress) -> None:
            if changed or progress.stage != "refine" or progress.done < 3:
                return
            changed.append(progress.done)
            if change == "joins":
                cluster.scale(4)
            elif change == "leaves":
                cluster.scale(1)
            else:
                with open_client(cluster.scheduler_address) as client:
                    client.restart_workers(list(client.nthreads())[:2])

        with listen(act, Progress):
            assert run_stages(ingested, cluster.scheduler_address) == undisturbed[1]
    assert changed
    check_store(ingested.parent / "store")


@contextmanager
def _dask_processes(port: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A scheduler and two workers, each a process of its own."""
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = os.environ | {"DASK_DISTRIBUTED__SCHEDULER__DASHBOARD__ENABLED": "False"}
    host = ["--host", "127.0.0.1"]
    scheduler = [
        sys.executable,
        "-m",
        "distributed.cli.dask_scheduler",
        *host,
        "--port",
        str(port),
    ]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", f"tcp://127.0.0.1:{port}"]
    worker += [*host, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    started = [
        subprocess.Popen(command, env=environment, **options)
        for command in (scheduler, worker, worker)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_refine__scheduler_killed_and_started_again(
    ingested: Path, undisturbed: Undisturbed, large_log: Path
) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    write_config(ingested.parent, large_log, cluster=f'address = "{address}"')
    config = load_config(ingested)
    started, lost = threading.Event(), []

    def watch(progress: Progress) -> None:
        if progress.stage == "refine" and progress.done == 3 and not lost:
            lost.append(progress.done)
            for process in first:
                process.kill()
            started.set()

    def start_again() -> None:
        started.wait()
        again.append(stack.enter_context(_dask_processes(port)))

    again: list[Any] = []
    with ExitStack() as stack, _dask_processes(port) as first, listen(watch, Progress):
        helper = threading.Thread(target=start_again)
        helper.start()
        dataset = ingest(config)
        counts = count(config, dataset)
        model = refine(config, dataset, counts, fit(config, counts))
        helper.join()
    assert lost == [3]
    assert model.digest == undisturbed[1]["model"]
    check_store(ingested.parent / "store")
