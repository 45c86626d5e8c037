"""The command ``pmf crowd``, and the other commands on its store."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import pmflib as pmf
from pmflib_flows.commands import quarantine
from tests.apps.crowd.label_logs import draw_log
from tests.factories import run_command

pytestmark = pytest.mark.slow


def call(folder, *words, code=0):
    """What ``pmf crowd`` prints; the facts of the run where it succeeds."""
    said = run_command(folder, "crowd", *words, "--output", "out", "--json", code=code)
    return said if code else json.loads(said)


def test_crowd__label_log_in_true_labels_and_workers_out(tmp_path):
    log, _ = draw_log(np.random.default_rng(0), n_tasks=50, n_workers=6, n_classes=2, n_labels=3)
    lines = ["question,who,said"]
    lines += [f"q{t:02},w{w},{label}" for t, w, label in zip(*log.values(), strict=True)]
    (tmp_path / "log.csv").write_text("\n".join([*lines, "q01,w0,7"]))
    names = ["--task", "question", "--worker", "who", "--label", "said", "--classes", "0,1"]
    facts = call(tmp_path, "log.csv", *names)
    assert (facts["tasks"], facts["labels"], facts["workers"]) == (50, 150, 6)
    assert facts["rows"]["rows_quarantined"] == 1
    rejected = tmp_path / "rejected.parquet"
    quarantine(tmp_path / "out" / "pipeline.toml", rejected, as_json=True)
    assert pq.read_table(rejected)["reason"].to_pylist() == ["unknown_level"]
    labels = pq.read_table(tmp_path / "out" / "labels").sort_by("task")
    expected = pmf.crowd.aggregate(log, tol=1e-6, max_passes=200)
    assert labels["label"].to_pylist() == [str(code) for code in expected.codes]
    assert pq.read_table(tmp_path / "out" / "workers.parquet").num_rows == 6


def test_crowd__again_with_an_edited_configuration_and_its_accounts(tmp_path):
    log, _ = draw_log(np.random.default_rng(1), n_tasks=80, n_workers=7, n_classes=2, n_labels=3)
    lines = [f"t{t:02},w{w},{label}" for t, w, label in zip(*log.values(), strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["task,worker,label", *lines[:120]]))
    call(tmp_path, "a.csv")
    file = tmp_path / "out" / "pipeline.toml"
    edited = file.read_text().replace('path = "../a.csv"', 'path = ["../a.csv", "../b.csv"]')
    file.write_text(edited + "\n[em]\nmax_passes = 4\n")
    (tmp_path / "b.csv").write_text("\n".join(["task,worker,label", *lines[120:]]))
    facts = call(tmp_path)
    assert (facts["labels"], facts["passes"]) == (240, 4)
    assert edited in file.read_text()
    held = json.loads(run_command(tmp_path, "status", "out/pipeline.toml", "--json"))
    assert held["current"]
    assert (held["run"], held["labels"]["labels"], held["labels"]["path"]) == (
        {},
        240,
        facts["path"],
    )
    assert facts["path"] in run_command(tmp_path, "status", "out/pipeline.toml")
    trace = run_command(tmp_path, "log", "out/pipeline.toml")
    assert trace.startswith(f"labels {facts['digest'][:12]}")
    assert "a.csv" in trace
    assert "b.csv" in trace
    run_command(tmp_path, "verify", "out/pipeline.toml")
    # a question to a model has no model to answer it
    run_command(tmp_path, "query", "out/pipeline.toml", "w1", code=4)


def test_crowd__from_pairs_of_workers(tmp_path):
    sizes = {"n_tasks": 200, "n_workers": 8, "n_classes": 2, "n_labels": 5}
    log, _ = draw_log(np.random.default_rng(2), **sizes, accuracy=(0.75, 0.95))
    lines = [f"t{t:03},w{w},{label}" for t, w, label in zip(*log.values(), strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["task,worker,label", *lines]))
    facts = call(tmp_path, "a.csv", "--method", "robust")
    labels = pq.read_table(tmp_path / "out" / "labels").sort_by("task")
    expected = pmf.crowd.aggregate(log, "robust")
    assert labels["label"].to_pylist() == [str(code) for code in expected.codes]
    assert (facts["method"], facts["em"], facts["passes"]) == ("robust", True, expected.n_passes)
    trace = run_command(tmp_path, "log", "out/pipeline.toml")
    assert "crowd-model" in trace
    assert "worker-pairs" in trace
    shown = json.loads(run_command(tmp_path, "status", "out/pipeline.toml", "--json"))
    pairs, model = (shown["artefacts"][stage] for stage in ("pairs", "crowd_model"))
    assert shown["unfinished"] == []
    run_command(tmp_path, "verify", "out/pipeline.toml")
    # again, and with another method: the pairs are there
    again = call(tmp_path)
    assert again["outcome"] == "unchanged"
    of_run = {"timings", "run", "outcome", "reason", "gate", "quality"}
    assert {key: again[key] for key in again if key not in of_run} == {
        key: facts[key] for key in facts if key not in of_run
    }
    file = tmp_path / "out" / "pipeline.toml"
    file.write_text(file.read_text().replace('"robust"', '"multispa"'))
    # passes of both methods may start from the votes: the same labels
    assert call(tmp_path)["outcome"] in ("promoted", "unchanged")
    shown = json.loads(run_command(tmp_path, "status", "out/pipeline.toml", "--json"))
    assert shown["artefacts"]["pairs"] == pairs
    assert shown["artefacts"]["crowd_model"] != model
    # an artefact that is damaged is named
    (pairs,) = (tmp_path / "out" / "store" / "worker-pairs").iterdir()
    (pairs / "pairs" / "zarr.json").write_text("{}")
    assert pairs.name in run_command(tmp_path, "verify", "out/pipeline.toml", code=4)


def test_crowd__wrong_usage_is_one_paragraph(tmp_path):
    (tmp_path / "log.csv").write_text("task,worker,said\n1,a,x\n")
    said = call(tmp_path, "log.csv", code=2)
    assert "'label'" in said
    assert "pmf crowd --label said" in " ".join(said.split())
    assert "Traceback" not in said
