"""Scores of samples under averages of models, block by block: what is added up over blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.blocks import Block, weigh_rows
from pmflib.em.statistics import take_logs

ScoreRows: TypeAlias = Callable[[Block], FloatArray]
"""Log-probability of every row of a block of valid samples under one model, nats: float64 of shape (n_rows,)."""

AddScores: TypeAlias = Callable[..., FloatArray]
"""`score_average` or `score_difference`."""


def score_under(model: Parameters, offsets: IntArray) -> ScoreRows:
    """Scores of rows under a mixture of independent variables; its logarithms are taken once."""
    return partial(_score_states, offsets, *take_logs(*model))


def _score_states(
    offsets: IntArray, log_prior: FloatArray, log_factors: FloatArray, block: Block
) -> FloatArray:
    from pmflib.em.row_tables import score_block

    scores, nothing = np.empty(block.n_rows), np.empty((block.n_rows, 0))
    score_block(block, offsets, log_prior, log_factors, scores, nothing)
    return scores


def score_rows(
    block: Block, offsets: IntArray, models: Sequence[ScoreRows], target: int | None = None
) -> FloatArray:
    """Score rows under the mean of models' probabilities, without forming a model of their summed rank.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).
    models
        Scores under each model, at least one.
    target
        Variable whose log-likelihood given the others is wanted; None is that of all of them.

    Returns
    -------
    Log-likelihoods, nats, float64 of shape (n_rows,); 0 for a row without the target, or with nothing observed.
    """
    if not block.n_rows:
        return np.zeros(0)
    scores = _average(block, models)
    if target is None:
        return scores
    return scores - _average(block.hide(target, offsets), models)


def score_average(
    block: Block, offsets: IntArray, models: Sequence[ScoreRows], target: int | None = None
) -> FloatArray:
    """Log-likelihood of samples, as `score_rows` has it, nats, and their number: float64 of shape (2,)."""
    weights = weigh_rows(block)
    return np.array([weights @ score_rows(block, offsets, models, target), weights.sum()])


def score_difference(
    block: Block,
    offsets: IntArray,
    first: Sequence[ScoreRows],
    second: Sequence[ScoreRows],
    target: int | None = None,
) -> FloatArray:
    """Number of samples, and the sums of what they gain by the first average over the second, and of its square."""
    weights = weigh_rows(block)
    gains = score_rows(block, offsets, first, target) - score_rows(block, offsets, second, target)
    return np.array([weights.sum(), weights @ gains, weights @ gains**2])


def _average(block: Block, models: Sequence[ScoreRows]) -> FloatArray:
    """Logarithms of the mean of the probabilities that models give the rows of a block."""
    total = models[0](block)
    for score in models[1:]:
        total = np.logaddexp(total, score(block))
    return total - math.log(len(models))
