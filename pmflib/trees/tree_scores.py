"""Scores of samples by latent classes with forests, block by block: what is added up over blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import Block, weigh_rows
from pmflib.trees.tree_statistics import TreePasses


def score_rows(
    block: Block, offsets: IntArray, models: Sequence[TreePasses], target: int | None = None
) -> FloatArray:
    """Score rows under the mean of models' probabilities.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).
    models
        Passes under each model, at least one.
    target
        Variable whose log-likelihood given the others is wanted; None is that of all of them.

    Returns
    -------
    Log-likelihoods, nats, float64 of shape (n_rows,); 0 for a row without the target, or with nothing observed.
    """
    scores = _average([each.score(block) for each in models])
    if target is None:
        return scores
    hidden = block.hide(target, offsets)
    return scores - _average([each.score(hidden) for each in models])


def score_average(
    block: Block, offsets: IntArray, models: Sequence[TreePasses], target: int | None = None
) -> FloatArray:
    """Log-likelihood of samples, as `score_rows` has it, nats, and their number: float64 of shape (2,)."""
    weights = weigh_rows(block)
    return np.array([weights @ score_rows(block, offsets, models, target), weights.sum()])


def score_difference(
    block: Block,
    offsets: IntArray,
    first: Sequence[TreePasses],
    second: Sequence[TreePasses],
    target: int | None = None,
) -> FloatArray:
    """Number of samples, and the sums of what they gain by the first average over the second, and of its square."""
    weights = weigh_rows(block)
    gains = score_rows(block, offsets, first, target) - score_rows(block, offsets, second, target)
    return np.array([weights.sum(), weights @ gains, weights @ gains**2])


def _average(scores: Sequence[FloatArray]) -> FloatArray:
    """Logarithm of the mean of probabilities given by their logarithms."""
    total = scores[0]
    for each in scores[1:]:
        total = np.logaddexp(total, each)
    return total - math.log(len(scores))
