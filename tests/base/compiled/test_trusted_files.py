"""Code is loaded from files of this user alone, and nothing but code."""

import os
import pickle
import re
import stat
from pathlib import Path

import numpy as np
import pytest

from pmflib.base import compile_kernel, find_folder
from pmflib.base.compiled import saved_code
from pmflib.base.compiled.saved_code import (
    find_distrust,
    load_description,
    read_trusted,
    write_private,
)

ROOT = Path(__file__).parents[3]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class Evil:
    def __reduce__(self):
        return os.mkdir, ("owned",)


class Sneaky:
    def __reduce__(self):
        from numba.core.environment import _rebuild_env

        return _rebuild_env, ("antigravity", [], "name")


@pytest.mark.parametrize("thing", [Evil(), Sneaky(), os.system, print, eval, Path("x"), Evil])
def test_load_description__refuses_what_is_no_type(thing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match=r"is not allowed|is not loaded"):
        load_description(pickle.dumps(thing))
    assert not Path("owned").exists()


def test_read_trusted__own_files_alone(tmp_path):
    path = tmp_path / "code"
    write_private(path, b"code")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_trusted(path) == b"code"
    with pytest.raises(FileExistsError):
        write_private(path, b"other")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="symbolic"):
        read_trusted(tmp_path / "link")
    for mode in (0o620, 0o602, 0o666):
        path.chmod(mode)
        with pytest.raises(PermissionError):
            read_trusted(path)


@as_root
def test_read_trusted__not_of_another_user(tmp_path):
    path = tmp_path / "code"
    write_private(path, b"code")
    os.chown(path, 65534, -1)
    with pytest.raises(PermissionError):
        read_trusted(path)
    assert "another user" in find_distrust(path)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(saved_code.FOLDER_VARIABLE, str(tmp_path))
    find_folder.cache_clear()
    yield tmp_path / "pmflib"
    find_folder.cache_clear()


def test_find_folder__is_made_private(home):
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    assert find_folder() == home
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_find_folder__is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(saved_code.FOLDER_VARIABLE, "code")
    find_folder.cache_clear()
    assert find_folder() == tmp_path / "code" / "pmflib"
    find_folder.cache_clear()


def use_kernel():
    @compile_kernel()
    def double(array):
        array *= 2

    numbers = np.arange(3)
    double(numbers)
    assert numbers.tolist() == [0, 2, 4]
    return sum(double.stats.cache_hits.values())


@as_root
def test_compile_kernel__folder_of_another_user(home):
    home.mkdir()
    os.chown(home, 65534, -1)
    with pytest.warns(RuntimeWarning):
        assert use_kernel() == 0
    assert list(home.iterdir()) == []


def test_compile_kernel__file_that_others_may_have_written(home):
    assert [use_kernel(), use_kernel()] == [0, 1]
    (file,) = home.iterdir()
    file.chmod(0o666)
    # it is compiled again, and put in place anew
    assert use_kernel() == 0
    (file,) = home.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert use_kernel() == 1


def test_kernels_do_not_use_the_cache_of_numba():
    for package in ("pmflib", "tasks", "flows"):
        for file in (ROOT / package).rglob("*.py"):
            assert not re.search(r"\bcache\s*=\s*True", file.read_text("utf-8")), file
