"""Label errors with and without known labels of some tasks, on the same remaining tasks.

    python -m benchmarks.crowd.known_tasks ../shared/data [--share 0.05] [--seeds 20] [--drawn 1]

prints, for each real log and for logs of `stress` (seeds from 400 on, of which no constant was chosen), the error on
the tasks whose label was not given: without known labels, with them, and the difference with its standard error over
the draws of known tasks (real logs) or over logs (drawn ones). "many workers" are drawn logs like trec, which is not
here: 400 workers, 4.5 labels a task of two classes, many guesses, tasks hard to many degrees.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

# first, for it limits threads before NumPy loads
from benchmarks.crowd.published_tables import find_wrong
from benchmarks.crowd.scenarios import Scenario, ScenarioName, draw_crowd
from benchmarks.crowd.stress import SHAPES
from benchmarks.crowd.tables import LOGS, read_log
from pmflib.crowd import LabelLog, aggregate, read_labels

METHODS = ("auto", "dawid_skene")
EXTRA = ("tweet", "zencrowd-us")
"""Logs that the published tables have not."""
CROWDED = Scenario(spammers=0.25, adversaries=0.05, hardness=(0.4, 0.25, 0.2, 0.15))
"""What is wrong with logs of many workers."""
N_CROWDED = 10
"""Logs of many workers."""
FIRST = 400
"""First seed of drawn logs."""
EVERY = 3
"""One in so many of the shapes of `stress` is drawn."""


def compare(
    log: LabelLog, truth: Mapping[Any, Any], method: str, share: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Errors without and with known labels of a share of the tasks, on the others; per cent."""
    tasks, classes = log.tasks.to_pylist(), set(log.classes.to_pylist())
    order = rng.permutation(len(tasks))
    n_known = max(1, round(share * len(tasks)))
    known = {
        tasks[index]: truth[tasks[index]]
        for index in order[:n_known]
        if truth[tasks[index]] in classes
    }
    without, found = (
        find_wrong(aggregate(log, method, known=each).posterior, log, truth)[order[n_known:]].mean()
        for each in (None, known)
    )
    return float(without), float(found)


def show(title: str, method: str, trial: Callable[[int], tuple[float, float]], n: int) -> None:
    """Print the mean of trials."""
    without, found = np.array([trial(index) for index in range(n)]).T
    gaps = found - without
    error = gaps.std(ddof=1) / n**0.5 if n > 1 else np.nan
    print(
        f"{title:18} {method:12} {without.mean():6.2f} {found.mean():6.2f}  {gaps.mean():+.2f} (s.e. {error:.2f}); "
        f"fewer wrong in {(gaps < 0).sum()} of {n}, more in {(gaps > 0).sum()}",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--share", type=float, default=0.05, help="share of the tasks that are known"
    )
    parser.add_argument(
        "--seeds", type=int, default=20, help="draws of the known tasks of real logs"
    )
    parser.add_argument("--drawn", type=int, default=1, help="seeds of drawn logs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'log':18} {'method':12} without   with  difference, points")
    for title, (name, busiest, _) in LOGS.items():
        log, truth = read_log(options.folder, name, busiest)
        for method in METHODS:
            draw = partial(compare_draw, log, truth, method, options.share)
            show(title, method, draw, options.seeds)
    for title in EXTRA:
        log, known = read_log(options.folder, title)
        draw = partial(compare_draw, log, known, "auto", options.share)
        show(title, "auto", draw, options.seeds)
    for method in METHODS:
        show("many workers", method, partial(compare_crowded, method, options.share), N_CROWDED)
    combinations = [
        (index, scenario, seed)
        for seed in range(FIRST, FIRST + options.drawn)
        for index in range(0, len(SHAPES), EVERY)
        for scenario in get_args(ScenarioName)
    ]
    for method in METHODS if combinations else ():
        draw = partial(compare_drawn, combinations, method, options.share)
        show(f"{len(combinations)} drawn logs", method, draw, len(combinations))


def compare_draw(
    log: LabelLog, truth: Mapping[Any, Any], method: str, share: float, seed: int
) -> tuple[float, float]:
    """What `compare` finds with the known tasks of a seed."""
    return compare(log, truth, method, share, np.random.default_rng([seed, 5]))


def compare_crowded(method: str, share: float, seed: int) -> tuple[float, float]:
    """What `compare` finds of a drawn log of many workers."""
    rng = np.random.default_rng([seed, 77])
    crowd = draw_crowd(2400, 400, 2, 4.5, rng, scenario="grade", amounts=CROWDED)
    return compare(read_labels(crowd.log), dict(enumerate(crowd.truth)), method, share, rng)


def compare_drawn(
    combinations: Sequence[tuple[int, ScenarioName, int]], method: str, share: float, number: int
) -> tuple[float, float]:
    """What `compare` finds of a drawn log: a shape, a scenario and a seed."""
    index, scenario, seed = combinations[number]
    n_tasks, n_workers, n_classes, n_labels, rare = list(SHAPES.values())[index]
    rng = np.random.default_rng([seed, index, *scenario.encode()])
    crowd = draw_crowd(n_tasks, n_workers, n_classes, n_labels, rng, scenario=scenario, rare=rare)
    return compare(read_labels(crowd.log), dict(enumerate(crowd.truth)), method, share, rng)


if __name__ == "__main__":
    main()
