"""Sources in a bucket, by the package that serves stores there."""

import pytest

from pmflib.base import SourceError
from pmflib.ingest import digest_source, find_sources, recall_digest, take_marks
from pmflib.store import open_objects
from tests.flows.nights import Nights, draw_ratings, make_movies
from tests.object_store import SECRET


def test_find_sources__of_a_bucket(bucket):
    objects = open_objects(f"s3://{bucket}/logs")
    for name in ("a.csv", "deep/b.csv", "notes.md"):
        objects.put(name, b"x,y\n1,2\n")
    for path in (f"s3://{bucket}/logs", f"s3://{bucket}/logs/**/*.csv"):
        found = find_sources((path,), (".csv",))
        assert [source.name.rpartition("/")[2] for source in found] == ["a.csv", "b.csv"]
    source = found[0]
    marks, digest = take_marks(source), digest_source(source)
    assert marks["size"] == 8
    assert marks["e_tag"]
    objects.put("a.csv", b"x,y\n1,3\n")
    assert take_marks(source) != marks
    assert digest_source(source) != digest


def test_find_sources__that_are_not_there(bucket):
    for path in (
        f"s3://{bucket}/none.csv",
        f"s3://{bucket}/none/*.csv",
        "s3://no-bucket-of-ours/a.csv",
    ):
        with pytest.raises(SourceError) as refused:
            find_sources((path,), (".csv",))
        assert SECRET not in str(refused.value)


def test_run__source_and_store_in_a_bucket(bucket, tmp_path, monkeypatch):
    nights = Nights(tmp_path / "disk", make_movies(5), monkeypatch)
    nights.deliver("a.csv", draw_ratings(200, 5), range(200))
    expected = nights.run()
    log = open_objects(f"s3://{bucket}/log")
    log.put("a.csv", (nights.log / "a.csv").read_bytes())
    source = {"path": f"s3://{bucket}/log", "layout": "long"}
    source |= {"sample": "user", "variable": "movie", "value": "rating", "time": "ts"}
    store = {"path": f"s3://{bucket}/store", "folds": 8}
    there = Nights(tmp_path / "bucket", make_movies(5), monkeypatch, source=source, store=store)
    assert there.run()["live_model"] == expected["live_model"]
    (found,) = find_sources(there.config.source_paths, there.config.source.suffixes)
    assert recall_digest(found, there.store.address) == digest_source(found)
    assert there.run()["outcome"] == "unchanged"
