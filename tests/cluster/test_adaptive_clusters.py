"""Runs on a cluster that starts workers when tasks wait, and takes them away when they do not."""

import time
from contextlib import contextmanager

import pytest
from distributed import LocalCluster

from pmflib.cluster import membership
from pmflib.counts import count_group_pairs, stored_pairs
from pmflib.store import sample_blocks
from pmflib_tasks.config import load_config
from tests.pipelines import as_wide, draw_codes, make_schema, run_to_model


@contextmanager
def serve(n_workers, **adaptive):
    """Scheduler and workers that talk over TCP, as those of other machines do; adaptive, if limits are given."""
    with LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
    ) as cluster:
        if adaptive:
            # quick to start workers, and to take them away
            cluster.adapt(interval="50ms", wait_count=2, target_duration="10ms", **adaptive)
        yield cluster


def run(folder, address):
    """Digests of what a run has made, by stage."""
    folder.mkdir()
    make_schema(3, 2, 4, 5).save(folder / "schema.json")
    (folder / "a.csv").write_text(as_wide(draw_codes(3000, (3, 2, 4, 5))))
    (folder / "pipeline.toml").write_text(
        '[source]\npath = "a.csv"\nlayout = "wide"\n[store]\nfolds = 8\n[model]\nrank = 3\nmethod = "random"\n'
        f'[em]\nmax_passes = 8\ntol = 0.0\n[cluster]\naddress = "{address}"\nworkers = 4\npatience = 60\n'
    )
    references = run_to_model(load_config(folder / "pipeline.toml"), address)
    return {stage: reference.digest for stage, reference in references.items()}


def count_slowly(group, offsets, counted=None):
    """Count a group in the time in which workers start."""
    time.sleep(0.3)
    return count_group_pairs(group, offsets, counted)


@pytest.mark.slow
@pytest.mark.parametrize("minimum", [0, 1])
def test_run__an_adaptive_cluster_makes_what_two_workers_make(tmp_path, monkeypatch, minimum):
    monkeypatch.delenv("PMF_DASK_ADDRESS", raising=False)
    monkeypatch.setattr(sample_blocks, "MIN_GROUP", 1)
    monkeypatch.setattr(membership, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(stored_pairs, "count_group_pairs", count_slowly)
    with serve(2) as cluster:
        expected = run(tmp_path / "fixed", cluster.scheduler_address)
    with serve(0, minimum=minimum, maximum=4) as cluster:
        found = run(tmp_path / "adaptive", cluster.scheduler_address)
        events = [event for _, event in cluster.scheduler.get_events("all")]
    assert found == expected
    # workers came and went meanwhile
    assert sum(event.get("action") == "add-worker" for event in events) > 1
    assert sum(event.get("action") in ("remove-worker", "retire-workers") for event in events) > 0
