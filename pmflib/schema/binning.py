"""Bins of a continuous column: quantiles, and a bin of its own for a value that holds a large share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.arrays import FloatArray


@dataclass(frozen=True)
class Bins:
    """Bins of numbers.

    Parameters
    ----------
    edges
        Interior edges, increasing: bin i holds ``edges[i-1] <= x < edges[i]``.
    labels
        An interval per bin, ``len(edges) + 1`` texts, all distinct.
    means
        Mean of the numbers in each bin.
    alone
        Numbers that have a bin of their own among those that were seen.
    """

    edges: tuple[float, ...]
    labels: tuple[str, ...]
    means: tuple[float, ...]
    alone: tuple[float, ...]


def cut_bins(points: FloatArray, weights: FloatArray, bins: int) -> Bins:
    """Cut numbers into bins of about the same weight.

    A number that holds the share of a bin or more, such as zero among rare events, has a bin of its own: it reaches to
    the next whole number, or, where not all are whole, to the next number seen. The others are cut at their quantiles,
    in as many bins as are left, at least two.

    Parameters
    ----------
    points
        float64 of shape (n_points,): distinct numbers, increasing, at least two.
    weights
        float64 of shape (n_points,): how often each was seen, positive.
    bins
        Number of bins, at least 2; there are fewer where there are fewer numbers, and some more where numbers have
        bins of their own.
    """
    heavy = np.flatnonzero(weights >= weights.sum() / bins)
    # of many heavy numbers, each is a bin, and the quantiles of the others add few
    n_cuts = max(2, bins - heavy.size)
    light = weights.copy()
    light[heavy] = 0.0
    is_whole = bool(np.all(points == np.round(points)))
    edges: set[float] = set()
    if light.sum() > 0:
        share = np.cumsum(light) / light.sum()
        targets = np.arange(1, n_cuts) / n_cuts
        # an edge is the first point past its quantile
        places = np.searchsorted(share, targets, side="right")
        edges = set(points[np.minimum(places, points.size - 1)].tolist())
    for place in heavy.tolist():
        edges.add(float(points[place]))
        if place + 1 < points.size:
            # of whole numbers, no other one may fall into this bin later
            edges.add(float(points[place] + 1 if is_whole else points[place + 1]))
    # the smallest point is never an edge: its bin would be empty
    interior = np.array(sorted(edge for edge in edges if edge > points[0]))
    if not interior.size:
        interior = points[1:2]
    place_of = np.searchsorted(interior, points, side="right")
    means = np.bincount(place_of, weights * points) / np.bincount(place_of, weights)
    bounds = [f"{edge:g}" for edge in interior]
    if len(set(bounds)) < len(bounds):
        bounds = [repr(edge) for edge in interior.tolist()]
    labels = [f"[{a}, {b})" for a, b in zip(["-inf", *bounds], [*bounds, "inf"], strict=True)]
    return Bins(
        tuple(interior.tolist()),
        tuple(labels),
        tuple(means.tolist()),
        tuple(points[heavy].tolist()),
    )
