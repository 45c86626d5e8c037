"""What was written outside a store is remembered: where, what, and by its digest."""

import os
import platform
import stat
from dataclasses import replace

import pytest

from pmflib.base import StoreError
from pmflib.store import Store, digest_file, list_exports, remember_export


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("a page")
    return path


def test_remember_export__has_the_last_state_of_each_output(store, page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    remember_export(store, "report", page.relative_to(tmp_path), [page.relative_to(tmp_path)])
    page.write_text("another page")
    remember_export(store, "report", page, [page])
    (export,) = list_exports(store)
    assert (export.kind, export.path, export.host) == ("report", str(page), platform.node())
    assert export.files == {str(page): digest_file(page)}
    assert export.find_state() == "as written"
    page.write_text("a page")
    assert export.find_state() == "changed"
    page.unlink()
    assert export.find_state() == "gone"
    assert replace(export, host="elsewhere").find_state() == "on another host"


def test_remember_export__files_of_a_folder_that_are_gone_are_a_change(store, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    remember_export(store, "predictions", tmp_path, [tmp_path / "a", tmp_path / "b"])
    (export,) = list_exports(store)
    assert export.find_state() == "as written"
    (tmp_path / "a").unlink()
    assert export.find_state() == "changed"


def test_list_exports__refuses_what_was_edited(store, page):
    remember_export(store, "report", page, [page])
    (path,) = (store.root / "exports").iterdir()
    path.write_text(path.read_text().replace("report", "scores"))
    with pytest.raises(StoreError, match=path.name):
        list_exports(store)


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may write anywhere")
def test_remember_export__store_that_may_only_be_read_remembers_nothing(store, page):
    store.root.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        remember_export(store, "report", page, [page])
        assert list_exports(store) == []
    finally:
        store.root.chmod(stat.S_IRWXU)
