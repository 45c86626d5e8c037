"""What each file of `pmflib/kernels/llvm/` buys over plain numba.

    python -m benchmarks.kernels.below_numba

One thread, CPU time, medians of rounds in which all ways run alternately in one process; results are compared to the
bit. Plain ways are loops as good as plain numba makes easy: indices unsigned, nothing allocated, states inside. Figures
of this program are in docs/kernels.md, with the rule by which a file is deleted.
"""

# ruff: noqa: E402  compiled code goes to a folder of its own, before numba loads

from __future__ import annotations

import os
import tempfile

_FOLDER = tempfile.TemporaryDirectory()
os.environ["NUMBA_CACHE_DIR"] = _FOLDER.name

import argparse
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numba
import numpy as np
from scipy import special

from pmflib.apps.crowd.kernels.digamma import digamma, find_rises
from pmflib.base.blocks import Block, DenseBlock
from pmflib.base.compiled import vectors
from pmflib.counts.kernels import planes, scatter
from pmflib.counts.kernels import scatter as tiles
from pmflib.counts.kernels.observed import find_observed
from pmflib.model.kernels import em_rows as em_rows
from pmflib.model.kernels.em_rows import make_dense_combined, make_row_kernels
from pmflib.model.row_tables import Layout, iterate_lists, number_entries
from pmflib.model.sufficient_statistics import em_statistics, take_logs

Way = Callable[[], Any]

PLAIN = numba.njit(nogil=True)


def main() -> None:
    """Print a line for each job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    compare_planes(options.rounds)
    compare_passes(options.rounds)
    compare_lists(options.rounds)
    compare_saved_code(min(3, options.rounds))
    print("not below numba, but not the plainest way either")
    compare_tiles(options.rounds)
    compare_digamma(options.rounds)


def report(name: str, ways: dict[str, Way], rounds: int, error: float = 0.0) -> None:
    """Time ways alternately; print milliseconds of the first, and how many times as long each other takes.

    Results differ by at most the relative error.
    """
    results = [way() for way in ways.values()]
    for other in results[1:]:
        for one, first in zip(other, results[0], strict=True):
            np.testing.assert_allclose(one, first, rtol=error, atol=0)
    times: dict[str, list[float]] = {label: [] for label in ways}
    for _ in range(rounds):
        for label, way in ways.items():
            start = time.process_time()
            way()
            times[label].append(time.process_time() - start)
    medians = {label: statistics.median(values) for label, values in times.items()}
    first, *others = medians
    ratios = "".join(f"   {label} {medians[label] / medians[first]:5.2f}x" for label in others)
    print(f"{name:44} {first} {medians[first] * 1e3:8.3f} ms{ratios}", flush=True)


def draw_codes(n_rows: int, n_variables: int, size: int, share: float = 1.0) -> Any:
    """Uniform codes, and offsets."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, size, (n_rows, n_variables), dtype=np.int8)
    codes[rng.random(codes.shape) >= share] = -1
    return codes, np.arange(n_variables + 1, dtype=np.int64) * size


def compare_planes(rounds: int) -> None:
    """``vectors``: counting by bit planes, in plain loops, and by the scatter that takes over without vector code."""
    plain = load_plain_planes()
    for n_rows, n_variables, size, share in (
        (200_000, 30, 5, 1.0),
        (200_000, 15, 10, 1.0),
        (200_000, 30, 5, 0.5),
    ):
        codes, offsets = draw_codes(n_rows, n_variables, size, share)

        def count(add: Callable[..., None], codes: Any = codes, offsets: Any = offsets) -> Any:
            table = np.zeros((offsets[-1], offsets[-1]), np.int64)
            add(codes, offsets, table)
            return table

        ways: dict[str, Way] = {
            "vectors": partial(count, planes.add_planes),
            "plain planes": partial(count, plain.add_planes),
            "scatter": partial(count, scatter.add_dense),
        }
        report(f"vectors: count {n_variables} x {size}, {share:.0%} observed", ways, rounds)


