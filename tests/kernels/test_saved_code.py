"""Compiled code on disk: used, never trusted blindly, never in the way."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pmflib.kernels import saved_code
from pmflib.kernels.saved_code import _CodeFiles, compile_kernel, digest_sources, has_saved_code

REPOSITORY = Path(__file__).parents[2]

COUNT = """
import sys
from numba.core.caching import CacheImpl
if "nowhere" in sys.argv:
    CacheImpl._locator_classes = []
import numpy as np
from pmflib.kernels.pairs import add_dense
from pmflib.kernels.saved_code import has_saved_code

print(has_saved_code(add_dense), end=" ")
for dtype in sys.argv[1].split():
    table = np.zeros((5, 5), np.int64)
    add_dense(np.array([[0, 1], [2, -1], [0, 1]], dtype), np.array([0, 3, 5]), table)
    assert [*zip(*np.nonzero(table))] == [(0, 0), (0, 4), (2, 2), (4, 4)]
    assert table.sum() == 7
print(sum(add_dense.stats.cache_hits.values()), has_saved_code(add_dense))
"""


def begin(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COUNT, *words],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "NUMBA_CACHE_DIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> list[str]:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output.split()


def test_compile_kernel__second_process_loads_what_processes_wrote_at_once(tmp_path: Path) -> None:
    racing = [begin(tmp_path, "int8"), begin(tmp_path, "int16")]
    for process in racing:
        assert end(process)[1:] == ["0", "True"]
    assert end(begin(tmp_path, "int8 int16")) == ["True", "2", "True"]
    # what was damaged is compiled again
    (damaged, *others) = sorted(tmp_path.rglob("pairs.add_dense-*"))
    assert len(others) == 1
    damaged.write_bytes(damaged.read_bytes()[:-100])
    others[0].write_bytes(b"")
    assert end(begin(tmp_path, "int8 int16")) == ["True", "0", "True"]


def test_compile_kernel__no_folder_can_be_written(tmp_path: Path) -> None:
    assert end(begin(tmp_path, "int8", "nowhere")) == ["False", "0", "False"]


def test_compile_kernel__numba_without_such_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_code._KernelCache, "__init__", lambda cache, function: cache.gone)

    def double(array):  # type: ignore[no-untyped-def]
        array *= 2

    kernel, numbers = compile_kernel(double), np.arange(3)
    kernel(numbers)
    assert numbers.tolist() == [0, 2, 4]
    assert not has_saved_code(kernel)


def test_code_files__another_key_of_the_same_name_is_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = _CodeFiles(tmp_path, "kernel")
    monkeypatch.setattr(files, "_locate", lambda key: tmp_path / "same")
    files.save(("int8", "here"), "code")
    assert files.load(("int8", "here")) == "code"
    assert files.load(("int16", "here")) is None


def test_code_files__changed_sources_find_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = _CodeFiles(tmp_path, "kernel")
    files.save("key", "code")
    assert files.any()
    monkeypatch.setattr(saved_code, "digest_sources", lambda: "f" * 64)
    changed = _CodeFiles(tmp_path, "kernel")
    assert not changed.any()
    assert changed.load("key") is None
    files.flush()
    assert files.load("key") is None


def test_digest_sources__of_all_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = digest_sources.__wrapped__()
    assert found == digest_sources()
    for path in Path(saved_code.__file__).parent.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(saved_code, "__file__", str(tmp_path / "saved_code.py"))
    assert digest_sources.__wrapped__() == found
    with (tmp_path / "vectors.py").open("a") as stream:
        stream.write("\n")
    assert digest_sources.__wrapped__() != found


def test_code_files__are_whole_before_they_have_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*paths: object) -> None:
        raise OSError("disk full")

    files = _CodeFiles(tmp_path, "kernel")
    monkeypatch.setattr(saved_code.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        files.save("key", pickle.dumps("code"))
    assert not list(tmp_path.iterdir())
