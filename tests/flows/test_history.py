"""History, differences, lineage of rows and collection of small pipelines, by their commands."""

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pmflib.base import QualityError, SourceError
from pmflib.cluster import start_workers
from pmflib.ingest import find_sample
from pmflib.model import ScoreOptions
from pmflib.store import Store, append_record, find_record, list_records
from pmflib_flows.recording import record_run
from pmflib_tasks.config import ClusterConfig, load_config
from pmflib_tasks.scoring.score import score
from pmflib_tasks.stages.evaluate import evaluate
from pmflib_tasks.stages.reference import reference
from tests.factories import call_command
from tests.pipelines import as_wide, draw_codes, make_schema, read_dataset, run_to_model

SCHEMA = make_schema(3, 2, 4)
LONG = """
layout = "long"
sample = "who"
variable = "what"
value = "level"
time = "when"
"""


def write_config(home, layout, *, name="pipeline", rank=2, source="data"):
    text = f"""
name = "{name}"
[source]
path = "{source}"
{layout}
[store]
folds = 4
[model]
rank = {rank}
[em]
max_passes = 3
pseudo_count = 1.0
"""
    (home / "pipeline.toml").write_text(text)
    SCHEMA.save(home / "schema.json")
    (home / "data").mkdir(exist_ok=True)
    return load_config(home / "pipeline.toml")


def write_night(home, night, *, n_people=120, shift=0):
    """Write the answers of a night, a row each; some are given a second time."""
    codes = (draw_codes(n_people, SCHEMA.cardinalities, seed=night, missing=0.1) + shift) % 2
    lines = ["who,what,level,when"]
    for person, row in enumerate(codes.tolist()):
        for variable, code in enumerate(row):
            lines.append(f"p{night}-{person},v{variable},{code},{night}")
    lines += [f"p0-7,v0,{night % 3},{night}", f"p0-7,v1,1,{night}"]
    (home / "data" / f"day{night}.csv").write_text("\n".join(lines) + "\n")


def run_night(config, workers):
    """Run all stages, and record them as a flow does."""
    store = Store(config.resolve(config.store.path))
    with record_run(config) as run:
        run.stages |= run_to_model(config, workers)
        dataset, counts, model = (run.stages[stage] for stage in ("dataset", "counts", "model"))
        run.stages["scores"] = evaluate.fn(config, dataset, counts, model, workers)
        summaries = {stage: store.find(each.identity).summary for stage, each in run.stages.items()}
        found = {key: summaries[key] for key in ("model", "scores")}
        run.facts.note(rows=summaries["dataset"], **found)
        run.outcome, run.reason, run.live = "promoted", "better", model
    return list_records(store, config.name)[-1]


@pytest.fixture(scope="module")
def workers():
    with start_workers(ClusterConfig(workers=2)) as address:
        yield address


