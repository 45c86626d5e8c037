"""Compiled code on disk: used, never trusted blindly, never in the way."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pmflib.base import compile_kernel, find_folder, has_saved_code
from pmflib.base.compiled import saved_code
from pmflib.base.compiled.saved_code import digest_sources

REPOSITORY = Path(__file__).parents[3]

COUNT = """
import sys
import numpy as np
from pmflib.counts.kernels.scatter import add_dense
from pmflib.base.compiled.saved_code import has_saved_code

print(has_saved_code(add_dense), end=" ")
for dtype in sys.argv[1].split():
    table = np.zeros((5, 5), np.int64)
    add_dense(np.array([[0, 1], [2, -1], [0, 1]], dtype), np.array([0, 3, 5]), table)
    assert [*zip(*np.nonzero(table))] == [(0, 0), (0, 4), (2, 2), (4, 4)]
    assert table.sum() == 7
print(sum(add_dense.stats.cache_hits.values()), has_saved_code(add_dense))
"""


def begin(folder: Path, *words: str, program: str = COUNT) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
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
    (damaged, *others) = sorted(tmp_path.rglob("counts.kernels.scatter.add_dense.*"))
    assert len(others) == 1
    damaged.write_bytes(damaged.read_bytes()[:-100])
    others[0].write_bytes(b"")
    assert end(begin(tmp_path, "int8 int16")) == ["True", "0", "True"]


def test_compile_kernel__of_processes_that_start_together_one_compiles(tmp_path: Path) -> None:
    racing = [begin(tmp_path, "int8") for _ in range(3)]
    assert sorted(end(process)[1] for process in racing) == ["0", "1", "1"]


def test_compile_kernel__who_holds_the_lock_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_code, "WAIT_SECONDS", 0.1)
    held = saved_code._Lock.wait(tmp_path / ".lock")
    assert held is not None
    assert saved_code._Lock.wait(tmp_path / ".lock") is None
    held.release()
    assert [*tmp_path.iterdir()] == []
    again = saved_code._Lock.wait(tmp_path / ".lock")
    assert again is not None
    again.release()


def test_compile_kernel__no_folder_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert end(begin(tmp_path / "file", "int8")) == ["False", "0", "False"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


SHAPES = """
import sys
from pmflib.base.compiled.saved_code import compile_kernel

def make(power, base):
    @compile_kernel(power, base, saved=False, no_cfunc_wrapper=True, no_cpython_wrapper=True)
    def inner(x):
        return base * x ** power
    @compile_kernel(power, base)
    def outer(x):
        return inner(x) + 1.0
    return outer

shapes = [(2, 1), (2, 3), (3, 1)] if "reversed" not in sys.argv else [(3, 1), (2, 3), (2, 1)]
for shape in shapes:
    outer = make(*shape)
    assert outer(2.0) == shape[1] * 2.0 ** shape[0] + 1.0
    assert outer(2) == shape[1] * 2 ** shape[0] + 1.0
    print(sum(outer.stats.cache_hits.values()), sum(outer.stats.cache_misses.values()))
"""


def test_compile_kernel__kernels_of_a_factory_are_distinguished(tmp_path: Path) -> None:
    assert end(begin(tmp_path, program=SHAPES)) == ["0", "2"] * 3
    files = sorted((tmp_path / "pmflib").iterdir())
    assert len(files) == 6
    # in another order, next to kernels that are compiled anew: none is taken for another
    files[0].unlink()
    content = files[1].read_bytes()
    files[1].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    found = [int(word) for word in end(begin(tmp_path, "reversed", program=SHAPES))]
    assert (sum(found[::2]), sum(found[1::2])) == (4, 2)
    assert sorted((tmp_path / "pmflib").iterdir()) == files
    # what was damaged is whole again
    assert files[1].stat().st_size == len(content)


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Give a maker of one kernel, its code in a folder of its own."""
    monkeypatch.setenv(saved_code.FOLDER_VARIABLE, str(tmp_path))
    find_folder.cache_clear()

    def make() -> Any:
        @compile_kernel()
        def double(array):  # type: ignore[no-untyped-def]
            array *= 2

        return double

    yield make
    find_folder.cache_clear()


