import os

import pytest

from pmflib.store import Store, list_unfinished


def interrupt(store, kind):
    def write(folder, work):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.build(kind, inputs={}, options={}, version=1, write=write)


def test_list_unfinished__says_the_stage_and_since_when(tmp_path):
    store = Store(tmp_path)
    assert list_unfinished(store) == []
    for kind in ("counts", "model"):
        interrupt(store, kind)
    (file,) = [path for path in store.root.glob("work/*/.kind") if path.read_text() == "model"]
    os.utime(file, (1e9, 1e9))
    found = list_unfinished(store)
    assert [work.kind for work in found] == ["model", "counts"]
    assert found[0].since == "2001-09-09T01:46:40+00:00"
    assert found[0].identity == file.parent.name


def test_list_unfinished__since_the_first_attempt_and_until_it_is_done(tmp_path):
    store = Store(tmp_path)
    interrupt(store, "counts")
    (file,) = store.root.glob("work/*/.kind")
    os.utime(file, (1e9, 1e9))
    interrupt(store, "counts")
    assert list_unfinished(store)[0].since.startswith("2001")
    store.build("counts", inputs={}, options={}, version=1, write=lambda folder, work: {})
    assert list_unfinished(store) == []
