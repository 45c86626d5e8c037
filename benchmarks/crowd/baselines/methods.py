"""Methods that the published tables compare with, written from their papers: baselines, not product.

    python -m benchmarks.crowd.baselines.methods

recovers easy synthetic logs with each, and fails where one does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.crowd.baselines.binary import run_eigen_ratio, run_ghosh_svd, run_kos
from benchmarks.crowd.baselines.common import Found, Log, make_log
from benchmarks.crowd.baselines.minimax import run_minimax
from benchmarks.crowd.baselines.spectral import run_spectral
from benchmarks.crowd.baselines.tensor import run_tensor
from pmflib.apps.crowd import LabelLog, read_labels

BASELINES: dict[str, Callable[[Log, np.random.Generator], Found]] = {
    "TensorADMM": run_tensor,
    "Spectral-D&S": run_spectral,
    "MinimaxEntropy": run_minimax,
    "KOS": run_kos,
    "GhoshSVD": run_ghosh_svd,
    "EigenRatio": run_eigen_ratio,
}
BINARY = ("GhoshSVD", "EigenRatio")
"""Shown for two classes only, as in the published tables."""
WITH_CONFUSION = ("TensorADMM", "Spectral-D&S")
"""Estimate confusion matrices, comparable with the truth."""


def run_baseline(name: str, log: LabelLog, seed: int = 0) -> Found | None:
    """Run one; None where it does not apply."""
    if name in BINARY and log.n_classes != 2:
        return None
    return BASELINES[name](make_log(log), np.random.default_rng(seed))


def draw_easy(n_classes: int, rng: np.random.Generator) -> tuple[LabelLog, np.ndarray, np.ndarray]:
    """Log of 30 workers who are right in 55 to 95 of 100, each on two tasks of three; truth and confusion matrices."""
    n_workers, n_tasks = 30, 1500
    right = rng.uniform(0.55, 0.95, n_workers)[:, None, None]
    confusion = np.where(np.eye(n_classes, dtype=bool), right, (1 - right) / (n_classes - 1))
    truth = rng.integers(n_classes, size=n_tasks)
    task, worker = np.nonzero(rng.random((n_tasks, n_workers)) < 2 / 3)
    edges = np.cumsum(confusion, axis=1)[worker, :-1, truth[task]]
    label = (rng.random((task.size, 1)) > edges).sum(axis=1)
    table = {"task": task, "worker": worker, "label": label}
    return read_labels(table, classes=range(n_classes)), truth, confusion


def main() -> None:
    """Check every method on logs that it must recover."""
    for n_classes in (2, 3, 5):
        log, truth, confusion = draw_easy(n_classes, np.random.default_rng(n_classes))
        order = np.array(log.tasks.to_pylist())
        for name in BASELINES:
            began = time.process_time()
            found = run_baseline(name, log)
            if found is None or (name == "KOS" and n_classes > 2):
                continue
            wrong = float((found.posterior.argmax(axis=1) != truth[order]).mean())
            line = f"{n_classes} classes, {name:15} {100 * wrong:6.2f} % wrong"
            assert wrong < 0.01, line
            if found.confusion is not None:
                workers = np.array(log.workers.to_pylist())
                gap = float(np.abs(found.confusion - confusion[workers]).mean())
                line += f", confusion matrices {gap:.3f} off on average"
                assert gap < 0.03, line
            print(f"{line}, {time.process_time() - began:.2f} s")


if __name__ == "__main__":
    main()