def call(kernel: Any) -> int:
    """Use a kernel; returns how often its code came from disk."""
    numbers = np.arange(3)
    kernel(numbers)
    assert numbers.tolist() == [0, 2, 4]
    return sum(kernel.stats.cache_hits.values())


def test_compile_kernel__a_numba_that_keeps_code_otherwise(
    double: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ImportError("moved")

    assert call(double()) == 0
    # where a part that numba does not promise to keep is imported
    monkeypatch.setattr(saved_code, "_code_class", fail)
    assert call(double()) == 0
    monkeypatch.undo()


def test_compile_kernel__changed_sources_find_nothing(
    double: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [call(double()), call(double())] == [0, 1]
    monkeypatch.setattr(saved_code, "digest_sources", lambda: "f" * 64)
    changed = double()
    assert not has_saved_code(changed)
    assert call(changed) == 0
    assert has_saved_code(changed)


def test_compile_kernel__code_is_whole_before_it_has_its_name(
    double: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*paths: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    assert call(double()) == 0
    assert not list((tmp_path / "pmflib").iterdir())


def test_digest_sources__of_all_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = digest_sources.__wrapped__()
    assert found == digest_sources()
    copied = tmp_path / "pmflib"
    shutil.copytree(saved_code._PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(saved_code, "_PACKAGE", copied)
    assert digest_sources.__wrapped__() == found
    # sources of every room count, by content and by name
    digests = {found}
    for name in ("counts/kernels/planes.py", "base/compiled/vectors.py"):
        with (copied / name).open("a") as stream:
            stream.write("\n")
        digests.add(digest_sources.__wrapped__())
    (copied / "base/compiled/vectors.py").rename(copied / "base/compiled/renamed.py")
    digests.add(digest_sources.__wrapped__())
    assert len(digests) == 4


EM = """
import numpy as np
from pmflib.base.blocks import DenseBlock
from pmflib.model.sufficient_statistics import em_statistics, take_logs
from pmflib.model.kernels.em_rows import choose_row_kernels

rng = np.random.default_rng(0)
codes = rng.integers(-1, 3, (200, 6)).astype(np.int8)
factors = rng.dirichlet(np.ones(3), (6, 4)).transpose(0, 2, 1).reshape(18, 4)
found = em_statistics(DenseBlock(codes), np.arange(7) * 3, *take_logs(np.full(4, 0.25), factors))
print(found.log_likelihood.hex(), found.level_mass.tobytes().hex())
print(sum(choose_row_kernels(4, 1, 1).add_statistics.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_em_statistics__same_bits_from_disk_and_from_processes_at_once(tmp_path: Path) -> None:
    both = [begin(tmp_path, program=EM) for _ in range(2)]
    outputs = [end(process) for process in both]
    outputs.append(end(begin(tmp_path, program=EM)))
    assert outputs[0][:2] == outputs[1][:2] == outputs[2][:2]
    assert outputs[2][2] == "1"


def test_compile_kernel__code_of_old_sources_goes_from_the_packages_own_folder(
    double: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(double())
    (old,) = (tmp_path / "pmflib").iterdir()
    monkeypatch.setattr(saved_code, "digest_sources", lambda: "f" * 64)
    call(double())
    assert old.exists()
    monkeypatch.setattr(saved_code, "digest_sources", lambda: "e" * 64)
    monkeypatch.setattr(saved_code, "_OWN_FOLDER", tmp_path / "pmflib")
    call(double())
    (only,) = (tmp_path / "pmflib").iterdir()
    assert ".eeeeeeeeeeee." in only.name
