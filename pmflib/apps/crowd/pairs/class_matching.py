"""Estimate confusion matrices from nonnegative factors, by matching columns to classes."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from pmflib.apps.crowd.pairs.worker_marginals import WorkerPairs
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.constraints import OneOf, check
from pmflib.base.errors import RankError
from pmflib.papers.spa import select_anchors


def match_columns(gains: FloatArray) -> IntArray:
    """Find the assignment of columns to rows with the largest sum.

    Parameters
    ----------
    gains
        float64 of shape (n, n).

    Returns
    -------
    int64 of shape (n,): column of each row, a permutation.
    """
    from scipy.optimize import (
        linear_sum_assignment,  # takes .3 s to load, and few label logs come here
    )

    columns: IntArray = linear_sum_assignment(-gains)[1]
    return columns


Order: TypeAlias = Literal["joint", "each"]

LEAST_PROBABILITY = 1e-3
"""Minimum probability of a label estimated from co-occurrences, because a few common tasks cannot exclude a label."""
LEAST_SINGULAR_VALUE = 1e-6
"""Minimum singular value of a full-rank block, relative to its largest singular value."""


def read_confusion(
    factors: FloatArray, n_labels: IntArray, *, order: Order = "joint"
) -> tuple[FloatArray, FloatArray]:
    """Extract confusion matrices and the prior from stacked factors H_m = A_m D(prior)^(1/2).

    Parameters
    ----------
    factors
        float64 of shape (n_workers * n_classes, n_classes), nonnegative.
    n_labels
        int of shape (n_workers,): number of labels of each worker, its weight when columns are matched to classes.
    order
        "joint" uses one permutation of the columns for all workers, the one with the most mass on the diagonals,
        because workers are better than chance on average. "each" uses the largest column for every worker and class,
        as in the published code; a column may then be used twice.

    Returns
    -------
    Confusion matrices (n_workers, n_classes, n_classes), labels by true class; and the prior (n_classes,). A
    worker with an empty column is assumed to guess: the matrix is uniform, so that its labels are uninformative.

    Raises
    ------
    PmfError
        If the order is unknown.
    """
    # importing it takes longer than processing most label logs

    check(OneOf(("joint", "each")), order=order)
    n_classes = factors.shape[1]
    blocks = factors.reshape(-1, n_classes, n_classes)
    sums = blocks.sum(axis=1)
    full = (sums > 1e-12).all(axis=1)
    weights = np.where(full, n_labels, 0.0)
    confusion = np.full(blocks.shape, 1.0 / n_classes)
    confusion[full] = blocks[full] / sums[full, None, :]
    squares = np.average(sums**2, axis=0, weights=weights) if weights.any() else np.ones(n_classes)
    if order == "joint":
        gains = np.einsum("m,mac->ac", weights, confusion)
        columns = match_columns(gains)
        confusion, squares = confusion[:, :, columns], squares[columns]
    else:
        joint = match_columns(np.einsum("m,mac->ac", weights, confusion))
        picked = confusion.argmax(axis=2)
        confusion = np.take_along_axis(confusion, picked[:, None, :], axis=2)
        squares = squares[joint]
    return raise_floor(confusion), np.asarray(squares / squares.sum())


def raise_floor(confusion: FloatArray) -> FloatArray:
    """Raise smaller entries to ``LEAST_PROBABILITY``, and scale columns to sum 1."""
    raised = np.maximum(confusion, LEAST_PROBABILITY)
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def fit_multispa(pairs: WorkerPairs) -> FloatArray:
    """Estimate each worker's confusion matrix from the most extreme columns of its own pairs.

    Parameters
    ----------
    pairs
        Pairwise marginals.

    Returns
    -------
    float64 of shape (n_workers, n_classes, n_classes), with columns ordered separately for each worker; uniform if a
    worker's pairs span fewer dimensions than there are classes.

    References
    ----------
    Ibrahim, Fu, Kargas, Huang (2019), NeurIPS, Algorithm 1.
    """
    n_classes = pairs.n_classes
    confusion = np.full((pairs.n_workers, n_classes, n_classes), 1.0 / n_classes)
    for m, (_, blocks) in enumerate(pairs.list_neighbours()):
        values = np.linalg.svd(blocks, compute_uv=False) if len(blocks) else np.zeros((0, 1))
        good = blocks[values[:, -1] > LEAST_SINGULAR_VALUE * values[:, 0]]
        columns = good.transpose(1, 0, 2).reshape(n_classes, -1)
        columns = columns[:, columns.sum(axis=0) > 0]
        if columns.shape[1] <= n_classes:
            continue
        columns /= columns.sum(axis=0)
        try:
            found = columns[:, select_anchors(columns, n_classes)]
        except RankError:
            continue
        confusion[m] = found[:, found.argmax(axis=1)]
    return confusion
