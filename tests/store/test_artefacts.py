import hashlib
import json
import multiprocessing
import os
import platform
import shutil
import subprocess
import sys
import time
import uuid

import pytest

from pmflib.base import StoreError, StoreWarning
from pmflib.store import (
    LEASE_SECONDS,
    LIST_FILE,
    Reference,
    Store,
    digest_tree,
    hold_lease,
    identify,
    mark_draft,
    seal,
)
from pmflib.store.leases import find_process_space

SOURCE = Reference("source", "1" * 64, "d" * 64)


def write_text(text):
    def write(folder, work):
        (folder / "deep").mkdir()
        (folder / "deep" / "text").write_text(text)
        return {"length": len(text)}

    return write


def build(store, text="hello", *, inputs=None, version=1, write=None, **options):
    return store.build(
        "thing",
        inputs=inputs or {},
        options=options,
        version=version,
        write=write or write_text(text),
    )


def refuse(folder, work):
    raise AssertionError("the work was done again")


def test_build__does_the_work_once(store):
    first = build(store, rank=2)
    assert build(store, rank=2, write=refuse) == first
    assert first.summary == {"length": 5}
    assert (store.locate(first.reference) / "deep" / "text").read_text() == "hello"
    # another process finds it too
    assert build(Store(store.root), rank=2, write=refuse) == first


@pytest.mark.parametrize(
    "change",
    [
        {"rank": 3},
        {"rank": 2, "version": 2},
        {"rank": 2, "inputs": {"data": SOURCE}},
        {"rank": 2, "inputs": {"data": Reference("source", "1" * 64, "e" * 64)}},
    ],
)
def test_build__another_identity_is_other_work(store, change):
    first = build(store, rank=2, inputs={"data": Reference("source", "1" * 64, "f" * 64)})
    assert build(store, "other", **change).reference.identity != first.reference.identity
    assert len(list(store.entries())) == 2


def test_identify__depends_on_the_inputs_content_and_not_on_their_location():
    one = identify("kind", {"data": SOURCE}, {"a": 1, "b": [2]}, 1)
    moved = Reference("samples", "2" * 64, "d" * 64)
    assert identify("kind", {"data": moved}, {"b": (2,), "a": 1}, 1) == one
    assert identify("kind", {"role": SOURCE}, {"a": 1, "b": [2]}, 1) != one


def test_build__equal_content_is_the_same_folder(store):
    one, two = build(store, rank=1), build(store, rank=2)
    assert one.reference.identity != two.reference.identity
    assert one.reference.path == two.reference.path
    assert len(list((store.root / "thing").iterdir())) == 1


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_build__interrupted_work_publishes_nothing(store, error):
    def write(folder, work):
        (folder / "half").write_text("half")
        (work / "checkpoint").write_text("1")
        raise error("stopped")

    with pytest.raises(error, match="stopped"):
        build(store, write=write)
    assert list(store.entries()) == []
    assert not (store.root / "thing").exists()
    assert list((store.root / "tmp").iterdir()) == []

    def resume(folder, work):
        assert list(folder.iterdir()) == []
        assert (work / "checkpoint").read_text() == "1"
        (folder / "whole").write_text("whole")
        return {}

    entry = build(store, write=resume)
    assert (store.locate(entry.reference) / "whole").read_text() == "whole"
    assert list((store.root / "work").iterdir()) == []


