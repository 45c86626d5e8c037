import errno
import os

import pytest

from pmflib_tasks.operations.doctor.probes import (
    find_lacking_operations,
    look_at_folder,
    look_at_store,
    name_probe,
    read_probe,
    remove_probe,
    write_probe,
)
from pmflib_tasks.operations.doctor.storage import PipelinePaths, look_at_sources, look_from_worker


def test_look_at_store__leaves_nothing_behind(tmp_path):
    found = look_at_store(str(tmp_path))
    assert found.folder.exists
    assert found.folder.free > 0
    assert (found.unwritten, found.lacking) == ("", ())
    assert found.skew is not None
    assert abs(found.skew) < 60
    assert list(tmp_path.iterdir()) == []


def test_look_at_store__not_there_yet(tmp_path):
    found = look_at_store(str(tmp_path / "a" / "b"))
    assert not found.folder.exists
    assert found.folder.there == str(tmp_path)
    assert not (tmp_path / "a").exists()


def test_look_at_store__a_file_stands_in_its_way(tmp_path):
    (tmp_path / "store").write_text("a file")
    for path in ("store", "store/below"):
        with pytest.raises(NotADirectoryError):
            look_at_folder(str(tmp_path / path))


def test_probes__are_read_as_they_were_written_and_written_once(tmp_path):
    folder, name = str(tmp_path), name_probe()
    assert "another folder" in read_probe(folder, name)
    write_probe(folder, name)
    assert read_probe(folder, name) == ""
    with pytest.raises(FileExistsError):
        write_probe(folder, name)
    (tmp_path / name).write_text("changed")
    assert read_probe(folder, name) == "it has another content"
    remove_probe(folder, name)
    remove_probe(folder, name)
    assert list(tmp_path.iterdir()) == []


def test_find_lacking_operations__of_a_file_system_without_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert find_lacking_operations(str(tmp_path)) == ["no hard links (Operation not permitted)"]
    assert list(tmp_path.iterdir()) == []


def test_find_lacking_operations__of_one_whose_links_replace(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda old, new: os.replace(old, new))
    assert any("hard link replaces" in each for each in find_lacking_operations(str(tmp_path)))


def test_look_from_worker__another_folder_under_the_same_path(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    paths = PipelinePaths(
        str(tmp_path), name_probe(), (str(tmp_path),), (".csv",), skip_empty=False
    )
    view = look_from_worker(paths, own := name_probe(), "")
    assert "it is not there" in view.unread
    assert view.written == ""
    assert not (tmp_path / own).exists()
    write_probe(paths.store, paths.probe)
    view = look_from_worker(paths, own, str(tmp_path))
    assert (view.unread, view.unwritten, view.written) == ("", "", own)
    assert view.sources.n_files == 1
    assert read_probe(paths.store, own) == ""


def test_look_at_sources__errors_show_no_secrets():
    found = look_at_sources(("https://me:hunter2@127.0.0.1:9/a.csv",), (".csv",), skip_empty=False)
    assert found.error
    assert "hunter2" not in found.error
