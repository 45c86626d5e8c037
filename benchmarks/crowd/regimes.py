"""The default where it was not tuned: planted logs of the regimes that break label methods, and seven public logs.

    python -m benchmarks.crowd.regimes [--data ../shared/data] [--half tuned|judged] [--methods auto,dawid_skene]
        [--each] [--json regimes.json]

prints, for each regime and method, the mean error of the labels over its planted logs in per cent, and for the default
its calibration error (15 bins of as many tasks) and its log-loss beside those of majority vote, calibrated by numbers
of votes; and beside those of votes that are weighed by workers, calibrated without any method's posterior ("weighed"),
a stronger opponent. Below that: on how many logs a method is worse than majority vote, or than Dawid and Skene's, by
more than one and by more than two standard errors of the difference over the tasks. `--each` has a line per log. With
`--data` the public logs follow.

Of every regime there are twelve planted logs. Those of even numbers are the tuned half: what may be looked at while
something is changed. Those of odd numbers are the judged half, and nothing was chosen on them. A log is the same on
every machine: it comes from a generator made of its regime and number.
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.crowd.calibration import encode_truth, measure_sizes
from benchmarks.crowd.scenarios import Scenario, ScenarioName, draw_crowd
from benchmarks.crowd.tables import read_log
from pmflib.apps.crowd import LabelLog, aggregate, read_labels

REAL = ("bluebird", "dog", "labelme", "jn-product", "tweet", "fact-eval", "zencrowd-us")
METHODS = ("majority", "one_coin", "dawid_skene", "balanced", "auto")
CALIBRATED = ("majority", "auto")
"""Methods whose calibration is measured."""
COMPARED = ("majority", "weighed", "auto")
"""Whose calibration is printed."""
N_LOGS = 12
"""Planted logs of a regime."""
LEAST_PROBABILITY = 1e-6
"""Probability of the right class below which log-loss is as of this: one such task would be all of a mean."""
Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Regime:
    """A kind of log, whose sizes are drawn.

    Parameters
    ----------
    amounts
        What is wrong with the crowd.
    scenario
        How confusion matrices are drawn.
    tasks, workers, labels
        Least and most: tasks of a log, its workers, mean labels of a task.
    classes
        Numbers of classes, of which one is drawn.
    rare
        Whether all classes but one or two are rare.
    """

    amounts: Scenario = field(default_factory=Scenario)
    scenario: ScenarioName = "plain"
    tasks: tuple[int, int] = (300, 1500)
    workers: tuple[int, int] = (20, 60)
    labels: tuple[float, float] = (5.0, 12.0)
    classes: tuple[int, ...] = (2, 3, 5)
    rare: bool = False


def _fix_labels(share: float, *, bought: bool) -> Regime:
    return Regime(Scenario(spammers=0.0, adversaries=0.0, constants=share, bought=bought))


REGIMES: dict[str, Regime] = {
    **{
        f"constant labels, {100 * share:.0f} %": _fix_labels(share, bought=False)
        for share in (0.4, 0.5, 0.6, 0.7, 0.8)
    },
    **{
        f"one bought label, {100 * share:.0f} %": _fix_labels(share, bought=True)
        for share in (0.4, 0.6, 0.7)
    },
    "copies": Regime(Scenario(copiers=0.4, copies=0.9)),
    "copies of everything": Regime(Scenario(copiers=0.5, copies=1.0), labels=(8.0, 16.0)),
    "one label a task": Regime(labels=(1.0, 1.0)),
    "few labels a task": Regime(labels=(1.5, 3.0)),
    "few labels a worker": Regime(workers=(200, 400), labels=(3.0, 5.0)),
    "easy and hard": Regime(Scenario(hardness=(0.4, 0.2, 0.2, 0.2)), scenario="grade"),
    "easy and hard, many labels": Regime(
        Scenario(hardness=(0.5, 0.1, 0.1, 0.3)), scenario="grade", labels=(15.0, 20.0), classes=(2,)
    ),
    "tempting": Regime(Scenario(tempting=0.2, pull=0.5), scenario="tempt"),
    "schools": Regime(Scenario(tempting=0.25, pull=0.6, followers=0.5), scenario="school"),
    "adversaries": Regime(Scenario(adversaries=0.25)),
    "guesses": Regime(Scenario(spammers=0.5)),
    "unbalanced classes": Regime(rare=True),
    "unbalanced, few labels": Regime(labels=(2.0, 4.0), classes=(2, 3), rare=True),
    "one coin": Regime(scenario="coin"),
    "plain": Regime(),
}


def draw_log(name: str, number: int) -> tuple[LabelLog, np.ndarray]:
    """Draw a planted log of a regime, and the class of each of its tasks, -1 for one that no worker has named."""
    regime = REGIMES[name]
    rng = np.random.default_rng([number, *name.encode()])
    n_tasks, n_workers = (int(rng.integers(*each)) for each in (regime.tasks, regime.workers))
    n_classes, n_labels = int(rng.choice(regime.classes)), float(rng.uniform(*regime.labels))
    crowd = draw_crowd(
        n_tasks,
        n_workers,
        n_classes,
        n_labels,
        rng,
        scenario=regime.scenario,
        rare=regime.rare,
        amounts=regime.amounts,
    )
    table = crowd.log
    if regime.labels == (1.0, 1.0):
        # sizes of tasks vary about their mean: the first label of each is kept
        first = np.unique(table["task"], return_index=True)[1]
        table = {column: values[first] for column, values in table.items()}
    log = read_labels(table)
    return log, encode_truth(log, dict(enumerate(crowd.truth.tolist())))


def read_judged(data: Path, name: str) -> tuple[LabelLog, np.ndarray]:
    """Read a public log, and the class of each of its tasks, -2 where it is not known."""
    log, known = read_log(data, name)
    tasks = log.tasks.to_pylist()
    truth = encode_truth(log, {task: known.get(task) for task in tasks})
    return log, np.where(np.array([task in known for task in tasks]), truth, -2)


def score_right(posterior: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """What each task counts as right, (n_tasks,): ties in part, and nothing where no class is right."""
    top = posterior >= posterior.max(axis=1, keepdims=True) - 1e-12
    hit = np.where(truth >= 0, top[np.arange(truth.size), np.maximum(truth, 0)], False)
    return np.asarray(hit / top.sum(axis=1))


def measure(log: LabelLog, truth: np.ndarray, methods: tuple[str, ...] = METHODS) -> Row:
    """Errors of the methods on a log, per cent, what differs from majority vote and from Dawid and Skene, calibration.

    Parameters
    ----------
    log
        The log.
    truth
        int64 of shape (n_tasks,): class of each task; -1 where none of the log's is right, -2 where nothing is known.
    methods
        Names.
    """
    judged = np.flatnonzero(truth > -2)
    right, row = {}, Row(tasks=judged.size, labels=log.block.n_observed)
    for method in methods:
        found = aggregate(log, method)
        right[method] = score_right(found.probabilities[judged], truth[judged])
        row[method] = 100 * float(1 - right[method].mean())
        if method in CALIBRATED:
            row |= _measure_confidence(found.probabilities, truth, judged, method)
        if method == "majority":
            weighed = replace(found.calibration, method_share=0.0)
            shares = weighed.apply(log.block, found.posterior)
            row |= _measure_confidence(shares, truth, judged, "weighed")
    for method in methods:
        for other in ("majority", "dawid_skene"):
            if other in right and method != other:
                lost = right[other] - right[method]
                row[f"{method} - {other}"] = 100 * float(lost.mean())
                row[f"{method} - {other}, error"] = 100 * float(lost.std()) / judged.size**0.5
    return row


def _measure_confidence(
    found: np.ndarray, truth: np.ndarray, judged: np.ndarray, method: str
) -> Row:
    """Calibration error of a method's confidence, per cent, and log-loss."""
    probabilities, actual = found[judged], truth[judged]
    confidence, codes = probabilities.max(axis=1), probabilities.argmax(axis=1)
    given = np.where(actual >= 0, probabilities[np.arange(judged.size), actual], 0.0)
    return {
        f"{method}, calibration error": measure_sizes(confidence, codes == actual),
        f"{method}, log-loss": -float(np.log(np.maximum(given, LEAST_PROBABILITY)).mean()),
    }


