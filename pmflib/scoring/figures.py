"""Figures of how good a model is: calibration, gains over single variables, confusion of a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pmflib.display.drawing import (
    FAINT,
    INK,
    MAIN,
    SECOND,
    SEQUENTIAL,
    Axes,
    clear_frame,
    colour_cells,
    label_columns,
    label_rows,
    open_axes,
    write_cell,
)

SHARES = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8)
"""Shares of a row where the colour of a confusion matrix changes."""


def plot_calibration(bins: Sequence[Mapping[str, float]], *, ax: Axes | None = None) -> Axes:
    """Draw a reliability diagram: how often the most probable level is true, by how probable it was said to be.

    Parameters
    ----------
    bins
        Bins of the probability of the most probable level, as `pmflib.model.measures.describe_bins` gives them.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes: bars are two standard errors; on the diagonal probabilities are what they say.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    return plot_reliability({"the model": bins}, "probability of the most probable level, %", ax=ax)


def plot_reliability(
    curves: Mapping[str, Sequence[Mapping[str, float]]], x_name: str, *, ax: Axes | None = None
) -> Axes:
    """Draw a reliability diagram of one or more, such as confidence before and after it was calibrated.

    Parameters
    ----------
    curves
        Bins by what they are of; each has a probability, the share of what was true (accuracy) and its standard error
        (accuracy_error). The last is the one that the figure is about.
    x_name
        What the probability is of.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes: bars are two standard errors; on the diagonal probabilities are what they say.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    ax = open_axes(ax, (4.4, 4.0))
    ax.plot([0, 100], [0, 100], color=FAINT, ls="--", label="perfectly calibrated")
    for index, (label, bins) in enumerate(curves.items(), 1):
        ax.errorbar(
            [100 * each["probability"] for each in bins],
            [100 * each["accuracy"] for each in bins],
            [200 * each["accuracy_error"] for each in bins],
            color=MAIN if index == len(curves) else SECOND,
            marker="o",
            ms=4,
            capsize=3,
            label=label,
        )
    ax.set(xlim=(0, 100), ylim=(0, 100), xlabel=x_name, ylabel="how often it was true, %")
    ax.legend(frameon=False, loc="upper left")
    return clear_frame(ax)


def plot_gains(
    names: Sequence[str],
    gains: Sequence[float],
    errors: Sequence[float | None] | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw by how much a model predicts variables better than single variables do, in the order given.

    Parameters
    ----------
    names
        Variables.
    gains
        Log-probability per hidden answer under the model less that of the variable alone, nats.
    errors
        Standard errors of the gains, None where one is unknown; None altogether draws none.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes: a bar per variable, the first on top, those below 0 in another colour.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    ax = open_axes(ax, (6.4, 0.8 + 0.25 * max(len(names), 1)))
    spread = None if errors is None else [each or 0.0 for each in errors]
    colours = [MAIN if gain >= 0 else SECOND for gain in gains]
    ax.barh(range(len(names)), gains, color=colours, xerr=spread, ecolor=INK, capsize=2)
    ax.axvline(0, color=INK, lw=0.8)
    label_rows(ax, names)
    ax.set_xlabel("gain over the variable alone, nats per hidden answer")
    return clear_frame(ax, ("top", "right", "left"))


def plot_confusion_matrix(
    matrix: object,
    levels: Sequence[object],
    *,
    rows: str = "true",
    columns: str = "predicted",
    ax: Axes | None = None,
) -> Axes:
    """Draw a confusion matrix: the share of each row in per cent.

    Parameters
    ----------
    matrix
        Shape (n_levels, n_levels), counts or probabilities, at least 0: a row per true level.
    levels
        Labels.
    rows, columns
        What rows and columns are.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    counts = np.asarray(matrix, np.float64)
    totals = counts.sum(axis=1, keepdims=True)
    shares = counts / np.where(totals > 0, totals, 1.0)
    n_levels = len(levels)
    ax = open_axes(ax, (2.2 + 0.6 * n_levels, 1.4 + 0.4 * n_levels))
    colour_cells(ax, shares, SHARES, SEQUENTIAL)
    if n_levels <= 15:
        for row, column in np.ndindex(shares.shape):
            share = float(shares[row, column])
            write_cell(ax, row, column, f"{100 * share:.0f}", share >= SHARES[-1])
    label_rows(ax, levels)
    label_columns(ax, levels)
    ax.set_ylim(n_levels - 0.5, -0.5)
    if n_levels > 4:
        ax.tick_params(axis="x", rotation=45)
    ax.set(xlabel=columns, ylabel=f"{rows} (% of the row)")
    return clear_frame(ax, ("top", "right", "left", "bottom"))
