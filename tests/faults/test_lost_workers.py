"""Worker processes killed in the middle of a stage: the run goes on, to the same bits."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pmflib.config import ClusterConfig
from pmflib.reporting.work_progress import Progress
from pmflib.running.clients import open_client, start_workers
from tasks.stage_progress import listen
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

pytestmark = pytest.mark.slow

Undisturbed = tuple[Path, dict[str, str]]


@pytest.fixture
def ingested(undisturbed: Undisturbed, large_log: Path, tmp_path: Path) -> Path:
    """Configuration whose store holds the dataset, and nothing after it."""
    path = write_config(tmp_path, large_log)
    _copy_until(undisturbed[0], tmp_path / "store", {"source", "spill", "samples", "dataset"})
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
                    mine = [key for key in keys if key.startswith(task)]
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
            address, "evaluate_group", lambda: 2 <= count_passes(store) <= MAX_PASSES - 5
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
                    worker: [key for key in keys if "merge_tables" in key or "count_group" in key]
                    for worker, keys in client.has_what().items()
                }
                held = {w: [*held[w], *keys] for w, keys in client.processing().items()}
                victim = max(held, key=lambda worker: len(held[worker]))
                pid = client.run(os.getpid, workers=[victim])[victim]
                os.kill(pid, signal.SIGKILL)
                lost.append(len(held[victim]))
            assert "counts" not in list_kinds(store)

    cluster = ClusterConfig(workers=workers, processes=True)
    with start_workers(cluster) as address, listen(kill):
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
