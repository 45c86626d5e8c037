"""The same configuration gives the same bits, whoever does the work."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from pmflib.cluster import ClusterMemory, open_client, start_workers
from pmflib.store import sample_blocks
from pmflib_tasks.config import ClusterConfig
from tests.faults.fault_runs import ROOT, STAGES, check_store, run_stages, wait_until, write_config

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small data make a merge tree as deep as large data do."""
    monkeypatch.setattr(sample_blocks, "MIN_GROUP", 500)


@pytest.fixture(scope="module")
def expected(
    small_log: Path, survey: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, str]]:
    """Digests of one thread's work, by layout."""
    digests = {}
    with pytest.MonkeyPatch.context() as patch, start_workers(ClusterConfig(workers=1)) as address:
        patch.setattr(sample_blocks, "MIN_GROUP", 500)
        for layout, data in (("long", small_log), ("wide", survey)):
            folder = tmp_path_factory.mktemp(layout)
            digests[layout] = run_stages(
                write_config(folder, data, method="pairs", passes=8), address
            )
            check_store(folder / "store")
    return digests


@contextmanager
def start_external(folder: Path) -> Iterator[str]:
    """Run a scheduler and two workers as commands of their own, without nannies."""
    announced = folder / "scheduler.json"
    common = ["--host", "127.0.0.1", "--no-dashboard"]
    commands = [
        ["dask_scheduler", "--port", "0", "--scheduler-file", str(announced), *common],
        *[["dask_worker", "--scheduler-file", str(announced), "--nthreads", "1", "--no-nanny"]] * 2,
    ]
    with ExitStack() as stack:
        log = stack.enter_context(open(folder / "dask.log", "ab"))
        for module, *options in commands:
            if module == "dask_worker":
                wait_until(announced.exists)
                options += [*common, "--local-directory", str(folder)]
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{module}", *options],
                cwd=folder,
                env={"PYTHONPATH": str(ROOT), "HOME": str(folder), "PATH": ""},
                stderr=log,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        address = json.loads(announced.read_text())["address"]
        with open_client(address) as client:
            client.wait_for_workers(2)
        yield address


@pytest.mark.parametrize(("workers", "processes"), [(2, False), (4, False), (1, True), (2, True)])
def test_stages__any_workers_same_bits(
    workers: int,
    processes: bool,
    small_log: Path,
    survey: Path,
    expected: dict[str, dict[str, str]],
    tmp_path: Path,
) -> None:
    with start_workers(ClusterConfig(workers=workers, processes=processes)) as address:
        for layout, data in (("long", small_log), ("wide", survey)):
            path = write_config(tmp_path / layout, data, method="pairs", passes=8)
            assert run_stages(path, address) == expected[layout]
            check_store(tmp_path / layout / "store")


def test_stages__external_scheduler_same_bits(
    small_log: Path,
    expected: dict[str, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with start_external(tmp_path) as external:
        monkeypatch.setenv("PMF_DASK_ADDRESS", external)
        with start_workers(ClusterConfig()) as address:
            assert address == external
            path = write_config(tmp_path / "run", small_log, method="pairs", passes=8)
            assert run_stages(path, address) == expected["long"]
    check_store(tmp_path / "run" / "store")


def test_stages__no_client_same_bits(
    small_log: Path,
    expected: dict[str, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def open_nothing(*_: Any) -> Iterator[tuple[None, ClusterMemory]]:
        yield None, ClusterMemory.here(1 << 40)

    for stage in ("count", "refine", "evaluate"):
        monkeypatch.setattr(
            sys.modules[f"pmflib_tasks.stages.{stage}"], "open_workers", open_nothing
        )
    monkeypatch.setattr(
        sys.modules["pmflib_tasks.stages.ingest"], "open_workers_late", lambda *_: nullcontext()
    )
    path = write_config(tmp_path, small_log, method="pairs", passes=8)
    assert run_stages(path, "nowhere") == expected["long"]


def test_stages__another_tree_other_bits(
    small_log: Path,
    expected: dict[str, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # shows that the trees above are deep enough for their shape to matter: with "auto" so few samples are fitted in one
    monkeypatch.setattr(sample_blocks, "MIN_GROUP", 200_000)
    with start_workers(ClusterConfig(workers=2)) as address:
        found = run_stages(write_config(tmp_path, small_log, method="pairs", passes=8), address)
    assert {s for s in STAGES if found[s] == expected["long"][s]} == {"dataset", "counts", "start"}
