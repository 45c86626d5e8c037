"""The command ``pmf crowd``, with the server that it starts for itself."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from crowd.label_logs import draw_log

from pmflib.crowd import aggregate

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def call(folder, *arguments):
    command = [sys.executable, "-m", "flows.cli", "crowd", *arguments, "--output", "out"]
    return subprocess.run(
        command,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )


def test_crowd__answers_in_labels_and_workers_out(tmp_path):
    answers, _ = draw_log(
        np.random.default_rng(0), n_tasks=50, n_workers=6, n_classes=2, n_answers=3
    )
    lines = ["question,who,said"]
    lines += [f"q{t:02},w{w},{label}" for t, w, label in zip(*answers.values(), strict=True)]
    (tmp_path / "log.csv").write_text("\n".join([*lines, "q01,w0,7"]))
    names = ["--task", "question", "--worker", "who", "--label", "said", "--classes", "0,1"]
    done = call(tmp_path, "log.csv", *names, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["tasks"], facts["answers"], facts["workers"]) == (50, 150, 6)
    assert facts["rows"]["rows_quarantined"] == 1
    assert pq.read_table(facts["quarantine"])["reason"].to_pylist() == ["unknown_level"]
    labels = pq.read_table(tmp_path / "out" / "labels").sort_by("task")
    expected = aggregate(answers, tol=1e-6, max_passes=200)
    assert labels["label"].to_pylist() == [str(code) for code in expected.codes]
    assert pq.read_table(tmp_path / "out" / "workers.parquet").num_rows == 6


def test_crowd__wrong_usage_is_one_paragraph(tmp_path):
    (tmp_path / "log.csv").write_text("task,worker,said\n1,a,x\n")
    done = call(tmp_path, "log.csv")
    assert done.returncode == 3
    assert "no column 'label'" in done.stderr
    assert "Traceback" not in done.stderr
