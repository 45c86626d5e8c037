"""What a listing of a bucket answers for, and for how long."""

from pmflib.store.objects import bucket
from pmflib.store.objects.bucket import Listing


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


def test_take_current__what_was_asked_for():
    known = Listing({"runs/p/1": "1", "runs/p/2": "1", "runs/p/3": "3"})
    known.contents |= {f"runs/p/{n}": (b"", "1") for n in (1, 2, 3)}
    for name in known.tags:
        if name != "runs/p/1":
            known.read(name)
    assert list(known.take_current()) == ["runs/p/2"]
