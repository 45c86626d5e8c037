"""Label logs: seven public ones, and planted regimes; error, calibration, log-loss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.panels.lines import Line, average
from pmflib.apps import crowd

N_BINS = 15
"""Bins of as many tasks each, of the calibration error."""
REGIMES: dict[str, dict[str, float]] = {
    "plain": {},
    "guesses": {"guesses": 0.5},
    "adversaries": {"adversaries": 0.25},
    "one bought label": {"bought": 0.5},
    "constant labels": {"constant": 0.5},
    "few labels": {"labels": 2},
    "unbalanced": {"rare": 1},
}
"""Shares of workers of each kind; labels per task; whether a class is rare."""
N_LOGS = 8


def read_log(data: Path, name: str) -> tuple[pd.DataFrame, dict[str, str]]:
    """Read a public log: task, worker, label as texts, and true labels of tasks."""
    folder = data / name
    columns = ["task", "worker", "label"]
    if name == "labelme":
        codes = np.loadtxt(folder / "answers.txt", dtype=int)
        task, worker = np.nonzero(codes >= 0)
        table = pd.DataFrame({"task": task, "worker": worker, "label": codes[task, worker]})
        truth = np.loadtxt(folder / "LabelMe_Z_train.txt").astype(int)
        return table.astype(str), {str(i): str(each) for i, each in enumerate(truth)}
    if name == "zencrowd-us":
        table = pd.read_csv(folder / "ZenCrowd_us.csv.gz", header=None, dtype=str)
        return table[[1, 0, 2]].set_axis(columns, axis=1), dict(
            zip(table[1], table[3], strict=True)
        )
    if name in ("bluebird", "dog"):
        table = pd.read_csv(folder / f"{name}.txt", sep=r"\s+", header=None, dtype=str)
        known = pd.read_csv(folder / f"{name}_truth.txt", sep=r"\s+", header=None, dtype=str)
    else:
        file = "answer.csv.gz" if name == "jn-product" else "label.csv.gz"
        table = pd.read_csv(folder / file, dtype=str)
        known = pd.read_csv(folder / "truth.csv", dtype=str)
    pairs = zip(known.iloc[:, 0], known.iloc[:, 1], strict=True)
    return table.iloc[:, :3].set_axis(columns, axis=1), dict(pairs)


def draw_log(amounts: dict[str, float], seed: int) -> tuple[pd.DataFrame, dict[str, str]]:
    """Draw a log of 600 tasks, 40 workers and 3 classes."""
    rng = np.random.default_rng([seed, 7])
    n_tasks, n_workers, n_classes = 600, 40, 3
    n_labels = int(amounts.get("labels", 6))
    prior = [0.8, 0.15, 0.05] if amounts.get("rare") else [1 / 3] * 3
    truth = rng.choice(n_classes, n_tasks, p=prior)
    confusion = np.empty((n_workers, n_classes, n_classes))
    for worker in range(n_workers):
        right = np.clip(rng.normal(0.7, 0.12), 0.4, 0.95)
        confusion[worker] = (1 - right) / 2 + np.eye(n_classes) * (1.5 * right - 0.5)
    places = iter(rng.permutation(n_workers))
    for kind in ("guesses", "adversaries", "bought", "constant"):
        for _ in range(round(amounts.get(kind, 0) * n_workers)):
            worker = next(places)
            if kind == "guesses":
                confusion[worker] = 1 / n_classes
            elif kind == "adversaries":
                confusion[worker] = confusion[worker][np.roll(np.arange(n_classes), 1)]
            else:
                label = 0 if kind == "bought" else rng.integers(n_classes)
                confusion[worker] = np.eye(n_classes)[label]
    workers = np.argsort(rng.random((n_tasks, n_workers)), axis=1)[:, :n_labels].ravel()
    tasks = np.arange(n_tasks).repeat(n_labels)
    ends = confusion[workers, truth[tasks]].cumsum(axis=1)
    labels = (rng.random((tasks.size, 1)) > ends[:, :-1]).sum(axis=1)
    table = pd.DataFrame({"task": tasks, "worker": workers, "label": labels}).astype(str)
    return table, {str(i): str(each) for i, each in enumerate(truth)}


def judge(table: pd.DataFrame, known: dict[str, str], method: str = "auto") -> dict[str, Any]:
    """Judge a method on a log: wrong tasks, calibration error, log-loss of each task."""
    log = crowd.read_labels(table, on_repeated="last")
    probabilities = crowd.aggregate(log, method).probabilities
    tasks = [str(each) for each in log.tasks.to_pylist()]
    classes = [str(each) for each in log.classes.to_pylist()]
    places = [place for place, task in enumerate(tasks) if task in known]
    found = probabilities[places]
    truth = np.array(
        [classes.index(t) if t in classes else -1 for t in (known[tasks[p]] for p in places)]
    )
    given = np.where(truth >= 0, found[np.arange(truth.size), truth], 0.0)
    wrong = found.argmax(axis=1) != truth
    confidence = found.max(axis=1)
    order = np.argsort(confidence, kind="stable")
    parts = np.array_split(confidence[order] - ~wrong[order], N_BINS)
    ece = 100 * sum(abs(float(part.sum())) for part in parts) / truth.size
    return {"wrong": 100.0 * wrong, "ece": ece, "loss": -np.log(np.maximum(given, 1e-6))}


def measure_logs(data: Path) -> Iterator[Line]:
    """Errors on the seven public logs, over tasks; their mean calibration error is over logs."""
    calibration = []
    for name in ("bluebird", "dog", "labelme", "jn-product", "tweet", "fact-eval", "zencrowd-us"):
        found = judge(*read_log(data, name))
        calibration.append(found["ece"])
        yield average(f"labels, {name}: error, per cent", found["wrong"], "less")
        yield average(f"labels, {name}: log-loss", found["loss"], "less")
    yield average("labels, seven logs: calibration error, points", calibration, "less")


def measure_regimes(_: Path) -> Iterator[Line]:
    """Errors on planted logs, over logs."""
    for name, amounts in REGIMES.items():
        found = [judge(*draw_log(amounts, seed)) for seed in range(N_LOGS)]
        for title, key in (
            ("error, per cent", "wrong"),
            ("log-loss", "loss"),
            ("calibration", "ece"),
        ):
            means = [float(np.mean(each[key])) for each in found]
            yield average(f"regime, {name}: {title}", means, "less")
