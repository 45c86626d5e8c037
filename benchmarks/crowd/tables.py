"""The published tables of label errors: as published, from the released code run again, from other code, and ours.

    python -m benchmarks.crowd.tables real ../shared/data ../shared/reference/dawid-skene.csv
    python -m benchmarks.crowd.tables synthetic ../shared/reference/dawid-skene.csv [--trials 20]
    python -m benchmarks.crowd.tables noiseless ../shared/reference/dawid-skene.csv [--trials 100]

prints tables 4 (bluebird, dog), 5 (rte and trec, where they are there) and 9 (labelme), and the same for jn-product
and all workers of dog; table 7; table 6. "Published" is the paper; "again" the released code, run by us under GNU
Octave; "recomputed" other people's methods on the same labels, from `baselines` and, where it is installed, crowd-kit;
"ours" this package. "s.e." is the standard error of a mean over trials, which is large where few of them have most of
the error; below a table of real logs, of the difference of two methods over the tasks. "each" matches columns with
classes for every worker by itself, as the released code does on real data. "-EM" of ours goes on from co-occurrences,
from the votes, or with classes split and merged, as the passes from each make the labels likelier.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.crowd.baselines.methods import BASELINES, run_baseline
from benchmarks.crowd.peers import CROWD_KIT, run_crowd_kit
from benchmarks.crowd.published_tables import AGAIN, OURS, average, find_wrong, read_published, show
from benchmarks.crowd.synthetic import show_noiseless, show_synthetic
from pmflib.apps.crowd import LabelLog, aggregate, read_labels

STARTS = {"TensorADMM": 5, "Spectral-D&S": 5}
"""Random starts that the error of a baseline is the mean of."""
LOGS = {
    "bluebird": ("bluebird", None, ("ds-4", "bluebird N=108 M=39 K=2")),
    "dog": ("dog", 52, ("ds-4", "dog N=807 M=52 K=4")),
    "dog, all workers": ("dog", None, ("", "")),
    "rte": ("rte", None, ("ds-5", "rte N=800 M=164 K=2")),
    "trec": ("trec", None, ("ds-5", "trec N=19033 M=762 K=2")),
    "labelme": ("labelme", None, ("ds-9", "labelme N=1000 M=59 K=8")),
    "jn-product": ("jn-product", None, ("", "")),
}
"""Folder, how many of the busiest workers, and table and column."""


FILES = {
    "jn-product": "answer.csv.gz",
    "tweet": "label.csv.gz",
    "fact-eval": "label.csv.gz",
    "face": "labels.csv.gz",
    "trec11": "labels.csv.gz",
    "mre-treat": "labels.csv.gz",
}
"""File of the labels of a log whose true labels are in truth.csv."""


def read_log(
    folder: Path, name: str, busiest: int | None = None
) -> tuple[LabelLog, dict[Any, Any]]:
    """LabelLog, and the true label of each task; of fact-eval, of a few hundred tasks."""
    if name == "labelme":
        codes = np.loadtxt(folder / name / "answers.txt", dtype=int)
        task, worker = np.nonzero(codes >= 0)
        truth = np.loadtxt(folder / name / "LabelMe_Z_train.txt").astype(int)
        table = {"task": task, "worker": worker, "label": codes[task, worker]}
        return read_labels(table), dict(enumerate(truth))
    if name in FILES:
        file = FILES[name]
        with gzip.open(folder / name / file, "rt") as lines:
            columns = list(zip(*list(csv.reader(lines))[1:], strict=True))
        with (folder / name / "truth.csv").open() as lines:
            known = dict(list(csv.reader(lines))[1:])
        return read_labels(dict(zip(("task", "worker", "label"), columns, strict=True))), known
    if name == "zencrowd-us":
        with gzip.open(folder / name / "ZenCrowd_us.csv.gz", "rt") as lines:
            rows = list(csv.reader(lines))
        columns = list(zip(*[(row[1], row[0], row[2]) for row in rows], strict=True))
        log = read_labels(dict(zip(("task", "worker", "label"), columns, strict=True)))
        return log, {row[1]: row[3] for row in rows}
    task, worker, label = np.loadtxt(folder / name / f"{name}.txt", dtype=int).T
    if busiest is not None:
        kept = np.argsort(-np.bincount(worker), kind="stable")[:busiest]
        there = np.isin(worker, kept)
        task, worker, label = task[there], worker[there], label[there]
    known = dict(np.loadtxt(folder / name / f"{name}_truth.txt", dtype=int))
    return read_labels({"task": task, "worker": worker, "label": label}), known


def recompute(log: LabelLog, truth: Mapping[Any, Any]) -> dict[str, np.ndarray]:
    """What other people's methods get wrong; the range over random starts is printed where there is one."""
    wrong = {}
    for name in BASELINES:
        starts = range(STARTS.get(name, 1))
        found = [run_baseline(name, log, seed) for seed in starts]
        each = [find_wrong(one.posterior, log, truth) for one in found if one is not None]
        if each:
            wrong[name] = np.mean(each, axis=0)
        errors = [one.mean() for one in each]
        if each and max(errors) > min(errors):
            print(
                f"{name}: {min(errors):.2f} to {max(errors):.2f} % over {len(each)} random starts"
            )
    for name in CROWD_KIT:
        posterior = run_crowd_kit(name, log)
        if posterior is not None:
            wrong[f"crowd-kit {name}"] = find_wrong(posterior, log, truth)
    return wrong


