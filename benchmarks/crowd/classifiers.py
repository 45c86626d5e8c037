"""A classifier beside the workers: useless, weak, good and overconfident ones, planted on drawn and on public logs.

    python -m benchmarks.crowd.classifiers [--logs 8] [--data ../shared/data]

prints, by labels of a task and kind of classifier, the error of the labels in per cent: of the workers alone, of the
classifier alone, of the product of the two as a user would multiply them, and of `aggregate(..., classifier=...)`; then
calibration error (15 bins of as many tasks) and log-loss of the first and the last, and the power that was learnt. With
`--data` the same for four public logs, whose classifiers are planted as well: no public log here comes with one.

A planted classifier scores every class by a normal variate, that of the true class moved; its probabilities are right
as they stand but for "overconfident", which has four times the logarithms, and "useless", which knows nothing.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np

from benchmarks.crowd.calibration import encode_truth, measure_sizes
from benchmarks.crowd.scenarios import draw_crowd
from benchmarks.crowd.tables import read_log
from pmflib.crowd import LabelLog, aggregate, read_labels

AHEAD = {"useless": 0.0, "weak": 0.7, "good": 2.2, "overconfident": 1.6}
"""Standard deviations by which the score of the true class is moved, by kind."""
SHARPENED = 4.0
LABELS = (1, 2, 3, 6)
REAL = ("bluebird", "dog", "labelme", "jn-product")
LEAST_PROBABILITY = 1e-6
HEADS = (
    "workers",
    "classifier",
    "product",
    "together",
    "ECE",
    "together",
    "log-loss",
    "together",
    "power",
)


def plant(kind: str, truth: np.ndarray, n_classes: int, rng: np.random.Generator) -> np.ndarray:
    """Probabilities of a planted classifier, (n_tasks, n_classes); a task without a true class has none ahead."""
    ahead = AHEAD[kind]
    scores = rng.normal(0, 1, (truth.size, n_classes))
    rows = np.flatnonzero(truth >= 0)
    scores[rows, truth[rows]] += ahead
    logs = max(ahead, 1.0) * scores * (SHARPENED if kind == "overconfident" else 1.0)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def measure(log: LabelLog, truth: np.ndarray, kind: str, rng: np.random.Generator) -> list[float]:
    """A line of the table."""
    given = plant(kind, truth, log.n_classes, rng)
    names = [str(name) for name in log.classes.to_pylist()]
    table = {"task": log.tasks, **dict(zip(names, given.T, strict=True))}
    alone, found = aggregate(log), aggregate(log, classifier=table)
    line = [_count_wrong(each, truth) for each in (alone.probabilities, given)]
    line += [
        _count_wrong(each, truth) for each in (alone.probabilities * given, found.probabilities)
    ]
    both = alone.probabilities, found.probabilities
    line += [measure_sizes(each.max(axis=1), each.argmax(axis=1) == truth) for each in both]
    rows = np.flatnonzero(truth >= 0)
    for each in both:
        right = np.maximum(each[rows, truth[rows]], LEAST_PROBABILITY)
        line.append(-float(np.log(right).mean()))
    assert found.classifier is not None
    return [*line, found.classifier.power]


def _count_wrong(probabilities: np.ndarray, truth: np.ndarray) -> float:
    return 100 * float((probabilities.argmax(axis=1) != truth).mean())


def show(title: str, line: list[float]) -> None:
    """Print a line."""
    print(f"{title:28}" + "".join(f"{value:11.2f}" for value in line), flush=True)


def main() -> None:
    """Draw, aggregate, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--logs", type=int, default=8, help="drawn logs of a line")
    parser.add_argument("--data", type=Path, help="folder of public logs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'':28}" + "".join(f"{head:>11}" for head in HEADS))
    for n_labels in LABELS:
        lines: dict[str, list[list[float]]] = {kind: [] for kind in AHEAD}
        for seed in range(options.logs):
            rng = np.random.default_rng([seed, n_labels, 77])
            n_classes, n_tasks = int(rng.choice([2, 3, 5])), int(rng.integers(300, 1500))
            crowd = draw_crowd(n_tasks, int(rng.integers(20, 60)), n_classes, float(n_labels), rng)
            log = read_labels(crowd.log, classes=list(range(n_classes)))
            truth = crowd.truth[np.array(log.tasks.to_pylist())]
            for kind, each in lines.items():
                each.append(measure(log, truth, kind, rng))
        for kind, each in lines.items():
            show(f"{n_labels} labels, {kind}", np.mean(each, axis=0).tolist())
    for name in REAL if options.data else ():
        log, known = read_log(options.data, name)
        truth = encode_truth(log, known)
        for kind in AHEAD:
            show(f"{name}, {kind}", measure(log, truth, kind, np.random.default_rng(77)))


if __name__ == "__main__":
    main()
