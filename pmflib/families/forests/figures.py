"""Figure of forests: the edges between variables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.constraints import Interval, check
from pmflib.base.display.drawing import (
    INK,
    MAIN,
    PAPER,
    Axes,
    open_axes,
    write_text,
)
from pmflib.base.errors import PmfError

LEAST_SHARE = 0.2
"""Default minimum share of the samples for an edge to be drawn."""


def plot_forest(
    names: Sequence[str],
    edges: Sequence[tuple[str, str, float]],
    *,
    least_share: float = LEAST_SHARE,
    ax: Axes | None = None,
) -> Axes:
    """Draw the edges between variables: trees from left to right, one below another, with line widths by sample share.

    Parameters
    ----------
    names
        Names of the variables, in order.
    edges
        Output of `pmflib.families.forests.tree_pmf.list_edges`: names of both variables, and the share of the samples
        in states with that edge.
    least_share
        Minimum share of the samples for an edge to be drawn, in [0, 1].
    ax
        Axes to draw on; None creates them.

    Returns
    -------
    The Axes. Variables without such an edge are left out. If states have different forests, edges that would close a
    cycle are dotted.

    Raises
    ------
    PmfError
        If matplotlib is not installed, the share is out of range, or no edge is left.
    """
    check(Interval(0, 1), least_share=least_share)
    shown = [
        (names.index(first), names.index(second), share)
        for first, second, share in edges
        if share >= least_share
    ]
    if not shown:
        raise PmfError(
            f"no edge is in states of {least_share:g} of the samples; the model has {len(edges)} edges: pass a "
            "smaller least_share"
        )
    positions, inner = _lay_out(shown, len(names))
    linked = np.flatnonzero(positions[:, 0] >= 0)
    across, down = positions.max(axis=0).tolist()
    ax = open_axes(ax, (2.0 + 1.8 * across, 1.5 + 0.42 * down))
    for first, second, share in shown:
        ends = positions[[first, second]]
        is_inner = (first, second) in inner
        style = {"color": MAIN, "linewidth": 0.5 + 3 * share, "zorder": 1}
        ax.plot(ends[:, 0], -ends[:, 1], linestyle="-" if is_inner else ":", **style)
    box = {"boxstyle": "round,pad=0.3", "facecolor": PAPER, "edgecolor": INK, "linewidth": 0.6}
    for node in linked.tolist():
        style = {"ha": "center", "va": "center", "fontsize": 8, "color": INK, "bbox": box}
        across, down = positions[node].tolist()
        ax.text(across, -down, write_text(names[node]), parse_math=False, **style)
    ax.set_axis_off()
    ax.margins(0.12)
    return ax


def _lay_out(
    edges: list[tuple[int, int, float]], n_variables: int
) -> tuple[FloatArray, set[tuple[int, int]]]:
    """Compute coordinates of the variables, (n_variables, 2), -1 if not drawn, and return them with the tree edges."""
    near: dict[int, list[int]] = {}
    groups: IntArray = np.arange(n_variables)
    inner: set[tuple[int, int]] = set()
    for first, second, _ in edges:
        if groups[first] != groups[second]:
            groups[groups == groups[second]] = groups[first]
            inner.add((first, second))
            near.setdefault(first, []).append(second)
            near.setdefault(second, []).append(first)
    positions = np.full((n_variables, 2), -1.0)
    row = 0
    # the root of a tree is the variable with the most edges
    for root in sorted(near, key=lambda each: (-len(near[each]), each)):
        if positions[root, 0] >= 0:
            continue
        waiting = [(root, 0)]
        while waiting:
            node, depth = waiting.pop()
            children = [each for each in near[node] if positions[each, 0] < 0]
            positions[node] = depth, row
            waiting += [(each, depth + 1) for each in reversed(children)]
            row += not children
    return positions, inner
