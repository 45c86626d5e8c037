"""The label log of the demonstration: a dozen workers of different skill, and a few tasks with known answers."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from pmflib.arrays import IntArray
from pmflib.synthetic.label_logs import Crowd, draw_labels

CLASSES = ("cat", "dog", "fox")
"""Labels that workers give."""
SHARES = np.array([0.5, 0.3, 0.2])
"""Share of each class among the tasks."""
SKILLS = (0.97, 0.94, 0.92, 0.9, 0.88, 0.85, 0.8, 0.75, 0.7, 0.6)
"""Share of right labels of ten workers; of the two others, one guesses and one says "dog" to everything."""
LABELS_EACH = 4
"""Labels of a task, by different workers."""
KNOWN_SHARE = 0.05
"""Share of the tasks of which the true label is known."""


def write_demo_labels(folder: Path, *, n_tasks: int, seed: int) -> Crowd:
    """Write ``labels.csv`` with the columns task, worker, label, and ``known.csv`` with the true labels of a few tasks.

    Parameters
    ----------
    folder
        Folder for the two files; it is made.
    n_tasks
        Tasks, >= 1; each has ``LABELS_EACH`` labels.
    seed
        Same seed, same bytes.

    Returns
    -------
    What was drawn: codes of tasks, workers and labels, and the truth of all tasks.
    """
    rng = np.random.default_rng(seed)
    n_classes, n_workers = len(CLASSES), len(SKILLS) + 2
    confusion = np.full((n_workers, n_classes, n_classes), 1 / n_classes)
    for place, skill in enumerate(SKILLS):
        confusion[place] = (1 - skill) / (n_classes - 1)
        np.fill_diagonal(confusion[place], skill)
    confusion[-1] = np.eye(n_classes)[[CLASSES.index("dog")]].T
    truth: IntArray = rng.choice(n_classes, n_tasks, p=SHARES)
    task: IntArray = np.repeat(np.arange(n_tasks), LABELS_EACH)
    worker = rng.random((n_tasks, n_workers)).argsort(axis=1)[:, :LABELS_EACH].ravel()
    label = draw_labels(confusion[worker, :, truth[task]], rng)
    known = np.sort(rng.choice(n_tasks, max(1, round(KNOWN_SHARE * n_tasks)), replace=False))
    folder.mkdir(parents=True, exist_ok=True)
    names = [_name_task(place) for place in range(n_tasks)]
    rows = zip(task.tolist(), worker.tolist(), label.tolist(), strict=True)
    log = [(names[t], f"w{w + 1:02d}", CLASSES[k]) for t, w, k in rows]
    _write(folder / "labels.csv", ("task", "worker", "label"), log)
    answers = [(names[t], CLASSES[truth[t]]) for t in known.tolist()]
    _write(folder / "known.csv", ("task", "label"), answers)
    return Crowd(task, worker, label, truth, SHARES, confusion)


def measure_errors(found: Path, crowd: Crowd) -> dict[str, float]:
    """Compare labels that were found, and the majority vote, with the truth.

    Parameters
    ----------
    found
        Folder of Parquet files with the columns task and label.
    crowd
        What `write_demo_labels` has drawn.

    Returns
    -------
    "error": share of the tasks with another label than the true one; "majority_error": that of the majority vote,
    where the first of several classes with as many votes wins.
    """
    table = pq.read_table(found, columns=["task", "label"])
    labels = dict(zip(table["task"].to_pylist(), table["label"].to_pylist(), strict=True))
    truth = [CLASSES[each] for each in crowd.truth.tolist()]
    wrong = [labels[_name_task(place)] != true for place, true in enumerate(truth)]
    votes = np.zeros((crowd.truth.size, len(CLASSES)), np.int64)
    np.add.at(votes, (crowd.task, crowd.label), 1)
    majority_wrong = votes.argmax(axis=1) != crowd.truth
    return {"error": float(np.mean(wrong)), "majority_error": float(majority_wrong.mean())}


def _name_task(place: int) -> str:
    return f"t{place + 1:04d}"


def _write(path: Path, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
