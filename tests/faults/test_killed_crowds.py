"""Passes over a label log that are killed go on where they stopped, to the same bits."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pmflib.store import load_arrays
from tests.apps.crowd.label_logs import draw_log
from tests.faults.fault_runs import (
    WAIT_SECONDS,
    check_store,
    finish,
    frozen,
    is_gone,
    list_kinds,
    running_pmf,
    wait_until,
)

pytestmark = pytest.mark.slow


def write_labels(path: Path) -> None:
    """Write a log that takes many passes: guesses that say little."""
    rng = np.random.default_rng(5)
    sizes = {"n_tasks": 60_000, "n_workers": 200, "n_classes": 4, "n_labels": 5}
    log, _ = draw_log(rng, **sizes, accuracy=(0.3, 0.5))
    pq.write_table(pa.table({name: pa.array(column) for name, column in log.items()}), path)


def count_passes(store: Path) -> int:
    """Passes in the checkpoint of a run under way; 0 without one."""
    for folder, _, names in os.walk(store / "work"):
        if "state.npz" in names:
            fit = load_arrays(Path(folder) / "state.npz")
            return 0 if fit is None else len(fit["loss_history"])
    return 0


def test_crowd__killed_and_run_again(tmp_path: Path) -> None:
    write_labels(tmp_path / "labels.parquet")
    words = ["crowd", str(tmp_path / "labels.parquet"), "--output"]
    with running_pmf(tmp_path / "pipeline.toml", words=[*words, "undisturbed"]) as process:
        undisturbed = json.loads(finish(process)[0])
    assert undisturbed["passes"] >= 20
    store = tmp_path / "disturbed" / "store"
    with running_pmf(tmp_path / "pipeline.toml", words=[*words, "disturbed"]) as process:
        wait_until(lambda: 3 <= count_passes(store) <= undisturbed["passes"] - 8, process)
        run = psutil.Process(process.pid)
        family = [run, *run.children(recursive=True)]
        with frozen(run):
            passes = count_passes(store)
            for each in family:
                each.kill()
        assert process.wait(WAIT_SECONDS) == -signal.SIGKILL
        wait_until(lambda: all(map(is_gone, family)))
    assert "labels" not in list_kinds(store)
    states = tmp_path / "states"
    words.append("disturbed")
    with running_pmf(tmp_path / "pipeline.toml", words=words, kept_states=states) as process:
        facts = json.loads(finish(process)[0])
    assert facts["digest"] == undisturbed["digest"]
    assert facts["passes"] == undisturbed["passes"]
    fits = [load_arrays(state) or {} for state in sorted(states.iterdir())]
    assert [len(fit["loss_history"]) for fit in fits] == [*range(passes + 1, facts["passes"] + 1)]
    check_store(store)
