"""Machine code kept on disk: found again, never taken for another's, never needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

SHAPES = """
import sys
from pmflib.kernels.stored import compiled

def make(power, base):
    @compiled(power, base, no_cfunc_wrapper=True, no_cpython_wrapper=True)
    def inner(x):
        return base * x ** power
    @compiled(power, base, stored=True, nogil=True)
    def outer(x):
        return inner(x) + 1.0
    return outer

shapes = [(2, 1), (2, 3), (3, 1)] if "turned" not in sys.argv else [(3, 1), (2, 3), (2, 1)]
for shape in shapes:
    outer = make(*shape)
    assert outer(2.0) == shape[1] * 2.0 ** shape[0] + 1.0
    assert outer(2) == shape[1] * 2 ** shape[0] + 1.0
    print(sum(outer.stats.cache_hits.values()), sum(outer.stats.cache_misses.values()))
"""


def run(program: str, directory: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "NUMBA_CACHE_DIR": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_compiled__next_process_compiles_nothing(tmp_path: Path) -> None:
    assert run(SHAPES, tmp_path) == ["0 2"] * 3
    files = sorted((tmp_path / "pmflib").iterdir())
    assert len(files) == 6
    # in another order, next to functions that are compiled anew: none is taken for another
    files[0].unlink()
    content = files[1].read_bytes()
    files[1].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    found = [line.split() for line in run(SHAPES, tmp_path, "turned")]
    assert [sum(int(pair[k]) for pair in found) for k in (0, 1)] == [4, 2]
    assert sorted((tmp_path / "pmflib").iterdir()) == files
    # what was damaged is whole again
    assert files[1].stat().st_size == len(content)


def test_compiled__nowhere_to_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert run(SHAPES, tmp_path / "file") == ["0 2"] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


EM = """
import numpy as np
from pmflib.blocks import DenseBlock
from pmflib.em import em_statistics, take_logs
from pmflib.kernels.em_choice import choose_row_kernels

rng = np.random.default_rng(0)
codes = rng.integers(-1, 3, (200, 6)).astype(np.int8)
factors = rng.dirichlet(np.ones(3), (6, 4)).transpose(0, 2, 1).reshape(18, 4)
found = em_statistics(DenseBlock(codes), np.arange(7) * 3, *take_logs(np.full(4, 0.25), factors))
print(found.log_likelihood.hex(), found.level_mass.tobytes().hex())
print(sum(choose_row_kernels(4, 1, 1).add_statistics.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_em_statistics__same_bits_from_disk_and_from_processes_at_once(tmp_path: Path) -> None:
    both = [
        subprocess.Popen(
            [sys.executable, "-c", EM],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "NUMBA_CACHE_DIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate()[0].splitlines() for process in both]
    outputs.append(run(EM, tmp_path))
    assert outputs[0][0] == outputs[1][0] == outputs[2][0]
    assert outputs[2][1] == "1"
