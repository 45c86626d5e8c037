"""Collection and verification of stores in a bucket: the same results as on a disk, whatever stops them."""

import json
import threading

import pytest

from pmflib.base import StoreError, UnreachableStoreError
from pmflib.store import (
    COLLECTIONS,
    LIST_FILE,
    Store,
    collect,
    find_live,
    hold_lease,
    is_needed,
    list_collected_runs,
    list_erased,
    list_records,
    list_unfinished,
    verify_store,
)
from pmflib.store.bucket import packs
from pmflib.store.bucket.bucket import Bucket
from pmflib.store.checkpoints import KIND_FILE
from tests.object_store import read_bucket, replace_packed
from tests.store.copies import upload_files
from tests.store.test_collection import build, record, run_nights

CARRIED = ("tmp/", "work/", "leases/", "fingerprints/", "histories/")


@pytest.fixture
def here(tmp_path):
    """A store on a disk, with some nights."""
    store = Store(tmp_path / "here")
    run_nights(store)
    return store


@pytest.fixture
def there(bucket):
    """An empty store in a bucket."""
    return Store(f"s3://{bucket}/there")


def list_content(store):
    """Content of what a copy carries over, but for hints."""
    return {
        name: content
        for name, content in read_bucket(store.address).items()
        if not name.startswith(CARRIED) and not name.endswith("/last")
    }


def list_problems(store):
    found = verify_store(
        store, list_collected_runs(store), is_needed, list_erased(store), older_than=0
    )
    return {each.problem for each in found.damages}


def count(found):
    return {kind: each.number for kind, each in found.artefacts.items()}


def stop_requests(monkeypatch, n):
    """Let the n-th request that changes a bucket fail, as all after it, in place of being made; list those made."""
    seen, lock = [], threading.Lock()

    def wrap(function):
        def call(objects, *arguments):
            with lock:
                seen.append(function.__name__)
                if n and len(seen) >= n:
                    raise UnreachableStoreError("the server is gone")
            return function(objects, *arguments)

        return call

    for name in ("put", "create", "replace", "delete", "put_file"):
        monkeypatch.setattr(Bucket, name, wrap(getattr(Bucket, name)))
    return seen


def forget_leases(store):
    """Let whoever was stopped be known to have ended."""
    store.objects.delete([metadata.name for metadata in store.objects.list_objects("leases")])


@pytest.mark.parametrize("content", [b"9", None])
def test_verify_store__a_bucket_and_not_its_cache(there, content):
    run_nights(there)
    folder = next((there.root / "counts").iterdir())
    # a cache that is damaged is no damage of the store
    (folder / "content").write_text("9")
    assert list_problems(there) == set()
    folder_name = f"counts/{folder.name}"
    replace_packed(there.objects, folder_name, "content", content)
    assert list_problems(there) == {"damaged content"}
    there.objects.put(f"{folder_name}/more", b"")
    assert list_problems(there) == {"damaged content"}
    there.objects.delete([f"{folder_name}/more", f"{folder_name}/{LIST_FILE}"])
    # an artefact is there if its list of digests is
    assert list_problems(there) == {"missing folder"}


def test_verify_store__strange_objects(there):
    run_nights(there)
    strange = ["file", "Mine/x", "counts/x/y", "manifest/x", "runs/p/note", "runs/p/a/000001.json"]
    for name in strange:
        there.objects.put(name, b"")
    orphan = f"counts/{'0' * 24}"
    there.objects.put(f"{orphan}/content", b"")
    there.objects.delete(["runs/p/000002.json"])
    found = verify_store(there, list_collected_runs(there), is_needed, older_than=0)
    locations = {}
    for each in found.damages:
        locations.setdefault(each.problem, set()).add(each.location)
    assert locations == {
        "foreign file": set(strange),
        "orphan folder": {orphan},
        "missing record": {"runs/p/000002.json"},
    }


def test_collect__in_a_bucket_as_on_a_disk(here, there, monkeypatch):
    # as many bytes as on a disk, where nothing is packed
    monkeypatch.setattr(packs, "PACK_BYTES", 0)
    upload_files(here, there.address)
    for store in (here, there):
        store.objects.put(f"counts/{'0' * 24}/content", b"left")
        store.objects.put(f"work/{'1' * 64}/{KIND_FILE}", b"counts")
    assert [each.kind for each in list_unfinished(there)] == ["counts"]
    would = collect(there, 1, older_than=0, dry_run=True)
    assert list_problems(there) == {"orphan folder"}
    on_disk, found = collect(here, 1, older_than=0), collect(there, 1, older_than=0)
    assert would == found
    assert found.leftovers["orphans"].number == 1
    assert count(found) == count(on_disk)
    assert found.to_json() == on_disk.to_json()
    ours, theirs = (
        {name for name in list_content(store) if not name.startswith("runs/@gc")}
        for store in (here, there)
    )
    assert ours == theirs
    assert list_problems(there) == set()
    assert list_records(there, COLLECTIONS)[0].facts == list_records(here, COLLECTIONS)[0].facts
    assert collect(there, 1, older_than=0).artefacts == {}


def test_collect__in_a_bucket_is_alone(there):
    entry = build(there, "model", 1)
    record(there, {"model": entry})
    other = {"purpose": "run", "host": "other", "process": 1, "started": 0.0}
    name = f"leases/{'a' * 32}-{'b' * 8}"
    there.objects.put(name, json.dumps(other).encode())
    with pytest.raises(StoreError, match="run, process 1 on other"):
        collect(there, 1, older_than=0)
    assert collect(there, 1, older_than=0, dry_run=True).kept["model"].number == 1
    there.objects.delete([name])
    assert collect(there, 1, older_than=0).kept["model"].number == 1
    with hold_lease(there.objects, "this process"):
        assert collect(there, 1, older_than=0).artefacts == {}


@pytest.mark.slow
def test_collect__in_a_bucket_is_stopped_anywhere(tmp_path, bucket, monkeypatch):
    here = Store(tmp_path / "here")
    run_nights(here, nights=2)
    first = upload_files(here, f"s3://{bucket}/first")
    with monkeypatch.context() as patch:
        seen = stop_requests(patch, 0)
        collect(first, 1, older_than=0)
    expected = {name for name in list_content(first) if not name.startswith("runs/@gc")}
    # the lock and the lease come first, the record, then entries, lists, files
    for n in range(3, len(seen) - 3, 3):
        store = upload_files(here, f"s3://{bucket}/there{n}")
        with monkeypatch.context() as patch:
            stop_requests(patch, n)
            with pytest.raises(UnreachableStoreError):
                collect(store, 1, older_than=0)
        forget_leases(store)
        assert list_problems(store) <= {"orphan folder"}
        assert find_live(store, "p") == find_live(here, "p")
        collect(store, 1, older_than=0)
        assert {n for n in list_content(store) if not n.startswith("runs/@gc")} == expected
        assert list_problems(store) == set()
