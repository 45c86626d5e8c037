"""Runs that are killed or interrupted go on where they stopped, to the same bits."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pmflib.store import load_arrays
from tests.faults.fault_runs import (
    MAX_PASSES,
    WAIT_SECONDS,
    check_store,
    count_passes,
    finish,
    frozen,
    is_gone,
    list_fold_files,
    list_kinds,
    read_digests,
    running_pmf,
    wait_until,
    watching,
    write_config,
)

pytestmark = pytest.mark.slow

Undisturbed = tuple[Path, dict[str, str]]

MOMENTS: dict[str, Callable[[Path], Any]] = {
    "ingest": lambda store: 2 <= len(list_kinds(store).get("spill", ())) <= 7,
    "count": lambda store: 1 <= len(list_fold_files(store)) <= 14,
    "refine": lambda store: 3 <= count_passes(store) <= MAX_PASSES - 8,
}
NEXT = {"ingest": "dataset", "count": "counts", "refine": "model"}


def find_family(pid: int) -> list[psutil.Process]:
    """Everything that a run has started, the Prefect server included, and the run itself first."""
    run = psutil.Process(pid)
    return [run, *run.children(recursive=True)]


@pytest.mark.parametrize(
    ("stage", "processes", "alone"),
    [("ingest", False, False), ("count", True, True), ("refine", False, True)],
)
def test_run__killed_and_run_again(
    stage: str,
    processes: bool,
    alone: bool,
    large_log: Path,
    undisturbed: Undisturbed,
    tmp_path: Path,
) -> None:
    cluster = "workers = 2\nprocesses = true" if processes else ""
    path = write_config(tmp_path, large_log, cluster=cluster)
    store = tmp_path / "store"
    (tmp_path / "store" / "manifest").mkdir(parents=True)
    with running_pmf(path) as process:
        wait_until(lambda: MOMENTS[stage](store), process)
        family = find_family(process.pid)
        with frozen(family[0]):
            assert MOMENTS[stage](store)
            # the command, and the workers where they are processes
            assert len(family) >= (3 if processes else 1)
            for each in family[:1] if alone else family:
                each.kill()
        assert process.wait(WAIT_SECONDS) == -signal.SIGKILL
        # whoever was left ends without its parent
        wait_until(lambda: all(map(is_gone, family)))
    before = list_kinds(store)
    folds = list_fold_files(store)
    passes = count_passes(store)
    assert NEXT[stage] not in before

    kept_states = tmp_path / "states"
    with (
        running_pmf(path, kept_states=kept_states) as process,
        watching(lambda: list_fold_files(store)) as seen,
    ):
        finish(process)
        # multiprocessing's own tracker ends a moment after its parent
        wait_until(lambda: not find_left(process, tmp_path))
    assert read_digests(path) == undisturbed[1]
    check_store(store)
    after = list_kinds(store)
    for kind, entries in before.items():
        # a source is noted each time it is looked at
        if kind != "source":
            assert entries.items() <= after[kind].items()
    if stage == "count":
        assert all(folds[name] == files[name] for files in seen for name in folds if name in files)
        assert any(folds.keys() & files.keys() for files in seen)
    if stage == "refine":
        states = [
            load_arrays(state)["loss_history"].size for state in sorted(kept_states.iterdir())
        ]
        assert states == [*range(passes + 1, MAX_PASSES + 1)]


def find_left(process: subprocess.Popen[str], home: Path) -> list[psutil.Process]:
    """Processes of the session that a run began: none after its end."""
    left = []
    for each in psutil.process_iter(["cmdline"]):
        try:
            mine = os.getsid(each.pid) == process.pid
        except (ProcessLookupError, PermissionError):
            continue
        if (mine or any(str(home) in part for part in each.info["cmdline"] or ())) and not is_gone(
            each
        ):
            left.append(each)
    return left


@pytest.mark.parametrize(("stage", "processes"), [("ingest", True), ("count", False)])
def test_run__interrupted_and_run_again(
    stage: str, processes: bool, large_log: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    cluster = "workers = 2\nprocesses = true" if processes else ""
    path = write_config(tmp_path, large_log, cluster=cluster)
    store = tmp_path / "store"
    (tmp_path / "store" / "manifest").mkdir(parents=True)
    with running_pmf(path) as process:
        wait_until(lambda: MOMENTS[stage](store), process)
        family = find_family(process.pid)
        # to all processes of the foreground, as a terminal does
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_SECONDS)
        wait_until(lambda: all(map(is_gone, family)))
    assert (process.returncode, out) == (130, "")
    assert err.count("\n") == 1
    before = list_kinds(store)
    assert NEXT[stage] not in before
    with running_pmf(path) as process:
        finish(process)
    assert read_digests(path) == undisturbed[1]
    check_store(store)
    after = list_kinds(store)
    for kind in before.keys() - {"source"}:
        assert before[kind].items() <= after[kind].items()
