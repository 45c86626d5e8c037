"""`pmf score` on wide files: streamed through a pipeline, or with a model alone; stopped at any moment, run again."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pyarrow.parquet as pq
import pytest

import pmflib as pmf
from pmflib.answering import mark_files
from pmflib.store import Store, find_live
from tests.factories import run_command as run
from tests.pipelines import as_wide, draw_codes, make_schema

SIZES = (3, 2, 4, 3)
CONFIG = """
[source]
path = "data"
layout = "wide"
[store]
folds = 4
[model]
rank = 2
[em]
max_passes = 5
"""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """Folder of a pipeline that has run, on 4,000 rows."""
    home = tmp_path_factory.mktemp("pipeline")
    (home / "data").mkdir()
    (home / "data" / "old.csv").write_text(as_wide(draw_codes(4000, SIZES)))
    make_schema(*SIZES).save(home / "schema.json")
    (home / "pipeline.toml").write_text(CONFIG)
    run(home, "run", "pipeline.toml")
    (home / "new.csv").write_text(as_wide(draw_codes(900, SIZES, seed=4)) + "0,0,0\n")
    return home


def start(home, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "pmflib_flows", *map(str, words)],
        cwd=home,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_bytes(folder):
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix == ".parquet"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def count_parts(*folders):
    """Number of parts that are finished, in the work of a store or beside their destinations."""
    n_parts = 0
    for folder in folders:
        # folders go while they are looked through
        with suppress(OSError):
            n_parts += sum(1 for _ in folder.rglob("part-*.parquet"))
    return n_parts


def test_score__streams_files_through_the_live_model(pipeline):
    words = ["score", "pipeline.toml", "--data", "new.csv", "--target", "v2", "--json"]
    found = json.loads(run(pipeline, *words, "--output", "scores.parquet"))
    assert (found["rows_in"], found["samples"], found["rows_quarantined"]) == (901, 900, 1)
    table = pq.read_table(pipeline / "scores.parquet")
    store = Store(pipeline / "store")
    live = find_live(store, "pipeline")
    model = pmf.JointPMF.load(store.locate(live) / "model")
    np.testing.assert_allclose(
        table["log_prob"], model.log_prob(draw_codes(900, SIZES, seed=4)), rtol=1e-12
    )
    assert table["row"].to_pylist() == list(range(1, 901))
    assert set(table["file"].to_pylist()) == {"new.csv"}
    metadata = table.schema.metadata
    assert metadata[b"pmf.model"].decode() == live.digest
    assert metadata[b"pmf.run"] == b"1"
    # a fourth of the 4,000 rows were held out
    assert int(metadata[b"pmf.reference"].split()[0]) > 800
    assert metadata[b"pmf.reference"].endswith(b"held-out samples")
    assert 40 < np.nanmean(table["anomaly_percentile"].to_numpy()) < 60
    rejected = pq.read_table(pipeline / found["quarantine"])
    assert rejected["reason"].to_pylist() == ["ragged"]
    # the same once more: nothing is scored, and the reference is that of the model
    kinds = sorted(entry.reference.kind for entry in store.entries())
    again = json.loads(run(pipeline, *words, "--output", "folder"))
    assert again["digest"] == found["digest"]
    assert kinds == sorted(entry.reference.kind for entry in store.entries())
    assert kinds.count("reference") == 1
    assert pq.read_table(pipeline / "folder")["log_prob"].equals(table["log_prob"])


def test_score__values_that_are_no_level_are_named(pipeline):
    rows = as_wide(draw_codes(50, SIZES, seed=5, missing=0)).splitlines()
    # labels of v2 are written otherwise, and two rows have a v0 that the schema lacks
    lines = [rows[0], *(f"{r[:4]}is {r[4:]}" for r in rows[1:]), "9,0,is 1,0", "9,0,is 1,0"]
    (pipeline / "labels.csv").write_text("\n".join(lines))
    model = next((pipeline / "store" / "model").glob("*/model"))
    for words in (["pipeline.toml"], ["--model", model]):
        words = ["score", *words, "--data", "labels.csv", "--target", "v2", "--output", "l.parquet"]
        found = json.loads(run(pipeline, *words, "--json"))
        assert (found["rows_in"], found["samples"], found["rows_quarantined"]) == (52, 52, 0)
        assert found["unknown_levels"]["v0"] == {"cells": 2, "values": {"9": 2}, "more_values": 0}
        assert found["unknown_levels"]["v2"]["cells"] == 52
        assert found["measures"] == {"v2": {"judged": 0, "truth_missing": 52}}
        assert pq.read_table(pipeline / "l.parquet").num_rows == 52


def test_score__without_data_scores_the_files_of_the_pipeline(pipeline):
    found = json.loads(run(pipeline, "score", "pipeline.toml", "--json"))
    assert (found["rows_in"], found["samples"]) == (4000, 4000)


def test_score__a_folder_has_the_parts_of_the_last_night_alone(pipeline):
    (pipeline / "many").mkdir()
    for name in ("a.csv", "b.csv"):
        (pipeline / "many" / name).write_text((pipeline / "new.csv").read_text())
    words = ["score", "pipeline.toml", "--output", "nightly", "--data"]
    run(pipeline, *words, "many")
    assert pq.read_table(pipeline / "nightly").num_rows == 1800
    assert len(read_bytes(pipeline / "nightly" / "_quarantine")) == 2
    (pipeline / "few.csv").write_text(as_wide(draw_codes(7, SIZES)))
    run(pipeline, *words, "few.csv")
    assert pq.read_table(pipeline / "nightly").num_rows == 7
    assert not (pipeline / "nightly" / "_quarantine").exists()
    # what is not of predictions stays
    (pipeline / "mine").mkdir()
    (pipeline / "mine" / "note.txt").write_text("mine")
    run(pipeline, *words[:-2], "mine", "--data", "few.csv", code=2)
    assert [each.name for each in (pipeline / "mine").iterdir()] == ["note.txt"]


@pytest.mark.parametrize("name", ["again", "again.parquet", "again.csv"])
def test_score__model_alone_does_again_what_is_no_longer_whole(pipeline, name):
    store = Store(pipeline / "store")
    model = store.locate(find_live(store, "pipeline")) / "model"
    words = ["score", "--model", model, "--data", "new.csv", "--output", name]
    output = pipeline / name
    run(pipeline, *words)
    whole = mark_files(output)
    assert len(whole) == 2
    run(pipeline, *words)
    assert mark_files(output) == whole
    for file in whole:
        content = (pipeline / file).read_bytes()
        for damage in (content[:-9], None):
            (pipeline / file).unlink()
            if damage is not None:
                (pipeline / file).write_bytes(damage)
            run(pipeline, *words)
            assert (pipeline / file).read_bytes() == content


def test_score__model_alone(pipeline):
    store = Store(pipeline / "store")
    model = store.locate(find_live(store, "pipeline")) / "model"
    words = ["score", "--model", model, "--data", "new.csv"]
    out = run(pipeline, *words, "--output", "alone.csv", "--keep", "v1")
    assert "samples: 900" in out
    head, first, *_ = (pipeline / "alone.csv").read_text().splitlines()
    assert head.startswith('"file","row","v1","log_prob","state","observed","anomaly_score"')
    assert first.startswith('"new.csv",1,')
    run(pipeline, *words, code=2)
    run(pipeline, "score", "--data", "new.csv", code=2)
    run(pipeline, "score", "pipeline.toml", *words[1:], code=2)


@pytest.mark.slow
@pytest.mark.parametrize("alone", [False, True])
def test_score__killed_at_any_moment_and_run_again(pipeline, alone, tmp_path):
    """A log of some millions of rows; five runs are killed soon after they have finished a part."""
    rng = np.random.default_rng(8 + alone)
    store = Store(pipeline / "store")
    model = store.locate(find_live(store, "pipeline")) / "model"
    codes = np.tile(draw_codes(100_000, SIZES, seed=6), (60, 1))
    pq.write_table(make_schema(*SIZES).decode(codes), tmp_path / "log.parquet")
    csv = as_wide(codes[:100_000])
    (tmp_path / "more.csv").write_text(csv + csv.partition("\n")[2] * 24)
    data = tmp_path / "*.*"
    if alone:
        words = ["score", "--model", model, "--data", data, "--output"]
    else:
        words = ["score", "pipeline.toml", "--data", data, "--output"]
    run(pipeline, *words, tmp_path / "whole")
    whole = read_bytes(tmp_path / "whole")
    assert len(whole) >= 8
    if not alone:
        # what was published is not done again: take it out of the manifest
        for path in (pipeline / "store" / "manifest").glob("*.json"):
            if '"predictions"' in path.read_text():
                path.unlink()
    n_killed = 0
    while True:
        n_before = count_parts(pipeline, tmp_path / "out")
        process = start(pipeline, *words, tmp_path / "out")
        while process.poll() is None and count_parts(pipeline, tmp_path / "out") <= n_before:
            time.sleep(0.005)
        time.sleep(0.2 * rng.random())
        if process.poll() is None and n_killed < 5:
            process.send_signal(signal.SIGKILL if n_killed % 2 else signal.SIGINT)
        _, err = process.communicate(timeout=300)
        if process.returncode == 0:
            break
        assert process.returncode in (130, -signal.SIGKILL), err
        n_killed += 1
    assert n_killed >= 2
    assert read_bytes(tmp_path / "out") == whole


@pytest.mark.parametrize(
    "words", [["quarantine", "pipeline.toml"], ["score", "pipeline.toml", "--questions", "new.csv"]]
)
def test_output__that_no_file_can_be_leaves_nothing(pipeline, tmp_path, words):
    run(pipeline, *words, "--output", tmp_path / "out.txt", code=2)
    assert list(tmp_path.iterdir()) == []
