"""JSON that was not written by us is refused as a value, never as a failure of Python."""

import json

import pytest

import pmflib as pmf
from pmflib.base import MAX_DEPTH, MOST_VALUES, ConfigError, SchemaError, read_json
from pmflib_tasks.config import load_config


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000 + "]" * 50_000,
        '{"a":' * 50_000 + "1" + "}" * 50_000,
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        '"\\ud800"',
        '{"\\udfff": 1}',
        "9" * 10_000,
        "[" + "[]," * (MOST_VALUES // 2) + "1]",
        "{",
        "",
    ],
    ids=range(9),
)
def test_read_json__refused(text, tmp_path):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError):
        read_json(tmp_path / "a.json")
    with pytest.raises(SchemaError, match=r"a\.json"):
        pmf.Schema.load(tmp_path / "a.json")


def test_read_json__all_that_is_allowed(tmp_path):
    value = {"a": [1, 2.5, None, True, "\u00e9\U0001f600"], "\u00e9": {}}
    (tmp_path / "a.json").write_text(json.dumps(value))
    assert read_json(tmp_path / "a.json") == value


WHOLE = '[source]\npath = "a.csv"\nlayout = "wide"\n[model]\nrank = 2\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 50_000 + "]" * 50_000, "deep"),
        ("a = " + "{a = " * 5000 + "1" + "}" * 5000, "deep"),
        (WHOLE + "[em]\ntol = " + "[" * 200 + "]" * 200, "em.tol"),
        (WHOLE + "[em]\n" + ".".join(["a"] * 900) + " = 1", "em.a"),
        (WHOLE + "name = '" + "x" * 300 + "'", "model.name"),
        ("name = '" + "x" * 300 + "'\n" + WHOLE, "at most 100"),
        (WHOLE + "[store]\npath = 'a\\u0000b'".replace("'", '"'), "NUL"),
        (WHOLE.replace("a.csv", "a\\u0000b"), "NUL"),
        (WHOLE + '[schema]\nfile = "a\\u0000b"', "NUL"),
        (WHOLE + f"[cluster]\nworkers = {10**30}", "cluster.workers"),
        (WHOLE.replace("rank = 2", f"rank = {10**30}"), "model.rank"),
        ("# " + "x" * (9 << 20), "bytes"),
    ],
    ids=range(12),
)
def test_load_config__refused(text, said, tmp_path):
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        load_config(tmp_path / "p.toml")
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    "path", ["a\0b", "x" * 5000, "x/" * 3000, ".", "loop", "pipe", "/dev/zero"]
)
def test_load_config__odd_paths(path, tmp_path, monkeypatch):
    import os

    monkeypatch.chdir(tmp_path)
    os.symlink("loop", "loop")
    os.mkfifo("pipe")
    with pytest.raises(ConfigError):
        load_config(path)


def test_load_config__no_secret_in_a_message(tmp_path):
    text = WHOLE.replace('"a.csv"', '[{url = "ftp://me:hunter2@host/a?token=hunter2"}]')
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "p.toml")
    assert "hunter2" not in str(caught.value)
