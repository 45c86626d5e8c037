"""Two runs of one pipeline at a time share a store and agree."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pmflib.base import Progress, listen
from pmflib.cluster import start_workers
from pmflib.store import Store
from pmflib_tasks.config import ClusterConfig
from tests.faults.fault_runs import (
    check_artefacts,
    check_store,
    finish,
    list_fold_files,
    read_digests,
    run_stages,
    running_pmf,
    write_config,
)

pytestmark = pytest.mark.slow

Undisturbed = tuple[Path, dict[str, str]]


def test_run__two_at_a_time(large_log: Path, undisturbed: Undisturbed, tmp_path: Path) -> None:
    path = write_config(tmp_path, large_log)
    with running_pmf(path) as one, running_pmf(path) as other:
        finish(one)
        finish(other)
    assert read_digests(path) == undisturbed[1]
    check_store(tmp_path / "store")


def test_count__other_run_takes_the_checkpoints_away(
    large_log: Path, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    path = write_config(tmp_path, large_log)
    store = tmp_path / "store"
    shutil.copytree(undisturbed[0], store)
    (entry,) = [e for e in Store(store).entries() if e.reference.kind == "counts"]
    shutil.rmtree(store / "counts")
    work = store / "work" / entry.reference.identity
    work.mkdir()
    for fold in range(16):
        # seen by the plan, gone or unreadable when their turn comes
        (work / f"fold-{fold}.npz").write_bytes(b"" if fold % 2 else b"PK\x03\x04")

    def take_away(progress: Progress) -> None:
        if progress.stage == "count" and progress.done == 5:
            shutil.rmtree(work)

    with start_workers(ClusterConfig(workers=2)) as address, listen(take_away, Progress):
        assert run_stages(path, address) == undisturbed[1]
    check_store(store)


def test_build__second_publisher_keeps_the_first(tmp_path: Path) -> None:
    store, inner = Store(tmp_path), []

    def write(folder: Path, work: Path) -> dict[str, Any]:
        if not inner:
            inner.append(None)
            inner[0] = store.build("thing", inputs={}, options={}, version=1, write=write)
        np.save(folder / "content.npy", np.arange(5))
        return {}

    entry = store.build("thing", inputs={}, options={}, version=1, write=write)
    assert inner == [entry]
    check_artefacts(tmp_path)
    assert list_fold_files(tmp_path) == {}
