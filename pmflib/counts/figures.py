"""Figures and summaries of counts: missing answers, and the number of samples for each pair of variables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, sum_blocks, sum_pairs
from pmflib.base.constraints import check_shapes
from pmflib.base.display.drawing import (
    FAINT,
    MAIN,
    SECOND,
    Axes,
    clear_frame,
    label_rows,
    open_axes,
    scale_by_logs,
    write_thousands,
)
from pmflib.base.display.summary import MOST_ROWS, Summary, SummaryTable, cut, format_count, percent
from pmflib.base.errors import PmfError
from pmflib.schema import Schema

MOST_BARS = 40
"""Number of variables up to which each has its own bar."""


def plot_missingness(
    names: Sequence[str], shares: FloatArray | Sequence[float], *, ax: Axes | None = None
) -> Axes:
    """Plot the share of missing answers by variable: bars, or a curve if there are many variables.

    Parameters
    ----------
    names
        Variables.
    shares
        Shares of missing answers in [0, 1], one per variable.
    ax
        Axes to draw on; None creates new ones.

    Returns
    -------
    The Axes, with variables in decreasing order of missing answers.

    Raises
    ------
    PmfError
        If matplotlib is not installed, or names and shares have different lengths.
    """
    missing = 100 * np.asarray(shares, np.float64)
    check_shapes("pass one for each name", PmfError, shares=(missing, (len(names),)))
    order = np.argsort(-missing, kind="stable")
    # ensure that small shares remain visible
    top = 100 if missing.max(initial=0) > 40 else max(1.2 * missing.max(initial=0), 1)
    if len(names) > MOST_BARS:
        ax = open_axes(ax, (6.4, 3.0))
        ax.fill_between(range(1, len(names) + 1), missing[order], color=MAIN, step="mid", lw=0)
        ax.set(
            xlim=(1, len(names)),
            ylim=(0, top),
            xlabel="variables, by decreasing share of missing answers",
            ylabel="samples without an answer, %",
        )
        return clear_frame(ax)
    ax = open_axes(ax, (6.4, 0.8 + 0.25 * max(len(names), 1)))
    ax.barh(range(len(names)), missing[order], color=MAIN)
    label_rows(ax, [names[index] for index in order])
    ax.set(xlim=(0, top), xlabel="samples without an answer, %")
    return clear_frame(ax)


def plot_support(support: IntArray, *, ax: Axes | None = None) -> Axes:
    """Plot the distribution of the number of samples over pairs of variables.

    Parameters
    ----------
    support
        int64 of shape (n_variables, n_variables): samples with both variables observed.
    ax
        Axes to draw on; None creates new ones.

    Returns
    -------
    The Axes: number of pairs by support, on a logarithmic scale if supports differ widely; pairs without samples have a
    bar of their own.

    Raises
    ------
    PmfError
        If matplotlib is not installed, or there is only one variable.
    """
    pairs = support[np.triu_indices(len(support), 1)]
    if not pairs.size:
        raise PmfError("there is only one variable, so there are no pairs to plot")
    positive = pairs[pairs > 0]
    ax = open_axes(ax, (6.4, 3.0))
    n_unseen = pairs.size - positive.size
    if positive.size:
        low, high = int(positive.min()), int(positive.max())
        wide = high > 30 * low
        edges = np.geomspace(low, high + 1, 25) if wide else np.linspace(low - 0.5, high + 0.5, 25)
        ax.hist(positive, edges, color=MAIN)
        median = float(np.median(pairs))
        if median > 0:
            ax.axvline(median, color=FAINT, ls=":", label=f"median {median:,.0f}")
        if wide:
            scale_by_logs(ax)
        else:
            write_thousands(ax, "x")
    if n_unseen:
        ax.axhline(n_unseen, color=SECOND, ls="--", label=f"{n_unseen:,} pairs without samples")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)
    write_thousands(ax, "y")
    ax.set(xlabel="samples with both variables observed", ylabel="pairs of variables")
    return clear_frame(ax)


LISTED_PAIRS = 100
"""Maximum number of pairs listed, those with the smallest support."""


def summarise_counts(
    schema: Schema, tables: IntArray, rows_by_fold: IntArray, level_counts: IntArray
) -> Summary:
    """Summarise rows, folds, the support of pairs, and how often each variable was observed.

    Parameters
    ----------
    schema
        Variables of the counts.
    tables, rows_by_fold
        As in `PairCounts`.
    level_counts
        int64 of shape (n_levels,): number of samples with each level.
    """
    n_rows = int(rows_by_fold.sum())
    upper = np.triu_indices(schema.n_variables, 1)
    # one fold at a time: the sum of all tables would need memory for one more
    support = sum(sum_pairs(table, schema.offsets)[upper] for table in tables)
    supports: IntArray = np.asarray(support, np.int64)
    seen: IntArray = sum_blocks(level_counts, schema.offsets)
    facts = [("rows", format_count(n_rows)), ("folds", _describe_folds(rows_by_fold))]
    notes = []
    if supports.size:
        n_observed = np.count_nonzero(supports)
        facts.append(
            ("pairs observed", f"{format_count(n_observed)} of {format_count(supports.size)}")
        )
        quantiles = np.quantile(supports, [0, 0.5, 1], method="lower")
        facts.append(
            (
                "rows with both variables, per pair",
                "minimum {}, median {}, maximum {}".format(*map(format_count, quantiles)),
            )
        )
        if n_observed < supports.size:
            notes.append(
                f"{format_count(supports.size - n_observed)} pairs of variables were never observed together: what "
                "a model infers about them comes only from other pairs"
            )
    if n_never := int(np.count_nonzero(seen == 0)):
        notes.append(f"{format_count(n_never)} variables were never observed")
    order = np.argsort(supports, kind="stable")[:LISTED_PAIRS]
    rows = [
        (
            cut(schema.names[upper[0][pair]]),
            cut(schema.names[upper[1][pair]]),
            format_count(supports[pair]),
            percent(supports[pair] / max(n_rows, 1)),
        )
        for pair in order
    ]
    observed = [
        (
            cut(schema.names[index]),
            format_count(seen[index]),
            percent(1 - seen[index] / max(n_rows, 1)),
        )
        for index in np.argsort(seen, kind="stable")[:MOST_ROWS]
    ]
    listed = [
        SummaryTable(
            "Pairs with the smallest support",
            ("variable", "variable", ">rows with both", ">of all rows"),
            rows,
            supports.size,
            "pmf.counts.Marginals.from_counts(counts).support",
        ),
        SummaryTable(
            "Variables by number of observed answers, smallest first",
            ("variable", ">rows with it", ">missing"),
            observed,
            schema.n_variables,
            "counts.count_levels()",
            folded=True,
        ),
    ]
    headline = (
        f"Pair counts: {format_count(n_rows)} rows of {format_count(schema.n_variables)} variables"
    )
    return Summary(headline, tuple(facts), tuple(notes), tuple(t for t in listed if t.rows))


def _describe_folds(n_rows: IntArray) -> str:
    if n_rows.size == 1:
        return "1: no data can be held out"
    return f"{format_count(n_rows.size)}, of {format_count(n_rows.min())} to {format_count(n_rows.max())} rows"
