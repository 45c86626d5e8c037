"""Intercepts of the classes from known labels: for mistakes that all workers share.

Confusion matrices say how often each worker mistakes one class for another, but what one in twenty tasks say of each of
them is little. What they say of all workers together is more: that tasks of one class are found in place of those of
another. So classes are weighed by known tasks once the passes are over, each task scored by confusion matrices without
its own share, for these have seen its class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmflib.core.arrays import FLOOR, BoolArray, FloatArray, IntArray
from pmflib.core.comparison import compare_samples
from pmflib.crowd.e_step import LogWeights, VotedBlock, add_votes, score_states
from pmflib.crowd.left_out_labels import score_labels
from pmflib.solvers.crowd.annotator_model import CrowdModel

MOST_SCORED = 100_000
"""Tasks of a log whose known ones are all looked at; of more, every so manieth known one is."""


@dataclass(frozen=True)
class InterceptPrior:
    """What is known of intercepts before known tasks are seen; chosen by other known tasks than benchmarks draw.

    Parameters
    ----------
    spread
        Standard deviation of the intercept of a class, nats of tempered scores.
    power, power_spread
        Median of the power of scores, and standard deviation of its logarithm: labels depend on each other.
    shared_error
        Share of the tasks whose labels say nothing: a task that all workers mistake says little of others.
    design_tasks
        How many tasks the shares of classes that were found are worth beside those among the known tasks. Known tasks
        may be chosen by class, and each counts as much as makes its class as frequent as it was found.
    most_weight
        Limit of what a task counts.
    half_label
        Labels in every cell of confusion matrices that are not shrunk.
    """

    spread: float = 0.5
    power: float = 0.5
    power_spread: float = 0.5
    shared_error: float = 0.2
    design_tasks: float = 20.0
    most_weight: float = 3.0
    half_label: float = 0.5


INTERCEPT_PRIOR = InterceptPrior()
N_FOLDS = 5
"""Folds of the known tasks: each says whether intercepts that were found from the others are of use."""
STANDARD_ERRORS = 1.0
"""Standard errors by which intercepts must make held-out known classes more probable."""


@dataclass(frozen=True, eq=False)
class KnownScores:
    """Known tasks, as their labels alone would have them.

    Parameters
    ----------
    scores
        float64 of shape (n_known, n_classes): log-weights of the classes, nats.
    codes
        int64 of shape (n_known,): known classes.
    """

    scores: FloatArray
    codes: IntArray

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.scores.nbytes + self.codes.nbytes

    @staticmethod
    def merge(parts: Sequence[KnownScores]) -> KnownScores:
        """Put tasks together, at least of one part, in the order given."""
        scores = np.concatenate([part.scores for part in parts])
        return KnownScores(scores, np.concatenate([part.codes for part in parts]))


def score_known(blocks: Iterable[VotedBlock], model: CrowdModel, every: int = 1) -> KnownScores:
    """Score the known tasks of blocks under a crowd model without their own share in it.

    Parameters
    ----------
    blocks
        Tasks.
    model
        Crowd model that was estimated with the known classes.
    every
        One known task of so many of each block is taken.
    """
    n_classes = model.n_classes
    none = KnownScores(np.zeros((0, n_classes)), np.zeros(0, np.int64))
    weights = LogWeights.from_model(model, with_votes=True)
    kind = model.annotator_model
    if kind.pseudo_count == 0:
        model = replace(model, mass=model.mass + INTERCEPT_PRIOR.half_label)
    parts = [none]
    for block in blocks:
        rows = np.flatnonzero(block.is_known)[::every]
        if not rows.size:
            continue
        labels, codes = block.labels.take(rows), block.codes[rows]
        shares = score_states(add_votes(labels, n_classes, codes), weights)
        if kind.one_coin:
            # cells are no sums of labels: there a task has no share to take out, and hardly any
            shares[:] = 0.0
        scores = score_labels(labels, shares, model) + weights.states
        by_class = scores.reshape(rows.size, -1, n_classes)
        parts.append(KnownScores(np.logaddexp.reduce(by_class, axis=1), codes))
    return KnownScores.merge(parts)


def add_intercepts(model: CrowdModel, known: KnownScores) -> CrowdModel:
    """Give the classes of a crowd model intercepts, by known tasks.

    Parameters
    ----------
    model
        Crowd model; of one with equally probable classes, these stay so.
    known
        Known tasks, as from `score_known`.

    Returns
    -------
    The model with intercepts; the same one where nothing is known.
    """
    if model.annotator_model.balanced or not known.codes.size or model.n_classes < 2:
        return model
    return replace(model, intercepts=find_intercepts(known, model.prior))


def find_intercepts(known: KnownScores, shares: FloatArray) -> FloatArray:
    """What to add to the log-weights of the classes, float64 of shape (n_classes,), nats, of sum 0.

    The known classes are made most probable under tempered scores with an intercept for each class, as by logistic
    regression, but that some tasks' labels say nothing; power and intercepts have a prior. Divided by the power, the
    intercepts belong to the scores themselves. Classes that no known task has are left as they are, and only those
    that some have are compared: known tasks of one class say nothing of what it is mistaken for.

    Few known tasks say little of that, and what they seem to say would harm all others. So intercepts are 0 unless they
    make known classes that were held out more probable, by ``STANDARD_ERRORS`` of the gain.

    Parameters
    ----------
    known
        Known tasks, at least one.
    shares
        float64 of shape (n_classes,): shares of the classes in all tasks, as they were found.

    References
    ----------
    Platt (1999), Probabilistic outputs for support vector machines; Manski, Lerman (1977), Econometrica 45, for the
    weights of tasks that were chosen by class.
    """
    intercepts = np.zeros(shares.size)
    named, codes = np.unique(known.codes, return_inverse=True)
    if named.size < 2 or codes.size < N_FOLDS:
        return intercepts
    scores = known.scores[:, named]
    scores -= scores.max(axis=1, keepdims=True)
    tasks = _WeighedTasks.count(scores, codes, shares[named])
    gains = np.empty(codes.size)
    # tasks of like scores in different folds, in whatever order they are
    places = np.argsort(np.lexsort((codes, *scores.T)))
    for fold in range(N_FOLDS):
        held_out = places % N_FOLDS == fold
        others, mine = tasks.take(~held_out), tasks.take(held_out)
        with_intercepts, without = (_fit(others, free=free) for free in (True, False))
        gains[held_out] = mine.score(with_intercepts) - mine.score(without)
    gain = compare_samples(gains, np.zeros(codes.size))
    if gain.mean <= STANDARD_ERRORS * gain.error:
        return intercepts
    best = _fit(tasks, free=True)
    intercepts[named] = best[1:] / np.exp(best[0])
    intercepts[named] -= intercepts[named].mean()
    return intercepts


@dataclass(frozen=True, eq=False)
class _WeighedTasks:
    """Known tasks of the classes that some have: log-weights, known classes, what tasks count, and even chances."""

    scores: FloatArray
    codes: IntArray
    counted: FloatArray
    even: FloatArray

    @classmethod
    def count(cls, scores: FloatArray, codes: IntArray, shares: FloatArray) -> _WeighedTasks:
        """Let each task count as much as makes its class as frequent as it was found."""
        prior, (n_known, n_classes) = INTERCEPT_PRIOR, scores.shape
        counts, shares = np.bincount(codes), shares / shares.sum()
        expected = (counts + prior.design_tasks * shares) / (n_known + prior.design_tasks)
        counted = np.minimum(shares / np.maximum(expected, FLOOR), prior.most_weight)[codes]
        counted *= n_known / max(float(counted.sum()), FLOOR)
        return cls(scores, codes, counted, (counts[codes] + 1.0) / (n_known + n_classes))

    def take(self, rows: BoolArray) -> _WeighedTasks:
        """Some of the tasks."""
        return _WeighedTasks(
            self.scores[rows], self.codes[rows], self.counted[rows], self.even[rows]
        )

    def score(self, values: FloatArray) -> FloatArray:
        """Log-probability of each known class, (n_known,), times what the task counts; values as from `_fit`."""
        return self.counted * np.log(self.mix(values)[2])

    def mix(self, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Probabilities of all classes, and that of the known one by the labels, and in all."""
        logs = np.exp(values[0]) * self.scores + values[1:]
        logs -= logs.max(axis=1, keepdims=True)
        found = np.exp(logs)
        found /= found.sum(axis=1, keepdims=True)
        error = INTERCEPT_PRIOR.shared_error
        right = (1 - error) * found[np.arange(self.codes.size), self.codes]
        return found, right, right + error * self.even


