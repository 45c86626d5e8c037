"""Copies of stores: what is in them, what stops them, and what they may not bring back."""

import hashlib
import itertools
import json
import os
import threading
from dataclasses import asdict, replace

import pytest

from pmflib.base.errors import ConfigError, StoreError
from pmflib.store.artefacts import NO_KINDS, Entry, Reference, Store, identify
from pmflib.store.care.collection import collect
from pmflib.store.care.copying import EVENTS, MOST_BYTES, copy_store
from pmflib.store.care.verification import verify_store
from pmflib.store.erasures import (
    Erasure,
    Replacement,
    list_erased,
    new_list,
    read_erasures,
    write_erasures,
)
from pmflib.store.file_digests import digest_list, seal
from pmflib.store.lineage import is_needed, list_collected_runs
from pmflib.store.objects.interface import LIST_FILE
from pmflib.store.objects.local_folder import LocalFolder, digest_file
from pmflib.store.run_records import append_record, find_live, keep_page, list_records
from tests.store.test_collection import RUN, build, list_left, record, run_nights


@pytest.fixture
def source(tmp_path):
    return Store(tmp_path / "source")


@pytest.fixture
def target(tmp_path):
    return Store(tmp_path / "target")


def list_content(store):
    """Content of every file that a copy carries over."""
    left = ("tmp/", "work/", "leases/", "fingerprints/")
    return {
        name: path.read_bytes()
        for path in sorted(store.root.rglob("*"))
        if path.is_file() and not (name := path.relative_to(store.root).as_posix()).startswith(left)
    }


def check(store):
    found = verify_store(store, list_collected_runs(store), is_needed, list_erased(store))
    assert found.damages == ()


def erase(store, doomed, *, new=None):
    """Erase as `pmf erase` does to what held samples."""
    erasures = read_erasures(store) or new_list()
    number = len(erasures.erasures) + 1
    act = Erasure(number, "now", "then", [f"{number:064x}"], [])
    act.replaced = [Replacement(entry.reference, new, 1, True) for entry in doomed]
    erasures.samples[f"{number:064x}"] = f"{number:016x}"
    erasures.erasures.append(act)
    write_erasures(store, erasures)
    for entry in doomed:
        (store.root / "manifest" / f"{entry.reference.identity}.json").unlink()
        if entry.reference.path:
            folder = store.root / entry.reference.path
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()


class StoppedError(Exception):
    """A copy was stopped here."""


def stop_at(monkeypatch, n):
    """Stop a copy at the n-th of the writes to its target; a list with the number of those that there were."""
    seen = []
    lock = threading.Lock()

    def wrap(function):
        def call(*arguments):
            with lock:
                seen.append(function.__name__)
                if len(seen) == n:
                    raise StoppedError
            return function(*arguments)

        return call

    for owner, name in [
        (LocalFolder, "put"),
        (LocalFolder, "create"),
        (LocalFolder, "delete"),
        (LocalFolder, "fetch_file"),
        (Store, "publish"),
    ]:
        monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))
    return seen


def fill(store):
    """Some nights, a page, events, a collection."""
    run_nights(store)
    keep_page(store, "p", 1, b"<html>")
    (store.root / "lineage").mkdir()
    (store.root / EVENTS).write_bytes(b'{"a":1}\n{"b":2}\n')


def test_copy_store__is_the_same_store(source, target):
    fill(source)
    (source.root / "work" / "x").mkdir()
    (source.root / "fingerprints").mkdir()
    found = copy_store(source, target)
    assert list_content(target) == list_content(source)
    check(target)
    assert found.artefacts["samples"].number == 5
    assert found.artefacts["samples"].bytes == 1 + 4 * 3
    assert found.entries == len(list(source.entries()))
    assert (found.records, found.pages) == (4, 1)
    # nobody's leases, drafts or checkpoints
    for name in ("tmp", "work", "leases"):
        assert list((target.root / name).iterdir()) == []
    again = copy_store(source, target)
    assert again.to_json() | {"present": {}} == asdict(type(found)()) | {"bytes": 0}
    assert again.present["samples"] == 5


