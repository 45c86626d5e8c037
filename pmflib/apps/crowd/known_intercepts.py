"""Intercepts of the classes from known labels: they correct mistakes that all workers share.

Few known tasks determine the confusion matrices of single workers poorly, but they show whether all workers together
mistake one class for another. Therefore intercepts of the classes are fitted to the known tasks after the passes. Each
task is scored by confusion matrices without its own share, because these were estimated with its known class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmflib.apps.crowd.e_step import LogWeights, VotedBlock, add_votes, score_states
from pmflib.apps.crowd.left_out_labels import score_labels
from pmflib.apps.crowd.pairs.annotator_model import CrowdModel
from pmflib.base.arrays import FLOOR, BoolArray, FloatArray, IntArray
from pmflib.base.comparison import compare_samples

MOST_SCORED = 100_000
"""Limit of the number of known tasks that are used, about; larger logs are thinned evenly."""


@dataclass(frozen=True)
class InterceptPrior:
    """Prior of the intercepts. Chosen on known tasks of public logs that no benchmark draws.

    Parameters
    ----------
    spread
        Standard deviation of the intercept of a class, nats of tempered scores.
    power, power_spread
        Median of the power of scores, and standard deviation of its logarithm: labels are dependent.
    shared_error
        Share of the tasks whose labels are uninformative, so that tasks that all workers mistake have little influence.
    design_tasks
        Number of tasks that the estimated shares of classes are worth relative to the shares among the known tasks.
        Known tasks may be selected by class; they are weighted such that classes are as frequent as estimated.
    most_weight
        Limit of the weight of a task.
    half_label
        Pseudo-count in every cell of confusion matrices that are not shrunk.
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
"""Number of folds of the known tasks, for cross-validation of the intercepts."""
STANDARD_ERRORS = 1.0
"""Standard errors by which intercepts must improve the probability of held-out known classes."""


@dataclass(frozen=True, eq=False)
class KnownScores:
    """Known tasks with the scores of their labels.

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
        """Concatenate parts, at least one, in the order given."""
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
        Use one known task in ``every`` of each block.
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
            # cells are not sums of labels: the share of a task is not defined, and very small
            shares[:] = 0.0
        scores = score_labels(labels, shares, model) + weights.states
        by_class = scores.reshape(rows.size, -1, n_classes)
        parts.append(KnownScores(np.logaddexp.reduce(by_class, axis=1), codes))
    return KnownScores.merge(parts)


def add_intercepts(model: CrowdModel, known: KnownScores) -> CrowdModel:
    """Add intercepts of the classes to a crowd model, by known tasks.

    Parameters
    ----------
    model
        Crowd model; one with equally probable classes gets no intercepts.
    known
        Known tasks, as from `score_known`.

    Returns
    -------
    The model with intercepts; the same model if no task is known.
    """
    if model.annotator_model.evenness == 1 or not known.codes.size or model.n_classes < 2:
        return model
    return replace(model, intercepts=find_intercepts(known, model.prior))


def find_intercepts(known: KnownScores, shares: FloatArray) -> FloatArray:
    """Estimate intercepts of the classes, float64 of shape (n_classes,), nats, with sum 0.

    They maximise the posterior of a logistic regression of the known classes on tempered scores, with an intercept for
    each class, in which a share of the tasks is uninformative. Power and intercepts have priors. The intercepts are
    divided by the power, to be added to the scores. Only classes with known tasks are compared, and the others have
    intercept 0; a single such class gives no information.

    Few known tasks may mislead. Therefore intercepts are 0 unless they improve the log-probability of held-out known
    classes by more than ``STANDARD_ERRORS`` standard errors.

    Parameters
    ----------
    known
        Known tasks, at least one.
    shares
        float64 of shape (n_classes,): estimated shares of the classes among all tasks.

    References
    ----------
    Platt (1999), Probabilistic outputs for support vector machines; Manski, Lerman (1977), Econometrica 45, for the
    weights of tasks that were selected by class.
    """
    intercepts = np.zeros(shares.size)
    named, codes = np.unique(known.codes, return_inverse=True)
    if named.size < 2 or codes.size < N_FOLDS:
        return intercepts
    scores = known.scores[:, named]
    scores -= scores.max(axis=1, keepdims=True)
    tasks = _WeighedTasks.count(scores, codes, shares[named])
    gains = np.empty(codes.size)
    # tasks with similar scores go to different folds, whatever their order
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
    """Known tasks and the classes that they have: log-weights, known classes, weights, and class shares."""

    scores: FloatArray
    codes: IntArray
    counted: FloatArray
    even: FloatArray

    @classmethod
    def count(cls, scores: FloatArray, codes: IntArray, shares: FloatArray) -> _WeighedTasks:
        """Weight tasks such that classes are as frequent as estimated."""
        prior, (n_known, n_classes) = INTERCEPT_PRIOR, scores.shape
        counts, shares = np.bincount(codes), shares / shares.sum()
        expected = (counts + prior.design_tasks * shares) / (n_known + prior.design_tasks)
        counted = np.minimum(shares / np.maximum(expected, FLOOR), prior.most_weight)[codes]
        counted *= n_known / max(float(counted.sum()), FLOOR)
        return cls(scores, codes, counted, (counts[codes] + 1.0) / (n_known + n_classes))

    def take(self, rows: BoolArray) -> _WeighedTasks:
        """Return some of the tasks."""
        return _WeighedTasks(
            self.scores[rows], self.codes[rows], self.counted[rows], self.even[rows]
        )

    def score(self, values: FloatArray) -> FloatArray:
        """Weighted log-probability of each known class, (n_known,); values as from `_fit`."""
        return self.counted * np.log(self.mix(values)[2])

    def mix(self, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Probabilities of all classes; and that of the known class by the labels, and in total."""
        logs = np.exp(values[0]) * self.scores + values[1:]
        logs -= logs.max(axis=1, keepdims=True)
        found = np.exp(logs)
        found /= found.sum(axis=1, keepdims=True)
        error = INTERCEPT_PRIOR.shared_error
        right = (1 - error) * found[np.arange(self.codes.size), self.codes]
        return found, right, right + error * self.even


def _fit(tasks: _WeighedTasks, *, free: bool) -> FloatArray:
    """Find the most probable logarithm of the power and intercept of each class.

    Parameters
    ----------
    tasks
        Known tasks.
    free
        Whether intercepts are estimated; otherwise they are 0.
    """
    from scipy.optimize import minimize

    prior, usual = INTERCEPT_PRIOR, np.log(INTERCEPT_PRIOR.power)
    rows, n_classes = np.arange(tasks.codes.size), tasks.scores.shape[1]

    def measure(values: FloatArray) -> tuple[float, FloatArray]:
        """Negative log-posterior of the values, and its gradient."""
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
