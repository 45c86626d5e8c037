"""What a listing of a bucket answers for, and for how long."""

from pmflib.store.bucket import bucket
from pmflib.store.bucket.bucket import Listing


def test_lacks__for_a_moment_and_also_below(monkeypatch):
    known = Listing({"manifest/a.json": "1", "work/b/.kind": "2"})
    assert known.lacks("manifest/b.json")
    assert not known.lacks("manifest/a.json")
    assert not known.lacks("work/b")
    assert not known.lacks("work")
    assert known.lacks("wor")
    assert known.lacks("work", but="work/b/.kind")
    known.keep("manifest/b.json", b"", "3")
    assert not known.lacks("manifest/b.json")
    known.forget("manifest/a.json")
    assert known.lacks("manifest/a.json")
    monkeypatch.setattr(bucket, "LACKING_SECONDS", -1.0)
    assert not known.lacks("never")


def test_read__content_of_the_tag_alone():
    known = Listing({"runs/p/1": "1", "counts/x": "1"})
    known.contents["runs/p/1"] = b"old", "0"
    assert known.read("runs/p/1") is None
    known.keep("runs/p/1", b"now", "2")
    assert known.read("runs/p/1") == (b"now", "2")
    known.keep("counts/x", b"large", "2")
    assert known.read("counts/x") is None
    known.forget("runs/p/1")
    assert known.read("runs/p/1") is None
    known.note("runs/p/1")
    assert known.read("runs/p/1") is None
