"""Figures of a fit: convergence, ranks, residuals, certainty."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray, IntArray
from pmflib.base.comparison import Comparison
from pmflib.base.display.drawing import (
    FAINT,
    GROUPS,
    INK,
    MAIN,
    PAPER,
    SECOND,
    SEQUENTIAL,
    Axes,
    clear_frame,
    colour_cells,
    label_rows,
    open_axes,
    write_cell,
    write_text,
)
from pmflib.base.errors import PmfError

RESIDUAL_EDGES = (1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
"""Boundaries of the colours for statistics per degree of freedom; 1 is expected by chance."""
MOST_NAMED = 40
"""Maximum number of variables in a heat map; those with the largest residuals are shown."""
NUMBERED = 16
"""Number of variables up to which cells show numbers."""


def plot_losses(losses: Sequence[float], *, ax: Axes | None = None) -> Axes:
    """Plot the loss by iteration of a fit to counts.

    Parameters
    ----------
    losses
        Loss after each iteration.
    ax
        Axes to draw on; None creates new ones.

    Returns
    -------
    The Axes.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    ax = open_axes(ax, (6.0, 3.4))
    ax.plot(range(1, len(losses) + 1), losses, color=MAIN)
    ax.set(xlabel="iteration", ylabel="loss")
    return clear_frame(ax)


def plot_passes(
    log_likelihoods: Sequence[float],
    held_out: Sequence[float] = (),
    best_pass: int | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Plot log-likelihoods by EM pass.

    Parameters
    ----------
    log_likelihoods
        Training log-likelihoods before each pass, nats per sample.
    held_out
        Held-out log-likelihoods of the start and after each pass, or of the result only; may be empty.
    best_pass
        Pass after which the model was selected, from 0; None marks none.
    ax
        Axes to draw on; None creates new ones.

    Returns
    -------
    The Axes.

    Raises
    ------
    PmfError
        If matplotlib is not installed.

    Notes
    -----
    The first passes increase the log-likelihood by far the most, so with ten passes or more the axis omits the lowest
    nine tenths of the increase.
    """
    ax = open_axes(ax, (6.0, 3.4))
    ax.plot(range(len(log_likelihoods)), log_likelihoods, color=MAIN, label="training samples")
    if len(held_out) > 1:
        ax.plot(range(len(held_out)), held_out, color=SECOND, label="held-out samples")
    elif held_out and best_pass is not None:
        ax.plot([best_pass], held_out, "o", color=SECOND, label="held-out samples, at the end")
    if best_pass is not None:
        ax.axvline(best_pass, color=FAINT, ls=":", label=f"model selected after pass {best_pass}")
    curves = np.concatenate([np.asarray(each, np.float64) for each in (log_likelihoods, held_out)])
    if len(log_likelihoods) >= 10 and np.ptp(curves) > 0:
        lower = curves.max() - 0.1 * np.ptp(curves)
        later = np.concatenate(
            [np.asarray(each[5:], np.float64) for each in (log_likelihoods, held_out)]
        )
        lower = min(lower, later.min(initial=lower))
        ax.set_ylim(bottom=lower - 0.05 * (curves.max() - lower))
    ax.set(xlabel="pass of EM", ylabel="log-likelihood, nats per sample")
    ax.legend(frameon=False, loc="best")
    return clear_frame(ax)


def plot_ranks(compared: Comparison, *, ax: Axes | None = None) -> Axes:
    """Plot the held-out scores of the compared ranks relative to the best, with standard errors.

    Parameters
    ----------
    compared
        Ranks with their scores.
    ax
        Axes to draw on; None creates new ones.

    Returns
    -------
    The Axes: 0 is the best rank, bars are one standard error, a dotted line marks the choice.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    lowest: dict[int, tuple[float, float]] = {}
    for point in compared.points:
        # with several pseudo-counts, the best for each rank
        rank, below = int(point.settings["rank"]), point.below_best
        if rank not in lowest or below < lowest[rank][0]:
            lowest[rank] = (below, point.error or 0.0)
    ranks = sorted(lowest)
    chosen = int(compared.chosen.settings["rank"])
    ax = open_axes(ax, (6.0, 3.2))
    ax.errorbar(
        ranks,
        [-lowest[rank][0] for rank in ranks],
        [lowest[rank][1] for rank in ranks],
        color=MAIN,
        marker="o",
        ms=4,
        capsize=3,
    )
    ax.axvline(chosen, color=FAINT, ls=":")
    ax.annotate(
        f"chosen: {chosen}",
        (chosen, 1),
        xycoords=("data", "axes fraction"),
        xytext=(4, -10),
        textcoords="offset points",
    )
    ax.set(xlabel="rank (latent states)", ylabel=f"below the best,\nnats per {compared.unit}")
    if ranks[-1] > 8 * max(ranks[0], 1):
        ax.set_xscale("log", base=2)
        ax.set_xticks(ranks, [str(rank) for rank in ranks])
        ax.minorticks_off()
    return clear_frame(ax)


def plot_residuals(
    names: Sequence[str], per_degree: FloatArray, is_large: BoolArray, *, ax: Axes | None = None
) -> Axes:
    """Plot the residuals of all pairs of variables as a heat map.

    Parameters
    ----------
    names
        Variables.
    per_degree
        float64 of shape (n_variables, n_variables), symmetric: statistics per degree of freedom; NaN for pairs without
        a test.
    is_large
        bool of that shape: significant after adjustment for all pairs.
    ax
        Axes to draw on; None creates new ones.

    Returns
    -------
    The Axes: 1 is expected by chance; significant pairs are outlined. With many variables, those with the largest
    residuals are shown.

    Raises
    ------
    PmfError
        If matplotlib is not installed, or there are no pairs.
    """
    from matplotlib.patches import Rectangle

    if len(names) < 2:
        raise PmfError("residuals are of pairs; there are fewer than two variables")
    kept = np.arange(len(names))
    if kept.size > MOST_NAMED:
        highest = np.nan_to_num(per_degree).max(axis=1)
        kept = np.sort(np.argsort(-highest, kind="stable")[:MOST_NAMED])
    shown, large = per_degree[np.ix_(kept, kept)], is_large[np.ix_(kept, kept)]
    side = 0.34 if kept.size > NUMBERED else 0.48
    ax = open_axes(ax, (2.2 + side * kept.size, 1.2 + side * kept.size))
    below = np.tril(np.ones(shown.shape, bool), -1)
    # pairs without a test are drawn as expected by chance
    values = np.where(below, np.nan_to_num(shown), -1.0)
    colour_cells(ax, values, (-0.5, *RESIDUAL_EDGES), (PAPER, *SEQUENTIAL))
    for row, column in np.argwhere(below).tolist():
        value = float(shown[row, column])
        if kept.size <= NUMBERED:
            text = "" if np.isnan(value) else f"{value:.1f}" if value < 10 else f"{value:.0f}"
            write_cell(ax, row, column, text, value >= RESIDUAL_EDGES[-1], 7.5)
        if large[row, column]:
            corner = (column - 0.46, row - 0.46)
            ax.add_patch(Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=SECOND, linewidth=1.8))
    label_rows(ax, [write_text(names[each], 24) for each in kept.tolist()])
    ax.set_ylim(kept.size - 0.5, 0.5)
    ax.set_xlim(-0.5, kept.size - 1.5)
    texts = [write_text(names[each], 16) for each in kept[:-1].tolist()]
    ax.set_xticks(range(kept.size - 1), texts, rotation=90, parse_math=False)
    ax.tick_params(axis="x", length=0)
    ax.set_title(
        "statistic per degree of freedom;\noutlined: beyond chance", fontsize=9, loc="right"
    )
    return clear_frame(ax, ("top", "right", "left", "bottom"))


