"""Figure of the forests of a model: which variables hang together within states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError
from pmflib.plots.drawing import INK, MAIN, PAPER, Axes, open_axes, write_text

if TYPE_CHECKING:
    from pmflib.trees.tree_pmf import TreePMF

LEAST_SHARE = 0.2
"""Share of the samples from which on an edge is drawn by default."""


def plot_forest(
    model: TreePMF, *, least_share: float = LEAST_SHARE, ax: Axes | None = None
) -> Axes:
    """Draw the edges between variables: a tree from left to right below each other, wide lines where most samples are.

    Parameters
    ----------
    model
        The model.
    least_share
        Edges of states with a smaller share of all samples are left out; in [0, 1].
    ax
        Axes to draw on; None makes some.

    Returns
    -------
    The Axes. Variables without such an edge are left out. Where states have different forests, edges that would close a
    circle are drawn dotted.

    Raises
    ------
    PmfError
        If matplotlib is not installed, the share is out of range, or no edge is left.
    """
    if not 0 <= least_share <= 1:
        raise PmfError(f"least_share is {least_share}; give a share in [0, 1]")
    names = model.schema.names
    edges = [
        (names.index(first), names.index(second), share)
        for first, second, share in model.edges()
        if share >= least_share
    ]
    if not edges:
        raise PmfError(
            f"no edge is in states of {least_share:g} of the samples; the model has {len(model.edges())} edges: give a "
            "smaller least_share"
        )
    places, inner = _lay_out(edges, len(names))
    held = np.flatnonzero(places[:, 0] >= 0)
    across, down = places.max(axis=0).tolist()
    ax = open_axes(ax, (2.0 + 1.8 * across, 1.5 + 0.42 * down))
    for first, second, share in edges:
        ends = places[[first, second]]
        is_inner = (first, second) in inner
        style = {"color": MAIN, "linewidth": 0.5 + 3 * share, "zorder": 1}
        ax.plot(ends[:, 0], -ends[:, 1], linestyle="-" if is_inner else ":", **style)
    box = {"boxstyle": "round,pad=0.3", "facecolor": PAPER, "edgecolor": INK, "linewidth": 0.6}
    for place in held.tolist():
        style = {"ha": "center", "va": "center", "fontsize": 8, "color": INK, "bbox": box}
        across, down = places[place].tolist()
        ax.text(across, -down, write_text(names[place]), parse_math=False, **style)
    ax.set_axis_off()
    ax.margins(0.12)
    return ax


def _lay_out(
    edges: list[tuple[int, int, float]], n_variables: int
) -> tuple[FloatArray, set[tuple[int, int]]]:
    """Places of variables, (n_variables, 2), -1 where there is none, and the edges that their tree has."""
    near: dict[int, list[int]] = {}
    groups: IntArray = np.arange(n_variables)
    inner: set[tuple[int, int]] = set()
    for first, second, _ in edges:
        if groups[first] != groups[second]:
            groups[groups == groups[second]] = groups[first]
            inner.add((first, second))
            near.setdefault(first, []).append(second)
            near.setdefault(second, []).append(first)
    places = np.full((n_variables, 2), -1.0)
    row = 0
    # a tree starts from the variable with the most edges
    for root in sorted(near, key=lambda each: (-len(near[each]), each)):
        if places[root, 0] >= 0:
            continue
        waiting = [(root, 0)]
        while waiting:
            place, depth = waiting.pop()
            children = [each for each in near[place] if places[each, 0] < 0]
            places[place] = depth, row
            waiting += [(each, depth + 1) for each in reversed(children)]
            row += not children
    return places, inner