def test_copy_store__only_what_is_new(source, target):
    fill(source)
    copy_store(source, target)
    before = {n: os.stat(target.root / n).st_mtime_ns for n in list_content(target)}
    new = build(source, "model", 99)
    record(source, {"model": new}, live=new)
    (source.root / EVENTS).write_bytes(b'{"a":1}\n{"b":2}\n{"c":3}\n')
    found = copy_store(source, target)
    assert {kind: each.number for kind, each in found.artefacts.items()} == {"model": 1}
    assert (found.entries, found.records, found.pages) == (1, 1, 0)
    grown = (EVENTS, "histories/p")
    after = {n: os.stat(target.root / n).st_mtime_ns for n in before if n not in grown}
    assert after == {n: time for n, time in before.items() if n not in grown}
    assert list_content(target) == list_content(source)


def test_copy_store__dry_run_counts_the_same_and_writes_nothing(source, target):
    fill(source)
    would, without = (copy_store(source, each, dry_run=True) for each in (target, None))
    assert list_content(target) == {}
    done = copy_store(source, target)
    assert would == without
    # the files of artefacts, and their lists of digests
    assert {k: a.number for k, a in would.artefacts.items()} == {
        k: a.number for k, a in done.artefacts.items()
    }
    assert (would.entries, would.records, would.pages) == (
        done.entries,
        done.records,
        done.pages,
    )


def test_copy_store__stopped_anywhere_leaves_a_store_and_goes_on(source, tmp_path, monkeypatch):
    fill(source)
    collect(source, 2)
    with monkeypatch.context() as patch:
        seen = stop_at(patch, 0)
        copy_store(source, Store(tmp_path / "count"))
    n_writes = len(seen)
    assert n_writes > 30
    for n in range(1, n_writes + 1):
        target = Store(tmp_path / f"target{n}")
        with monkeypatch.context() as patch:
            stop_at(patch, n)
            with pytest.raises(StoppedError):
                copy_store(source, target)
        found = verify_store(target, list_collected_runs(target), is_needed, list_erased(target))
        # what was copied ahead of the one that failed has no entry yet; records of runs that were collected come last,
        # so that the live model is there
        assert {each.problem for each in found.damages} <= {"orphan folder", "missing record"}
        live = find_live(target, "p")
        assert live is None or target.find(live.identity) is not None
        copy_store(source, target)
        check(target)
        assert list_left(target) == list_left(source)
        assert list_records(target, "p") == list_records(source, "p")


def test_copy_store__damage_in_the_source_is_not_carried_over(source, target):
    made, _ = run_nights(source)
    path = source.root / made[1]["counts"].reference.path / "content"
    path.write_text("2")
    with pytest.raises(StoreError, match=r"'content' of counts/"):
        copy_store(source, target)
    assert not (target.root / made[1]["counts"].reference.path).exists()
    assert list_records(target, "p") == []
    found = verify_store(target, list_collected_runs(target), is_needed)
    # what was copied ahead of the one that failed has no entry yet
    assert {each.problem for each in found.damages} <= {"orphan folder"}


def test_copy_store__list_of_digests_that_leads_outside(source, target, tmp_path):
    (tmp_path / "secret").write_text("secret")
    digests = {"../../../secret": digest_file(tmp_path / "secret")}
    digest = digest_list(digests)
    entry = build(source, "model", 1)
    folder = source.root / "model" / digest[:24]
    folder.mkdir()
    (folder / LIST_FILE).write_text(json.dumps(digests))
    bad = replace(entry, reference=replace(entry.reference, digest=digest))
    (source.root / "manifest" / f"{entry.reference.identity}.json").write_bytes(seal(asdict(bad)))
    with pytest.raises(StoreError, match="model/"):
        copy_store(source, target)
    assert not list(tmp_path.glob("target/**/secret"))


def put_link(path, secret):
    path.symlink_to(secret)


def put_linked_folder(path, secret):
    path.parent.rmdir()
    path.parent.symlink_to(secret.parent)


def put_pipe(path, secret):
    os.mkfifo(path)


def put_large(path, secret):
    with path.open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)


@pytest.mark.parametrize("put", [put_link, put_linked_folder, put_pipe, put_large])
@pytest.mark.parametrize(
    "name", ["exports/x", "lineage/events.jsonl", "reports/p/000001.html", "manifest/a.json"]
)
def test_copy_store__only_files_of_the_store_are_read(source, target, tmp_path, put, name):
    (tmp_path / "elsewhere").mkdir()
    secret = tmp_path / "elsewhere" / "secret"
    secret.write_text("secret")
    path = source.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    put(path, secret)
    with pytest.raises(StoreError, match="ask whoever made the store"):
        copy_store(source, target)
    assert list_content(target) == {}