def load_plain_planes() -> ModuleType:
    """Load the module of the bit planes once more, upon plain loops."""
    source = Path(planes.__file__)
    spec = importlib.util.spec_from_file_location("plain_planes", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    constants = {name: getattr(vectors, name) for name in vars(vectors) if name.isupper()}
    name = vectors.__name__
    sys.modules[name] = SimpleNamespace(**constants, **PLAIN_VECTORS)  # type: ignore[assignment]
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules[name] = vectors
    return module


@PLAIN
def transpose_strip(codes, start, stride, strip):  # type: ignore[no-untyped-def]
    """As `vectors.transpose_strip`."""
    first, step = np.uint64(start), np.uint64(stride)
    for j in range(np.uint64(vectors.STRIP_VARIABLES)):
        for r in range(np.uint64(vectors.STRIP_ROWS)):
            strip[np.uint64(vectors.STRIP_ROWS) * j + r] = codes[first + step * r + j]


@PLAIN
def mask_equal(strip, position, level):  # type: ignore[no-untyped-def]
    """As `vectors.mask_equal`."""
    mask = np.uint64(0)
    for r in range(np.uint64(vectors.STRIP_ROWS)):
        mask |= np.uint64(strip[np.uint64(position) + r] == level) << r
    return mask


@PLAIN
def mask_least(strip, position, level):  # type: ignore[no-untyped-def]
    """As `vectors.mask_least`."""
    mask = np.uint64(0)
    for r in range(np.uint64(vectors.STRIP_ROWS)):
        mask |= np.uint64(strip[np.uint64(position) + r] >= level) << r
    return mask


@PLAIN
def count_ones(word):  # type: ignore[no-untyped-def]
    """As `vectors.count_ones`, in the form that LLVM recognises as one instruction."""
    x = np.uint64(word)
    x -= (x >> np.uint64(1)) & np.uint64(0x5555555555555555)
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@PLAIN
def count_tile(planes, left, right, start, stop, counts):  # type: ignore[no-untyped-def]
    """As `vectors.count_tile`, a pair of planes at a time."""
    for i in range(vectors.TILE):
        for j in range(vectors.TILE):
            one, other = np.uint64(left[i]), np.uint64(right[j])
            total = 0
            for word in range(np.uint64(start), np.uint64(stop)):
                total += count_ones(planes[one + word] & planes[other + word])
            counts[vectors.TILE * i + j] = total


PLAIN_VECTORS = {
    function.__name__: function
    for function in (transpose_strip, mask_equal, mask_least, count_ones, count_tile)
}


CHOICES = {
    "lanes": ("choose_row_kernels", partial(make_row_kernels, plain=True)),
    "combining": ("choose_dense_combined", lambda size, _: make_dense_combined(size, plain=True)),
}
"""What EM takes its kernels from, and what takes its place without vector code."""


@contextmanager
def plain_code(*files: str) -> Iterator[None]:
    """Keep EM to the plain code of some files."""
    before = {CHOICES[file][0]: getattr(em_rows, CHOICES[file][0]) for file in files}
    for file in files:
        setattr(em_rows, *CHOICES[file])
    try:
        yield
    finally:
        for name, choose in before.items():
            setattr(em_rows, name, choose)


def compare_passes(rounds: int) -> None:
    """``lanes`` with ``panels``, and ``combining``: E-steps of several ranks."""
    for n_rows, n_variables, size, rank, share in (
        (20_000, 30, 5, 4, 1.0),
        (20_000, 30, 5, 8, 1.0),
        (20_000, 15, 10, 10, 1.0),
        (20_000, 30, 5, 20, 1.0),
        (10_000, 30, 5, 64, 1.0),
        (20_000, 30, 5, 20, 0.1),
    ):
        codes, offsets = draw_codes(n_rows, n_variables, size, share)
        rng = np.random.default_rng(1)
        factors = rng.dirichlet(np.ones(size), (n_variables, rank)).transpose(0, 2, 1)
        logs = take_logs(np.full(rank, 1 / rank), factors.reshape(offsets[-1], rank))
        dense = DenseBlock(codes)
        block = dense if share == 1 else dense.to_sparse(offsets)

        def make_pass(block: Block = block, offsets: Any = offsets, logs: Any = logs) -> Any:
            found = em_statistics(block, offsets, *logs)
            return found.level_mass, found.state_mass, found.log_likelihood

        def make_plain_pass(*names: str, make_pass: Way = make_pass) -> Way:
            def run() -> Any:
                with plain_code(*names):
                    return make_pass()

            return run

        ways: dict[str, Way] = {
            "vector code": make_pass,
            "plain lanes": make_plain_pass("lanes"),
            "plain combining": make_plain_pass("combining"),
            "all plain": make_plain_pass("lanes", "combining"),
        }
        report(f"EM pass {n_variables} x {size}, rank {rank}, {share:.0%} observed", ways, rounds)


def compare_lists(rounds: int) -> None:
    """``combining`` on its own job: lists of table rows."""
    for n_variables, size, group in ((30, 5, 2), (30, 5, 3), (15, 10, 2), (100, 2, 5)):
        codes, offsets = draw_codes(50_000, n_variables, size)
        layout = Layout(group, True)
        entries = number_entries((size,) * n_variables, layout)
        block = DenseBlock(codes)

        def list_all(
            block: Any = block, offsets: Any = offsets, rest: Any = (layout, entries)
        ) -> Any:
            return [
                listed[:50].tolist() for _, (listed, _, _) in iterate_lists(block, offsets, *rest)
            ]

        def list_plainly(list_all: Way = list_all) -> Any:
            with plain_code("combining"):
                return list_all()

        ways: dict[str, Way] = {"vector code": list_all, "plain combining": list_plainly}
        report(f"combining: lists of {n_variables} x {size}, {group} at a time", ways, rounds)


FIRST_CALL = """
import sys, time
import numba
import numpy as np
import pmflib.base.compiled.saved_code as saved_code
if "numba" in sys.argv:
    def compile_kernel(*shape, saved=True, **options):
        return numba.njit(**{"nogil": True, "cache": saved, **options})
    saved_code.compile_kernel = compile_kernel
from pmflib.base.blocks import DenseBlock
from pmflib.model.sufficient_statistics import em_statistics, take_logs
from pmflib.counts.kernels.planes import add_planes
codes, offsets = np.zeros((1000, 30), np.int8), np.arange(0, 151, 5)
model = take_logs(np.full(20, 0.05), np.full((150, 20), 0.2))
start = time.process_time()
add_planes(codes, offsets, np.zeros((150, 150), np.int64))
counted = time.process_time()
em_statistics(DenseBlock(codes), offsets, *model)
print(counted - start, time.process_time() - counted)
"""


def compare_saved_code(rounds: int) -> None:
    """``saved_code``: first calls of a process without and with code on disk, and with numba's own cache."""
    times: dict[str, list[list[float]]] = {}
    for _ in range(rounds):
        for keeper in ("ours", "numba"):
            with tempfile.TemporaryDirectory() as folder:
                for state in ("cold", "warm"):
                    done = subprocess.run(
                        [sys.executable, "-c", FIRST_CALL, keeper],
                        env=os.environ | {"NUMBA_CACHE_DIR": folder},
                        check=True,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                    seconds = [float(word) for word in done.stdout.split()]
                    times.setdefault(f"{keeper}, {state}", []).append(seconds)
    medians = {name: np.median(values, axis=0) for name, values in times.items()}
    for k, job in enumerate(("planes", "EM pass")):
        ours = medians["ours, warm"][k]
        print(f"{f'saved_code: first call, {job}':44} from disk {ours * 1e3:8.1f} ms", end="")
        for name, label in (("ours, cold", "compiled"), ("numba, warm", "numba's cache")):
            print(f"   {label} {medians[name][k] / ours:5.1f}x", end="")
        print(flush=True)


def compare_tiles(rounds: int) -> None:
    """Tiles, rows in order of their lengths, and level indices, next to the plain scatter."""
    for n_rows, n_variables, share in ((100_000, 30, 0.1), (30_000, 100, 0.1), (10_000, 500, 0.05)):
        codes, offsets = draw_codes(n_rows, n_variables, 5, share)
        found = find_observed(codes, offsets)

        def count(
            add: Callable[..., None],
            *rows: Any,
            offsets: Any = offsets,
            short: int = tiles.SHORT_ROW,
        ) -> Any:
            table = np.zeros((offsets[-1], offsets[-1]), np.int64)
            tiles.SHORT_ROW = short
            add(*rows, table)
            tiles.SHORT_ROW = 8
            return table

        ways: dict[str, Way] = {
            "tiles": partial(count, tiles.add_tiles, *found, offsets),
            "rows as they come": partial(count, tiles.add_tiles, *found, offsets, short=0),
            "scatter": partial(count, scatter.add_sparse, *found),
        }
        report(f"tiles: {n_variables} x 5, {share:.0%} observed", ways, rounds)


def compare_digamma(rounds: int) -> None:
    """Digamma functions next to SciPy's."""
    rng = np.random.default_rng(0)
    values, shares = rng.gamma(0.5, size=200_000), rng.random(200_000) + 1e-3

    rises = np.empty_like(values)

    def rise() -> np.ndarray:
        low = 0.7 * shares
        return np.asarray(special.digamma(values + low) - special.digamma(low))

    def find() -> np.ndarray:
        find_rises(values, shares, 0.7, rises)
        return rises

    ways: dict[str, Way] = {
        "ours": lambda: [digamma(values)],
        "scipy": lambda: [special.digamma(values)],
    }
    report("digamma", ways, rounds, error=1e-10)
    ways = {"ours": lambda: [find()], "scipy": lambda: [rise()]}
    report("digamma: rises", ways, rounds, error=1e-10)


if __name__ == "__main__":
    main()
