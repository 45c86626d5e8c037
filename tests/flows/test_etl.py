"""One pipeline on real data: what the flow, its record and the commands say of it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from pmflib.store import Store
from tests.factories import call_command

VOTES = Path(__file__).parents[3] / "shared" / "data" / "votes" / "UCI_VOTERS.data"
COLUMNS = ("party", *(f"v{j:02}" for j in range(1, 17)))

pytestmark = [
    pytest.mark.skipif(not VOTES.exists(), reason="the votes data set is not here"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("a project")


@pytest.fixture(scope="module")
def ran(home):
    """Configuration drafted by `pmf infer`, and the facts of its first run."""
    from pmflib_flows.etl import etl

    with pytest.MonkeyPatch.context() as patch:
        code = call_command(
            patch, "infer", VOTES, "--missing", "2", "--columns", ",".join(COLUMNS),
            "--output", home, "--rank", "4",
        )  # fmt: skip
    assert code == 0
    config = home / "pipeline.toml"
    return config, etl(str(config))


def test_store__of_a_run_is_its_owners_alone(ran, home):
    for path in (home / "store", *(home / "store").rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
    assert list((home / "store" / "leases").iterdir()) == []


def test_etl__learns_the_votes(ran):
    _, facts = ran
    assert facts["outcome"] == "promoted"
    rows, scores = facts["rows"], facts["scores"]
    assert (rows["rows_in"], rows["samples"], rows["rows_quarantined"]) == (435, 435, 0)
    assert rows["observed"] == 435 * 17 - 392
    assert scores["log_prob_per_cell"] > scores["baseline_log_prob_per_cell"] + 0.1
    assert scores["accuracy"] > scores["baseline_accuracy"] + 0.1


def test_run__again_from_another_folder(ran, monkeypatch, tmp_path, capsys):
    config, facts = ran
    monkeypatch.chdir(tmp_path)
    assert call_command(monkeypatch, "run", config, "--json") == 0
    out, err = capsys.readouterr()
    again = json.loads(out)
    assert err == ""
    assert again["outcome"] == "unchanged"
    assert again["model"] == facts["model"]
    assert list(tmp_path.iterdir()) == []


def test_run__says_it_shortly_without_a_terminal(ran, monkeypatch, capsys):
    config, _ = ran
    assert call_command(monkeypatch, "run", config) == 0
    out, err = capsys.readouterr()
    assert ran[1]["live"] in out
    stages = [line.split(":")[0] for line in err.splitlines()]
    assert stages == ["encode files", "fit", "evaluate", "publish"]


def test_status__reads_no_manifest(ran, monkeypatch, capsys):
    def refuse(store):
        raise AssertionError("the manifest of many nights has 100,000 entries")

    monkeypatch.setattr(Store, "entries", refuse)
    assert call_command(monkeypatch, "status", ran[0]) == 0
    assert re.search(r"│ model +│ model +│", capsys.readouterr().out)


def test_status_query_log__of_a_run(ran, monkeypatch, capsys):
    config, facts = ran
    answers = {}
    for verb in (["status"], ["query", "party given v03=1 and v04=0"], ["log"]):
        assert call_command(monkeypatch, verb[0], config, *verb[1:], "--json") == 0
        answers[verb[0]] = json.loads(capsys.readouterr().out)
        assert call_command(monkeypatch, verb[0], config, *verb[1:]) == 0
        shown = capsys.readouterr().out
        assert shown
        assert (facts["live"] in shown) == (verb[0] == "status")
    assert answers["status"]["current"] is True
    assert answers["status"]["run"]["live"] == facts["live"]
    assert answers["status"]["artefacts"]["model"][:24] in facts["live"]
    assert answers["query"]["best"] == {"party": "1"}
    assert sum(item["probability"] for item in answers["query"]["levels"]) == pytest.approx(1)
    kinds = [step["reference"]["kind"] for step in answers["log"]]
    assert kinds[0] == "model"
    assert {"counts", "dataset", "samples", "source"} <= set(kinds)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["score", "--target", "nope"], 3, "'nope'"),
        (["score", "--data", "nofile.csv"], 3, "nofile.csv"),
        (["score", "--questions", "q", "--target", "party"], 2, "--questions"),
        (["log", "zzz"], 4, "'zzz'"),
    ],
)
def test_commands__refuse_with_one_message(ran, monkeypatch, capsys, arguments, code, message):
    config, _ = ran
    verb, *more = arguments
    assert call_command(monkeypatch, verb, config, *more) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_run__memory_and_schema_are_refused(ran, monkeypatch, capsys):
    config, _ = ran
    text = config.read_text()
    small = config.with_name("small.toml")
    named = text.replace("rank = 4", "rank = 3").replace('name = "', 'name = "small ')
    small.write_text(named + "[cluster]\nmemory_limit = 1000\n")
    assert call_command(monkeypatch, "run", small) == 5
    assert "memory_limit" in capsys.readouterr().err
    wrong = config.with_name("wrong.toml")
    schema = config.with_name("schema.json").read_text()
    config.with_name("wrong.json").write_text(schema.replace('"v07"', '"v7"'))
    named = text.replace("schema.json", "wrong.json").replace('name = "', 'name = "wrong ')
    wrong.write_text(named)
    assert call_command(monkeypatch, "run", wrong) == 3
    err = capsys.readouterr().err
    assert "'v7'" in err
    assert "Traceback" not in err


def test_score__one_file_with_probabilities_and_measures(ran, monkeypatch, capsys, tmp_path):
    import pyarrow.csv

    config, _ = ran
    words = ["--target", "party", "--probabilities", "--keep", "v03,party"]
    path = tmp_path / "out" / "scores.csv"
    assert call_command(monkeypatch, "score", config, *words, "--output", path) == 0
    table = pyarrow.csv.read_csv(path)
    assert table["row"].to_pylist() == list(range(1, 436))
    truth = [int(line.split(",")[0]) for line in VOTES.read_text().splitlines()]
    assert table["party"].to_pylist() == truth
    assert np.mean(table["party.label"].to_numpy() == truth) > 0.85
    columns = [name for name in table.column_names if name.startswith("party=")]
    assert len(columns) == 2
    sums = sum(table[name].to_numpy() for name in columns)
    assert sums.min() > 1 - 1e-9
    capsys.readouterr()
    assert call_command(monkeypatch, "score", config, *words, "--output", tmp_path / "a.xlsx") == 2
    assert "a.xlsx" in capsys.readouterr().err
    found = ["--keep", "nobody", "--output", path]
    assert call_command(monkeypatch, "score", config, *found) == 3
    assert "'nobody'" in capsys.readouterr().err
