"""The command line where no flow has to run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pmflib as pmf
from pmflib.base import (
    ConfigError,
    MemoryPlanError,
    RankError,
    SchemaError,
    SourceError,
    StoreError,
)
from pmflib.store import Store
from pmflib_flows import cli
from pmflib_flows.commands import run
from pmflib_tasks.config import load_config

ROOT = Path(__file__).parents[2]
VERBS = (
    *("run", "check", "status", "query", "models", "promote", "rollback"),
    *("history", "diff", "log", "verify", "gc", "quarantine"),
)
VERBS_OF_FEATURES = {
    "apps.crowd": ["crowd"],
    "apps.demo": ["demo"],
    "apps.scoring": ["score"],
    "surveys.drafting": ["infer", "schema set", "schema show"],
}
OF_FEATURES = [
    pytest.param(verb, marks=pytest.mark.needs(feature))
    for feature, verbs in VERBS_OF_FEATURES.items()
    for verb in verbs
]
DRAFTING = pytest.mark.needs("surveys.drafting")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError, 2),
        (RankError, 2),
        (pmf.PmfError, 2),
        (SourceError, 3),
        (SchemaError, 3),
        (StoreError, 4),
        (MemoryPlanError, 5),
    ],
)
def test_main__exit_code_of_an_error(call, monkeypatch, error, code):
    def refuse(path):
        raise error(f"what is wrong, where, and the remedy, in a line that is long [b] {'x' * 99}")

    monkeypatch.setattr(run, "load_pipeline", refuse)
    found, out, err = call("status", "pipeline.toml")
    assert (found, out) == (code, "")
    assert err.startswith("error: what is wrong")
    assert err.count("\n") == 1
    assert "[b]" in err


def test_main__defect_and_interruption(call, monkeypatch):
    def fail(path):
        raise KeyError("ours")

    monkeypatch.setattr(run, "load_pipeline", fail)
    code, out, err = call("status", "pipeline.toml")
    assert (code, out) == (1, "")
    assert "KeyError: 'ours'" in err
    assert "--debug" in err
    assert "Traceback" not in err
    with pytest.raises(KeyError, match="ours"):
        call("status", "pipeline.toml", "--debug")

    def interrupt(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "load_pipeline", interrupt)
    # click turns an interruption inside a command into its own end
    code, _, err = call("status", "pipeline.toml")
    assert code == 130
    assert "Traceback" not in err


def test_main__in_a_process_of_its_own(tmp_path):
    """As a shell sees it: the message alone, on standard error."""
    process = subprocess.run(
        [sys.executable, "-m", "pmflib_flows", "run", "absent.toml", "--json"],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(str(ROOT / top) for top in (".", "tasks", "flows"))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.count("\n") == 1
    assert "absent.toml" in process.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["run", *OF_FEATURES])
def test_help__names_every_verb_and_the_exit_codes(verb):
    result = CliRunner().invoke(cli.app, ["--help"], terminal_width=100)
    assert result.exit_code == 0
    for each in (*VERBS, verb):
        assert f" {each.split()[0]} " in result.output
    assert "--debug" in result.output
    assert "--version" in result.output
    assert "130" in result.output


def test_help__loads_nothing_that_takes_long():
    code = "import sys, pmflib_flows.cli; print({'numpy', 'pyarrow', 'pydantic', 'prefect'} & sys.modules.keys())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize("verb", [*VERBS, *OF_FEATURES])
def test_help__of_every_verb_offers_json(verb):
    result = CliRunner().invoke(cli.app, [*verb.split(), "--help"])
    assert result.exit_code == 0
    assert "--json" in result.output


def test_usage__unknown_verb_and_option(call):
    code, _, err = call("runn")
    assert code == 2
    assert "'run'" in err
    code, _, err = call("run", "p.toml", "--jsn")
    assert code == 2
    assert "--json" in err


@pytest.mark.needs("surveys.drafting")
def test_infer__wide_with_windows_line_ends_in_a_path_with_spaces(call, tmp_path):
    folder = tmp_path / "my data"
    folder.mkdir()
    (folder / "a b.csv").write_bytes(b"a;b;c\r\nx;1;u\r\ny;2;-\r\nx;;v\r\n")
    code, out, err = call(
        "infer", "my data/a b.csv", "--delimiter", ";", "--missing", "-", "--output", "my data"
    )
    assert (code, err) == (0, "")
    assert "pmf run 'my data/pipeline.toml'" in out
    schema = pmf.Schema.load(folder / "schema.json")
    assert [variable.levels for variable in schema.variables] == [
        ("x", "y"),
        ("1", "2"),
        ("u", "v"),
    ]
    config = load_config(folder / "pipeline.toml")
    assert config.source.path == "a b.csv"
    assert config.source.delimiter == ";"


@pytest.mark.needs("surveys.drafting")
def test_infer__json_is_alone(call, tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,x\n2,y\n")
    code, out, err = call("infer", "a.csv", "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert (answer["variables"], answer["levels"]) == (2, 4)


@pytest.mark.needs("surveys.drafting")
def test_infer__tabs_and_no_header(call, tmp_path):
    (tmp_path / "a.tsv").write_text("1\t5\t2\n2\t4\t1\n1\t4\t1\n")
    code, _, _ = call("infer", "a.tsv", "--delimiter", "\\t", "--no-header")
    assert code == 0
    assert pmf.Schema.load("schema.json").names == ("c1", "c2", "c3")
    assert load_config("pipeline.toml").source.columns == ("c1", "c2", "c3")


@pytest.mark.needs("surveys.drafting")
def test_infer__finds_out_how_a_file_is_read(call, tmp_path):
    rows = "".join(f"{n % 7},{n % 10};{'Süd' if n % 2 else 'Köln'};x\n" for n in range(60))
    (tmp_path / "a.csv").write_bytes(rows.encode("cp1252"))
    assert call("infer", "a.csv")[0] == 0
    source = load_config("pipeline.toml").source
    assert (source.encoding, source.delimiter, source.decimal) == ("cp1252", ";", ",")
    assert source.columns == ("c1", "c2", "c3")
    assert pmf.Schema.load("schema.json")["c2"].levels == ("Köln", "Süd")


@pytest.mark.needs("surveys.drafting")
def test_infer__values_that_do_not_decode_are_counted(call, tmp_path):
    rows = "a,b\n" + "x,Süd\ny,Nord\nx,Köln\n" * 10
    (tmp_path / "a.csv").write_bytes(rows.encode("cp1252"))
    code, out, err = call("infer", "a.csv", "--encoding", "utf-8")
    assert (code, err) == (0, "")
    assert "20 values" in out
    assert "cp1252" in out


@pytest.mark.needs("surveys.drafting")
def test_check__of_a_pipeline_and_of_a_file(call, tmp_path):
    (tmp_path / "a.csv").write_text("a,b\nno,1\nyes,2\n")
    assert call("infer", "a.csv")[0] == 0
    assert call("check", "pipeline.toml")[0] == 0
    (tmp_path / "b.csv").write_text("a;b;c\nno;1;x\nyse;2;x\n")
    code, out, err = call("check", "b.csv", "--schema", "schema.json")
    assert (code, err) == (3, "")
    assert "'yse' 1" in out
    code, out, err = call("check", "b.csv", "--schema", "schema.json", "--json")
    answer = json.loads(out)
    assert (code, err, answer["fits"]) == (3, "", False)
    assert answer["files"][0]["reasons"] == {"unknown_level": 1}
    assert answer["variables"][0]["unknown"] == [["yse", 1, "yes"]]


@pytest.mark.needs("surveys.drafting")
def test_infer__rank_left_open(call, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n2,1\n")
    (tmp_path / "b.csv").write_text("s,v,x\n1,p,1\n1,q,2\n2,p,2\n2,q,1\n")
    ratings = "b.csv --sample s --variable v --value x".split()
    for number, (words, rank) in enumerate(
        [
            (["a.csv", "--rank", "auto"], "auto"),
            (["a.csv", "--rank", "3"], 3),
            (["a.csv"], None),
            (["a.csv", "--target", "x"], "auto"),
            (ratings, 100),
        ]
    ):
        assert call("infer", *words, "--output", f"draft{number}")[0] == 0
        assert load_config(f"draft{number}/pipeline.toml").model.rank == rank


@pytest.mark.needs("surveys.drafting")
def test_infer__logs_of_numbers_have_traits_of_fixed_settings(call, tmp_path):
    long = "--sample s --variable v --value x".split()
    (tmp_path / "a.csv").write_text("s,v,x\n1,p,1\n1,q,2\n2,p,2\n2,q,1\n")
    (tmp_path / "b.csv").write_text("s,v,x\n1,p,1\n1,q,no\n2,p,2\n2,q,yes\n")
    (tmp_path / "c.csv").write_text("x,y\n1,2\n2,1\n")
    for number, (words, method) in enumerate(
        [
            (["a.csv", *long], "traits"),
            (["a.csv", *long, "--rank", "2"], "auto"),
            (["a.csv", *long, "--target", "p"], "auto"),
            (["b.csv", *long], "auto"),
            (["c.csv"], "auto"),
        ]
    ):
        assert call("infer", *words, "--output", f"draft{number}")[0] == 0
        config = load_config(f"draft{number}/pipeline.toml")
        assert config.model.method == method
        assert bool(config.model.method_options) == (method == "traits")
        assert config.start_choice == "auto"


@pytest.mark.needs("surveys.drafting")
def test_infer__data_far_away_keep_their_full_path(call, tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,x\n2,y\n")
    assert call("infer", "a.csv", "--output", "p/q/r")[0] == 0
    assert load_config("p/q/r/pipeline.toml").source.path == str(tmp_path / "a.csv")
    assert call("infer", "a.csv", "--output", "p/q")[0] == 0
    assert load_config("p/q/pipeline.toml").source.path == "../../a.csv"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["infer", "absent.csv"], 3, "absent.csv", marks=DRAFTING),
        pytest.param(["infer", "a.csv", "--delimiter", ""], 2, "delimiter", marks=DRAFTING),
        pytest.param(["infer", "a.csv", "--encoding", "utf-9"], 2, "'utf-9'", marks=DRAFTING),
        pytest.param(["infer", "u.csv"], 3, "u.csv", marks=DRAFTING),
        pytest.param(["infer", "h.csv"], 3, "--no-header", marks=DRAFTING),
        pytest.param(
            ["infer", "a.csv", "--delimiter", ";", "--sample", "id"], 3, "'id'", marks=DRAFTING
        ),
        pytest.param(
            ["infer", "a.csv", "--delimiter", ";", "--value", "a"], 2, "'variable'", marks=DRAFTING
        ),
        pytest.param(["infer", "d.csv", "--header"], 3, "--no-header", marks=DRAFTING),
        pytest.param(["infer", "a.csv", "--rank", "0"], 2, "--rank", marks=DRAFTING),
        pytest.param(
            ["infer", "d.csv", "--no-header", "--columns", "a,b"], 2, "--columns", marks=DRAFTING
        ),
        (["check", "a.csv"], 2, "--schema"),
        (["check", "p.toml", "--sample", "id"], 2, "p.toml"),
        (["query", "p.toml", "a"], 4, "`pmf run`"),
        (["log", "p.toml"], 4, "`pmf run`"),
        (["status", "bad.toml"], 2, "em.max_pases"),
        (["status", "broken.toml"], 2, "broken.toml"),
        pytest.param(["demo", "--folder", "full"], 2, "full", marks=pytest.mark.needs("apps.demo")),
    ],
)
def test_mistakes__are_answered_with_the_remedy(call, tmp_path, arguments, code, message):
    (tmp_path / "a.csv").write_text("a;b\nx;y\n")
    (tmp_path / "d.csv").write_text("0,0\n0,1\n")
    (tmp_path / "u.csv").write_text("a;b|c\n1;2;3|4|5\n1;2;3;4|5|6|7\n1\n")
    (tmp_path / "h.csv").write_text("9,10\n1,2\n2,1\n1,1\n")
    config = '[source]\npath = "a.csv"\nlayout = "wide"\n[model]\nrank = 2\n'
    (tmp_path / "p.toml").write_text(config)
    (tmp_path / "bad.toml").write_text(config + "[em]\nmax_pases = 3\n")
    (tmp_path / "broken.toml").write_text(config + "[em\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    found, out, err = call(*arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.needs("surveys.drafting")
def test_infer__does_not_overwrite(call, tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,x\n2,y\n")
    (tmp_path / "pipeline.toml").write_text("mine")
    code, _, err = call("infer", "a.csv")
    assert code == 2
    assert "--output" in err
    assert (tmp_path / "pipeline.toml").read_text() == "mine"
    assert not (tmp_path / "schema.json").exists()


@pytest.mark.needs("apps.crowd")
def test_status__before_the_first_run(call, tmp_path):
    (tmp_path / "p.toml").write_text('[source]\npath="a"\nlayout="wide"\n[model]\nrank=2\n')
    assert call("status", "p.toml")[0] == 0
    answer = json.loads(call("status", "p.toml", "--json")[1])
    nothing = {"artefacts": {}, "unfinished": [], "run": {}, "live": {}, "labels": {}}
    nothing |= {"erased": {"raw_files": [], "samples": 0, "unfinished": False}}
    assert answer == nothing | {"current": False, "equivalent_samples": {}}


def test_verify__names_what_is_damaged(call, tmp_path):
    (tmp_path / "p.toml").write_text('[source]\npath="a"\nlayout="wide"\n[model]\nrank=2\n')
    empty = {"artefacts": 0, "damages": [], "remedies": {}}
    assert json.loads(call("verify", "p.toml", "--json")[1]).items() >= empty.items()

    def write(folder, work):
        (folder / "table.parquet").write_bytes(b"PAR1")
        return {}

    store = Store(tmp_path / "store")
    entry = store.build("scores", inputs={}, options={}, version=1, write=write)
    assert call("verify", "p.toml")[0] == 0
    (store.locate(entry.reference) / "table.parquet").write_bytes(b"PAR2")
    code, out, err = call("verify", "p.toml")
    assert code == 4
    assert {"table.parquet" in out, entry.reference.path in out, entry.reference.path in err} == {
        True
    }
    code, out, err = call("verify", "p.toml", "--json")
    assert code == 4
    assert [damage["place"] for damage in json.loads(out)["damages"]] == [entry.reference.path]
    assert list(json.loads(out)["remedies"]) == ["damaged content"]
