"""Axes, colours and texts of all figures, and figures of arrays, such as calibration and confusion matrices.

matplotlib is imported only when a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.base.errors import PmfError
from pmflib.base.texts import show_text

Axes: TypeAlias = Any
"""`matplotlib.axes.Axes`, without importing it."""

LETTERS = 42
"""Maximum number of characters of a text of the data in a figure."""

PAPER = "#fefefe"
"""Colour of the background, and of texts on dark cells."""
INK = "#1c2733"
"""Colour of lines and texts."""
FAINT = "#8794a3"
"""Colour of references: baselines, diagonals."""
MAIN = "#1f6fb2"
"""Colour of the main series."""
SECOND = "#c8641a"
"""Colour of the second series."""
DIVERGING = (
    "#a6501a",
    "#cf8a55",
    "#ebc8a8",
    "#f1f0ec",
    "#b5d2ea",
    "#6ea8d6",
    "#2a74b4",
)
"""Diverging colours of a quantity around 0, from negative to positive."""
DIVERGING_EDGES = (-2.0, -1.0, -0.3, 0.3, 1.0, 2.0)
"""Edges between these colours, in doublings."""
SEQUENTIAL = ("#f1f0ec", "#d5e3ef", "#b5d2ea", "#8fbde0", "#6ea8d6", "#4a8ec6", "#2a74b4")
"""Sequential colours of a share, from 0 to 1."""

GROUPS = (MAIN, SECOND, "#3f8f5f", "#8a5aa8", "#b3404a", "#4d9a9f", "#9a8420", "#6b6f78")
"""Colours of groups, such as latent states, in order."""
MARKERS = "osD^vP*X"
"""Markers of groups, which distinguish them without colours."""


def open_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the given Axes, or those of a new figure.

    Parameters
    ----------
    ax
        Axes, or None.
    size
        Width and height of a new figure, inches.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise PmfError(
            "drawing takes matplotlib, which is not installed; pip install 'pmflib[plot]'"
        ) from error
    # through pyplot, so that notebooks and `pyplot.show` show the figure
    return pyplot.figure(figsize=size, layout="constrained").subplots()


def write_text(text: object, letters: int = LETTERS) -> str:
    """Prepare a text of the data for a figure: one line, control characters escaped, shortened if long."""
    shown = show_text(str(text))
    return shown if len(shown) <= letters else shown[: letters - 1] + "…"


def label_rows(ax: Axes, names: Sequence[object]) -> None:
    """Name the rows 0, 1, ... of a bar chart, the first on top; texts are literal, "$" included."""
    ax.set_yticks(range(len(names)), [write_text(name) for name in names], parse_math=False)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def label_columns(ax: Axes, names: Sequence[object]) -> None:
    """Name the columns 0, 1, ... of a matrix."""
    ax.set_xticks(range(len(names)), [write_text(name) for name in names], parse_math=False)
    ax.tick_params(axis="x", length=0)


def write_cell(ax: Axes, row: int, column: int, text: str, is_dark: bool, size: float = 8) -> None:
    """Write a text into a cell of a matrix, in a colour that contrasts with the cell."""
    colour = PAPER if is_dark else INK
    ax.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)


def name_marks(ax: Axes, **options: Any) -> None:
    """Add a legend with literal texts, "$" included."""
    for text in ax.legend(frameon=False, **options).get_texts():
        text.set_parse_math(False)


def scale_by_logs(ax: Axes) -> None:
    """Make the x-axis logarithmic, with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    low, high = ax.get_xlim()
    subs = (1.0,) if high > 200 * max(low, 1e-9) else (1.0, 2.0, 5.0)
    ax.xaxis.set_major_locator(LogLocator(10, subs))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def write_thousands(ax: Axes, axis: str) -> None:
    """Group the thousands of the integers on an axis, x or y, as in 64,000."""
    ax.ticklabel_format(axis=axis, style="plain", useOffset=False)
    getattr(ax, f"{axis}axis").set_major_formatter(lambda value, _: f"{value:,.12g}")


