"""Figures of how a model was reached: passes, and ranks that were compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmflib.core.comparison import Comparison
from pmflib.display.drawing import FAINT, MAIN, SECOND, Axes, clear_frame, open_axes


def plot_losses(losses: Sequence[float], *, ax: Axes | None = None) -> Axes:
    """Draw the loss by iteration of a fit of counts.

    Parameters
    ----------
    losses
        Loss after each iteration.
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
    """Draw log-likelihoods by pass of EM.

    Parameters
    ----------
    log_likelihoods
        Those of the training samples before each pass, nats per sample.
    held_out
        Those of held-out samples after each pass, from the start on, or that of the result alone, or none.
    best_pass
        Pass after which the model was taken, from 0; None marks none.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes.

    Raises
    ------
    PmfError
        If matplotlib is not installed.

    Notes
    -----
    The first passes rise by far the most: the lower end of the axis leaves out what is below nine tenths of the rise,
    where there are ten passes or more.
    """
    ax = open_axes(ax, (6.0, 3.4))
    ax.plot(range(len(log_likelihoods)), log_likelihoods, color=MAIN, label="training samples")
    if len(held_out) > 1:
        ax.plot(range(len(held_out)), held_out, color=SECOND, label="held-out samples")
    elif held_out and best_pass is not None:
        ax.plot([best_pass], held_out, "o", color=SECOND, label="held-out samples, at the end")
    if best_pass is not None:
        ax.axvline(best_pass, color=FAINT, ls=":", label=f"model taken after pass {best_pass}")
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
    """Draw the ranks that were compared: how far below the best each is on held-out data, and its standard error.

    Parameters
    ----------
    compared
        Ranks with their scores.
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes: 0 is the best, bars are a standard error, a dotted line marks what was chosen.

    Raises
    ------
    PmfError
        If matplotlib is not installed.
    """
    lowest: dict[int, tuple[float, float]] = {}
    for point in compared.points:
        # under several pseudo-counts, the best of each rank
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
