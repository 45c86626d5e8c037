"""What a small job costs: processor seconds of whole commands, in fresh processes with compiled code cached.

    python -m benchmarks.pipeline.small_jobs

prints a Markdown table of user and system seconds of each command with all processes that it starts, the least of some
repeats: a machine that others use makes a command slower, never faster. Every command is run once before,
so that compiled kernels are on disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from pmflib.model.planted_models import planted_factors

TABLES: dict[str, tuple[int, int, str]] = {
    "ten rows x 3, rank 2": (10, 3, "2"),
    "3,500 x 4, rank 3": (3_500, 4, "3"),
    "10,000 x 20, rank 3": (10_000, 20, "3"),
    "10,000 x 20, rank auto": (10_000, 20, "auto"),
}
"""Rows, columns and rank of the tables that `pmf run` learns."""
N_LEVELS, N_STATES = 4, 3
N_TASKS, N_WORKERS, N_CLASSES, N_LABELS = 20_000, 200, 4, 5
"""The label log: labels per task last."""
TARGETS = {
    "--help": 0.3,
    "infer": 5.0,
    "query": 1.0,
    "typo": 1.0,
    "ten": 3.0,
    "crowd": 3.0,
    "rank 3": 5.0,
    "auto": 5.0,
}
"""Seconds that are aimed at, by a word of the command's name."""


def main() -> None:
    """Measure all commands, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-auto", action="store_true", help="leave the choice of the rank out")
    options = parser.parse_args()
    print("| command | processor seconds | aimed at |\n| --- | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        tables = {
            what: make_pipeline(root / str(index), *size)
            for index, (what, size) in enumerate(TABLES.items())
            if size[2] != "auto" or not options.no_auto
        }
        first = next(iter(tables.values()))
        measure_command(["run", str(first), "--json"])
        for what, words in {
            "`pmf --help`": ["--help"],
            "`pmf query`": ["query", str(first), "q1 given q0=a"],
            "`pmf query`, a typo": ["query", str(first), "q1 given q9=a"],
        }.items():
            show(what, options.repeats, partial(measure_command, words))
        for what, config in tables.items():
            show(f"`pmf run`, {what}", options.repeats, partial(measure_run, config))
            if what.endswith("auto"):
                show(
                    f"`pmf infer --rank auto` and `pmf run`, {what}",
                    options.repeats,
                    partial(measure_first, config),
                )
        labels = write_labels(root / "labels.csv")
        show(
            f"`pmf crowd`, {N_TASKS * N_LABELS:,} labels",
            options.repeats,
            partial(measure_crowd, labels, root / "crowd"),
        )


def show(what: str, repeats: int, measure: Callable[[], float]) -> None:
    """Measure a command once more than is asked for, and print the least time of the later ones."""
    measure()
    least = min(measure() for _ in range(repeats))
    aim = next((seconds for word, seconds in TARGETS.items() if word in what), None)
    print(f"| {what} | {least:.2f} | {'' if aim is None else aim} |", flush=True)


def measure_command(words: list[str]) -> float:
    """User and system seconds of a command and of all processes that it waits for, with compiled modules on disk."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pmflib_flows", *words],
        env={name: each for name, each in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        raise RuntimeError(f"{words} ended with exit code {process.returncode}")
    return used.ru_utime + used.ru_stime


def measure_run(config: Path) -> float:
    """Seconds of a run on an empty store."""
    shutil.rmtree(config.parent / "store", ignore_errors=True)
    return measure_command(["run", str(config), "--json"])


def measure_first(config: Path) -> float:
    """Seconds of a draft and of its run, from a file on."""
    folder = config.parent / "first"
    shutil.rmtree(folder, ignore_errors=True)
    table = str(config.parent / "log.csv")
    draft = measure_command(["infer", table, "--rank", "auto", "--output", str(folder), "--json"])
    return draft + measure_run(folder / "pipeline.toml")


def measure_crowd(labels: Path, output: Path) -> float:
    """Seconds of `pmf crowd` into an empty folder."""
    shutil.rmtree(output, ignore_errors=True)
    return measure_command(["crowd", str(labels), "--output", str(output), "--json"])


def make_pipeline(folder: Path, n_rows: int, n_columns: int, rank: str) -> Path:
    """Draw a table, and draft its pipeline; return the configuration."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng([n_rows, n_columns])
    _, factors = planted_factors([N_LEVELS] * n_columns, N_STATES, rng)
    states = rng.integers(N_STATES, size=n_rows)
    columns = []
    for index in range(n_columns):
        edges = factors[index * N_LEVELS : (index + 1) * N_LEVELS].cumsum(axis=0)
        columns.append((rng.random(n_rows) > edges[:-1, states]).sum(axis=0))
    lines = [",".join(f"q{index}" for index in range(n_columns))]
    lines += [",".join("abcd"[code] for code in row) for row in np.array(columns).T]
    (folder / "log.csv").write_text("\n".join(lines) + "\n", "utf-8")
    words = ["infer", str(folder / "log.csv"), "--output", str(folder), "--json"]
    measure_command([*words, "--rank", rank])
    return folder / "pipeline.toml"


def write_labels(path: Path, n_tasks: int = N_TASKS) -> Path:
    """Draw a label log of workers who are right seven times in ten."""
    rng = np.random.default_rng(0)
    truths = rng.integers(N_CLASSES, size=n_tasks)
    lines = ["task,worker,label"]
    for task, truth in enumerate(truths.tolist()):
        for worker in rng.choice(N_WORKERS, N_LABELS, replace=False).tolist():
            label = truth if rng.random() < 0.7 else int(rng.integers(N_CLASSES))
            lines.append(f"t{task},w{worker},{label}")
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


if __name__ == "__main__":
    main()