def plot_residual_pairs(
    pairs: Sequence[tuple[str, str]],
    per_degree: Sequence[float],
    is_large: Sequence[bool],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Plot the residuals of some pairs as bars, the first on top.

    Parameters
    ----------
    pairs
        Names of both variables.
    per_degree
        Statistics per degree of freedom.
    is_large
        Whether each residual is significant.
    ax
        Axes to draw on; None creates new ones.

    Returns
    -------
    The Axes: a line marks 1, the value expected by chance.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    ax = open_axes(ax, (6.4, 0.9 + 0.25 * max(len(pairs), 1)))
    colours = [SECOND if each else MAIN for each in is_large]
    ax.barh(range(len(pairs)), per_degree, color=colours)
    ax.axvline(1.0, color=FAINT, ls=":")
    label_rows(ax, [" and ".join(write_text(each, 24) for each in pair) for pair in pairs])
    ax.set_xlabel("statistic per degree of freedom; 1 is expected by chance")
    return clear_frame(ax)


def plot_certainty(certainty: FloatArray, classes: IntArray, *, ax: Axes | None = None) -> Axes:
    """Plot a histogram of the posterior of each row's most probable class, by class.

    Parameters
    ----------
    certainty
        float64 of shape (n_rows,): posterior of the most probable class.
    classes
        int64 of shape (n_rows,): the most probable class.
    ax
        Axes to draw on; None creates new ones.

    Returns
    -------
    The Axes. A line marks the mean, which is the expected share of correctly assigned rows.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    ax = open_axes(ax, (6.2, 3.2))
    n_classes = int(classes.max(initial=0)) + 1
    edges, bottom = np.linspace(0.0, 1.0, 26), np.zeros(25)
    order = np.argsort(-np.bincount(classes, minlength=n_classes), kind="stable").tolist()
    shown = order[: len(GROUPS) - 1] if n_classes > len(GROUPS) else order
    for place, each in enumerate([*shown, None] if n_classes > len(GROUPS) else shown):
        own = ~np.isin(classes, shown) if each is None else classes == each
        heights = np.histogram(certainty[own], edges)[0] / max(certainty.size, 1) * 100
        label = "others" if each is None else f"class {each}"
        width, colour = edges[1], GROUPS[place]
        ax.bar(edges[:-1], heights, width, bottom, align="edge", color=colour, label=label)
        bottom += heights
    mean = float(certainty.mean()) if certainty.size else 1.0
    ax.axvline(mean, color=INK, ls=":", label=f"mean {mean:.2f}")
    ax.set_xlim(min(1 / max(n_classes, 2), float(certainty.min(initial=1.0))), 1.0)
    ax.set(xlabel="posterior of the most probable class", ylabel="rows, %")
    ax.legend(frameon=False, loc="upper left")
    return clear_frame(ax)
