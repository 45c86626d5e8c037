"""Credentials stay in the environment: none are in a bucket, a cache, a log or an answer."""

import json
import logging

import pytest

from pmflib_flows import cli
from tests.flows.nights import Nights, draw_ratings, make_movies
from tests.object_store import SECRET, read_bucket


def test_run__writes_no_secret_anywhere(bucket, tmp_path, monkeypatch, capsys, caplog):
    caplog.set_level(logging.DEBUG)
    address = f"s3://{bucket}/nights"
    nights = Nights(
        tmp_path / "home", make_movies(4), monkeypatch, store={"path": address, "folds": 8}
    )
    nights.deliver("a.csv", draw_ratings(200, 4), range(200))
    nights.run()
    for words in (
        ["status"],
        ["history"],
        ["models"],
        ["log"],
        ["query", "v0 given v1=1"],
        ["status", "--json"],
    ):
        monkeypatch.setattr("sys.argv", ["pmf", words[0], str(nights.path), *words[1:]])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code in (0, None), (words, capsys.readouterr())
    said = "".join(capsys.readouterr()) + caplog.text
    assert address in said or "live" in said.lower()
    assert SECRET not in said
    assert "pmf-tests" not in said
    kept = read_bucket(address)
    assert any(name.startswith("lineage/") for name in kept)
    assert json.loads(kept["runs/pipeline/000001.json"])["options"]["store"]["path"] == address
    for name, content in kept.items():
        assert SECRET.encode() not in content, name
        assert b"pmf-tests" not in content, name
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("mirrors" in path.parts for path in files)
    for path in files:
        assert SECRET.encode() not in path.read_bytes(), path
