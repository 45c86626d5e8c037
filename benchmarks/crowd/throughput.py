"""Ten million labels from Parquet to true labels with ``pmf crowd``, and a pass next to other implementations.

    python -m benchmarks.crowd.throughput [--tasks 1000000] [--workers 2400] [--labels 10] [--classes 3]

prints wall time and peak memory (all processes) of the command, its label error next to majority vote's, and process
CPU time per pass of ours, a SciPy CSR form and crowd-kit, in one process, timed in turn. Those passes have a state for
each class; the default's, with two subclasses of tasks, is timed beside them. Before that, in a process of its own,
which has nothing else in its memory: CPU time of reading the table, of the passes and of reading `.labels`, calibrated
confidence included, with the peak memory of each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.crowd import peers
from pmflib.core.blocks import SparseBlock
from pmflib.crowd import aggregate, read_labels
from pmflib.crowd.e_step import LogWeights, add_votes, evaluate_blocks
from pmflib.solvers.crowd.annotator_model import AnnotatorModel
from pmflib.solvers.crowd.shrinkage import update_crowd_model


def draw(
    n_tasks: int, n_workers: int, n_labels: int, n_classes: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Workers and labels, (n_tasks, n_labels) each, and the truth; workers drawn with replacement of near misses."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(n_classes, n_tasks, p=rng.dirichlet(np.full(n_classes, 8.0)))
    noise = rng.dirichlet(np.ones(n_classes), (n_workers, n_classes))
    skill = rng.beta(4, 3, n_workers)[:, None, None]
    # by worker and true class
    confusion = skill * np.eye(n_classes) + (1 - skill) * noise
    # distinct workers: a random first one, and random strides
    steps = rng.integers(1, n_workers // n_labels, (n_tasks, n_labels))
    workers = np.cumsum(steps, axis=1) % n_workers
    workers = (workers + rng.integers(n_workers, size=(n_tasks, 1))) % n_workers
    edges = np.cumsum(confusion, axis=2)[workers, truth[:, None]][..., :-1]
    labels = (rng.random((n_tasks, n_labels, 1)) > edges).sum(axis=2)
    return workers, labels, truth


def write(path: Path, workers: np.ndarray, labels: np.ndarray) -> None:
    """Write labels in random order, as text columns."""
    order = np.random.default_rng(1).permutation(workers.size)
    tasks = np.repeat(np.arange(len(workers)), workers.shape[1])[order]
    table = pa.table(
        {
            "task": pa.array(tasks, pa.int32()),
            "worker": pa.array(workers.ravel()[order], pa.int16()),
            "label": pa.array(labels.ravel()[order], pa.int8()),
        }
    )
    pq.write_table(table, path)


def run_command(path: Path, output: Path, *more: str) -> dict[str, Any]:
    """Run ``pmf crowd``, with more options if any, and watch the memory of its processes."""
    command = [sys.executable, "-m", "pmflib_flows", "crowd", str(path), "--output", str(output)]
    command += more
    began = time.perf_counter()
    process = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True)
    peak = 0
    stop = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not stop.wait(0.2):
            try:
                family = [psutil.Process(process.pid)]
                family += family[0].children(recursive=True)
                peak = max(peak, sum(one.memory_info().rss for one in family))
            except psutil.Error:
                continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, _ = process.communicate()
    stop.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"pmf crowd failed with exit status {process.returncode}")
    return {"seconds": time.perf_counter() - began, "peak_bytes": peak, **json.loads(out)}


def measure_reading(path: Path, method: str) -> dict[str, dict[str, float]]:
    """CPU seconds and peak memory in bytes, the table's own included, of steps from a table to its labels."""
    table = pq.read_table(path)
    # kernels are compiled once for all
    aggregate(read_labels(table.slice(0, 2000)), method).labels  # noqa: B018
    found: dict[str, dict[str, float]] = {}
    process = psutil.Process()

    def run(name: str, step: Callable[[], Any]) -> Any:
        peak, stop = process.memory_info().rss, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not stop.wait(0.02):
                peak = max(peak, process.memory_info().rss)

        watcher = threading.Thread(target=watch)
        watcher.start()
        began = time.process_time()
        made = step()
        spent = time.process_time() - began
        stop.set()
        watcher.join()
        found[name] = {"cpu_seconds": spent, "peak_bytes": float(peak)}
        return made

    log = run("reading the table", lambda: read_labels(table))
    result = run("passes", lambda: aggregate(log, method))
    run("labels", lambda: result.labels)
    return found


