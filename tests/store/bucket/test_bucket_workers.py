"""Workers in processes of their own, each with a cache of its own, and a store in a bucket."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pmflib.model import ScoreOptions
from pmflib.store import fetch_all
from pmflib_tasks.crowd import find_known_labels, find_labels, list_log_names
from pmflib_tasks.crowd.worker_model import worker_model
from pmflib_tasks.scoring.score import score
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.reference import reference
from tests.flows.nights import Nights, draw_ratings, make_movies
from tests.object_store import describe_access
from tests.pipelines import run_to_model

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """Folder of the caches of each of two workers."""
    folder = tmp_path_factory.mktemp("workers")
    return [folder / f"cache of worker {index}" for index in range(2)]


@pytest.fixture(scope="module")
def cluster(object_server, caches):
    """Address of a scheduler with two workers that share no folder with this process."""
    folder = caches[0].parent
    access = describe_access(object_server, folder / "none")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    started = []

    def start(*words, **more):
        with (folder / f"process-{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                env=os.environ | access | {"PYTHONPATH": str(ROOT)} | more,
                cwd=folder,
                stdout=log,
                stderr=log,
            )
        started.append(process)

    start(
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--no-dashboard",
    )
    for cache in caches:
        start(
            "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
            PMF_MIRROR=str(cache),
        )  # fmt: skip
    from distributed import Client

    with Client(address, timeout=60) as client:
        client.wait_for_workers(2, timeout=120)
    yield address
    for process in started:
        process.kill()
    for process in started:
        process.wait(60)


@pytest.mark.slow
def test_run__on_workers_with_caches_of_their_own(cluster, caches, bucket, tmp_path, monkeypatch):
    before = [{*folder.glob("*")} for folder in caches]
    ratings, section = draw_ratings(300, 6), {"cluster": {"address": cluster}}
    on_disk = Nights(tmp_path / "disk", make_movies(6), monkeypatch)
    on_disk.deliver("a.csv", ratings, range(300))
    expected = on_disk.run()
    address = f"s3://{bucket}/nights"
    section["store"] = {"path": address, "folds": 8}
    there = Nights(tmp_path / "bucket", make_movies(6), monkeypatch, **section)
    there.deliver("a.csv", ratings, range(300))
    found = there.run()
    assert found["live_model"] == expected["live_model"]
    assert {entry.reference for entry in there.store.entries()} == {
        entry.reference for entry in on_disk.store.entries()
    }
    for folder, known in zip(caches, before, strict=True):
        (cache,) = {*folder.iterdir()} - known
        assert any((cache / "spill").iterdir())


@pytest.mark.slow
def test_score_and_labels__what_workers_write_reaches_the_stage(
    cluster, bucket, tmp_path, monkeypatch
):
    movies, found = make_movies(6), []
    monkeypatch.setattr("pmflib.store.bucket.caches.UPLOAD_SECONDS", 0.0)
    for name, path in (("disk", "store"), ("bucket", f"s3://{bucket}/stores/one")):
        crowd = {"method": "mv_em", "known": "gold.csv"}
        sections = {"store": {"path": path, "folds": 8}, "crowd": crowd}
        nights = Nights(
            tmp_path / name, movies, monkeypatch, cluster={"address": cluster}, **sections
        )
        nights.deliver("a.csv", draw_ratings(300, 6), range(300))
        (nights.folder / "gold.csv").write_text("user,rating\nu7,4\nu9,0\n")
        config = nights.config
        stages = run_to_model(config, cluster)
        scale = reference.fn(config, stages["dataset"], stages["model"], cluster)
        requested = ScoreOptions(("v0",))
        made = score.fn(config, stages["dataset"], stages["model"], scale, requested, 1, cluster)
        folder = fetch_all(nights.store.locate(made))
        table = pq.read_table(folder)
        dataset = ingest.fn(config, cluster, list_log_names.fn(config, cluster))
        known = find_known_labels.fn(config, dataset, cluster)
        model = worker_model.fn(config, dataset, None, cluster, known)
        labels = find_labels.fn(config, dataset, model, cluster, known)
        labelled = pq.read_table(fetch_all(nights.store.locate(labels)) / "labels")
        assert labelled.filter(labelled["known"])["label"].to_pylist() in (["4", "0"], ["0", "4"])
        found.append((made, table.num_rows, labels, labelled.num_rows))
    assert found[0] == found[1]
    assert found[0][1] == found[0][3] == 300
    left = {facts.name.split("/")[0] for facts in nights.store.objects.list_objects("")}
    assert "tmp" not in left
    assert "work" not in left
