"""The label tables of the paper: its numbers, our names of its methods, and how a table is printed."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.apps.crowd import LabelLog

Numbers = Mapping[str, float]
"""A number for each method."""

AS_PUBLISHED = {"rotation": "shifted", "order": "each"}
"""Options of a symmetric factorisation that make it the published algorithm for real logs."""
OURS: dict[str, tuple[Any, dict[str, Any]]] = {
    "RobSymNMF": ("robust", {"em": False}),
    "RobSymNMF-EM": ("robust", {"max_passes": 10, "tol": 0}),
    "RobSymNMF equal-weights": ("equal_weights", {"em": False}),
    "DesSymNMF": ("designated", {"em": False}),
    "DesSymNMF-EM": ("designated", {"max_passes": 10, "tol": 0}),
    "DesSymNMF, one pair": ("one_pair", {"em": False}),
    "SymNMF no-imputation": ("symnmf", {"em": False}),
    "RobSymNMF, each": ({"name": "robust", "order": "each"}, {"em": False}),
    "RobSymNMF-EM, each": ({"name": "robust", "order": "each"}, {"max_passes": 10, "tol": 0}),
    "DesSymNMF, each": ({"name": "designated", "order": "each"}, {"em": False}),
    "DesSymNMF-EM, each": ({"name": "designated", "order": "each"}, {"max_passes": 10, "tol": 0}),
    "DesSymNMF, as published": ({"name": "designated", **AS_PUBLISHED}, {"em": False}),
    "RobSymNMF equal-weights, as published": (
        {"name": "equal_weights", **AS_PUBLISHED},
        {"em": False},
    ),
    "MultiSPA": ("multispa", {"em": False}),
    "CNMF": ("cnmf", {"em": False}),
    "MV-EM": ("mv_em", {}),
    "Majority Voting": ("majority", {}),
    "Dawid-Skene, full EM": ("dawid_skene", {}),
    "one coin": ("one_coin", {}),
    "balanced": ("balanced", {}),
    "default": ("auto", {}),
}
"""Method and options of `aggregate` by the name in the tables, and then those the paper does not have."""
AGAIN: dict[str, dict[str, float]] = {
    "bluebird": {
        "RobSymNMF": 12.04, "RobSymNMF-EM": 10.19, "RobSymNMF equal-weights": 12.04, "DesSymNMF": 11.85,
        "DesSymNMF-EM": 10.19, "SymNMF no-imputation": 12.04, "MultiSPA": 13.89, "CNMF": 12.96, "MV-EM": 11.11,
        "Majority Voting": 24.07,
    },
    "dog": {
        "RobSymNMF": 16.16, "RobSymNMF-EM": 15.86, "RobSymNMF equal-weights": 16.26, "DesSymNMF": 16.53,
        "DesSymNMF-EM": 15.86, "SymNMF no-imputation": 16.36, "MultiSPA": 17.65, "CNMF": 17.97, "MV-EM": 15.86,
        "Majority Voting": 17.91,
    },
}  # fmt: skip
"""Label errors of the released code run again under GNU Octave, in per cent: means over seeds."""
AGAIN_SYNTHETIC = {
    "RobSymNMF": (0.0137, 0.0056, 0.0026), "DesSymNMF": (0.0130, 0.0085, 0.0070),
    "RobSymNMF-EM": (0.0084, 0.0027, 0.0009), "DesSymNMF-EM": (0.0079, 0.0022, 0.0012),
    "MultiSPA": (0.186, 0.111, 0.103), "CNMF": (0.0777, 0.0048, 0.0040), "MV-EM": (0.0200, 0.0870, 0.1010),
}  # fmt: skip
"""Its mean squared errors on synthetic crowds: means over trials at 1000, 5000 and 10,000 tasks."""


def read_published(path: Path) -> dict[tuple[str, str], dict[str, float]]:
    """Published numbers by table and column, then method; times are left out."""
    published: dict[tuple[str, str], dict[str, float]] = {}
    with path.open(encoding="utf-8") as lines:
        for table, column, method, measure, value in csv.reader(lines):
            if measure in ("error %", "MSE") and value:
                published.setdefault((table, column), {})[method] = float(value)
    return published


def find_wrong(posterior: np.ndarray, log: LabelLog, truth: Mapping[Any, Any]) -> np.ndarray:
    """What each task counts as wrong, (n_tasks,), in per cent; ties in part."""
    classes = np.array(log.classes.to_pylist())
    actual = np.array([truth[task] for task in log.tasks.to_pylist()])
    top = posterior >= posterior.max(axis=1, keepdims=True) - 1e-12
    hit = (top & (classes == actual[:, None])).sum(axis=1)
    return np.asarray(100 * (1 - hit / top.sum(axis=1)))


def find_error(posterior: np.ndarray, log: LabelLog, truth: Mapping[Any, Any]) -> float:
    """Per cent of wrong labels, ties counted in part."""
    return float(find_wrong(posterior, log, truth).mean())


def show(title: str, columns: Mapping[str, Numbers], *, digits: str = ".2f") -> None:
    """Print a table: methods as rows, "-" where there is no number; columns without any are left out."""
    kept = {head: numbers for head, numbers in columns.items() if numbers}
    print(f"\n{title}\n{'':38}" + "".join(f"{head:>12}" for head in kept))
    for method in dict.fromkeys(name for numbers in kept.values() for name in numbers):
        values = (numbers.get(method) for numbers in kept.values())
        cells = (f"{'-' if value is None else format(value, digits):>12}" for value in values)
        print(f"{method:38}" + "".join(cells), flush=True)


def average(trials: Iterable[Numbers]) -> dict[str, float]:
    """Mean over trials of each method that every trial has."""
    trials = list(trials)
    common = [name for name in trials[0] if all(name in trial for trial in trials)]
    return {name: float(np.mean([trial[name] for trial in trials])) for name in common}