def plant(source, kind, files, contents):
    """An entry for files that are listed as given, whatever there is."""
    digests = {name: hashlib.sha256(b"1").hexdigest() for name in files}
    digest = digest_list(digests)
    identity = identify(kind, {}, {}, 1)
    entry = Entry(Reference(kind, identity, digest), {}, {}, 1)
    (source.root / "manifest" / f"{identity}.json").write_bytes(seal(asdict(entry)))
    folder = source.root / kind / digest[:24]
    folder.mkdir(parents=True)
    (folder / LIST_FILE).write_text(json.dumps(digests))
    for name in contents:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"1")


@pytest.mark.parametrize(
    "files",
    [["a/b", "a"], ["a\0b"], ["a" * 300], ["/".join("a" * 3000)], ["./a"], ["a//b"], ["/a"], [""]],
)
def test_copy_store__names_that_no_file_can_have(source, target, files):
    plant(source, "model", files, files[:1] if len(files) > 1 else [])
    with pytest.raises(StoreError, match="model/"):
        copy_store(source, target)
    assert list_content(target) == {}


@pytest.mark.parametrize("kind", sorted(NO_KINDS))
def test_copy_store__artefact_in_a_folder_that_holds_none(source, target, kind):
    plant(source, kind, ["a"], ["a"])
    with pytest.raises(StoreError, match="kind"):
        copy_store(source, target)
    assert list_content(target) == {}


@pytest.mark.parametrize("what", ["folder", "entry", "input"])
def test_copy_store__source_that_is_not_whole_is_refused(source, target, what):
    made, shared = run_nights(source)
    if what == "folder":
        for path in (source.root / made[-1]["model"].reference.path).iterdir():
            path.unlink()
    else:
        entry = made[-1]["model"] if what == "entry" else shared
        (source.root / "manifest" / f"{entry.reference.identity}.json").unlink()
    with pytest.raises(StoreError, match="pmf verify"):
        copy_store(source, target)
    assert list_records(target, "p") == []


def test_copy_store__verify_repairs_the_target(source, target):
    made, _ = run_nights(source)
    copy_store(source, target)
    path = target.root / made[1]["counts"].reference.path / "content"
    path.write_text("2")
    assert copy_store(source, target).artefacts == {}
    assert path.read_text() == "2"
    found = copy_store(source, target, verify=True)
    assert {kind: each.number for kind, each in found.artefacts.items()} == {"counts": 1}
    assert list_content(target) == list_content(source)


def test_copy_store__histories_that_have_diverged(source, target):
    run_nights(source, nights=2)
    copy_store(source, target)
    one, other = build(source, "model", 7), build(target, "model", 8)
    record(source, {"model": one}, reason="here")
    record(target, {"model": other}, reason="elsewhere")
    before = list_content(target)
    with pytest.raises(StoreError, match="run 3 of 'p'") as refused:
        copy_store(source, target)
    assert str(source.root) in str(refused.value)
    assert str(target.root) in str(refused.value)
    assert list_content(target) == before


def test_copy_store__target_that_is_ahead_stays_so(source, target):
    run_nights(source, nights=2)
    copy_store(source, target)
    more = build(target, "model", 8)
    record(target, {"model": more})
    before = list_content(target)
    found = copy_store(source, target)
    assert found.n_ahead == 1
    assert list_content(target) == before
    # and back
    assert copy_store(target, source).records == 1
    assert list_content(source) == list_content(target)


def test_copy_store__one_pipeline(source, target):
    mine = build(source, "model", 1, [build(source, "dataset", 1)])
    theirs = build(source, "model", 2)
    record(source, {"model": mine}, live=mine)
    record(source, {"model": theirs}, pipeline="q")
    keep_page(source, "p", 1, b"p")
    keep_page(source, "q", 1, b"q")
    copy_store(source, target, pipeline="p")
    assert target.find(mine.reference.identity) == mine
    assert target.find(theirs.reference.identity) is None
    assert list_records(target, "q") == []
    assert not (target.root / "reports" / "q").exists()
    check(target)
    with pytest.raises(ConfigError, match="--pipeline"):
        copy_store(source, target, pipeline="r")


def test_copy_store__the_same_store_twice(source, tmp_path):
    (tmp_path / "link").symlink_to(source.root)
    with pytest.raises(ConfigError, match="source"):
        copy_store(source, Store(tmp_path / "link"))


