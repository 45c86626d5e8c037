"""Figures of a label log: how good its workers are, and how each confuses classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError
from pmflib.plots.drawing import (
    FAINT,
    MAIN,
    Axes,
    clear_frame,
    open_axes,
    scale_by_logs,
    write_text,
)
from pmflib.plots.score_plots import plot_confusion_matrix

if TYPE_CHECKING:
    from pmflib.crowd.true_labels import Aggregation


def plot_confusion(aggregation: Aggregation, worker: object, *, ax: Axes | None = None) -> Axes:
    """Draw the confusion matrix of a worker: which labels the worker gives to tasks of each class.

    Parameters
    ----------
    aggregation
        The label log, aggregated.
    worker
        Name of the worker, as the log has it.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes: a row per true class, a column per label, per cent of the row.

    Raises
    ------
    PmfError
        If matplotlib is not installed, or there is no such worker.
    """
    import difflib

    names = aggregation.log.workers.to_pylist()
    if worker not in names:
        close = difflib.get_close_matches(str(worker), list(map(str, names)), n=3)
        hint = f"did you mean {close}?" if close else f"there are {names[:5]} and more"
        raise PmfError(f"worker {worker!r} gave no label; {hint}")
    place = names.index(worker)
    classes = aggregation.log.classes.to_pylist()
    ax = plot_confusion_matrix(
        aggregation.confusion[place].T, classes, rows="true class", columns="label given", ax=ax
    )
    ax.set_title(
        f"{write_text(worker)}: accuracy {100 * aggregation.accuracy[place]:.0f} %",
        loc="left",
        parse_math=False,
    )
    return ax


def plot_skills(aggregation: Aggregation, *, ax: Axes | None = None) -> Axes:
    """Draw how good the workers are against how much they labelled.

    Parameters
    ----------
    aggregation
        The label log, aggregated.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes: a point per worker; a dotted line at the accuracy of always giving the most frequent class.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    n_labels = np.asarray(aggregation.workers["n_labels"])
    return plot_accuracies(n_labels, aggregation.accuracy, float(aggregation.prior.max()), ax=ax)


def plot_accuracies(
    n_labels: IntArray, accuracy: FloatArray, chance: float, *, ax: Axes | None = None
) -> Axes:
    """Draw the accuracy of workers against how many labels each gave.

    Parameters
    ----------
    n_labels
        int64 of shape (n_workers,).
    accuracy
        float64 of shape (n_workers,), in [0, 1].
    chance
        Accuracy of always giving the most frequent class, in [0, 1]: a dotted line.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes: a point per worker.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    ax = open_axes(ax, (6.0, 3.6))
    ax.plot(n_labels, 100 * accuracy, "o", ms=4, color=MAIN, alpha=0.7)
    label = f"always the most frequent class: {100 * chance:.0f} %"
    ax.axhline(100 * chance, color=FAINT, ls=":", label=label)
    if n_labels.size and n_labels.max() > 30 * max(n_labels.min(), 1):
        scale_by_logs(ax)
    ax.set(xlabel="labels given", ylabel="accuracy, %", ylim=(-2, 102))
    ax.legend(frameon=False, loc="lower right")
    return clear_frame(ax)
