"""The options of ``pmf crowd`` next to a configuration that is there already; no flow has to run."""

import re
import sys

import pytest

from pmflib_flows import cli
from pmflib_flows.crowd import crowd
from pmflib_tasks.config import load_config
from pmflib_tasks.crowd import CrowdConfig, make_crowd


@pytest.fixture
def call(monkeypatch, tmp_path, capsys):
    """Give a function that runs ``pmf crowd`` in an empty folder as far as the flow: exit code, and what it said."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("task,worker,label\n1,who,a\n")

    class Reached(BaseException):
        pass

    def stop(*_):
        raise Reached

    monkeypatch.setattr(crowd, "progress_shown", stop)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["pmf", "crowd", *arguments])
        try:
            cli.main()
        except Reached:
            return 0, ""
        except SystemExit as end:
            return end.code, re.sub(r"\s+", " ", capsys.readouterr().err)
        raise AssertionError("the command ended without a word")

    return run


def test_crowd__configuration_is_written_once_and_then_used_as_it_is(call, tmp_path):
    file = tmp_path / "crowd" / "pipeline.toml"
    (tmp_path / "a.csv").write_text("task\twho\tlabel\n1\tx\ta\n")
    assert call("a.csv", "--worker", "who", "--delimiter", "\\t") == (0, "")
    text = file.read_text()
    assert 'variable = "who"' in text
    edited = text + "\n[em]\nmax_passes = 7\n"
    file.write_text(edited)
    assert call() == (0, "")
    assert call("a.csv", "--task", "task", "--worker", "who", "--delimiter", "\\t") == (0, "")
    assert file.read_text() == edited


def test_crowd__columns_of_other_names_are_named_with_their_options(call, tmp_path):
    (tmp_path / "a.csv").write_text("item,annotator,my choice\n1,x,a\n1,y,b\n")
    code, err = call("a.csv")
    assert (code, list(tmp_path.glob("crowd/*.toml"))) == (2, [])
    assert "pmf crowd --task item --worker annotator --label 'my choice'" in err
    named = ["--task", "item", "--worker", "annotator", "--label", "my choice"]
    assert call("a.csv", *named) == (0, "")


def test_crowd__configuration_in_place_of_labels_is_refused(call, tmp_path):
    code, err = call("nights/pipeline.toml")
    assert (code, "--output" in err) == (2, True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.csv"]


def test_crowd__encoding_and_delimiter_are_found_out(call, tmp_path):
    rows = "task;worker;label\n" + "1;Jürgen;süß\n2;Jürgen;böse\n" * 20
    (tmp_path / "a.csv").write_bytes(rows.encode("latin-1"))
    assert call("a.csv") == (0, "")
    source = load_config(tmp_path / "crowd" / "pipeline.toml").source
    assert (source.encoding, source.delimiter, source.columns) == ("cp1252", ";", None)
    assert call("a.csv", "--encoding", "windows-1252") == (0, "")
    code, err = call("a.csv", "--encoding", "utf-8")
    assert (code, "--encoding" in err) == (2, True)


def test_crowd__method_is_written_once_and_then_read(call, tmp_path):
    options = ["--method", "robust", "--no-em", "--classes", "b,a", "--seed", "3"]
    assert call("a.csv", *options) == (0, "")
    file = tmp_path / "crowd" / "pipeline.toml"
    found = load_config(file)
    assert found.section(CrowdConfig) == make_crowd(
        {"method": "robust", "em": False, "classes": ["b", "a"]}
    )
    assert found.seed == 3
    text = file.read_text()
    assert call() == (0, "")
    assert call(*options) == (0, "")
    assert call("--method", "auto")[0] == 2
    assert file.read_text() == text


def test_crowd__options_that_cannot_be_are_refused_before_anything_is_written(call, tmp_path):
    code, err = call("a.csv", "--method", "best")
    assert (code, "'best'" in err) == (2, True)
    code, err = call("a.csv", "--no-em")
    assert (code, "em = false" in err) == (2, True)
    assert not (tmp_path / "crowd").exists()


@pytest.mark.parametrize(
    ("arguments", "option", "setting"),
    [
        (["b.csv"], "PATH", "source.path"),
        (["a.csv", "--worker", "w"], "--worker", "source.variable"),
        (["--label", "said"], "--label", "source.value"),
        (["--columns", "a,b"], "--columns", "source.columns"),
        (["--method", "robust"], "--method", "crowd.method"),
        (["--no-em"], "--no-em", "crowd.em"),
        (["--classes", "x,y"], "--classes", "crowd.classes"),
        (["--seed", "3"], "--seed", "seed of"),
    ],
)
def test_crowd__options_that_contradict_it_are_refused(call, arguments, option, setting):
    call("a.csv")
    code, err = call(*arguments)
    assert code == 2
    assert option in err
    assert setting in err


def test_crowd__no_labels_named_and_other_layouts(call, tmp_path):
    code, err = call()
    assert code == 2
    assert "PATH" in err
    assert not (tmp_path / "crowd").exists()
    (tmp_path / "crowd").mkdir()
    (tmp_path / "crowd" / "pipeline.toml").write_text(
        '[source]\npath = "a.csv"\nlayout = "wide"\n[model]\nrank = 2\n'
    )
    code, err = call("a.csv")
    assert code == 2
    assert "'wide'" in err


def test_crowd__one_file_has_its_folder_beside_it(call, tmp_path):
    (tmp_path / "log.csv").write_text("task,worker,label\na,b,c\n")
    assert call("log.csv", "--output", "found.csv", "--on-repeated", "first") == (0, "")
    assert load_config(tmp_path / "found" / "pipeline.toml").schema_.on_duplicate == "first"
    assert not (tmp_path / "found.csv").exists()
    code, said = call("--output", "found.csv", "--on-repeated", "error")
    assert code == 2
    assert "--on-repeated" in said


def test_crowd__files_beside_the_labels_are_found_from_the_folder_of_the_configuration(
    call, tmp_path
):
    assert call("a.csv", "--classifier", "said.parquet", "--known", "gold.csv") == (0, "")
    crowd = load_config(tmp_path / "crowd" / "pipeline.toml").section(CrowdConfig)
    assert (crowd.classifier, crowd.known) == ("../said.parquet", "../gold.csv")
    assert call("--classifier", "said.parquet") == (0, "")
    code, err = call("--classifier", "other.parquet")
    assert (code, "--classifier is" in err) == (2, True)
