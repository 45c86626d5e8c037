"""What all figures share: their Axes, colours, and how texts of data are written.

matplotlib is imported when a figure is drawn, and not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from pmflib.core.arrays import FloatArray
from pmflib.core.errors import PmfError
from pmflib.core.texts import show_text

Axes: TypeAlias = Any
"""`matplotlib.axes.Axes`, which is not imported for its name alone."""

LETTERS = 42
"""Letters of a text of data that a figure shows, at most."""

PAPER = "#fefefe"
"""What a figure is drawn on, and texts on dark cells."""
INK = "#1c2733"
"""Lines and texts of the figure itself."""
FAINT = "#8794a3"
"""What is there for comparison: baselines, diagonals."""
MAIN = "#1f6fb2"
"""The one thing that a figure is about."""
SECOND = "#c8641a"
"""What is set against it."""
DIVERGING = (
    "#a6501a",
    "#cf8a55",
    "#ebc8a8",
    "#f1f0ec",
    "#b5d2ea",
    "#6ea8d6",
    "#2a74b4",
)
"""Colours of a quantity around 0, from far below to far above."""
DIVERGING_EDGES = (-2.0, -1.0, -0.3, 0.3, 1.0, 2.0)
"""Where one of these colours ends and the next starts, in doublings."""
SEQUENTIAL = ("#f1f0ec", "#d5e3ef", "#b5d2ea", "#8fbde0", "#6ea8d6", "#4a8ec6", "#2a74b4")
"""Colours of a share, from 0 to 1."""

GROUPS = (MAIN, SECOND, "#3f8f5f", "#8a5aa8", "#b3404a", "#4d9a9f", "#9a8420", "#6b6f78")
"""Colours of things side by side, such as latent states, in order."""
MARKERS = "osD^vP*X"
"""Their marks, so that they can be distinguished without colours."""


def open_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Axes to draw on: those given, or those of a new figure.

    Parameters
    ----------
    ax
        Axes, or None.
    size
        Width and the other side of a new figure, inches.

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
    # by pyplot, so that a notebook shows the figure, and `pyplot.show` does
    return pyplot.figure(figsize=size, layout="constrained").subplots()


def write_text(text: object, letters: int = LETTERS) -> str:
    """Text of data as a figure shows it: on one line, without what is invisible, and cut where it is long."""
    shown = show_text(str(text))
    return shown if len(shown) <= letters else shown[: letters - 1] + "…"


def label_rows(ax: Axes, names: Sequence[object]) -> None:
    """Name the rows 0, 1, ... of a chart of bars, the first on top; texts are shown as they are, "$" included."""
    ax.set_yticks(range(len(names)), [write_text(name) for name in names], parse_math=False)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def label_columns(ax: Axes, names: Sequence[object]) -> None:
    """Name the columns 0, 1, ... of a matrix."""
    ax.set_xticks(range(len(names)), [write_text(name) for name in names], parse_math=False)
    ax.tick_params(axis="x", length=0)


def write_cell(ax: Axes, row: int, column: int, text: str, is_dark: bool, size: float = 8) -> None:
    """Write into a cell of a matrix, on a dark colour or a light one."""
    colour = PAPER if is_dark else INK
    ax.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)


def name_marks(ax: Axes, **options: Any) -> None:
    """Add a legend whose texts are shown as they are, "$" included."""
    for text in ax.legend(frameon=False, **options).get_texts():
        text.set_parse_math(False)


def scale_by_logs(ax: Axes) -> None:
    """Make the axis x logarithmic, its numbers written as they are."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    low, high = ax.get_xlim()
    subs = (1.0,) if high > 200 * max(low, 1e-9) else (1.0, 2.0, 5.0)
    ax.xaxis.set_major_locator(LogLocator(10, subs))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def write_thousands(ax: Axes, axis: str) -> None:
    """Write the whole numbers of an axis, x or y, as people do: 64,000."""
    ax.ticklabel_format(axis=axis, style="plain", useOffset=False)
    getattr(ax, f"{axis}axis").set_major_formatter(lambda value, _: f"{value:,.12g}")


def clear_frame(ax: Axes, sides: Sequence[str] = ("top", "right")) -> Axes:
    """Take away the lines around a figure that say nothing."""
    ax.spines[list(sides)].set_visible(False)
    return ax


def colour_cells(
    ax: Axes, values: FloatArray, edges: Sequence[float], colours: Sequence[str]
) -> None:
    """Draw a matrix as coloured cells, row 0 on top: a colour below the first edge, one above each edge.

    Parameters
    ----------
    ax
        Axes.
    values
        float64 of shape (n_rows, n_columns).
    edges
        Rising.
    colours
        One more than edges.
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