def test_copy_store__erased_samples_go_from_the_target(source, target):
    made, _ = run_nights(source, nights=2)
    # gone from the source before the erasure, which so does not name it
    old = build(source, "predictions", 5)
    keep_page(source, "p", 1, b"a row")
    copy_store(source, target)
    (target.root / "work" / ("0" * 64)).mkdir()
    (target.root / "work" / ("0" * 64) / "state").write_text("a row")
    (source.root / "manifest" / f"{old.reference.identity}.json").unlink()
    (source.root / "reports" / "p" / "000001.html").unlink()
    new = build(source, "counts", 77)
    erase(source, [made[0]["counts"]], new=new.reference)
    append_record(source, "p", RUN)
    would = copy_store(source, target, dry_run=True)
    found = copy_store(source, target)
    assert {k: a.number for k, a in found.removed.items()} == {"counts": 1, "predictions": 1}
    assert {k: a.number for k, a in would.removed.items()} == {"counts": 1, "predictions": 1}
    assert read_erasures(target) == read_erasures(source)
    assert not (target.root / made[0]["counts"].reference.path).exists()
    assert not (target.root / old.reference.path).exists()
    assert not (target.root / "reports" / "p").exists()
    assert list((target.root / "work").iterdir()) == []
    assert list_records(target, "p")[0].stages["counts"] == new.reference
    check(target)


def test_copy_store__erasure_that_is_carried_over_is_stopped_anywhere(
    source, tmp_path, monkeypatch
):
    made, _ = run_nights(source, nights=2)
    targets = [Store(tmp_path / f"target{n}") for n in range(40)]
    for target in targets:
        copy_store(source, target)
    new = build(source, "counts", 77)
    erase(source, [made[0]["counts"], made[0]["dataset"]], new=new.reference)
    n_stopped = 0
    for n, target in enumerate(targets, 1):
        with monkeypatch.context() as patch:
            stop_at(patch, n)
            try:
                copy_store(source, target)
            except StoppedError:
                n_stopped += 1
        found = verify_store(target, list_collected_runs(target), is_needed, list_erased(target))
        assert {each.problem for each in found.damages} <= {"orphan folder"}
        copy_store(source, target)
        check(target)
        assert list_left(target) == list_left(source)
    assert 4 <= n_stopped < len(targets)


def test_copy_store__does_not_bring_erased_samples_back(source, target, tmp_path):
    made, _ = run_nights(source, nights=2)
    copy_store(source, target)
    erase(source, [made[0]["counts"]])
    with pytest.raises(StoreError, match="erased"):
        copy_store(target, source)
    record(target, {})
    with pytest.raises(StoreError, match="target"):
        copy_store(source, target)
    # another store with an erasure of its own
    other = Store(tmp_path / "other")
    erase(other, [build(other, "counts", 3)])
    with pytest.raises(StoreError, match="erased"):
        copy_store(source, other)


def test_copy_store__unfinished_erasure_is_finished_first(source, target):
    run_nights(source, nights=1)
    erasures = new_list()
    erasures.erasures.append(Erasure(1, "now"))
    write_erasures(source, erasures)
    with pytest.raises(StoreError, match="pmf erase"):
        copy_store(source, target)
    assert list_left(target) == (set(), set())


def test_copy_store__source_that_may_only_be_read(source, target):
    run_nights(source, nights=1)
    folders = [path for path in (source.root, *source.root.rglob("*")) if path.is_dir()]
    for path in folders:
        path.chmod(0o500)
    try:
        copy_store(Store(source.root), target)
    finally:
        for path in folders:
            path.chmod(0o700)
    assert list_content(target) == list_content(source)


def test_copy_store__runs_that_end_meanwhile(source, target, monkeypatch):
    run_nights(source, nights=2)
    publish, copied, done = Store.publish, itertools.count(), []

    def publish_and_run(store, draft, reference):
        # artefacts are copied side by side: one of these threads is the first
        if store is target and next(copied) == 0:
            done.append(build(source, "model", 9))
            record(source, {"model": done[0]})
        publish(store, draft, reference)

    monkeypatch.setattr(Store, "publish", publish_and_run)
    copy_store(source, target)
    assert done
    check(target)
    copy_store(source, target)
    assert list_content(target) == list_content(source)