def test_build__killed_process_leaves_checkpoints_and_droppable_files(store):
    script = (
        "import os, sys\n"
        "from pmflib.store.artefacts import Store\n"
        "def write(folder, work):\n"
        "    (folder / 'half').write_text('half')\n"
        "    (work / 'checkpoint').write_text('1')\n"
        "    os._exit(9)\n"
        "Store(sys.argv[1]).build('thing', inputs={}, options={}, version=1, write=write)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(store.root)], check=False)
    assert done.returncode == 9
    assert len(list((store.root / "tmp").iterdir())) == 1
    assert list(store.entries()) == []
    (lease,) = (store.root / "leases").iterdir()
    content = lease.read_text()
    lease.write_text(json.dumps(json.loads(content) | {"space": "another machine"}))
    # its lease is young: it could be at work there
    assert store.drop_leftovers() == 0
    if find_process_space():
        lease.write_text(content)
        with pytest.warns(StoreWarning, match="thing"):
            assert store.drop_leftovers() == 1
    else:
        age_leases(store.root, LEASE_SECONDS)
        assert store.drop_leftovers() == 1
    assert list((store.root / "tmp").iterdir()) == []
    assert list((store.root / "leases").iterdir()) == []

    def resume(folder, work):
        assert (work / "checkpoint").read_text() == "1"
        return {}

    build(store, write=resume)


def age_leases(root, seconds):
    for path in (root / "leases").iterdir():
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


def forge_draft(store):
    """Give the draft of a process in another container with this one's host name and process id, and its lease."""
    holder = uuid.uuid4().hex
    draft = store.root / "tmp" / f"samples-{holder}-01234567"
    draft.mkdir()
    lease = store.root / "leases" / f"{holder}-76543210"
    content = {
        "purpose": "",
        "host": platform.node(),
        "process": os.getpid(),
        "started": time.time(),
    }
    lease.write_text(json.dumps(content))
    return draft, lease


def test_drop_leftovers__leaves_live_work_and_foreign_files(store):
    tmp = store.root / "tmp"
    with hold_lease(store.objects, "test"):
        mine = tmp / mark_draft("pair-counts")
        mine.mkdir()
        theirs, young = forge_draft(store)
        dead, old = forge_draft(store)
        killed, gone = forge_draft(store)
        then = time.time() - LEASE_SECONDS - 1
        os.utime(old, (then, then))
        gone.unlink()
        for foreign in (".DS_Store", "notes-x-y", "README"):
            (tmp / foreign).write_text("")
        assert store.drop_leftovers() == 2
        assert mine.exists()
        assert theirs.exists()
        assert young.exists()
        assert not dead.exists()
        assert not old.exists()
        assert not killed.exists()
        assert len(list(tmp.iterdir())) == 5
    # this process has given up its lease, and does not work here any more
    assert store.drop_leftovers() == 1
    assert not mine.exists()


def test_drop_leftovers__checkpoints_of_what_is_published_go(store):
    entry = build(store)
    for name in (entry.reference.identity, identify("text", {}, {"n": 2}, 1), "foreign"):
        (store.root / "work" / name).mkdir()
    store.drop_leftovers()
    left = {path.name for path in (store.root / "work").iterdir()}
    assert left == {identify("text", {}, {"n": 2}, 1), "foreign"}


def test_find__missing_content_is_built_again(store):
    entry = build(store)
    shutil.rmtree(store.locate(entry.reference))
    assert store.find(entry.reference.identity) is None
    with pytest.raises(StoreError, match="thing"):
        store.locate(entry.reference)
    assert build(store) == entry
    assert store.locate(entry.reference).is_dir()


def test_find__content_without_its_list_is_built_again(store):
    entry = build(store)
    (store.locate(entry.reference) / LIST_FILE).unlink()
    assert store.find(entry.reference.identity) is None
    assert build(store) == entry
    assert (store.locate(entry.reference) / LIST_FILE).exists()


def test_build__damaged_content_is_replaced_when_it_is_built_again(store):
    entry = build(store)
    text = store.locate(entry.reference) / "deep" / "text"
    text.write_text("hallo")
    (store.root / "manifest" / f"{entry.reference.identity}.json").unlink()
    assert build(store) == entry
    assert text.read_text() == "hello"
    assert list((store.root / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'"x"',
        b'{"reference": {"kind": "thing"}}',
        b"[" * 50_000,
        b'{"a":' * 50_000,
        b"9" * 5000,
        seal({"reference": {"kind": "thing", "identity": "../../x", "digest": "../../y"}}),
        seal({"reference": [], "inputs": {}, "options": {}, "version": 1, "summary": {}}),
        seal({"deep": 1, "version": float("inf")}),
    ],
)
def test_find__damaged_entry_names_the_file_to_delete(store, content):
    entry = build(store)
    path = store.root / "manifest" / f"{entry.reference.identity}.json"
    whole = json.loads(path.read_text())
    path.write_bytes(content)
    with pytest.raises(StoreError, match=path.name):
        build(store)
    path.write_text(json.dumps(whole | {"version": "x"}))
    with pytest.raises(StoreError, match=path.name):
        list(store.entries())
    path.unlink()
    assert build(store) == entry


def test_record_source__raw_files_stay_where_they_are(store):
    entry = store.record_source("log.csv", "d" * 64, {"bytes": 3})
    assert store.find(entry.reference.identity) == entry
    assert store.record_source("log.csv", "d" * 64, {}).reference == entry.reference
    assert (
        store.record_source("log.csv", "e" * 64, {}).reference.identity != entry.reference.identity
    )
    with pytest.raises(StoreError, match="source dddddddddddd"):
        store.locate(entry.reference)


def test_entries__keep_inputs_and_options(store):
    source = store.record_source("log.csv", "d" * 64, {}).reference
    entry = build(store, inputs={"log": source}, rank=2)
    found = store.find(entry.reference.identity)
    assert found.inputs == {"log": source}
    assert (found.options, found.version) == ({"rank": 2}, 1)
    identities = [each.reference.identity for each in store.entries()]
    assert identities == sorted(identities)
    assert len(identities) == 2


def test_digest_tree__names_and_contents(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"")
    by_hand = hashlib.sha256()
    for name, content in ((b"a/x", b"1"), (b"b", b"")):
        by_hand.update(name + b"\0" + hashlib.sha256(content).digest())
    assert digest_tree(tmp_path) == by_hand.hexdigest()
    before = digest_tree(tmp_path)
    (tmp_path / "a" / "x").rename(tmp_path / "a" / "y")
    assert digest_tree(tmp_path) != before
    (tmp_path / "a" / "y").rename(tmp_path / "a" / "x")
    assert digest_tree(tmp_path) == before
    (tmp_path / "b").write_bytes(b"2")
    assert digest_tree(tmp_path) != before


def build_together(root, barrier, option, results):
    def write(folder, work):
        (work / "checkpoint").write_text("1")
        (folder / "text").write_text("same")
        barrier.wait()
        return {}

    entry = Store(root).build("thing", inputs={}, options={"o": option}, version=1, write=write)
    results.put((entry.reference.path, entry.reference.digest))


@pytest.mark.parametrize("options", [(1, 1), (1, 2)])
def test_build__two_processes_publish_the_same_content(store, options):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2, timeout=60), context.Queue()
    processes = [
        context.Process(target=build_together, args=(store.root, barrier, option, results))
        for option in options
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert found[0] == found[1]
    assert len(list(store.entries())) == len(set(options))
    assert digest_tree(store.root / found[0][0]) == found[0][1]
    assert list((store.root / "tmp").iterdir()) == []
    results.close()
    results.join_thread()
