"""How far each label method is behind the simplest ones: classifiers as workers of car and credit, and planted regimes.

    python -m benchmarks.crowd.behind [--half tuned|judged] [--car ../shared/data/car/UCI_CAR.data] [--credit FILE]

prints, for each kind of log, the mean errors of the labels in per cent, and how far each other method is behind the
best of majority vote, one coin and Dawid and Skene's model of maximum likelihood on logs of this kind: the mean
difference with its standard error over the logs. A star marks what is more than one standard error behind. The best is
that of the kind, not of each log, which would be the best of three by chance.

`Screening.vote_cost`, `SIMPLER_ERRORS`, `MOST_SHRUNK` and the replacement by maximum likelihood were chosen on the
tuned half: ten planted logs of even numbers as in `regimes`, and the first eight draws of classifiers. The judged half
is twelve logs and draws of other numbers, which were not looked at before the rules were set.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.crowd.calibration import encode_truth
from benchmarks.crowd.regimes import REGIMES, draw_log, score_right
from benchmarks.crowd.uci_workers import TABLES, draw_design, draw_labels, read_table
from pmflib.apps.crowd import LabelLog, aggregate, read_labels

SIMPLEST = ("majority", "one_coin", "dawid_skene")
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in SIMPLEST},
    "auto": ("auto", {}),
    "robust, no EM": ("robust", {"em": False}),
    "robust": ("robust", {}),
}
CLASSIFIERS = {"tuned": range(8), "judged": range(44, 56)}
"""Draws of classifiers as workers."""
PLANTED = {"tuned": range(0, 20, 2), "judged": range(85, 109, 2)}
"""Numbers of planted logs."""


def draw_classifiers(name: str, column: str, path: Path, trial: int) -> tuple[LabelLog, np.ndarray]:
    """Draw a log of classifiers, as in `uci_workers`, and the class of each of its tasks."""
    table = TABLES[name]
    rng = np.random.default_rng([trial, table.number])
    labels, truth = draw_labels(table, *read_table(name, path), rng)
    design, _ = draw_design(column, len(labels), rng)
    task, worker = np.nonzero(design)
    columns = {"task": task, "worker": worker, "label": labels[task, worker]}
    log = read_labels(columns, classes=range(table.n_classes))
    return log, encode_truth(log, dict(enumerate(truth.tolist())))


def list_kinds(
    half: str, paths: dict[str, Path | None]
) -> Iterator[tuple[str, Iterator[tuple[LabelLog, np.ndarray]]]]:
    """Yield the kinds of logs, each with the logs of a half."""
    for name, path in paths.items():
        for column in TABLES[name].columns if path else ():
            assert path is not None
            logs = (draw_classifiers(name, column, path, trial) for trial in CLASSIFIERS[half])
            yield f"{name}, {column}", logs
    for name in REGIMES:
        yield name, (draw_log(name, n) for n in PLANTED[half])


def measure(log: LabelLog, truth: np.ndarray) -> list[float]:
    """Error of each method's labels, per cent."""
    found = [aggregate(log, method, **options) for method, options in METHODS.values()]
    return [100 * float(1 - score_right(one.posterior, truth).mean()) for one in found]


def show_kind(title: str, errors: np.ndarray) -> None:
    """Print means of a kind, and how far behind the best of the simplest the other methods are.

    Parameters
    ----------
    title
        Name of the kind.
    errors
        float64 of shape (n_logs, n_methods), per cent.
    """
    means = errors.mean(axis=0)
    best = int(means[: len(SIMPLEST)].argmin())
    cells = "".join(f"{mean:15.2f}" for mean in means[: len(SIMPLEST)])
    for column in range(len(SIMPLEST), means.size):
        behind = errors[:, column] - errors[:, best]
        gap, error = behind.mean(), behind.std(ddof=1) / behind.size**0.5
        mark = "*" if gap > error + 1e-9 else " "
        cells += f"{means[column]:8.2f} {gap:+6.2f} +-{error:5.2f}{mark}"
    print(f"{title:28}{cells}", flush=True)


def main() -> None:
    """Draw the logs, run the methods, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", choices=CLASSIFIERS, default="judged")
    parser.add_argument("--car", type=Path, help="UCI_CAR.data")
    parser.add_argument("--credit", type=Path, help="australian.dat")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = list(METHODS)
    heads = [f"{name:>15}" for name in names[:3]] + [f"{name:>25}" for name in names[3:]]
    print(f"{'':28}{''.join(heads)}")
    for title, logs in list_kinds(options.half, {"car": options.car, "credit": options.credit}):
        show_kind(title, np.array([measure(*log) for log in logs]))


if __name__ == "__main__":
    main()