def show(rows: list[Row], methods: tuple[str, ...], *, each: bool) -> None:
    """Print means by regime, or each log, and on how many logs a method is worse than others."""
    columns = [
        *methods,
        *(f"{m}, {what}" for what in ("calibration error", "log-loss") for m in COMPARED),
    ]
    columns = [column for column in columns if column in rows[0]]
    print(f"{'':32}" + "".join(f"{_shorten(column):>13}" for column in columns))
    for name in dict.fromkeys(row["name"] for row in rows):
        mine = [row for row in rows if row["name"] == name]
        if each and len(mine) > 1:
            for row in mine:
                _print_line(f"  {row['number']}: {row['tasks']} tasks", [row], columns)
        _print_line(name, mine, columns)
    _print_line(f"mean of {len(rows)} logs", rows, columns)
    for method in methods:
        for other in ("majority", "dawid_skene"):
            key = f"{method} - {other}"
            if key not in rows[0]:
                continue
            gaps = np.array([row[key] for row in rows])
            errors = np.array([row[f"{key}, error"] for row in rows])
            print(
                f"{method} is worse than {other} by more than a standard error on {(gaps > errors + 1e-9).sum()} of "
                f"{len(rows)}, by more than two on {(gaps > 2 * errors + 1e-9).sum()}; at most by {gaps.max():.2f}"
            )


def _shorten(column: str) -> str:
    return column.replace("calibration error", "ECE").replace("dawid_skene", "d-s")


def _print_line(title: str, rows: list[Row], columns: list[str]) -> None:
    means = (np.mean([row[column] for row in rows]) for column in columns)
    cells = (
        f"{mean:13.3f}" if "log-loss" in column else f"{mean:13.2f}"
        for mean, column in zip(means, columns, strict=True)
    )
    print(f"{title:32}" + "".join(cells), flush=True)


def main() -> None:
    """Draw the logs, run the methods, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of public logs")
    parser.add_argument("--half", choices=("tuned", "judged", "none"), help="all logs otherwise")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--each", action="store_true", help="a line per log")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    methods = tuple(options.methods.split(","))
    halves = {
        "tuned": range(0, N_LOGS, 2),
        "judged": range(1, N_LOGS, 2),
        "none": range(0),
        None: range(N_LOGS),
    }
    rows = [
        {"name": name, "number": number, **measure(*draw_log(name, number), methods)}
        for name in REGIMES
        for number in halves[options.half]
    ]
    if rows:
        show(rows, methods, each=options.each)
    real = [
        {"name": name, "number": 0, **measure(*read_judged(options.data, name), methods)}
        for name in (REAL if options.data else ())
    ]
    if real:
        show(real, methods, each=False)
    if options.json:
        options.json.write_text(json.dumps([*rows, *real], indent=1))


if __name__ == "__main__":
    main()
