"""Cuts of a number into bins by what they tell of a target: recursive partition with a minimum description length."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.schema.value_counts import describe_bins
from pmflib.schema.variable import Variable


def cut_by_target(numbers: FloatArray, classes: IntArray) -> FloatArray:
    """Cut numbers where the classes on either side differ by more than it costs to describe the cut.

    Parameters
    ----------
    numbers
        float64 of shape (n_rows,).
    classes
        Integers of shape (n_rows,), at least 0: the level of the target in each row.

    Returns
    -------
    Interior edges, increasing, each the smallest number of its bin; none if no cut is worth its description.

    References
    ----------
    Fayyad, Irani (1993), "Multi-interval discretization of continuous-valued attributes for classification learning",
    sections 3 and 5.
    """
    points, where = np.unique(numbers, return_inverse=True)
    counts = np.zeros((points.size, int(classes.max(initial=0)) + 1))
    np.add.at(counts, (where, classes), 1.0)
    edges: list[float] = []
    waiting = [(0, points.size)]
    while waiting:
        first, end = waiting.pop()
        cut = _find_cut(counts[first:end])
        if cut:
            edges.append(float(points[first + cut]))
            waiting += [(first, first + cut), (first + cut, end)]
    return np.array(sorted(edges))


def _find_cut(counts: FloatArray) -> int:
    """Return the number of points left of the best cut of counts (n_points, n_classes); 0 if it is not accepted."""
    if len(counts) < 2:
        return 0
    whole = counts.sum(axis=0)
    left = counts.cumsum(axis=0)[:-1]
    right = whole - left
    total = whole.sum()
    after = (_measure_entropy(left) + _measure_entropy(right)) / total
    cut = int(after.argmin())
    sides = [whole, left[cut], right[cut]]
    bits = [float(_measure_entropy(side)) / side.sum() for side in sides]
    n_classes = [int(np.count_nonzero(side)) for side in sides]
    spread = [n * each for n, each in zip(n_classes, bits, strict=True)]
    delta = math.log2(3 ** n_classes[0] - 2) - (spread[0] - spread[1] - spread[2])
    gain = bits[0] - float(after[cut])
    return cut + 1 if gain > (math.log2(max(total - 1, 1)) + delta) / total else 0


def _measure_entropy(counts: FloatArray) -> FloatArray:
    """Return the entropy of the classes times their number, bits, over the last axis."""
    totals = counts.sum(axis=-1, keepdims=True)
    logs = np.log2(np.where(counts > 0, counts, 1.0)) - np.log2(np.maximum(totals, 1.0))
    return np.asarray(-(counts * logs).sum(axis=-1))


def recut_variable(variable: Variable, numbers: FloatArray, edges: FloatArray) -> Variable:
    """Return a continuous variable with other edges; the values of its levels are the means of numbers in them."""
    points, weights = np.unique(numbers, return_counts=True)
    found, labels, means = describe_bins(points, weights.astype(np.float64), edges)
    return replace(variable, levels=labels, values=means, edges=found)
