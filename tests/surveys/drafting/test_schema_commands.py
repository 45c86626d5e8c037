"""Drafts of a schema, and changes of them, on the command line."""

import json

import pytest

import pmflib as pmf
from pmflib_tasks.config import load_config

ROWS = "".join(
    f"{n},{['low', 'high', '?', 'mid'][n % 4]},{n % 70},{['yes', 'no'][n % 2]},{999 if n % 9 == 0 else n % 60 / 2}\n"
    for n in range(300)
)


@pytest.fixture
def call(call, tmp_path):
    """Give the function `call`, in a folder with a table."""
    (tmp_path / "a.csv").write_text("id,level,age,bought,score\n" + ROWS)
    return call


def test_infer__target_is_written_into_the_configuration(call):
    code, out, _ = call("infer", "a.csv", "--target", "bought", "--output", "d")
    assert code == 0
    assert "d/schema.md" in out
    assert load_config("d/pipeline.toml").em.target == "bought"
    schema = pmf.Schema.load("d/schema.json")
    assert schema.names == ("level", "age", "bought", "score")
    assert schema["level"].levels == ("low", "mid", "high")
    assert schema["score"].encode_value("999") == -1


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("bougth", "'bougth'"),
        ("id", "'id'"),
    ],
)
def test_infer__wrong_target_is_refused_at_once(call, tmp_path, target, message):
    code, _, err = call("infer", "a.csv", "--target", target)
    assert code == 3
    assert message in err
    assert not (tmp_path / "schema.json").exists()


def test_schema_show__all_columns_and_one(call):
    call("infer", "a.csv")
    code, out, _ = call("schema", "show", "schema.json")
    assert (code, "| id |" in out) == (0, True)
    code, out, _ = call("schema", "show", "schema.json", "level")
    assert json.loads(out)["variable"]["levels"] == ["low", "mid", "high"]
    code, _, err = call("schema", "show", "schema.json", "levl")
    assert (code, "'levl'" in err) == (3, True)


def test_schema_set__every_option(call, tmp_path):
    call("infer", "a.csv", "--output", "d")
    path = "d/schema.json"
    assert call("schema", "set", path, "age", "--bins", "3")[0] == 0
    assert pmf.Schema.load(path)["age"].cardinality == 3
    assert "| age | continuous |" in (tmp_path / "d" / "schema.md").read_text()
    assert call("schema", "set", path, "level", "--levels", "high,mid,low")[0] == 0
    assert pmf.Schema.load(path)["level"].levels == ("high", "mid", "low")
    assert call("schema", "set", path, "level", "--missing", "none")[0] == 0
    assert "?" in pmf.Schema.load(path)["level"].levels
    assert call("schema", "set", path, "age", "--role", "nominal")[0] == 0
    assert call("schema", "set", path, "age", "--other", "5")[0] == 0
    assert pmf.Schema.load(path)["age"].cardinality == 6
    assert call("schema", "set", path, "score", "--drop")[0] == 0
    assert "score" not in pmf.Schema.load(path)
    assert call("schema", "set", path, "--missing", "?", "--missing", "mid", "--json")[0] == 0
    assert pmf.Schema.load(path).missing[-2:] == ("?", "mid")


def test_schema_set__data_that_have_moved(call, tmp_path):
    call("infer", "a.csv")
    (tmp_path / "a.csv").rename(tmp_path / "b.csv")
    code, _, err = call("schema", "set", "schema.json", "age", "--bins", "3")
    assert (code, "a.csv" in err) == (3, True)
    assert call("schema", "set", "schema.json", "age", "--bins", "3", "--file", "b.csv")[0] == 0
    pmf.Schema.load("schema.json").save("bare.json")
    code, _, err = call("schema", "set", "bare.json", "age", "--bins", "3")
    assert (code, "--file" in err) == (3, True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["ag", "--bins", "3"], 3, "'ag'"),
        (["age"], 3, "--role"),
        (["--bins", "3"], 2, "column"),
        (["age", "--role", "numeric"], 2, "--role"),
        (["age", "--other", "few"], 2, "--other"),
        (["level", "--bins", "3"], 3, "'level'"),
    ],
)
def test_schema_set__mistakes(call, words, code, message):
    call("infer", "a.csv")
    found, out, err = call("schema", "set", "schema.json", *words)
    assert (found, out) == (code, "")
    assert message in err