def clear_frame(ax: Axes, sides: Sequence[str] = ("top", "right")) -> Axes:
    """Remove the spines without a scale."""
    ax.spines[list(sides)].set_visible(False)
    return ax


def colour_cells(
    ax: Axes, values: FloatArray, edges: Sequence[float], colours: Sequence[str]
) -> None:
    """Draw a matrix as coloured cells, row 0 on top; the first colour is for values below the first edge.

    Parameters
    ----------
    ax
        Axes.
    values
        float64 of shape (n_rows, n_columns).
    edges
        Edges in increasing order.
    colours
        Colours between the edges, one more than edges.
    """
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    n_rows, n_columns = values.shape
    cells = [
        Rectangle((column - 0.5, row - 0.5), 1, 1)
        for row in range(n_rows)
        for column in range(n_columns)
    ]
    found = [colours[index] for index in np.digitize(values.ravel(), edges).tolist()]
    ax.add_collection(PatchCollection(cells, facecolors=found, edgecolors=PAPER, linewidths=1.0))
    ax.set_xlim(-0.5, n_columns - 0.5)
    ax.set_ylim(n_rows - 0.5, -0.5)


def plot_calibration(bins: Sequence[Mapping[str, float]], *, ax: Axes | None = None) -> Axes:
    """Draw a reliability diagram: accuracy of the most probable level by its predicted probability.

    Parameters
    ----------
    bins
        Bins of the probability of the most probable level, from `pmflib.model.measures.describe_bins`.
    ax
        Axes to draw on; None creates a figure.

    Returns
    -------
    The Axes. Error bars are two standard errors; perfectly calibrated probabilities are on the diagonal.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    return plot_reliability({"the model": bins}, "probability of the most probable level, %", ax=ax)


def plot_reliability(
    curves: Mapping[str, Sequence[Mapping[str, float]]], x_name: str, *, ax: Axes | None = None
) -> Axes:
    """Draw a reliability diagram of several curves, such as confidence before and after calibration.

    Parameters
    ----------
    curves
        Bins by name of the curve; each bin has a probability, an accuracy and its standard error (accuracy_error). The
        last curve is the main one.
    x_name
        Label of the x-axis.
    ax
        Axes to draw on; None creates a figure.

    Returns
    -------
    The Axes. Error bars are two standard errors; perfectly calibrated probabilities are on the diagonal.

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
    """Draw the gains of a model over single variables, in the given order.

    Parameters
    ----------
    names
        Variables.
    gains
        Log-probability per hidden answer under the model minus that of the variable alone, nats.
    errors
        Standard errors of the gains, None for an unknown one; None draws no error bars.
    ax
        Axes to draw on; None creates a figure.

    Returns
    -------
    The Axes, with a bar per variable, the first on top, and another colour for negative gains.

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
    """Draw a confusion matrix, with shares of each row in per cent.

    Parameters
    ----------
    matrix
        Shape (n_levels, n_levels): nonnegative counts or probabilities, with a row per true level.
    levels
        Labels.
    rows, columns
        Labels of the axes.
    ax
        Axes to draw on; None creates a figure.

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
    limits = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8)
    colour_cells(ax, shares, limits, SEQUENTIAL)
    if n_levels <= 15:
        for row, column in np.ndindex(shares.shape):
            share = float(shares[row, column])
            write_cell(ax, row, column, f"{100 * share:.0f}", share >= limits[-1])
    label_rows(ax, levels)
    label_columns(ax, levels)
    ax.set_ylim(n_levels - 0.5, -0.5)
    if n_levels > 4:
        ax.tick_params(axis="x", rotation=45)
    ax.set(xlabel=columns, ylabel=f"{rows} (% of the row)")
    return clear_frame(ax, ("top", "right", "left", "bottom"))
