"""Nights on a store in a bucket: the same bits as on a disk, wherever the parts of a run are."""

import json
from dataclasses import asdict

import pytest

from pmflib.store import find_live, list_records
from tests.factories import call_command
from tests.flows.nights import Nights, draw_ratings, make_movies
from tests.object_store import forget_cache


def call(monkeypatch, capsys, *words):
    """Standard output of a command that succeeds."""
    capsys.readouterr()
    code = call_command(monkeypatch, *words)
    out, err = capsys.readouterr()
    assert code == 0, (words, out, err)
    return out


def run_three(nights, tmp_path=None, monkeypatch=None):
    """Facts of a first night, one of nothing new, and one with another file."""
    nights.deliver("a.csv", draw_ratings(300, 6), range(300))
    found = [nights.run(), nights.run()]
    if monkeypatch is not None:
        forget_cache(monkeypatch, tmp_path / "another machine")
    nights.deliver("b.csv", draw_ratings(200, 6, seed=1), range(200, 400))
    # a third of these people are known, and answer as if they were others
    return [*found, nights.run(accept_quality=True)]


@pytest.mark.slow
def test_run__same_bits_as_on_a_disk(bucket, tmp_path, monkeypatch):
    on_disk = Nights(tmp_path / "disk", make_movies(6), monkeypatch)
    expected = run_three(on_disk)
    address = f"s3://{bucket}/stores/nights"
    in_bucket = Nights(
        tmp_path / "bucket", make_movies(6), monkeypatch, store={"path": address, "folds": 8}
    )
    found = run_three(in_bucket, tmp_path, monkeypatch)
    assert [each["outcome"] for each in found] == [each["outcome"] for each in expected]
    assert [each["live_model"] for each in found] == [each["live_model"] for each in expected]
    assert [each["run"] for each in found] == [1, 2, 3]
    assert found[-1]["live"].startswith(f"{address}/model/")
    assert not (tmp_path / "bucket" / "s3:").exists()

    def list_content(store):
        return {entry.reference.identity: entry for entry in store.entries()}

    assert list_content(in_bucket.store) == list_content(on_disk.store)


@pytest.mark.slow
def test_commands__on_a_store_in_a_bucket(bucket, tmp_path, monkeypatch, capsys):
    address, said = f"s3://{bucket}/one", []
    for name, path in (("disk", "store"), ("bucket", address)):
        nights = Nights(
            tmp_path / name, make_movies(6), monkeypatch, store={"path": path, "folds": 8}
        )
        nights.deliver("a.csv", draw_ratings(300, 6), range(300))
        nights.run()
        nights.deliver("b.csv", draw_ratings(900, 6, seed=1), range(300, 1200))
        nights.run()
        if name == "bucket":
            forget_cache(monkeypatch, tmp_path / "another machine")
        records = [asdict(record) for record in list_records(nights.store, "pipeline")]
        assert [record["number"] for record in records] == [1, 2]
        stages = [record["stages"] for record in records]
        if records[1]["outcome"] == "kept":
            call(monkeypatch, capsys, "promote", nights.path, "2")
        call(monkeypatch, capsys, "rollback", nights.path)
        live = find_live(nights.store, "pipeline")
        assert live == list_records(nights.store, "pipeline")[0].live
        asked = json.loads(
            call(monkeypatch, capsys, "query", nights.path, "v0 given v1=1", "--json")
        )
        scored = json.loads(
            call(monkeypatch, capsys, "score", nights.path, "--target", "v0", "--json")
        )
        output = tmp_path / f"{name}.html"
        call(monkeypatch, capsys, "report", nights.path, "--output", output)
        assert output.stat().st_size > 10_000
        for words in (["history"], ["models"], ["status"], ["log"]):
            assert call(monkeypatch, capsys, words[0], nights.path, *words[1:])
        said.append((stages, live, asked["levels"], scored["digest"], scored["samples"]))
    assert said[0] == said[1]