def compare(wrong: Mapping[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Difference of each method's error from the default's, and its standard error over the tasks."""
    pairs = {name: each - wrong["default"] for name, each in wrong.items() if name != "default"}
    return {name: (gap.mean(), gap.std() / gap.size**0.5) for name, gap in pairs.items()}


def print_better(gaps: Mapping[str, tuple[float, float]]) -> None:
    """Print by how much methods err less than the default, and how much of that may be chance."""
    for name, (gap, error) in sorted(gaps.items(), key=lambda row: row[1][0]):
        if gap < 0:
            print(f"  {name}: {-gap:.2f} below the default (s.e. {error:.2f})")


def show_real(data: Path, reference: Path) -> None:
    """Tables 4, 5 and 9, and the same of other logs; then means over the four logs."""
    published = read_published(reference)
    errors: dict[str, dict[str, float]] = {}
    gaps: dict[str, dict[str, tuple[float, float]]] = {}
    for title, (name, busiest, key) in LOGS.items():
        if not (data / name).is_dir():
            print(f"\n{title}: no folder {data / name}")
            continue
        print(f"\n{title}")
        log, truth = read_log(data, name, busiest)
        theirs = recompute(log, truth)
        ours = {
            method: find_wrong(aggregate(log, how, **options).posterior, log, truth)
            for method, (how, options) in OURS.items()
        }
        gaps[title] = compare(theirs | ours)
        errors[title] = {name: float(each.mean()) for name, each in (theirs | ours).items()}
        columns = {
            "published": published.get(key, {}),
            "again": AGAIN.get(title, {}),
            "recomputed": {name: errors[title][name] for name in theirs},
            "ours": {name: errors[title][name] for name in ours},
        }
        show(f"{title}: label error, %", columns)
        print_better(gaps[title])
    for dog in ("dog", "dog, all workers"):
        logs = ("bluebird", dog, "labelme", "jn-product")
        means = average(errors[name] for name in logs)
        ordered = dict(sorted(means.items(), key=lambda row: row[1]))
        split = {
            "recomputed": {n: v for n, v in ordered.items() if n not in OURS},
            "ours": {n: v for n, v in ordered.items() if n in OURS},
        }
        print(f"\nbest first: {', '.join(list(ordered)[:5])}")
        show(f"mean over {', '.join(logs)}, %", split)
        # logs have tasks of their own: variances of the means add up
        print_better(
            {
                name: (
                    float(np.mean([gaps[log][name][0] for log in logs])),
                    float(np.sqrt(sum(gaps[log][name][1] ** 2 for log in logs)) / len(logs)),
                )
                for name in means
                if name != "default"
            }
        )


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", choices=("real", "synthetic", "noiseless"))
    parser.add_argument("data", nargs="?", type=Path, help="folder of real logs")
    parser.add_argument("reference", type=Path, help="published figures, dawid-skene.csv")
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    if options.data is None and options.tables == "real":
        parser.error("real reads data: name the folder of real logs")
    warnings.simplefilter("ignore")
    if options.tables == "real":
        show_real(options.data, options.reference)
    elif options.tables == "synthetic":
        show_synthetic(options.reference, options.trials)
    else:
        show_noiseless(options.reference, options.trials)


if __name__ == "__main__":
    main()
