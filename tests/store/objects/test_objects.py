"""What holds of the objects of a folder and of a bucket alike."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from pmflib.store import ObjectChangedError, open_objects
from pmflib.store.objects import local_folder


@pytest.fixture(params=["folder", "bucket"])
def objects(request, tmp_path):
    if request.param == "folder":
        (tmp_path / "objects").mkdir()
        return open_objects(tmp_path / "objects")
    return open_objects(f"s3://{request.getfixturevalue('bucket')}/some/place")


def test_create__only_once(objects):
    objects.create("runs/größe/000001.json", b"first")
    with pytest.raises(FileExistsError):
        objects.create("runs/größe/000001.json", b"second")
    assert objects.read("runs/größe/000001.json")[0] == b"first"


def test_create__of_many_at_once_one_does(objects):
    def create(number):
        try:
            objects.create("runs/p/000001.json", str(number).encode())
        except FileExistsError:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        done = [number for number in pool.map(create, range(8)) if number is not None]
    assert len(done) == 1
    assert objects.read("runs/p/000001.json")[0] == str(done[0]).encode()


def test_replace__refused_when_it_has_changed(objects):
    objects.put("a", b"1")
    _, tag = objects.read("a")
    objects.replace("a", b"2", tag)
    with pytest.raises(ObjectChangedError):
        objects.replace("a", b"3", tag)
    assert objects.read("a")[0] == b"2"
    tag = objects.read("a")[1]
    objects.delete(["a"])
    with pytest.raises((ObjectChangedError, FileNotFoundError)):
        objects.replace("a", b"4", tag)


def test_read__of_nothing(objects):
    with pytest.raises(FileNotFoundError):
        objects.read("nothing/here")
    assert not objects.exists("nothing/here")
    assert objects.list_objects("nothing") == []
    assert objects.list_folders("nothing") == []
    objects.delete(["nothing/here", "nor/here"])


def test_list__names_sizes_and_times_by_its_own_clock(objects):
    before = objects.read_clock()
    for name, content in {"a/b/2": b"xy", "a/b/1": b"x", "a/c": b"", "ab/d": b"xyz"}.items():
        objects.put(name, content)
    found = objects.list_objects("a")
    assert [(metadata.name, metadata.size) for metadata in found] == [
        ("a/b/1", 1),
        ("a/b/2", 2),
        ("a/c", 0),
    ]
    assert all(before - 2 <= metadata.touched <= objects.read_clock() + 2 for metadata in found)
    assert objects.list_folders("a") == ["b"]
    assert objects.list_folders("") == ["a", "ab"]
    objects.delete(["a/b/1", "a/b/2"])
    assert [metadata.name for metadata in objects.list_objects("a")] == ["a/c"]


@pytest.mark.parametrize("size", [0, 5, 33 << 20])
def test_put_file__and_back(objects, tmp_path, size):
    import hashlib

    content = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "in").write_bytes(content[:size])
    objects.put_file("large/file", tmp_path / "in")
    digest = objects.fetch_file("large/file", tmp_path / "out")
    assert digest == hashlib.sha256(content[:size]).hexdigest()
    assert (tmp_path / "out").read_bytes() == content[:size]
    assert [metadata.size for metadata in objects.list_objects("large")] == [size]


def test_create__the_entries_of_all_new_folders_are_flushed(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(local_folder, "sync_file", lambda path: flushed.append(path))
    local_folder.make_root(tmp_path / "a" / "store")
    open_objects(tmp_path / "a" / "store").create("runs/@gc/000001.json", b"x")
    root = tmp_path / "a" / "store"
    assert {tmp_path, tmp_path / "a", root, root / "runs", root / "runs" / "@gc"} <= set(flushed)
