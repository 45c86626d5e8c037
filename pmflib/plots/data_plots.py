"""Figures of the data: missing answers, and samples behind each pair of variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError
from pmflib.plots.drawing import (
    FAINT,
    MAIN,
    SECOND,
    Axes,
    clear_frame,
    name_rows,
    open_axes,
    scale_by_logs,
    write_thousands,
)

if TYPE_CHECKING:
    from pmflib.counting.pair_counts import PairCounts

MOST_BARS = 40
"""Variables up to which each has a bar of its own."""


def plot_missingness(
    names: Sequence[str], shares: FloatArray | Sequence[float], *, ax: Axes | None = None
) -> Axes:
    """Draw which share of the samples lacks each variable: bars, or a curve over the variables where they are many.

    Parameters
    ----------
    names
        Variables.
    shares
        Shares of the samples without an answer, in [0, 1], one per variable.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes, the variable with the most missing answers first.

    Raises
    ------
    PmfError
        If matplotlib is not installed, or names and shares differ in number.
    """
    missing = 100 * np.asarray(shares, np.float64)
    if missing.shape != (len(names),):
        raise PmfError(f"shares has shape {missing.shape}; {len(names)} names need ({len(names)},)")
    order = np.argsort(-missing, kind="stable")
    # little is missing: then it is to be seen all the same
    top = 100 if missing.max(initial=0) > 40 else max(1.2 * missing.max(initial=0), 1)
    if len(names) > MOST_BARS:
        ax = open_axes(ax, (6.4, 3.0))
        ax.fill_between(range(1, len(names) + 1), missing[order], color=MAIN, step="mid", lw=0)
        ax.set(
            xlim=(1, len(names)),
            ylim=(0, top),
            xlabel="variables, the one with the most missing answers first",
            ylabel="samples without an answer, %",
        )
        return clear_frame(ax)
    ax = open_axes(ax, (6.4, 0.8 + 0.25 * max(len(names), 1)))
    ax.barh(range(len(names)), missing[order], color=MAIN)
    name_rows(ax, [names[place] for place in order])
    ax.set(xlim=(0, top), xlabel="samples without an answer, %")
    return clear_frame(ax)


def plot_support(counts: PairCounts | IntArray, *, ax: Axes | None = None) -> Axes:
    """Draw how many samples stand behind the pairs of variables.

    Parameters
    ----------
    counts
        Counts, or the support itself: int64 of shape (n_variables, n_variables), samples that hold both variables.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes: number of pairs by how many samples hold them, on a logarithmic scale where they differ much; pairs that
    none holds are a bar of their own.

    Raises
    ------
    PmfError
        If matplotlib is not installed, or there is a single variable.
    """
    if not isinstance(counts, np.ndarray):
        from pmflib.counting.marginals import Marginals

        counts = Marginals.from_counts(counts).support
    pairs = counts[np.triu_indices(len(counts), 1)]
    if not pairs.size:
        raise PmfError("there is a single variable: no pair has a support to draw")
    held = pairs[pairs > 0]
    ax = open_axes(ax, (6.4, 3.0))
    n_unseen = pairs.size - held.size
    if held.size:
        low, high = int(held.min()), int(held.max())
        wide = high > 30 * low
        edges = np.geomspace(low, high + 1, 25) if wide else np.linspace(low - 0.5, high + 0.5, 25)
        ax.hist(held, edges, color=MAIN)
        median = float(np.median(pairs))
        if median > 0:
            ax.axvline(median, color=FAINT, ls=":", label=f"median {median:,.0f}")
        if wide:
            scale_by_logs(ax)
        else:
            write_thousands(ax, "x")
    if n_unseen:
        ax.axhline(
            n_unseen, color=SECOND, ls="--", label=f"{n_unseen:,} pairs that no sample holds"
        )
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)
    write_thousands(ax, "y")
    ax.set(xlabel="samples that hold both variables", ylabel="pairs of variables")
    return clear_frame(ax)
