import gzip
import json
import re
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pmflib as pmf
from pmflib.core.errors import ConfigError
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.store.artefacts import Store
from pmflib.store.run_records import find_last_run
from pmflib_flows.cli import app
from pmflib_tasks.config import load_config
from pmflib_tasks.operations.planning import looks
from pmflib_tasks.operations.planning.pipeline_sizes import (
    LastRun,
    measure_fit,
    measure_log,
    read_last_run,
    with_samples,
)
from tests.pipelines import as_wide, draw_codes, make_schema


@pytest.fixture
def wide(tmp_path):
    codes = draw_codes(4000, (3, 4, 5, 2), missing=0.25)
    make_schema(3, 4, 5, 2).save(tmp_path / "schema.json")
    (tmp_path / "a.csv").write_text(as_wide(codes[:1000]))
    (tmp_path / "b.csv").write_text(as_wide(codes[1000:]))
    (tmp_path / "pipeline.toml").write_text(
        '[source]\npath = "*.csv"\nlayout = "wide"\n[model]\nrank = 3\nmethod = "random"\n[em]\nmax_passes = 4\n'
    )
    return tmp_path / "pipeline.toml"


def run_plan(*words):
    return CliRunner().invoke(app, ["plan", *map(str, words)])


def test_plan__excerpts_of_the_files_say_how_many_rows_there_are(wide):
    config = load_config(wide)
    log, notes = measure_log(config, pmf.Schema.load(wide.parent / "schema.json"), LastRun())
    assert log.rows == log.samples == pytest.approx(4000, rel=0.02)
    assert log.observed == pytest.approx(0.75, abs=0.03)
    assert (log.files, log.variables, log.levels, log.cut) == (2, 4, 14, "bytes")
    assert "excerpts" in notes[0]


def test_plan__packed_and_long(tmp_path):
    lines = ["user,item,answer"]
    lines += [f"u{user:03},v{item},{user % 2}" for user in range(500) for item in range(3)]
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    make_schema(2, 2, 2, 2).save(tmp_path / "schema.json")
    (tmp_path / "pipeline.toml").write_text(
        '[source]\npath = "log.csv.gz"\nlayout = "long"\nsample = "user"\nvariable = "item"\nvalue = "answer"\n'
        '[model]\nrank = "auto"\n'
    )
    config = load_config(tmp_path / "pipeline.toml")
    schema = pmf.Schema.load(tmp_path / "schema.json")
    log, _ = measure_log(config, schema, LastRun())
    assert log.cut == "not"
    # all was seen; how many bytes a packed file has unpacked is estimated
    assert log.samples == 500
    assert log.observed == pytest.approx(0.75, rel=0.02)
    assert with_samples(log, log.rows).observed == 0.25
    fit, notes = measure_fit(config, schema, LastRun())
    assert (fit.rank, fit.runs) == (20, 4)
    assert any("rank" in note for note in notes)


@pytest.mark.parametrize("order", ["together", "scattered"])
def test_measure_log__samples_however_the_rows_are_ordered(tmp_path, monkeypatch, order):
    monkeypatch.setattr(looks, "EXCERPT_BYTES", 4096)
    rng = np.random.default_rng(3)
    n_users = 3000
    # some answer much more often than others
    users = np.repeat(np.arange(n_users), rng.geometric(1 / 20, n_users))
    if order == "scattered":
        rng.shuffle(users)
    rows = [f"u{user:05},v{number % 30},1" for number, user in enumerate(users.tolist())]
    for name, part in (("a", rows[:20_000]), ("b", rows[20_000:])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["user,item,answer", *part, ""]))
    make_schema(*[2] * 30).save(tmp_path / "schema.json")
    (tmp_path / "pipeline.toml").write_text(
        '[source]\npath = "*.csv"\nlayout = "long"\nsample = "user"\nvariable = "item"\nvalue = "answer"\n'
        "[model]\nrank = 3\n"
    )
    config = load_config(tmp_path / "pipeline.toml")
    log, _ = measure_log(config, pmf.Schema.load(tmp_path / "schema.json"), LastRun())
    assert log.rows == pytest.approx(len(rows), rel=0.01)
    assert n_users / 1.5 < log.samples < 1.5 * n_users


