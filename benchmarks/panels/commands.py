"""Commands of pmf on small drawn data: what they take, and the digests of what they publish."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import zarr

import pmflib as pmf
from benchmarks.panels.lines import Line
from pmflib.apps import crowd

REPEATS = 3
"""Repeats of a measured command or call, of which the least counts."""


def run_pmf(*words: str | Path) -> float:
    """Run a command of pmf; return its processor seconds and those of the processes that it waits for."""
    command = [sys.executable, "-m", "pmflib_flows", *map(str, words)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 3):
            said.seek(0)
            text = said.read().decode()[-2000:]
            raise RuntimeError(f"{words} ended with exit code {process.returncode}: {text}")
    return used.ru_utime + used.ru_stime


def draw_table(n_rows: int, n_columns: int, seed: int, missing: float = 0.0) -> np.ndarray:
    """Codes of three latent classes, four levels each; -1 is missing."""
    rng = np.random.default_rng([seed, n_rows, n_columns])
    factors = np.random.default_rng(n_columns).dirichlet(np.full(4, 0.7), (n_columns, 3))
    states = rng.integers(3, size=n_rows)
    ends = factors[:, states].cumsum(axis=2)
    codes = (rng.random((n_columns, n_rows, 1)) > ends[:, :, :3]).sum(axis=2).T
    return np.where(rng.random(codes.shape) < missing, -1, codes)


def write_table(path: Path, codes: np.ndarray) -> None:
    """Write a wide table; missing cells are empty."""
    lines = [",".join(["id", *(f"q{place}" for place in range(codes.shape[1]))])]
    for number, row in enumerate(codes.tolist()):
        cells = ("" if code < 0 else "abcd"[code] for code in row)
        lines.append(f"{path.stem}-{number}," + ",".join(cells))
    path.write_text("\n".join(lines) + "\n", "utf-8")


def write_long(path: Path, codes: np.ndarray) -> None:
    """Write a long table of the observed cells."""
    rows, columns = np.nonzero(codes >= 0)
    lines = ["user,item,value"]
    lines += [f"u{i},q{j},{codes[i, j] + 1}" for i, j in zip(rows, columns, strict=True)]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def hash_store(store: Path, kind: str) -> str:
    """Return the SHA-256 of all Zarr arrays of a kind of artefact, by their names within the artefact."""
    found = []
    for node in sorted((store / kind).rglob("zarr.json")):
        opened = zarr.open(node.parent, mode="r")
        if isinstance(opened, zarr.Array):
            values = np.asarray(opened[...])
            name = "/".join(node.parent.relative_to(store / kind).parts[1:])
            said = f"{name} {values.dtype} {values.shape}".encode()
            data = values.tobytes() if values.dtype != object else repr(values.tolist()).encode()
            found.append(hashlib.sha256(said + data).digest())
    return hashlib.sha256(b"".join(sorted(found))).hexdigest() if found else "nothing"


def make_pipelines(root: Path) -> Iterator[tuple[str, Path, Callable[[Path], None]]]:
    """Give names, folders with a drafted pipeline, and what is delivered on a second night."""

    def deliver_nothing(_: Path) -> None:
        """Leave the sources as they are."""

    wide = {
        "complete, rank 3": (draw_table(2000, 6, 0), "3"),
        "gaps, rank 3": (draw_table(2000, 8, 1, 0.2), "3"),
        "rank auto": (draw_table(1500, 6, 2), "auto"),
        "small": (draw_table(60, 4, 3), "2"),
    }
    for name, (codes, rank) in wide.items():
        folder = root / name.replace(" ", "-").replace(",", "")
        folder.mkdir()
        write_table(folder / "log.csv", codes)
        run_pmf("infer", folder / "log.csv", "--output", folder, "--rank", rank)
        yield name, folder, deliver_nothing
    folder = root / "long"
    folder.mkdir()
    write_long(folder / "log.csv", draw_table(800, 10, 4, 0.4))
    words = "--sample user --variable item --value value --rank 3".split()
    run_pmf("infer", folder / "log.csv", *words, "--output", folder)
    yield "long", folder, deliver_nothing
    folder = root / "nights"
    (folder / "log").mkdir(parents=True)
    write_table(folder / "log" / "night-1.csv", draw_table(1500, 6, 5))
    run_pmf("infer", folder / "log" / "*.csv", "--output", folder, "--rank", "3")

    def deliver(place: Path) -> None:
        write_table(place / "log" / "night-2.csv", draw_table(500, 6, 6))

    yield "two nights", folder, deliver


def measure_digests(_: Path) -> Iterator[Line]:
    """Digests of counts and models of six pipelines."""
    with tempfile.TemporaryDirectory() as name:
        for title, folder, deliver in make_pipelines(Path(name)):
            run_pmf("run", folder / "pipeline.toml")
            deliver(folder)
            if title == "two nights":
                run_pmf("run", folder / "pipeline.toml")
            for kind in ("counts", "model"):
                yield Line(
                    f"digest, {title}: {kind}", hash_store(folder / "store", kind), 0, "same"
                )


def take_least(name: str, measure: Callable[[], float]) -> Line:
    """Measure once to warm up, then take the least of some repeats."""
    measure()
    found = [measure() for _ in range(REPEATS)]
    return Line(name, min(found), (max(found) - min(found)) / 2, "seconds")


def time_call(call: Callable[[], object]) -> Callable[[], float]:
    """Make a function that returns the processor seconds of a call."""

    def measure() -> float:
        began = time.process_time()
        call()
        return time.process_time() - began

    return measure


def measure_seconds(_: Path) -> Iterator[Line]:
    """Processor seconds of calls in one thread, and of commands."""
    codes = np.random.default_rng(0).integers(0, 5, (400_000, 30), dtype=np.int8)
    schema = pmf.Schema.from_cardinalities([5] * 30)
    counting = time_call(lambda: pmf.count_pairs(codes, schema))
    yield take_least("seconds, count_pairs 400,000 x 30", counting)
    factors = np.random.default_rng(1).dirichlet(np.ones(5), (30, 20)).transpose(0, 2, 1)
    model = pmf.JointPMF(np.full(20, 1 / 20), factors.reshape(-1, 20), schema)
    passes = time_call(lambda: pmf.fit_em(codes[:100_000], model, max_passes=20, tol=0.0))
    yield take_least("seconds, fit_em 100,000 x 30, rank 20, 20 passes", passes)
    yield take_least("seconds, log_prob 400,000 x 30", time_call(lambda: model.log_prob(codes)))
    rng = np.random.default_rng(2)
    truth = rng.integers(4, size=20_000).repeat(5)
    label = np.where(rng.random(truth.size) < 0.7, truth, rng.integers(4, size=truth.size))
    table = {"task": np.arange(20_000).repeat(5), "worker": rng.integers(200, size=truth.size)}
    aggregating = time_call(lambda: crowd.aggregate(table | {"label": label}, on_repeated="last"))
    yield take_least("seconds, aggregate 100,000 labels", aggregating)
    with tempfile.TemporaryDirectory() as name:
        runs, nights, queries = [], [], []
        for repeat in range(REPEATS):
            folder = Path(name) / str(repeat)
            (folder / "log").mkdir(parents=True)
            write_table(folder / "log" / "night-1.csv", draw_table(3500, 6, 7))
            run_pmf("infer", folder / "log" / "*.csv", "--output", folder, "--rank", "3")
            runs.append(run_pmf("run", folder / "pipeline.toml"))
            write_table(folder / "log" / "night-2.csv", draw_table(500, 6, 8))
            nights.append(run_pmf("run", folder / "pipeline.toml"))
            queries.append(run_pmf("query", folder / "pipeline.toml", "q1 given q0=a"))
        named = {"run, 3,500 x 6": runs, "run, second night": nights, "query": queries}
        for what, found in named.items():
            spread = (max(found) - min(found)) / 2
            yield Line(f"seconds, pmf {what}", min(found), spread, "seconds")