@pytest.fixture(scope="module")
def nights(tmp_path_factory, workers):
    """Folder of a pipeline of three nights, the last of another rank, and of a run that was held back."""
    home = tmp_path_factory.mktemp("nights")
    for night in range(3):
        config = write_config(home, LONG, rank=3 if night == 2 else 2)
        write_night(home, night, shift=night // 2)
        run_night(config, workers)
    stop_on_findings(config)
    return home


def stop_on_findings(config):
    reason = "half of the rows are gone, see ftp://me:hunter2@host/x"
    with suppress(QualityError), record_run(config) as run:
        run.facts.note(rows={"rows_in": 7})
        raise QualityError(reason)


@pytest.fixture
def copy(nights, tmp_path):
    """Copy of the nights, to change."""
    shutil.copytree(nights, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


@pytest.fixture
def call(monkeypatch, capsys):
    """Give a function that runs a command: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "250")

    def run(verb, home, *arguments):
        code = call_command(monkeypatch, verb, home / "pipeline.toml", *arguments)
        return code, *capsys.readouterr()

    return run


def read_json(answer):
    code, out, _ = answer
    assert code == 0
    return json.loads(out)


def store_of(home):
    config = load_config(home / "pipeline.toml")
    return Store(config.resolve(config.store.path))


def test_record_run__keeps_files_options_versions(nights):
    first, _, third, held = list_records(store_of(nights), "pipeline")
    assert [file.name for file in third.inputs] == ["day0.csv", "day1.csv", "day2.csv"]
    assert [file.bytes for file in first.inputs] == [(nights / "data" / "day0.csv").stat().st_size]
    models: list[Any] = [each.options["model"] for each in (first, third)]
    assert [each["rank"] for each in models] == [2, 3]
    assert "base" not in first.options
    assert len(first.environment.get("commit", "0" * 40)) >= 40
    assert (held.outcome, held.live) == ("held back", third.live)
    assert held.reason == "half of the rows are gone, see ftp://***@host/x"


def test_record_run__no_secret_of_a_source_is_kept(tmp_path):
    (tmp_path / "data").mkdir()
    url = "https://me:hunter2@host/day.csv?token=hunter2&part=1"
    config = write_config(tmp_path, 'layout = "wide"', source=url)
    with suppress(SourceError), record_run(config):
        raise SourceError(f"source.path {url!r} cannot be opened")
    (path,) = (tmp_path / "store" / "runs" / "pipeline").glob("*.json")
    assert "hunter2" not in path.read_text()
    assert find_record(Store(tmp_path / "store"), "pipeline", 1).options["source"]["path"] == (
        "https://***@host/day.csv?token=***&part=1"
    )


def test_history__as_a_table_and_as_json(nights, call):
    code, out, _ = call("history", nights)
    assert code == 0
    assert "hunter2" not in out
    lines = [line for line in out.splitlines() if " run " in line][1:]
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
    assert [(line[0], line[4], line[6]) for line in cells] == [
        ("1", "promoted", "1"),
        ("2", "promoted", "1"),
        ("3", "promoted", "1"),
        ("4", "held back", ""),
    ]
    assert cells[3][5] == "7"
    found = read_json(call("history", nights, "--last", 2, "--json"))
    assert [record["number"] for record in found["runs"]] == [3, 4]
    assert found["runs"][0]["stages"].keys() == {"dataset", "counts", "start", "model", "scores"}
    assert (found["labels"], found["collections"]) == ([], [])


def test_history__before_the_first_run(tmp_path, call):
    write_config(tmp_path, LONG)
    assert call("history", tmp_path)[0] == 0
    assert read_json(call("history", tmp_path, "--json"))["runs"] == []


def test_diff__of_two_nights(nights, call):
    found = read_json(call("diff", nights, 1, "last", "--json"))
    assert (found["first"]["number"], found["second"]["number"]) == (1, 3)
    assert [file["name"] for file in found["files"]["added"]] == ["day1.csv", "day2.csv"]
    assert found["files"]["n_same"] == 1
    assert found["options"] == [{"name": "model.rank", "first": 2, "second": 3}]
    assert (found["versions"], found["missing"]) == ([], [])
    rows = {row["name"]: (row["first"], row["second"]) for row in found["rows"]}
    assert rows["samples"] == (120, 360)
    assert {change["variable"] for change in found["variables"]} == {"v0", "v1", "v2"}
    assert found["n_pairs"] == 3
    assert found["schema"] == {"added": [], "removed": [], "changed": []}
    assert len(found["states"]) == 3
    model = {row["name"]: (row["first"], row["second"]) for row in found["model"]}
    assert model["rank"] == (2, 3)
    assert {"log_likelihood_per_row", "held_out_per_row"} <= model.keys()
    assert call("diff", nights, 1, "live")[0] == 0


def test_diff__of_a_run_with_itself(nights, call):
    found = read_json(call("diff", nights, 2, 2, "--json"))
    assert all(change["total_variation"] == 0 for change in found["variables"])
    assert all(state["variation"] == 0 for state in found["states"])
    assert (found["options"], found["files"]["added"], found["files"]["n_same"]) == ([], [], 2)


def test_diff__of_a_run_that_was_held_back(nights, call):
    found = read_json(call("diff", nights, 3, 4, "--json"))
    assert found["variables"] is found["model"] is found["schema"] is None
    assert ["run 4" in each for each in found["missing"]] == [True, True]
    assert call("diff", nights, 3, 4)[0] == 0


@pytest.mark.parametrize(
    ("which", "code", "message"),
    [("9", 4, "run 9"), ("x", 2, "'x'")],
)
def test_diff__of_no_run(nights, call, which, code, message):
    found, _, err = call("diff", nights, 1, which)
    assert found == code
    assert message in err


def test_log__rows_of_a_sample(nights, call, workers):
    store = store_of(nights)
    record = find_record(store, "pipeline", 3)
    found = read_json(call("log", nights, "--sample", "p0-7", "--json"))
    # the rows of the file that were read, and two rows at the end of each file
    with (nights / "data" / "day0.csv").open() as stream:
        rows = [n for n, line in enumerate(stream) if line.startswith("p0-7,")]
    assert [(file["name"], file["rows"]) for file in found["files"]] == [
        ("day0.csv", rows),
        ("day1.csv", [361, 362]),
        ("day2.csv", [361, 362]),
    ]
    assert found["start"] <= found["row"] < found["stop"]
    first = read_json(call("log", nights, 1, "--sample", "p0-7", "--json"))
    assert [file["name"] for file in first["files"]] == ["day0.csv"]
    config = load_config(nights / "pipeline.toml")
    dataset = record.stages["dataset"]
    scale = reference.fn(config, dataset, record.live, workers)
    made = score.fn(config, dataset, record.live, scale, ScoreOptions(), 3, workers)
    code, out, _ = call("log", nights, made.digest[:16], "--sample", "p0-7")
    assert code == 0
    assert out.splitlines()[0] == (
        f"predictions {made.digest[:12]} part-{found['place']:05}.parquet"
    )
    assert "361, 362" in out


def test_find_sample__every_sample_of_a_dataset(nights):
    store = store_of(nights)
    dataset = find_record(store, "pipeline", 2).stages["dataset"]
    with (nights / "data" / "day1.csv").open() as stream:
        people = [line.split(",")[0] for line in stream]
    for person in (2, 40, 119):
        sample = f"p1-{person}"
        (file,) = find_sample(store, dataset, sample).files
        assert file.rows == [row for row, name in enumerate(people) if name == sample]
    with pytest.raises(SourceError, match="p2-1"):
        find_sample(store, dataset, "p2-1")


def test_log__of_a_run(nights, call):
    record = find_record(store_of(nights), "pipeline", 2)
    code, out, _ = call("log", nights, 2)
    assert code == 0
    assert out.splitlines()[0] == f"model {record.stages['model'].digest[:12]}"
    assert "day1.csv" in out
    code, _, err = call("log", nights, 4)
    assert (code, "run 4" in err) == (4, True)


def test_log__sample_of_a_wide_file_without_identifiers(tmp_path, call, workers):
    config = write_config(tmp_path, 'layout = "wide"')
    codes = draw_codes(50, SCHEMA.cardinalities)
    for name in ("a.csv", "b.csv"):
        (tmp_path / "data" / name).write_text(as_wide(codes))
    record = run_night(config, workers)
    store = store_of(tmp_path)
    found = find_sample(store, record.stages["dataset"], "b.csv:17")
    assert [(file.name, file.rows) for file in found.files] == [("b.csv", [17])]
    stored, _ = read_dataset(config, record.stages["dataset"])
    assert np.array_equal(stored[50 * found.partition_index + found.row], codes[16])
    for sample, named in (("17", "'a.csv:1'"), ("a.csv:51", "row 51")):
        code, _, err = call("log", tmp_path, "--sample", sample)
        assert (code, named in err) == (3, True)


def test_gc__what_is_gone_is_said(copy, call):
    dry = read_json(call("gc", copy, "--keep-runs", 1, "--older-than", 0, "--dry-run", "--json"))
    assert dry["bytes"] > 0
    assert len(read_json(call("history", copy, "--json"))["collections"]) == 0
    found = read_json(call("gc", copy, "--keep-runs", 1, "--older-than", 0, "--json"))
    assert found["artefacts"]["model"]["number"] == 2
    assert found["bytes"] == dry["bytes"]
    history = read_json(call("history", copy, "--json"))
    assert [run["collected"] for run in history["runs"]] == [True, True, False, False]
    code, out, _ = call("history", copy)
    # a narrow column may break the line between the two words
    assert "promoted," in out
    assert "collected" in out
    difference = read_json(call("diff", copy, 1, 3, "--json"))
    assert len(difference["missing"]) == 2
    assert all("run 1" in each for each in difference["missing"])
    assert [file["name"] for file in difference["files"]["added"]] == ["day1.csv", "day2.csv"]
    assert call("verify", copy)[0] == 0
    assert call("query", copy, "v0 given v1=1")[0] == 0
    assert read_json(call("log", copy, "--sample", "p0-7", "--json"))["files"]
    code, _, err = call("log", copy, 1)
    assert (code, "run 1" in err) == (4, True)
    assert read_json(call("gc", copy, "--keep-runs", 1, "--older-than", 0, "--json"))["bytes"] == 0


def test_gc__rolled_back_model_stays(copy, call):
    store = store_of(copy)
    records = list_records(store, "pipeline")
    back = replace(
        records[0], action="rollback", outcome="done", stages={}, inputs=[], facts={}, reason="bad"
    )
    append_record(store, "pipeline", back)
    read_json(call("gc", copy, "--keep-runs", 1, "--older-than", 0, "--json"))
    assert call("query", copy, "v0 given v1=1")[0] == 0
    assert [run["collected"] for run in read_json(call("history", copy, "--json"))["runs"]] == [
        False, True, False, False, True,
    ]  # fmt: skip
    assert read_json(call("diff", copy, "live", 3, "--json"))["missing"] == []


def test_record_run__says_that_the_newest_record_was_deleted(tmp_path):
    config = write_config(tmp_path, 'layout = "wide"')
    store, notices = Store(tmp_path / "store"), []
    for number in (1, 2, 3, 4):
        with record_run(config):
            pass
        facts: dict[str, Any] = dict(find_record(store, config.name, number).facts)
        notices.append([each["text"] for each in facts.get("notices", [])])
        if number == 2:
            (tmp_path / "store" / "runs" / config.name / "000002.json").unlink()
    assert [len(texts) for texts in notices] == [0, 0, 1, 0]
    assert "record 2" in notices[2][0]
