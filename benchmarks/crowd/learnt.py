"""Label errors where workers are classifiers of real samples, next to majority vote's.

    python -m benchmarks.crowd.learnt ../shared/data [--seeds 4] [--first 0]

prints what `stress` prints, of logs whose tasks are samples of nltcs and plants: a class is what two or more
variables of a sample are, a worker a naive Bayes classifier that sees some of the others and was trained on few
samples, some of them mislabelled. Workers who see the same make the same mistakes: no generator of ours says how
labels depend on each other. Logs on which majority vote errs on less than 3 % or more than 60 % are left out.

They are harder than those of `stress`: no matrix says what workers know. No constant was chosen on them; that
the default keeps its two subclasses of tasks, and is no average of several fits, was confirmed by others like them.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np

# first, for it limits threads before NumPy loads
from benchmarks.crowd.stress import SHAPES, Row, compare, show

DATA = ("nltcs", "plants")
PARTS = ("train", "valid", "test")
RAREST = 0.02
"""Least share of a class."""
MISLABELLED = 0.1
"""Share of a worker's training samples with a random label."""
LIMITS = (3.0, 60.0)
"""Errors of majority vote between which logs are used, per cent."""


def read_samples(folder: Path, name: str) -> np.ndarray:
    """All samples of a data set, 0 or 1, (n_samples, n_variables)."""
    paths = [folder / name / f"{name}.{part}.data.gz" for part in PARTS]
    return np.concatenate([np.loadtxt(path, delimiter=",", dtype=np.int8) for path in paths])


def draw_classes(
    samples: np.ndarray, n_classes: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Class of every sample, by what some variables are, and the numbers of the others."""
    n_bits = int(np.ceil(np.log2(n_classes)))
    while True:
        used = rng.choice(samples.shape[1], n_bits, replace=False)
        patterns = samples[:, used] @ (1 << np.arange(n_bits))
        # more patterns than classes: some share one
        names = np.r_[np.arange(n_classes), rng.integers(n_classes, size=2**n_bits - n_classes)]
        classes = rng.permutation(names)[patterns]
        if np.bincount(classes, minlength=n_classes).min() >= RAREST * len(samples):
            return classes, np.setdiff1d(np.arange(samples.shape[1]), used)


def assign(
    n_tasks: int, n_workers: int, n_labels: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Task and worker of each label: some workers are busier than others."""
    activity = rng.dirichlet(np.full(n_workers, rng.choice([0.5, 2.0, 20.0])))
    numbers = int(n_labels) + (rng.random(n_tasks) < n_labels % 1)
    # Gumbel noise: an order of the workers for each task, the busy ones first
    keys = np.log(activity) + rng.gumbel(size=(n_tasks, n_workers))
    order = np.argsort(-keys, axis=1)
    task, index = np.nonzero(np.arange(n_workers) < numbers[:, None])
    return task, order[task, index]


def draw_log(
    samples: np.ndarray,
    n_tasks: int,
    n_workers: int,
    n_classes: int,
    n_labels: float,
    rng: np.random.Generator,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns task, worker, label, and the class of every task."""
    classes, others = draw_classes(samples, n_classes, rng)
    shuffled = rng.permutation(len(samples))
    chosen, training = shuffled[:n_tasks], shuffled[n_tasks:]
    task, worker = assign(n_tasks, n_workers, n_labels, rng)
    label = np.zeros(task.size, np.int64)
    # how alike workers are: how many variables they see, and whether the same ones
    least = rng.integers(2, 5)
    most = least + rng.integers(1, 8)
    fame = rng.dirichlet(np.full(others.size, rng.choice([0.1, 0.5, 5.0]))) + 1e-9
    n_trained = int(rng.choice([15, 40, 120])) * max(1, n_classes // 2)
    guessing = rng.choice([0.0, 0.5, 1.0])
    for one in range(n_workers):
        mine = worker == one
        n_seen = min(int(rng.integers(least, most + 1)), others.size)
        seen = rng.choice(others, n_seen, replace=False, p=fame / fame.sum())
        shown = rng.choice(training, n_trained)
        noise = rng.integers(n_classes, size=n_trained)
        taught = np.where(rng.random(n_trained) < MISLABELLED, noise, classes[shown])
        known = np.eye(n_classes)[taught]
        odds = (known.T @ samples[shown][:, seen] + 0.5) / (known.sum(axis=0) + 1.0)[:, None]
        mine_seen = samples[chosen[task[mine]]][:, seen]
        logs = mine_seen @ np.log(odds).T + (1 - mine_seen) @ np.log1p(-odds).T
        logs += np.log(known.sum(axis=0) + 1.0)
        if rng.random() < guessing:
            # gives labels as often as each class is probable
            logs += rng.gumbel(size=logs.shape)
        label[mine] = logs.argmax(axis=1)
    return {"task": task, "worker": worker, "label": label}, classes[chosen]


def main() -> None:
    """Draw every log, run every method, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    data = {name: read_samples(options.folder, name) for name in DATA}
    rows: list[Row] = []
    for seed in range(options.first, options.first + options.seeds):
        for index, (shape, sizes) in enumerate(SHAPES.items()):
            for name, samples in data.items():
                rng = np.random.default_rng([seed, index, *name.encode()])
                n_tasks, n_workers, n_classes, n_labels, _ = sizes
                table, truth = draw_log(samples, n_tasks, n_workers, n_classes, n_labels, rng)
                row: Row = {"shape": shape, "scenario": name, "seed": seed} | compare(table, truth)
                rows += [row] if LIMITS[0] <= row["majority"] <= LIMITS[1] else []
    show(rows)


if __name__ == "__main__":
    main()
