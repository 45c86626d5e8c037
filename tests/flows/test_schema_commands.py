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
        ("bougth", "did you mean ['bought']?"),
        ("id", "target 'id' cannot be predicted: it is left out: an identifier"),
    ],
)
def test_infer__wrong_target_is_refused_at_once(call, tmp_path, target, message):
    code, _, err = call("infer", "a.csv", "--target", target)
    assert code == 3
    assert message in err
    assert not (tmp_path / "schema.json").exists()


def test_infer__target_of_one_level(call, tmp_path):
    (tmp_path / "b.csv").write_text("x,y\n1,2\n2,2\n")
    code, _, err = call("infer", "b.csv", "--target", "y")
    assert code == 3
    assert "target 'y' has one level only, '2'" in err
    code, _, err = call("infer", "b.csv", "--target", "x", "--sample", "x")
    assert "target 'x' is the sample column" in err


def test_schema_show__all_columns_and_one(call):
    call("infer", "a.csv")
    code, out, _ = call("schema", "show", "schema.json")
    assert code == 0
    assert "| id | identifier |" in out
    code, out, _ = call("schema", "show", "schema.json", "level")
    assert json.loads(out)["variable"]["levels"] == ["low", "mid", "high"]
    code, _, err = call("schema", "show", "schema.json", "levl")
    assert (code, "did you mean ['level']?" in err) == (3, True)


def test_schema_set__every_option(call, tmp_path):
    call("infer", "a.csv", "--output", "d")
    path = "d/schema.json"
    code, out, _ = call("schema", "set", path, "age", "--bins", "3")
    assert code == 0
    assert "Read d/../a.csv again" in out
    assert pmf.Schema.load(path)["age"].cardinality == 3
    assert "| age | continuous | 3 bins" in (tmp_path / "d" / "schema.md").read_text()
    assert call("schema", "set", path, "level", "--levels", "high,mid,low")[0] == 0
    assert pmf.Schema.load(path)["level"].levels == ("high", "mid", "low")
    assert call("schema", "set", path, "level", "--missing", "none")[0] == 0
    assert "?" in pmf.Schema.load(path)["level"].levels
    assert call("schema", "set", path, "age", "--role", "nominal")[0] == 0
    assert call("schema", "set", path, "age", "--other", "5")[0] == 0
    assert pmf.Schema.load(path)["age"].cardinality == 6
    assert call("schema", "set", path, "score", "--drop")[0] == 0
    assert "score" not in pmf.Schema.load(path)
    code, out, _ = call("schema", "set", path, "--missing", "?", "--missing", "mid", "--json")
    assert code == 0
    assert pmf.Schema.load(path).missing[-2:] == ("?", "mid")


def test_schema_set__data_that_have_moved(call, tmp_path):
    call("infer", "a.csv")
    (tmp_path / "a.csv").rename(tmp_path / "b.csv")
    code, _, err = call("schema", "set", "schema.json", "age", "--bins", "3")
    assert (code, "matches no file" in err) == (3, True)
    assert call("schema", "set", "schema.json", "age", "--bins", "3", "--file", "b.csv")[0] == 0
    pmf.Schema.load("schema.json").save("bare.json")
    code, _, err = call("schema", "set", "bare.json", "age", "--bins", "3")
    assert (code, "give --file" in err) == (3, True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["ag", "--bins", "3"], 3, "no column 'ag'; did you mean ['age']?"),
        (["age"], 3, "nothing to change; give --role"),
        (["--bins", "3"], 2, "name the column to change"),
        (["age", "--role", "numeric"], 2, "--role is 'numeric'; give one of"),
        (["age", "--other", "few"], 2, "--other is 'few'; give the number of levels"),
        (["level", "--bins", "3"], 3, "'level' cannot be continuous: it holds ["),
    ],
)
def test_schema_set__mistakes(call, words, code, message):
    call("infer", "a.csv")
    found, out, err = call("schema", "set", "schema.json", *words)
    assert (found, out) == (code, "")
    assert message in err