def _fit(tasks: _WeighedTasks, *, free: bool) -> FloatArray:
    """Logarithm of the power, and an intercept for each class, that make known classes most probable; or the power.

    Parameters
    ----------
    tasks
        Known tasks.
    free
        Whether there are intercepts; else they are 0.
    """
    from scipy.optimize import minimize

    prior, usual = INTERCEPT_PRIOR, np.log(INTERCEPT_PRIOR.power)
    rows, n_classes = np.arange(tasks.codes.size), tasks.scores.shape[1]

    def measure(values: FloatArray) -> tuple[float, FloatArray]:
        """Minus the log-probability of the known classes and of the values, and its gradient."""
        found, right, mixed = tasks.mix(values)
        rises = -found * (tasks.counted * right / mixed)[:, None]
        rises[rows, tasks.codes] += tasks.counted * right / mixed
        away = (values[0] - usual) / prior.power_spread**2
        loss = -float(tasks.counted @ np.log(mixed)) + 0.5 * away * (values[0] - usual)
        loss += 0.5 * float(values[1:] @ values[1:]) / prior.spread**2
        slopes = values[1:] / prior.spread**2 - rises.sum(axis=0)
        slope = away - np.exp(values[0]) * float((rises * tasks.scores).sum())
        return loss, np.concatenate([[slope], slopes if free else np.zeros(n_classes)])

    start = np.concatenate([[usual], np.zeros(n_classes)])
    return np.asarray(minimize(measure, start, jac=True, method="L-BFGS-B").x)
