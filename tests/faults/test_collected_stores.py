"""Collections beside runs, killed collections, and what thirty nights leave."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pmflib.cluster import start_workers
from pmflib.store import (
    COLLECTIONS,
    Store,
    collect,
    is_needed,
    list_collected_runs,
    list_records,
    verify_store,
)
from pmflib_flows.recording import record_run
from pmflib_tasks.config import ClusterConfig, load_config
from tests.faults.fault_runs import (
    ROOT,
    check_artefacts,
    finish,
    read_digests,
    run_stages,
    running_pmf,
    write_config,
)
from tests.pipelines import as_wide, draw_codes, make_schema, run_to_model

pytestmark = pytest.mark.slow

COLLECT = "import sys; from pmflib_flows.cli import main; main()"


def find_problems(store: Store) -> set[str]:
    found = verify_store(store, list_collected_runs(store), is_needed, older_than=0)
    return {f"{each.problem}: {each.detail}" for each in found.damages}


def age_manifest(store: Path) -> None:
    """Make every entry look as if nobody had used it for long."""
    for path in (store / "manifest").glob("*.json"):
        os.utime(path, (1, 1))


def test_collect__all_the_while_a_run_is_under_way(small_log: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, small_log)
    with start_workers(ClusterConfig(workers=2)) as address:
        expected = run_stages(write_config(tmp_path / "other", small_log), address)
    # half of what the run could use is there, no record says that it is needed, and the run may find it or not
    shutil.copytree(tmp_path / "other" / "store", tmp_path / "store")
    for kind in ("counts", "start", "model", "scores"):
        shutil.rmtree(tmp_path / "store" / kind)
    age_manifest(tmp_path / "store")
    n_collections = n_deleted = 0
    with running_pmf(path) as process:
        store = Store(tmp_path / "store")
        # the processes take some seconds to start, and the first collections would take everything
        while not list((tmp_path / "store" / "leases").iterdir()) and process.poll() is None:
            time.sleep(0.05)
        while process.poll() is None:
            found = collect(store, 1)
            n_collections += 1
            n_deleted += sum(each.number for each in found.artefacts.values())
            time.sleep(0.2)
        finish(process)
    assert n_collections > 5
    assert n_deleted > 0
    assert read_digests(path) == expected
    collect(store, 1, older_than=0)
    assert find_problems(store) == set()
    check_artefacts(tmp_path / "store")


def test_collect__killed_process(small_log: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path, small_log)
    with start_workers(ClusterConfig(workers=2)) as address:
        config = load_config(path)
        with record_run(config) as run:
            run.stages |= run_to_model(config, address)
            run.outcome = "kept"
    store = Store(tmp_path / "store")

    def write(folder: Path, work: Path) -> dict[str, object]:
        for part in range(50):
            (folder / f"{part}").write_bytes(bytes(100))
        return {}

    for number in range(60):
        store.build("thing", inputs={}, options={"n": number}, version=1, write=write)
    for delay in (0.0, 0.01, 0.03, 0.1, 0.3, 1.0):
        words = [sys.executable, "-c", COLLECT, "gc", str(path), "--keep-runs", "1"]
        words += ["--older-than", "0"]
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
        # from its lease on it works
        while not list((store.root / "leases").iterdir()) and process.poll() is None:
            time.sleep(0.002)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for lease in (store.root / "leases").iterdir():
            lease.unlink()
        problems = find_problems(store)
        assert {each for each in problems if not each.startswith("orphan folder")} == set()
    # they were killed while they collected, and said first what may be missing
    assert list_records(store, COLLECTIONS)
    collect(store, 1, older_than=0)
    assert find_problems(store) == set()
    assert not (store.root / "thing").exists() or not list((store.root / "thing").iterdir())
    assert list((store.root / "tmp").iterdir()) == []


def test_collect__thirty_nights_leave_what_a_fresh_store_has(tmp_path: Path) -> None:
    schema = make_schema(3, 2, 4, 2)
    text = '[source]\npath = "{}"\nlayout = "wide"\n[store]\nfolds = 4\n[model]\nrank = 2\nmethod = "spa"\n[em]\n'
    text += "max_passes = 2\npseudo_count = 1.0\n"
    for home in (tmp_path / "nights", tmp_path / "fresh"):
        home.mkdir()
        schema.save(home / "schema.json")
        (home / "pipeline.toml").write_text(text.format(tmp_path / "data"))
    (tmp_path / "data").mkdir()

    def run(home: Path, address: str) -> Store:
        config = load_config(home / "pipeline.toml")
        with record_run(config) as run:
            run.stages |= run_to_model(config, address)
            run.outcome, run.live = "promoted", run.stages["model"]
        return Store(config.resolve(config.store.path))

    with start_workers(ClusterConfig(workers=2)) as address:
        for night in range(30):
            codes = draw_codes(400, schema.cardinalities, seed=night)
            (tmp_path / "data" / f"day{night:02}.csv").write_text(as_wide(codes))
            store = run(tmp_path / "nights", address)
        fresh = run(tmp_path / "fresh", address)

    def list_folders(store: Store) -> dict[str, int]:
        kinds = ("samples", "dataset", "counts", "start", "model")
        folders = [folder for kind in kinds for folder in (store.root / kind).iterdir()]
        return {
            path: store.objects.measure(path)
            for path in (each.relative_to(store.root).as_posix() for each in folders)
        }

    before = sum(list_folders(store).values())
    found = collect(store, 1, older_than=0)
    left = list_folders(store)
    assert left == list_folders(fresh)
    assert before - sum(left.values()) <= found.bytes
    assert sum(left.values()) < before / 2
    assert find_problems(store) == set()
