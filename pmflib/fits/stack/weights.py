"""Weights of models in a mixture, by EM on held-out samples."""

from __future__ import annotations

import numpy as np

from pmflib.base.arrays import FloatArray

GAP = 1e-8
"""Distance from the best mean log-likelihood at which weights have converged, nats per sample."""
MOST_STEPS = 5000
"""Maximum number of steps; a step is two products of a matrix of samples by models with a vector."""
LEAST_STEP = 1e-3
"""Share of a step for a target below which its objective no longer increases."""


def learn_weights(
    scores: FloatArray,
    counts: FloatArray,
    prior: FloatArray,
    hidden: FloatArray | None = None,
) -> FloatArray:
    """Maximise the held-out log-likelihood of a mixture of fixed models over its weights.

    Parameters
    ----------
    scores
        float64 of shape (n_samples, n_models): log-probability of each sample under each model, nats.
    counts
        float64 of shape (n_samples,), at least 0: number of samples that each row counts for.
    prior
        float64 of shape (n_models,), above 0: pseudo-samples of each model. Their distribution is the start.
    hidden
        float64 of shape (n_samples, n_models): log-probability of each sample without the target. If given, the
        log-likelihood of the target given the others is maximised.

    Returns
    -------
    float64 of shape (n_models,): weights, which sum to 1. Without a target the objective is concave and the weights are
    within ``GAP`` of its maximum, unless ``MOST_STEPS`` are made.

    References
    ----------
    Dempster, Laird, Rubin (1977); for the gap, Lindsay (1983), Annals of Statistics 11.
    """
    weights = np.asarray(prior / prior.sum())
    if weights.size == 1 or not counts.sum() > 0:
        return weights
    # factors common to all models cancel
    upper = np.exp(scores - scores.max(axis=1, keepdims=True))
    if hidden is None:
        return _maximise_joint(upper, counts, prior, weights)
    return _maximise_conditional(
        upper, np.exp(hidden - hidden.max(axis=1, keepdims=True)), counts, prior, weights
    )


def _maximise_joint(
    chances: FloatArray, counts: FloatArray, prior: FloatArray, weights: FloatArray
) -> FloatArray:
    n_samples, total = counts.sum(), counts.sum() + prior.sum()
    for _ in range(MOST_STEPS):
        slopes = (counts / (chances @ weights)) @ chances + prior / weights
        weights = weights * slopes / total
        # by concavity no weights gain more than the largest slope does
        if (slopes.max() - total) <= GAP * n_samples:
            break
    return np.asarray(weights / weights.sum())


def _maximise_conditional(
    chances: FloatArray,
    hidden: FloatArray,
    counts: FloatArray,
    prior: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Raise the conditional log-likelihood by multiplicative steps, which are halved until it does not fall."""

    def score(weights: FloatArray) -> float:
        gains = np.log(chances @ weights) - np.log(hidden @ weights)
        return float(counts @ gains + prior @ np.log(weights))

    best, step = score(weights), 1.0
    for _ in range(MOST_STEPS):
        rises = (counts / (chances @ weights)) @ chances + prior / weights
        falls = (counts / (hidden @ weights)) @ hidden + prior.sum()
        while step > LEAST_STEP:
            moved = weights * (rises / falls) ** step
            moved /= moved.sum()
            value = score(moved)
            if value >= best:
                break
            step /= 2
        else:
            break
        gain, best, weights = value - best, value, moved
        if gain <= GAP * counts.sum():
            break
        step = min(1.0, 2 * step)
    return weights


def mix_scores(scores: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the log-probability of each sample under a mixture, nats: float64 of shape (n_samples,)."""
    largest = scores.max(axis=1)
    return np.asarray(largest + np.log(np.exp(scores - largest[:, None]) @ weights))
