"""Label errors on logs of many sizes and shapes, next to majority vote's.

    python -m benchmarks.crowd.stress [--seeds 2] [--first 310] [--json stress.json]

prints, for each method, the mean difference from majority vote in points, the worst, and on how many logs it was worse
by more than a point: of all, of those with 1,000 tasks or more, and of those where that is beyond chance (twice the
standard error of the difference); and the means by scenario. Majority vote's ties count in part.

The default was chosen on these logs, seeds 100 to 103 (of `Shrinkage`: ``skill_variance``, ``vote_weight``,
``halving_labels``, ``scarce_weight``; ``SECOND_SUBCLASS_POWER``; two subclasses of tasks; votes that lead the passes
and are left out where labels are read). Of the weights of votes whose number of logs more than a point worse was the
least, or above it by no more than its square root, those with the best mean were taken. That votes fade where workers
gave many labels was chosen in the same way, with shapes like the last three beside the others: there votes that stay
cost one to three points. A first way of fading was given up because of seeds 300 and 301, so figures that are reported
of the default are from seeds 310 on. Reading labels without votes was a judgement beyond that rule: a better mean for a
few more logs that are more than a point worse. Errors on real logs are no part of the choice; those of other settings
were known when it was made. Twice, what did better on drawn logs was worse on the real ones, and was given up after
these had been looked at: a weight of votes that grows with a task's labels, and passes that begin at the majority of
the votes instead of their shares (or at the more probable of both). Other changes stayed although they were no better
on them.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np

from benchmarks.crowd.scenarios import ScenarioName, draw_crowd
from pmflib.apps.crowd import aggregate, read_labels

SHAPES: dict[str, tuple[int, int, int, float, bool]] = {
    "2 classes, 164 workers, 10 labels": (800, 164, 2, 10, False),
    "2 classes, 400 workers, 4.6 labels": (4000, 400, 2, 4.6, False),
    "2 classes, 200 workers, 5 labels": (1000, 200, 2, 5, False),
    "2 classes, 39 workers, all label all": (108, 39, 2, 39, False),
    "2 classes, 25 workers, 1.5 labels": (500, 25, 2, 1.5, False),
    "2 classes, rare, 180 workers, 3 labels": (3000, 180, 2, 3, True),
    "2 classes, rare, 25 workers, 3 labels": (600, 25, 2, 3, True),
    "2 classes, 700 workers, 2 labels": (2000, 700, 2, 2, False),
    "2 classes, rare, 300 workers, 8 labels": (1500, 300, 2, 8, True),
    "3 classes, rare, 100 workers, 3 labels": (1000, 100, 3, 3, True),
    "3 classes, rare, 25 workers, 1.5 labels": (1000, 25, 3, 1.5, True),
    "3 classes, 76 workers, 10 labels": (460, 76, 3, 10, False),
    "3 classes, 500 workers, 5 labels": (2000, 500, 3, 5, False),
    "4 classes, 27 workers, 9 labels": (584, 27, 4, 9, False),
    "4 classes, 269 workers, 10 labels": (333, 269, 4, 10, False),
    "4 classes, 600 workers, 3 labels": (3000, 600, 4, 3, False),
    "4 classes, 760 workers, 5 labels": (1500, 760, 4, 5, False),
    "5 classes, 177 workers, 5.8 labels": (1500, 177, 5, 5.8, False),
    "5 classes, 110 workers, 20 labels": (300, 110, 5, 20, False),
    "5 classes, 60 workers, 1.6 labels": (800, 60, 5, 1.6, False),
    "5 classes, rare, 150 workers, 5 labels": (1000, 150, 5, 5, True),
    "6 classes, 90 workers, 3 labels": (1200, 90, 6, 3, False),
    "7 classes, rare, 40 workers, 8 labels": (1000, 40, 7, 8, True),
    "8 classes, 59 workers, 2.5 labels": (1000, 59, 8, 2.5, False),
    "10 classes, 44 workers, 4.2 labels": (700, 44, 10, 4.2, False),
    "10 classes, rare, 80 workers, 4 labels": (2000, 80, 10, 4, True),
    "6 classes, all of 30 workers label all": (300, 30, 6, 30, False),
    "3 classes, 300 labels of each worker": (2400, 40, 3, 5, False),
    "4 classes, 1,000 labels of each worker": (4000, 20, 4, 5, False),
    "3 classes, 2,500 labels of each worker": (6000, 12, 3, 5, False),
}
METHODS: tuple[Any, ...] = ("auto", "dawid_skene", "one_coin", "balanced", "mv_em")
Row: TypeAlias = dict[str, Any]
MANY_TASKS = 1000
"""Tasks from which on a point is hardly chance."""


def score_tasks(posterior: np.ndarray, classes: list[int], truth: np.ndarray) -> np.ndarray:
    """What each task counts as right, (n_tasks,): ties in part."""
    top = posterior >= posterior.max(axis=1, keepdims=True) - 1e-12
    right = np.array(
        [classes.index(one) if one in classes else -1 for one in range(truth.max() + 1)]
    )
    columns = right[truth]
    hit = np.where(columns >= 0, top[np.arange(truth.size), columns], False)
    return np.asarray(hit / top.sum(axis=1))


def measure(shape: int, scenario: ScenarioName, seed: int) -> Row:
    """What `compare` finds of a drawn log."""
    n_tasks, n_workers, n_classes, n_labels, rare = list(SHAPES.values())[shape]
    rng = np.random.default_rng([seed, shape, *scenario.encode()])
    crowd = draw_crowd(n_tasks, n_workers, n_classes, n_labels, rng, scenario=scenario, rare=rare)
    names = {"shape": list(SHAPES)[shape], "scenario": scenario, "seed": seed}
    return names | compare(crowd.log, crowd.truth)


def compare(table: dict[str, np.ndarray], truth: np.ndarray) -> Row:
    """Majority vote's error on a log, and every method's difference from it with its standard error; per cent.

    Parameters
    ----------
    table
        Columns task, worker, label; tasks and labels are numbers.
    truth
        int64 of shape (n_tasks,): label of every task by its number.
    """
    log = read_labels(table)
    classes = log.classes.to_pylist()
    truth = truth[np.array(log.tasks.to_pylist())]
    votes = score_tasks(aggregate(log, "majority").posterior, classes, truth)
    row: Row = {"tasks": truth.size, "majority": 100 * float(1 - votes.mean())}
    for method in METHODS:
        lost = votes - score_tasks(aggregate(log, method).posterior, classes, truth)
        row[method] = 100 * float(lost.mean())
        row[f"{method}, error"] = 100 * float(lost.std()) / truth.size**0.5
    return row


def show(rows: list[Row]) -> None:
    """Print the differences from majority vote of each method, and by scenario."""
    tasks = np.array([row["tasks"] for row in rows])
    votes = np.mean([row["majority"] for row in rows])
    print(f"{len(rows)} logs, majority vote {votes:.2f} % wrong")
    for method in METHODS:
        gaps = np.array([row[method] for row in rows])
        worse = gaps > 1
        sure = worse & (gaps > 2 * np.array([row[f"{method}, error"] for row in rows]))
        worst = rows[int(gaps.argmax())]
        where = f"{worst['shape']}, {worst['scenario']}, seed {worst['seed']}"
        print(
            f"{method:12} mean {gaps.mean():+6.2f}, worst {gaps.max():+6.2f} ({where}); "
            f"more than a point worse on {worse.sum()}, with {MANY_TASKS} tasks or more on "
            f"{(worse & (tasks >= MANY_TASKS)).sum()}, beyond chance on {sure.sum()}"
        )
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        mine = [row for row in rows if row["scenario"] == scenario]
        means = (f"{method} {np.mean([row[method] for row in mine]):+6.2f}" for method in METHODS)
        print(f"{scenario:10} {', '.join(means)}")


def main() -> None:
    """Draw every log, run every method, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=310, help="first seed")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [
        measure(shape, scenario, seed)
        for seed in range(options.first, options.first + options.seeds)
        for shape in range(len(SHAPES))
        for scenario in get_args(ScenarioName)
    ]
    show(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