def test_plan__last_run_says_it_exactly(wide):
    from pmflib_flows.etl import etl

    etl(str(wide))
    config = load_config(wide)
    last = read_last_run(config)
    log, notes = measure_log(config, pmf.Schema.load(wide.parent / "schema.json"), last)
    assert log.rows == 4000
    record = find_last_run(Store(str(wide.parent / "store")), config.name)
    assert log.observed_cells == pytest.approx(DatasetAccount.find(record.facts).observed, rel=1e-9)
    assert "last run" in notes[0]
    fit, _ = measure_fit(config, pmf.Schema.load(wide.parent / "schema.json"), last)
    summary: Any = record.facts["model"]
    assert fit.passes == summary["passes"]
    # files that have grown have more rows
    (wide.parent / "c.csv").write_bytes((wide.parent / "b.csv").read_bytes())
    grown, _ = measure_log(config, pmf.Schema.load(wide.parent / "schema.json"), last)
    assert grown.rows == pytest.approx(7000, rel=0.01)


def test_plan__prints_stages_and_sentences(wide):
    done = run_plan(wide, "--workers", 1000, "--memory", "16GiB", "--rows", "1e10")
    assert done.exit_code == 0, done.output
    for word in ("read", "count", "refine", "evaluate", "fits:", "limit:", "memory of workers:"):
        assert word in done.output
    assert not (wide.parent / "store").exists()


def test_plan__json_adds_up(wide):
    done = run_plan(wide, "--workers", 10, "--threads", 2, "--passes", 7, "--rank", 5, "--json")
    found = json.loads(done.output)
    assert found["fit"]["passes"] == 7
    assert found["fit"]["rank"] == 5
    assert found["cluster"]["threads"] == 2
    walls = [stage["wall_seconds"] for stage in found["stages"]]
    assert sum(walls) == pytest.approx(found["wall_seconds"])
    assert all(stage["tasks"] >= 0 for stage in found["stages"])


def test_plan__without_a_log():
    done = run_plan("--rows", "1e9", "--variables", 12, "--workers", 20, "--json")
    assert json.loads(done.output)["log"]["samples"] == 10**9
    assert isinstance(run_plan("--rows", "1e9").exception, ConfigError)
    wrong = run_plan("--rows", 100, "--variables", 2, "--memory", "much").exception
    assert isinstance(wrong, ConfigError)
    assert "--memory" in str(wrong)


def test_plan__exit_code_where_it_does_not_fit():
    words = "--rows", 1e6, "--variables", 500, "--levels", 50
    assert run_plan(*words, "--memory", "256GiB", "--client-memory", "256GiB").exit_code == 0
    assert run_plan(*words, "--memory", "1GiB").exit_code == 5


def test_plan__a_deadline_names_workers_that_keep_it():
    words = ("--rows", "1e9", "--variables", "20", "--workers", "4")
    found = run_plan(*words, "--deadline", "20min")
    assert found.exit_code == 0, found.output
    assert re.search(
        r"deadline: in 20 min, \d+ such workers take the fewest worker hours", found.output
    )
    (n_workers,) = re.findall(r"deadline: in 20 min, (\d+) such", found.output)
    asked = json.loads(run_plan(*words, "--deadline", "20min", "--json").output)
    assert asked["deadline_workers"] == int(n_workers)
    given = ("--rows", "1e9", "--variables", "20", "--workers", n_workers, "--json")
    assert json.loads(run_plan(*given).output)["wall_seconds"] <= 1200
    assert "no number of such workers" in run_plan(*words[:4], "--deadline", "1s").output
    assert isinstance(run_plan(*words[:4], "--deadline", "soon").exception, ConfigError)


def test_plan__slower_storage_takes_longer(wide):
    def seconds(*words):
        done = run_plan(wide, "--rows", "1e9", "--workers", 50, "--json", *words)
        return json.loads(done.output)["wall_seconds"]

    fast = seconds("--storage", "1GB")
    slow, shared, far = (
        seconds("--storage", "20MB"),
        seconds("--storage", "1GB", "--storage-total", "1GB"),
        seconds("--storage", "1GB", "--request-ms", "50"),
    )
    assert np.all(np.array([slow, shared, far]) > fast)
