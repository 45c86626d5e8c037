"""A store in a bucket: when an artefact is there, what is refused, and what runs at once do to each other."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import ObjectStore

from pmflib.base import StoreError
from pmflib.store import (
    BlockReference,
    Reference,
    RunRecord,
    Store,
    append_record,
    check_artefact,
    consolidate,
    create_group,
    create_open_array,
    find_live,
    find_local_path,
    find_record,
    gather_in,
    hand_in,
    hold_lease,
    keep_erasures_out,
    leases,
    list_leases,
    list_records,
    list_unfinished,
    load_arrays,
    mark_draft,
    name_for_workers,
    open_group,
    read_array_rows,
    read_arrays,
    read_checked,
    save_arrays,
    stay_alone,
    write_arrays,
)
from pmflib.store.bucket import packs
from pmflib.store.bucket.bucket import Bucket
from pmflib.store.bucket.caches import UPLOAD_SECONDS, drop_unused
from pmflib.store.erasures import LOCK
from pmflib.store.objects.interface import LIST_FILE
from tests.object_store import forget_cache, read_bucket, replace_packed

VALUES = np.arange(30_000).reshape(-1, 3)
MODEL, OTHER = (Reference("model", digit * 64, digit * 64) for digit in "12")
TIME = "2026-01-01T00:00:00+00:00"
RUN = RunRecord("run", "promoted", "better", TIME, TIME, "c", {"model": MODEL}, MODEL)


@pytest.fixture
def address(bucket):
    return f"s3://{bucket}/stores/one"


def write(folder, work):
    write_arrays(folder / "arrays", {"x": (VALUES, ("row", "column"))}, {"kind": "test"})
    (folder / "facts.json").write_text('{"a": 1}')
    return {"rows": len(VALUES)}


def build(store, writer=write, **options):
    return store.build("model", inputs={}, options=options, version=1, write=writer)


def test_build__same_entry_as_on_a_disk(address, tmp_path, monkeypatch):
    on_disk, there = Store(tmp_path / "disk"), Store(address)
    entry = build(there)
    assert entry == build(on_disk)
    assert build(there, writer=None) == entry
    folder = tmp_path / "disk" / entry.reference.path
    published = {
        f"{entry.reference.path}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    manifest = f"manifest/{entry.reference.identity}.json"
    published[manifest] = (tmp_path / "disk" / manifest).read_bytes()
    assert read_bucket(address) == published
    forget_cache(monkeypatch, tmp_path / "elsewhere")
    folder = Store(address).locate(entry.reference)
    assert {path.name for path in folder.iterdir()} == {".digests", "facts.json", "arrays"}
    arrays, attributes = read_arrays(folder / "arrays")
    assert np.array_equal(arrays["x"], VALUES)
    assert attributes == {"kind": "test"}
    check_artefact(folder)
    assert [each.stat().st_mode & 0o077 for each in (tmp_path / "elsewhere").iterdir()] == [0]


def test_build__cut_off_before_the_list_is_not_there(address, monkeypatch, tmp_path):
    monkeypatch.setattr(packs, "PACK_BYTES", 0)
    there, put = Store(address), Bucket.put

    def fail(self, name, content):
        if name.endswith(".digests"):
            raise KeyboardInterrupt
        put(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "put", fail)
        with pytest.raises(KeyboardInterrupt):
            build(there)
    assert len(read_bucket(address)) > 3
    forget_cache(monkeypatch, tmp_path / "elsewhere")
    there = Store(address)
    assert list(there.entries()) == []
    entry = build(there)
    check_artefact(there.locate(entry.reference))


def test_locate__artefact_without_its_list(address, monkeypatch, tmp_path):
    there = Store(address)
    entry = build(there)
    there.objects.delete([f"{entry.reference.path}/.digests"])
    assert there.find(entry.reference.identity) is None
    forget_cache(monkeypatch, tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="s3://"):
        Store(address).locate(entry.reference)
    assert build(there) == entry
    assert there.find(entry.reference.identity) == entry


def read(store, reference):
    folder = store.locate(reference)
    return read_checked(folder / "facts.json"), read_arrays(folder / "arrays")


@pytest.mark.parametrize("name", ["facts.json", "arrays/zarr.json", "arrays/x/c/0/0", ".digests"])
@pytest.mark.parametrize("content", [None, b"damaged"])
@pytest.mark.parametrize("pack_bytes", [0, packs.PACK_BYTES])
def test_read__damaged_objects_are_refused(
    address, monkeypatch, tmp_path, name, content, pack_bytes
):
    monkeypatch.setattr(packs, "PACK_BYTES", pack_bytes)
    there = Store(address)
    entry = build(there)
    object_name = f"{entry.reference.path}/{name}"
    if pack_bytes and name != ".digests":
        replace_packed(there.objects, entry.reference.path, name, content)
    elif content is None:
        there.objects.delete([object_name])
    else:
        there.objects.put(object_name, content)
    forget_cache(monkeypatch, tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        read(Store(address), entry.reference)
    # whoever builds it again makes it whole
    there.objects.delete([f"manifest/{entry.reference.identity}.json"])
    assert build(there) == entry
    check_artefact(Store(address).locate(entry.reference))


def test_read__damaged_cache_is_fetched_again(address):
    there = Store(address)
    folder = there.locate(build(there).reference)
    (folder / "facts.json").write_bytes(b"")
    assert read_checked(folder / "facts.json") == b'{"a": 1}'
    (folder / "arrays" / "zarr.json").write_bytes(b"{}")
    group = open_group(folder / "arrays")
    shutil.rmtree(there.root)
    assert np.array_equal(read_array_rows(group, "x", 5, 9), VALUES[5:9])
    assert read_checked(there.locate(build(there).reference) / "facts.json") == b'{"a": 1}'


def test_read_rows__artefact_that_is_dropped_meanwhile(address, monkeypatch):
    there = Store(address)
    folder = there.locate(build(there).reference)
    group, chunk = open_group(folder / "arrays"), folder / "arrays" / "x" / "c"
    dropped = []

    def drop_first(path):
        if chunk in path.parents and not dropped:
            dropped.append(chunk)
            shutil.rmtree(chunk)
        return plain(path)

    plain = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", drop_first)
    assert np.array_equal(read_array_rows(group, "x"), VALUES)
    assert dropped


def test_pack__cut_off_anywhere_is_seen(address, monkeypatch, tmp_path):
    there = Store(address)
    entry = build(there)
    listed = f"{entry.reference.path}/.digests"
    whole = there.objects.read(listed)[0]
    for number, stop in enumerate([1, whole.index(b"\0"), len(whole) // 2, len(whole) - 1]):
        there.objects.put(listed, whole[:stop])
        forget_cache(monkeypatch, tmp_path / f"machine {number}")
        with pytest.raises(StoreError):
            read(Store(address), entry.reference)
    there.objects.put(listed, whole)
    assert read(Store(address), entry.reference)[0] == b'{"a": 1}'


def test_find_local_path__of_another_machine(address, monkeypatch, tmp_path):
    there = Store(address)
    entry = build(there)
    name = name_for_workers(there.locate(entry.reference) / "arrays")
    assert name == f"{address}/{entry.reference.path}/arrays"
    forget_cache(monkeypatch, tmp_path / "elsewhere")
    folder = find_local_path(name)
    assert folder.is_relative_to(tmp_path / "elsewhere")
    assert np.array_equal(read_array_rows(open_group(folder), "x"), VALUES)
    assert BlockReference(name, 0, 1, 0, 1, 1).path == name
    with pytest.raises(StoreError, match="manifest/x"):
        find_local_path(f"{address}/manifest/x.json")


def test_drop_unused__the_oldest_first_and_none_in_use(address):
    there = Store(address)

    def write_one(item):
        (item[0] / "x").write_text(item[1])
        return {}

    folders = [
        there.locate(build(there, lambda *at, x=x: write_one((at[0], x)), x=x).reference)
        for x in "abc"
    ]
    assert drop_unused(there.root, 1) == 0
    for age, folder in enumerate(folders[:2]):
        os.utime(folder, (age, age))
    assert drop_unused(there.root, 10**9) == 0
    total = sum(path.stat().st_size for folder in folders for path in folder.rglob("*"))
    assert drop_unused(there.root, total - 1) > 0
    assert [folder.exists() for folder in folders] == [False, True, True]
    read_checked(folders[0] / "x")


def test_checkpoints__go_on_elsewhere_and_are_gone_when_it_is_done(address, monkeypatch, tmp_path):
    monkeypatch.setattr("pmflib.store.bucket.caches.UPLOAD_SECONDS", 0.0)
    assert UPLOAD_SECONDS > 0

    def stop(folder, work):
        save_arrays(work / "deep" / "state.npz", {"a": np.arange(3)})
        save_arrays(work / "state.npz", {"a": np.arange(4)})
        raise KeyboardInterrupt

    def go_on(folder, work):
        found = [load_arrays(work / name) for name in ("deep/state.npz", "state.npz")]
        assert [len(each["a"]) for each in found] == [3, 4]
        return write(folder, work)

    with pytest.raises(KeyboardInterrupt):
        build(Store(address), writer=stop)
    forget_cache(monkeypatch, tmp_path / "elsewhere")
    there = Store(address)
    assert [work.kind for work in list_unfinished(there)] == ["model"]
    build(there, writer=go_on)
    assert there.objects.list_objects("work") == []
    assert list_unfinished(there) == []


def test_build__two_at_once_do_not_take_what_workers_handed_in_from_each_other(address):
    store = Store(address)

    def hand_over(work):
        path = work / "parts" / "one"
        path.parent.mkdir()
        path.write_bytes(b"1")
        hand_in(path)
        # a worker elsewhere wrote it: it is not here
        path.unlink()
        return path.parent

    def write_second(folder, work):
        gather_in(hand_over(work))
        return write(folder, work)

    def write_first(folder, work):
        parts = hand_over(work)
        build(store, writer=write_second)
        gather_in(parts)
        assert (parts / "one").read_bytes() == b"1"
        return write(folder, work)

    build(store, writer=write_first)
    assert {each.name.split("/")[0] for each in store.objects.list_objects("")} == {
        "manifest",
        "model",
    }


def test_drop_leftovers__what_was_handed_in_to_a_process_that_has_ended(address):
    store = Store(address)
    ended = f"labels-{'a' * 32}-{'b' * 8}"
    for name in (ended, mark_draft("labels")):
        store.objects.put(f"tmp/{name}/labels/part-00000.parquet", b"1")
    with hold_lease(store.objects, "run"):
        store.drop_leftovers()
        assert len(store.objects.list_folders("tmp")) == 1
        assert ended not in store.objects.list_folders("tmp")
    store.drop_leftovers()
    assert store.objects.list_folders("tmp") == []


def test_append_record__of_many_at_once_each_has_a_number(address):
    there = Store(address)
    assert find_live(there, "p") is None
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda _: append_record(there, "p", RUN).number, range(12)))
    assert sorted(done) == list(range(1, 13))
    assert [record.number for record in list_records(there, "p")] == list(range(1, 13))


@pytest.mark.parametrize("hint", [None, b"", b"1", b"x", b"3"])
def test_find_live__hint_that_lags_behind(address, hint):
    there = Store(address)
    for live in (MODEL, MODEL, OTHER):
        append_record(there, "p", replace(RUN, live=live))
    there.objects.delete(["histories/p"])
    if hint is not None:
        there.objects.put("histories/p", hint)
    assert find_live(there, "p") == OTHER
    assert append_record(there, "p", RUN).number == 4


def test_list_records__lost_ones_are_passed_over(address):
    there = Store(address)
    for _ in range(3):
        append_record(there, "p", RUN)
    for number in (2, 3):
        there.objects.delete([f"runs/p/{number:06}.json"])
        with pytest.raises(StoreError, match=f"{number:06}"):
            list_records(there, "p")
        there.objects.put(f"runs/p/{number:06}.lost", b"")
    assert [record.number for record in list_records(there, "p")] == [1]
    assert find_live(there, "p") == MODEL
    with pytest.raises(StoreError, match="run 2"):
        find_record(there, "p", 2)
    assert append_record(there, "p", RUN, lambda record, live: record).number == 4


def test_hold_lease__one_for_a_process(address, monkeypatch):
    there = Store(address)
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.01)
    with hold_lease(there.objects, "run of p"), hold_lease(there.objects, "build of model"):
        (lease,) = list_leases(there.objects)
        assert (lease.purpose, lease.is_alive) == ("run of p", True)
        assert -2 <= lease.age < 60
    assert list_leases(there.objects) == []


def test_stay_alone__and_others(address, monkeypatch):
    there = Store(address)
    with stay_alone(there):
        with pytest.raises(StoreError, match="busy"), keep_erasures_out(there):
            pass
        with pytest.raises(StoreError, match="busy"), stay_alone(there):
            pass
    with keep_erasures_out(there):
        monkeypatch.setattr("pmflib.store.erasures.find_own_holder", lambda: "another")
        with pytest.raises(StoreError, match="in use"), stay_alone(there):
            pass
    assert there.objects.list_objects("leases") == []


def test_stay_alone__lock_of_a_process_that_has_ended(address, monkeypatch):
    there = Store(address)
    there.objects.put(LOCK, b"of a process that was killed")
    with pytest.raises(StoreError, match="busy"), stay_alone(there):
        pass
    monkeypatch.setattr("pmflib.store.erasures.LEASE_SECONDS", -10.0)
    with stay_alone(there):
        assert there.objects.exists(LOCK)
    assert not there.objects.exists(LOCK)


def test_build__groups_for_other_programs_are_objects_of_their_own(address):
    """Small files are packed with the list of digests, but not those that a reader of Zarr asks for by name."""

    def write_two(folder, work):
        for name in ("inner", "outer.zarr"):
            group = create_group(folder / name, {"kind": "test"})
            array = create_open_array(group, "x", (4, 4), np.float32, ("row", "column"), (2, 2))
            array[:2] = 1.5
            consolidate(folder / name)
        return {}

    there = Store(address)
    made = build(there, write_two).reference
    names = {each.name for each in there.objects.list_objects(made.path)}
    parts = ("zarr.json", "x/zarr.json", "x/c/0/0", "x/c/0/1")
    assert names == {f"{made.path}/{LIST_FILE}", *(f"{made.path}/outer.zarr/{p}" for p in parts)}
    assert isinstance(there.objects, Bucket)
    found: Any = zarr.open_group(
        ObjectStore(there.objects._store, read_only=True),
        path=f"{made.path}/outer.zarr",
        mode="r",
        use_consolidated=True,
    )
    assert np.array_equal(found["x"][:2], np.full((2, 4), 1.5))
    # through the cache, too
    assert open_group(there.locate(made) / "outer.zarr").attrs == {"kind": "test"}
