"""Operations on single blocks: merging equal rows and scoring rows under averages of models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray, IntArray, Parameters
from pmflib.base.blocks import Block, DenseBlock, weigh_rows
from pmflib.base.hashing import HashArray, mix_hashes
from pmflib.model.sufficient_statistics import take_logs

ScoreRows: TypeAlias = Callable[[Block], FloatArray]
"""Log-probability of every row of a block of valid samples under one model, nats: float64 of shape (n_rows,)."""

AddScores: TypeAlias = Callable[..., FloatArray]
"""`score_average` or `score_difference`."""


def score_under_classes(model: Parameters, offsets: IntArray) -> ScoreRows:
    """Return a function that scores rows under a latent class model; logarithms are computed once."""
    return partial(_score_states, offsets, *take_logs(*model))


def _score_states(
    offsets: IntArray, log_prior: FloatArray, log_factors: FloatArray, block: Block
) -> FloatArray:
    from pmflib.model.row_tables import score_block

    scores, nothing = np.empty(block.n_rows), np.empty((block.n_rows, 0))
    score_block(block, offsets, log_prior, log_factors, scores, nothing)
    return scores


def score_rows(
    block: Block, offsets: IntArray, models: Sequence[ScoreRows], target: int | None = None
) -> FloatArray:
    """Score rows under the average of several models without building the combined model.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).
    models
        Scoring functions of the models, at least one.
    target
        Variable whose conditional log-likelihood given the others is computed; None for the joint log-likelihood.

    Returns
    -------
    float64 of shape (n_rows,): log-likelihoods, nats; 0 for rows without the target or with nothing observed.
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
    """Return the total log-likelihood as in `score_rows`, nats, and the number of samples: float64 of shape (2,)."""
    weights = weigh_rows(block)
    return np.array([weights @ score_rows(block, offsets, models, target), weights.sum()])


def score_difference(
    block: Block,
    offsets: IntArray,
    first: Sequence[ScoreRows],
    second: Sequence[ScoreRows],
    target: int | None = None,
) -> FloatArray:
    """Return the number of samples, the total gain of the first average over the second, and its sum of squares."""
    weights = weigh_rows(block)
    gains = score_rows(block, offsets, first, target) - score_rows(block, offsets, second, target)
    return np.array([weights.sum(), weights @ gains, weights @ gains**2])


def merge_scores(parts: Sequence[FloatArray]) -> FloatArray:
    """Sum partial scores, at least one, in the given order."""
    return np.asarray(sum(parts))


def _average(block: Block, models: Sequence[ScoreRows]) -> FloatArray:
    """Return the log of the mean probability of each row over the models."""
    total = models[0](block)
    for score in models[1:]:
        total = np.logaddexp(total, score(block))
    return total - math.log(len(models))


MIN_ROWS = 256
"""Smallest block whose equal rows are merged."""
SAMPLE_ROWS = 4096
"""Approximate size of the sample that decides whether all rows are compared."""
DISTINCT_BELOW = 0.8
"""Share of distinct rows below which merging pays; merging costs about one or two EM passes."""


def merge_duplicates(block: Block) -> Block:
    """Merge equal rows where enough rows are equal.

    A sample of rows is hashed first; all rows are hashed if the sample contains enough duplicates. The result depends
    only on the samples in the block.

    Parameters
    ----------
    block
        Valid samples.

    Returns
    -------
    The block itself, or a weighted block of its distinct rows in order of first occurrence.
    """
    n_rows = block.n_rows
    if n_rows < MIN_ROWS:
        return block
    sampled = np.arange(0, n_rows, max(1, n_rows // SAMPLE_ROWS))
    if np.unique(_hash_rows(block.take(sampled))).size >= DISTINCT_BELOW * sampled.size:
        return block
    _, first, inverse = np.unique(_hash_rows(block), return_index=True, return_inverse=True)
    # different rows with the same hash: practically impossible, and then nothing is merged
    if first.size >= DISTINCT_BELOW * n_rows or not _are_equal(block, first[inverse]).all():
        return block
    weights = np.bincount(inverse, block.weights, minlength=first.size).astype(np.float64)
    order = np.argsort(first)
    return replace(block.take(first[order]), weights=weights[order])


def _hash_rows(block: Block) -> HashArray:
    """Hash rows: sum of random multiples of their cells, modulo 2**64."""
    if isinstance(block, DenseBlock):
        hashes = np.zeros(block.n_rows, np.uint64)
        multipliers = mix_hashes(np.arange(block.codes.shape[1]))
        for variable, multiplier in enumerate(multipliers):
            hashes += block.codes[:, variable].astype(np.uint64) * multiplier
        return hashes
    ends = np.zeros(block.n_observed + 1, np.uint64)
    np.cumsum(mix_hashes(block.indices), out=ends[1:])
    sums: HashArray = ends[block.indptr[1:]] - ends[block.indptr[:-1]]
    return sums


def _are_equal(block: Block, others: IntArray) -> BoolArray:
    """Return whether each row equals its counterpart."""
    if isinstance(block, DenseBlock):
        equal: BoolArray = (block.codes == block.codes[others]).all(axis=1)
        return equal
    selected = block.take(others)
    if not np.array_equal(selected.indptr, block.indptr):
        return np.zeros(1, bool)
    same: BoolArray = selected.indices == block.indices
    return same
