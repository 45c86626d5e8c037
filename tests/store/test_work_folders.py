"""Who has the folder of checkpoints of an artefact when several runs make it at once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pmflib.store.checkpoints import save_bytes
from pmflib.store.objects.local_folder import make_folder


def build(store, write, number=0):
    return store.build("model", inputs={}, options={"n": number}, version=1, write=write)


def list_folders(store):
    return sorted(path for name in ("tmp", "work") for path in (store.root / name).iterdir())


def test_build__two_at_once_do_not_share_checkpoints(store):
    first_is_there, second_is_done = threading.Event(), threading.Event()

    def write_first(folder, work):
        save_bytes(work / "half", b"1")
        first_is_there.set()
        assert second_is_done.wait(30)
        assert (work / "half").read_bytes() == b"1"
        (work / "half").rename(folder / "whole")
        return {}

    def write_second(folder, work):
        assert [path.name for path in work.iterdir()] == []
        save_bytes(work / "half", b"1")
        (work / "half").rename(folder / "whole")
        return {}

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(build, store, write_first)
        assert first_is_there.wait(30)
        second = build(store, write_second)
        second_is_done.set()
        assert first.result() == second
    assert list_folders(store) == []
    assert (store.locate(second.reference) / "whole").read_bytes() == b"1"


def test_build__many_at_once_end_while_others_begin(store):
    def write(folder, work):
        save_bytes(work / "half", b"1")
        (folder / "whole").write_bytes((work / "half").read_bytes())
        return {}

    with ThreadPoolExecutor(4) as pool:
        for number in range(60):
            built = [pool.submit(build, store, write, number) for _ in range(4)]
            assert len({each.result().reference for each in built}) == 1
    assert list_folders(store) == []


def test_build__file_system_without_locks(store, monkeypatch):
    def refuse(descriptor, kind):
        raise OSError(95, "Operation not supported")

    def write(folder, work):
        (folder / "whole").write_bytes(b"1")
        return {"folder": work.parent.name}

    monkeypatch.setattr("fcntl.flock", refuse)
    assert build(store, write).summary == {"folder": "work"}
    assert list_folders(store) == []


def test_make_folder__made_and_removed_by_another_meanwhile(tmp_path, monkeypatch):
    really_make, calls = Path.mkdir, []

    def mkdir(path, *arguments, **options):
        calls.append(path)
        if len(calls) == 1:
            raise FileExistsError(17, "File exists", str(path))
        really_make(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    make_folder(tmp_path / "folder")
    assert (tmp_path / "folder").is_dir()
    assert len(calls) == 2


def test_make_folder__file_or_broken_link_in_the_way(tmp_path):
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            make_folder(tmp_path / name)
