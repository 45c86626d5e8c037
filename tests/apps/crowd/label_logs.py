"""Label logs with their truth: drawn at random, and the real ones that lie beside the project."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from pmflib.apps.crowd import LabelsInMemory

DATA = Path(__file__).parents[3].parent / "shared" / "data"


def read_real_log(name, busiest=None):
    """Labels as columns, and the true class of each task, in the order of the tasks."""
    folder = DATA / name
    if not folder.exists():
        pytest.skip(f"data set {name} is not here")
    if name == "labelme":
        codes = np.loadtxt(folder / "answers.txt", dtype=int)
        task, worker = np.nonzero(codes >= 0)
        truth = np.loadtxt(folder / "LabelMe_Z_train.txt").astype(int)
        return {"task": task, "worker": worker, "label": codes[task, worker]}, truth
    if name == "jn-product":
        return read_product_log(folder)
    task, worker, label = np.loadtxt(folder / f"{name}.txt", dtype=int).T
    known = dict(np.loadtxt(folder / f"{name}_truth.txt", dtype=int))
    if busiest is not None:
        kept = np.argsort(-np.bincount(worker), kind="stable")[:busiest]
        there = np.isin(worker, kept)
        task, worker, label = task[there], worker[there], label[there]
    return {"task": task, "worker": worker, "label": label}, np.array(
        [known[one] for one in np.unique(task)]
    )


def read_real_table(name):
    """Labels of zencrowd-us or mre-treat as columns."""
    folder = DATA / name
    if not folder.exists():
        pytest.skip(f"data set {name} is not here")
    file, places = {
        "zencrowd-us": ("ZenCrowd_us.csv.gz", (1, 0, 2)),
        "mre-treat": ("labels.csv.gz", (0, 1, 2)),
    }[name]
    with gzip.open(folder / file, "rt") as lines:
        rows = [row for row in csv.reader(lines) if row[0] != "task"]
    columns = zip(*[[row[place] for place in places] for row in rows], strict=True)
    return dict(zip(("task", "worker", "label"), columns, strict=True))


def read_product_log(folder):
    with gzip.open(folder / "answer.csv.gz", "rt") as lines:
        task, worker, label = zip(*list(csv.reader(lines))[1:], strict=True)
    with open(folder / "truth.csv") as lines:
        truth = dict(list(csv.reader(lines))[1:])
    log = {"task": task, "worker": worker, "label": label}
    return log, np.array([truth[one] for one in sorted(set(task))])


def draw_log(rng, *, n_tasks, n_workers, n_classes, n_labels, accuracy=(0.5, 0.95), prior=None):
    """Labels drawn from confusion matrices of one coin each, and the truth."""
    truth = rng.choice(n_classes, n_tasks, p=prior)
    right = rng.uniform(*accuracy, n_workers)
    task = np.repeat(np.arange(n_tasks), n_labels)
    worker = np.concatenate(
        [rng.choice(n_workers, n_labels, replace=False) for _ in range(n_tasks)]
    )
    wrong = (truth[task] + rng.integers(1, n_classes, task.size)) % n_classes
    label = np.where(rng.random(task.size) < right[worker], truth[task], wrong)
    return {"task": task, "worker": worker, "label": label}, truth


class CountedLabels(LabelsInMemory):
    """Labels in memory that count the passes over them."""

    n_passes = 0

    def map_each(self, *arguments, **options):
        """Do it, and count it."""
        self.n_passes += 1
        return super().map_each(*arguments, **options)
