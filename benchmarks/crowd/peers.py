"""Other people's Dawid-Skene on the same labels."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.em.peers import Timer, slope, timed
from pmflib.apps.crowd import LabelLog

__all__ = ["CROWD_KIT", "make_crowd_kit", "make_frame", "make_scipy", "run_crowd_kit", "timed"]

CROWD_KIT = (
    "MajorityVote",
    "DawidSkene",
    "OneCoinDawidSkene",
    "GLAD",
    "MACE",
    "MMSR",
    "KOS",
    "Wawa",
    "ZeroBasedSkill",
)
"""Its methods for labels."""

CROWD_KIT_TASKS = 10_000
"""crowd-kit works on data frames: fewer tasks show its time per label."""


def make_frame(tasks: Any, workers: Any, labels: Any) -> Any:
    """Data frame of labels, as crowd-kit takes it."""
    import pandas as pd

    return pd.DataFrame({"task": tasks, "worker": workers, "label": labels})


def run_crowd_kit(name: str, log: LabelLog) -> np.ndarray | None:
    """Labels of a crowd-kit method with its own defaults, (n_tasks, n_classes); None, said aloud, if it fails."""
    if importlib.util.find_spec("crowdkit") is None:
        return None
    import crowdkit.aggregation

    rows = np.repeat(np.arange(log.n_tasks), np.diff(log.block.indptr))
    workers, labels = np.divmod(log.block.indices, log.n_classes)
    try:
        found = getattr(crowdkit.aggregation, name)().fit_predict(make_frame(rows, workers, labels))
    except (ValueError, RuntimeError, FloatingPointError, AttributeError) as error:
        print(f"crowd-kit {name} does not run here: {str(error).splitlines()[0][:80]}")
        return None
    indices = found.reindex(np.arange(log.n_tasks)).to_numpy()
    return np.asarray(indices[:, None] == np.arange(log.n_classes), dtype=float)


def make_scipy(levels: np.ndarray, n_levels: int, n_classes: int) -> Timer:
    """Timer of a pass by two products with the one-hot CSR matrix."""
    n_tasks = len(levels)
    indptr = np.arange(n_tasks + 1) * levels.shape[1]
    one_hot = scipy.sparse.csr_matrix(
        (np.ones(levels.size), levels.ravel(), indptr), shape=(n_tasks, n_levels)
    )
    transposed = one_hot.T.tocsr()
    confusion = np.random.default_rng(2).random((n_levels // n_classes, n_classes, n_classes))
    logs = np.log(confusion / confusion.sum(axis=1, keepdims=True)).reshape(n_levels, n_classes)

    def work() -> None:
        scores = one_hot @ logs
        scores -= scores.max(axis=1, keepdims=True)
        posterior = np.exp(scores)
        posterior /= posterior.sum(axis=1, keepdims=True)
        mass = (transposed @ posterior).reshape(-1, n_classes, n_classes)
        mass / np.maximum(mass.sum(axis=1, keepdims=True), 1e-300)

    return timed(work)


def make_crowd_kit(workers: np.ndarray, labels: np.ndarray) -> Timer | None:
    """Timer of a pass of crowd-kit's DawidSkene, scaled to all labels; None where it is not installed."""
    if importlib.util.find_spec("crowdkit") is None:
        return None
    from crowdkit.aggregation import DawidSkene

    few = min(len(workers), CROWD_KIT_TASKS)
    tasks = np.repeat(np.arange(few), workers.shape[1])
    frame = make_frame(tasks, workers[:few].ravel(), labels[:few].ravel())

    def fit(passes: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            DawidSkene(n_iter=passes, tol=-1.0).fit(frame)

    return slope(fit, 2, 6, len(workers) / few)
