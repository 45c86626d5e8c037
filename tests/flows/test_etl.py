"""One pipeline on real data: what the flow, its record and the commands say of it."""

import json
import re
from pathlib import Path

import pytest

from pmflib.store.artefacts import Store
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
    assert facts["reason"] == "first model of this pipeline"
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
    assert again["reason"] == "the live model, unchanged"
    assert again["model"] == facts["model"]
    assert list(tmp_path.iterdir()) == []


def test_run__says_it_shortly_without_a_terminal(ran, monkeypatch, capsys):
    config, _ = ran
    assert call_command(monkeypatch, "run", config) == 0
    out, err = capsys.readouterr()
    assert "the live model, unchanged\nLive model " in out
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


def test_query__title_is_not_cut(ran, monkeypatch, capsys):
    config, _ = ran
    question = "party given v03=1 and v04=0 and v05=0 and v06=0 and v07=1 and v08=1"
    assert call_command(monkeypatch, "query", config, question) == 0
    assert question in capsys.readouterr().out


def test_score__predicts_the_party(ran, monkeypatch, capsys):
    import pyarrow.parquet as pq

    config, _ = ran
    assert call_command(monkeypatch, "score", config, "--target", "party", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    table = pq.read_table(answer["path"])
    truth = [line.split(",")[0] for line in VOTES.read_text().splitlines()]
    found = dict(zip(table["row"].to_pylist(), table["party.label"].to_pylist(), strict=True))
    correct = [found[index] == party for index, party in enumerate(truth, 1)]
    assert sum(correct) / len(correct) > 0.85


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["score", "--target", "nope"], 3, "variable 'nope' is not in the schema"),
        (["score", "--data", "nofile.csv"], 3, "matches no file"),
        (["score", "--questions", "q", "--target", "party"], 2, "--questions goes without"),
        (["query", "party given v03=7"], 3, "has no level '7'; levels are"),
        (["query", "party given v03="], 2, "a level of 'v03' is expected"),
        (["log", "zzz"], 4, "no artefact starts with 'zzz'"),
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
    small.write_text(text.replace("rank = 4", "rank = 3") + "[cluster]\nmemory_limit = 1000\n")
    assert call_command(monkeypatch, "run", small) == 5
    assert "raise cluster.memory_limit" in capsys.readouterr().err
    wrong = config.with_name("wrong.toml")
    schema = config.with_name("schema.json").read_text()
    config.with_name("wrong.json").write_text(schema.replace('"v07"', '"v7"'))
    wrong.write_text(text.replace("schema.json", "wrong.json"))
    assert call_command(monkeypatch, "run", wrong) == 3
    err = capsys.readouterr().err
    assert "variable 'v7' is no column of the file" in err
    assert "did you mean ['v" in err
    assert "Traceback" not in err


def test_query__conditions_that_no_row_meets(ran, monkeypatch, capsys):
    config, _ = ran
    rows = [line.split(",") for line in VOTES.read_text().splitlines()]
    seen = {(row[1], row[4], party) for row in rows for party in [row[0]]}
    assert call_command(monkeypatch, "query", config, "party given v01=1 and v04=1", "--json") == 0
    out, _ = capsys.readouterr()
    assert any(each[:2] == ("1", "1") for each in seen)
    assert json.loads(out)["warnings"] == []
    refused = call_command(monkeypatch, "query", config, "party given v01=1 and v01=0")
    assert refused == 2
    assert "'v01' is given as '1' and as '0'" in capsys.readouterr().err


def test_score__one_file_with_probabilities_and_measures(ran, monkeypatch, capsys, tmp_path):
    import pyarrow.csv

    config, _ = ran
    words = ["--target", "party", "--probabilities", "--keep", "v03,party"]
    path = tmp_path / "out" / "scores.csv"
    assert call_command(monkeypatch, "score", config, *words, "--output", path) == 0
    out = capsys.readouterr().out
    assert re.search(
        r"^party: accuracy 0\.\d+ ± 0\.\d+, log-loss .* on 435 samples, which", out, re.M
    )
    table = pyarrow.csv.read_csv(path)
    assert table["row"].to_pylist() == list(range(1, 436))
    truth = [int(line.split(",")[0]) for line in VOTES.read_text().splitlines()]
    assert table["party"].to_pylist() == truth
    columns = [name for name in table.column_names if name.startswith("party=")]
    assert len(columns) == 2
    sums = sum(table[name].to_numpy() for name in columns)
    assert sums.min() > 1 - 1e-9
    assert call_command(monkeypatch, "score", config, *words, "--output", tmp_path / "a.xlsx") == 2
    assert "name a file .csv or .parquet" in capsys.readouterr().err
    assert call_command(monkeypatch, "score", config, "--keep", "nobody") == 3
    found = ["--keep", "nobody", "--output", path]
    assert call_command(monkeypatch, "score", config, *found) == 3
    assert "no column 'nobody'" in capsys.readouterr().err