def measure_alone(path: Path, method: str) -> dict[str, dict[str, float]]:
    """Do `measure_reading` in a process of its own: what this one has drawn is no part of its memory."""
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        return alone.submit(measure_reading, path, method).result()


def find_errors(output: Path, labels: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Label errors of the command, and of majority vote with ties counted in part."""
    found = pq.read_table(output / "labels", columns=["task", "label"])
    tasks = found["task"].to_numpy().astype(np.int64)
    ours = float((found["label"].to_numpy().astype(np.int64) != truth[tasks]).mean())
    votes = (labels[:, :, None] == np.arange(labels.max() + 1)).sum(axis=1)
    top = votes == votes.max(axis=1, keepdims=True)
    right = top[np.arange(truth.size), truth] / top.sum(axis=1)
    return {"error": ours, "error_majority": 1 - float(right.mean())}


def compare_passes(workers: np.ndarray, labels: np.ndarray, repeats: int) -> dict[str, float]:
    """Median CPU time of a pass over the same labels, ns per label."""
    n_workers, n_classes = int(workers.max()) + 1, int(labels.max()) + 1
    levels = np.sort(workers * n_classes + labels, axis=1).astype(np.int32)
    indptr = np.arange(len(levels) + 1, dtype=np.int64) * levels.shape[1]
    block = add_votes(SparseBlock(indptr, levels.ravel()), n_classes)

    def make_ours(annotator_model: AnnotatorModel) -> Callable[[], float]:
        n_states = annotator_model.n_subclasses * n_classes
        mass = np.random.default_rng(2).random((n_workers * n_classes, n_states))
        model = update_crowd_model(mass, np.ones(n_states), annotator_model)

        def ours() -> None:
            found = evaluate_blocks([block], LogWeights.from_model(model, with_votes=True))
            update_crowd_model(found.level_mass, found.state_mass, annotator_model)

        ours()
        return peers.timed(ours)

    timers = {
        "pmflib": make_ours(AnnotatorModel()),
        "two subclasses": make_ours(AnnotatorModel(n_subclasses=2)),
    }
    timers["scipy"] = peers.make_scipy(levels, n_workers * n_classes, n_classes)
    if crowd_kit := peers.make_crowd_kit(workers, labels):
        timers["crowd-kit"] = crowd_kit
    times: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(repeats):
        for name, timer in timers.items():
            times[name].append(timer() / levels.size * 1e9)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Draw, run, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (("tasks", 1_000_000), ("workers", 2400), ("labels", 10), ("classes", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sizes = (options.tasks, options.workers, options.labels, options.classes)
    workers, labels, truth = draw(*sizes)
    with tempfile.TemporaryDirectory() as name:
        path, output = Path(name) / "labels.parquet", Path(name) / "crowd"
        write(path, workers, labels)
        facts = run_command(path, output)
        facts |= find_errors(output, labels, truth)
        steps = {method: measure_alone(path, method) for method in ("auto", "dawid_skene")}
    print(f"{facts['labels']:,} labels, {facts['tasks']:,} tasks, {facts['workers']:,} workers")
    print(f"wall time {facts['seconds']:.1f} s, peak {facts['peak_bytes'] / 1e9:.2f} GB")
    print(f"passes {facts['passes']}, converged {facts['converged']}")
    print(f"label error {facts['error']:.4f}, majority vote {facts['error_majority']:.4f}")
    for method, by_step in steps.items():
        seconds = {name: each["cpu_seconds"] for name, each in by_step.items()}
        peak = max(each["peak_bytes"] for each in by_step.values())
        print(
            f"in memory, {method}: "
            + ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
            + f"; labels {seconds['labels'] / seconds['passes']:.2f} times the passes, all "
            f"{sum(seconds.values()):.1f} s of processor time, peak {peak / 1e9:.2f} GB"
        )
    passes = compare_passes(workers, labels, options.repeats)
    for peer, spent in passes.items():
        ratio = spent / passes["pmflib"]
        print(f"pass: {peer:10} {spent:10.1f} ns per label, {ratio:8.1f} times ours")
    if options.json:
        options.json.write_text(
            json.dumps({**facts, "in_memory": steps, "passes_ns": passes}, indent=1)
        )


if __name__ == "__main__":
    main()
