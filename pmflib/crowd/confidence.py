"""Calibrated probabilities of tasks: posteriors tempered with the power that predicts left-out labels best.

The posteriors of all methods are overconfident, for three reasons. Labels are scored by confusion matrices that they
were used to estimate; labels of a task are dependent given its class; and matrices that were estimated from
overconfident posteriors overestimate the workers. Therefore every task is scored under matrices without its own share,
with the power that predicts left-out labels best (`pmflib.crowd.left_out_labels`). The matrices are estimated again
from the resulting posteriors, and the power is chosen again, now together with the share of tasks that are so hard that
their labels are guesses: without it, a few such tasks would lower the confidence of all others. Labels cannot show
errors that all workers of a task share. The share of such tasks is assumed (`CalibrationPrior`), until known labels
replace the assumption. The result is averaged with the method's own posterior, tempered likewise. The label
of a task is the class that is then most probable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from pmflib.core.arrays import FLOOR, BoolArray, FloatArray, IntArray
from pmflib.core.blocks import SparseBlock
from pmflib.core.errors import PmfError
from pmflib.crowd.left_out_labels import (
    HARD_SHARES,
    KNOWN_POWERS,
    LEAST_LABELS,
    POWERS,
    SHARED_ERRORS,
    CalibrationRound,
    LeftOutSums,
    add_block_sums,
    find_hard_tasks,
    start_sums,
    temper,
)
from pmflib.solvers.crowd.annotator_model import AnnotatorModel
from pmflib.solvers.crowd.shrinkage import update_crowd_model

MOST_PREDICTED = 10_000
"""Approximate number of tasks whose left-out labels are predicted; larger logs are thinned evenly. A few hundred tasks
already determine the power to a tenth."""
METHOD_SHARE = 0.6
"""Share of the method's own tempered posterior in the probabilities. Chosen on the tuned half of
benchmarks/crowd/regimes.py and the seven public logs there: from 0.4 to 0.7 labels are equally accurate, and on the
public logs no less accurate than by the posterior alone."""
METHOD_POWER = 0.85
"""Power of the method's posterior relative to that of the labels: its matrices include the own share of each task.
Chosen with the share."""
HARD_POWER = 0.3
"""Power of the evidence of hard tasks relative to that of others: guesses that agree are not all due to chance. Chosen
like the share of the method's posterior."""
LEAST_GAIN = 10.0
"""Gain in nats that left-out labels must show for some tasks to be taken as hard: labels of one task are predicted from
each other, and are worth less than their number. Chosen like the share of the method's posterior."""
PSEUDO_COUNT_UPDATES = 6
"""Updates after which the pseudo-count of a round has converged."""


@dataclass(frozen=True)
class CalibrationPrior:
    """Prior of powers and shared errors. Values marked [drawn] were chosen by benchmarks/crowd/calibration.py.

    Parameters
    ----------
    power, spread
        Median of the power of left-out labels, and standard deviation of its logarithm; they matter for logs with few
        labels [drawn].
    margin
        Factor of the power that predicts left-out labels best: matrices that were estimated from posteriors remain
        somewhat overconfident. 0.8 is best on drawn logs [drawn]; the smaller value was set with the results of real
        logs known.
    hard_margin
        The same where some tasks are hard: their share and the power are chosen among many. Chosen like
        ``METHOD_SHARE``.
    shared_error
        Share of the tasks whose labels are uninformative, however many there are and however well they agree. Like the
        margin it costs a point of calibration error on drawn logs, where few tasks mislead all workers, and was set
        with the results of real logs known.
    known_spread
        Standard deviation of the logarithm of the power around its value without known labels.
    known_tasks
        Number of known labels that the assumed share of shared errors is worth.
    """

    power: float = 0.7
    spread: float = 0.5
    margin: float = 0.75
    hard_margin: float = 0.65
    shared_error: float = 0.04
    known_spread: float = 0.5
    known_tasks: float = 25.0


CALIBRATION_PRIOR = CalibrationPrior()
Measure: TypeAlias = Callable[[Sequence[CalibrationRound], int], LeftOutSums]
"""Sums over all tasks after some rounds; left-out labels are predicted for one task in so many."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """How calibrated probabilities of classes are computed.

    Parameters
    ----------
    rounds
        Rounds in order, all with a power; the power of the last one is that of the probabilities.
    shared_error
        Share of the tasks whose labels are uninformative.
    left_out_power
        Power that predicts left-out labels best in the last round if no task is hard: about 1 where labels are
        independent given the class.
    method_share
        Share of the method's own posterior, tempered, in the probabilities.
    """

    rounds: tuple[CalibrationRound, ...]
    shared_error: float
    left_out_power: float
    method_share: float = METHOD_SHARE

    @property
    def power(self) -> float:
        """Power of the labels in the probabilities."""
        power = self.rounds[-1].power
        assert power is not None
        return power

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(one.nbytes for one in self.rounds)

    def apply(
        self, labels: SparseBlock, posterior: FloatArray, known: IntArray | None = None
    ) -> FloatArray:
        """Probability of each class of the tasks of a block, float64 of shape (n_rows, n_classes).

        It is a weighted mean of the posterior under matrices without the task's own share and the method's posterior,
        both tempered. The more probable it is that labels are guesses, the closer it is to the prior. A task without
        labels has the prior, a known task is certain, and for a task with a single label the first posterior is used
        alone.

        Parameters
        ----------
        labels
            Tasks as rows, labels as levels ``worker * n_classes + class``.
        posterior
            float64 of shape (n_rows, n_classes): that of the calibrated method.
        known
            int64 of shape (n_rows,): class of each task, -1 where it is not known; None where none is.
        """
        if not labels.n_rows:
            return posterior
        prior = self.rounds[-1].model.prior
        shares, hard = find_hard_tasks(labels, posterior, self.rounds, known)
        several = self.method_share * (np.diff(labels.indptr) >= LEAST_LABELS)[:, None]
        tempered = temper(posterior, prior, METHOD_POWER * self.power)
        mixed = (1 - several) * shares + several * tempered
        if hard.any():
            mixed += hard * (temper(mixed, prior, HARD_POWER) - mixed)
        mixed = (1 - self.shared_error) * mixed + self.shared_error * prior
        return mixed if known is None else np.where(known[:, None] >= 0, shares, mixed)


DIGITS_OF_VOTES = 12
"""Digits of a probability that is computed from numbers of votes."""
WORKERS_APART = AnnotatorModel()
"""Model of the calibration: a shrunk confusion matrix for each worker."""
WORKERS_ALIKE = AnnotatorModel(one_coin=True, balanced=True)
"""Model under which only the number of votes of a class counts."""


def calibrate(
    labels: SparseBlock,
    posterior: FloatArray,
    n_workers: int,
    known: IntArray | None = None,
    annotator_model: AnnotatorModel = WORKERS_APART,
) -> Calibration:
    """Calibrate the posteriors of a log in memory.

    Parameters
    ----------
    labels
        Tasks as rows, labels as levels ``worker * n_classes + class``.
    posterior
        float64 of shape (n_tasks, n_classes): posterior of any method.
    n_workers
        Number of workers.
    known
        int64 of shape (n_tasks,): class of each task, -1 where it is unknown; None if no class is known. Known classes
        determine the power and the share of shared errors by maximum likelihood.
    annotator_model
        Model of the confusion matrices, with one subclass.

    Raises
    ------
    PmfError
        If known has another shape, or a class that is out of range.
    """
    if known is not None:
        _check_known(known, posterior)

    def measure(rounds: Sequence[CalibrationRound], every: int) -> LeftOutSums:
        sums = start_sums(rounds, n_workers, posterior.shape[1])
        add_block_sums(labels, posterior, rounds, sums, known=known, every=every)
        return sums

    return find_calibration(measure, labels.n_rows, annotator_model)


@dataclass(frozen=True, eq=False)
class VoteCalibration:
    """How probabilities are computed from the numbers of votes.

    All workers count alike: a class with more votes than another is more probable, and classes with equally many votes
    are equally probable.

    Parameters
    ----------
    calibration
        Calibration of the labels as if one worker had given them all.
    """

    calibration: Calibration

    def apply(
        self, labels: SparseBlock, shares: FloatArray, known: IntArray | None = None
    ) -> FloatArray:
        """Probability of each class, float64 of shape (n_rows, n_classes); arguments are as for `calibrate_votes`."""
        found = self.calibration.apply(_pool_workers(labels, shares.shape[1]), shares, known)
        # sums in other orders differ in their last digits: classes with as many votes are equals
        return np.round(found, DIGITS_OF_VOTES)


def calibrate_votes(
    labels: SparseBlock, shares: FloatArray, known: IntArray | None = None
) -> VoteCalibration:
    """Calibrate the shares of the votes of a log in memory.

    Parameters
    ----------
    labels, known
        As for `calibrate`.
    shares
        float64 of shape (n_tasks, n_classes): shares of the votes.
    """
    votes = _pool_workers(labels, shares.shape[1])
    found = calibrate(votes, shares, 1, known, WORKERS_ALIKE)
    return VoteCalibration(replace(found, method_share=0.0))


def _pool_workers(labels: SparseBlock, n_classes: int) -> SparseBlock:
    """The same labels as if one worker had given them all."""
    return SparseBlock(labels.indptr, (labels.indices % n_classes).astype(labels.indices.dtype))


def find_calibration(
    measure: Measure, n_tasks: int, annotator_model: AnnotatorModel = WORKERS_APART
) -> Calibration:
    """Find the powers without the truth, or by known classes where there are some, in four passes over the tasks.

    The share of hard tasks is estimated if workers are distinguished and no class is known: known classes show
    directly how confident labels may be.

    Parameters
    ----------
    measure
        Returns sums over all tasks; called four times.
    n_tasks
        Number of tasks.
    annotator_model
        As for `calibrate`.
    """
    every = max(1, n_tasks // MOST_PREDICTED)
    rounds: tuple[CalibrationRound, ...] = ()
    for _ in range(2):
        unknown = _estimate(measure(rounds, every), annotator_model)
        sums = measure((*rounds, unknown), every)
        rounds = (*rounds, CalibrationRound(unknown.model, choose_power(sums.log_probs[0])[0]))
    model, power = rounds[-1].model, rounds[-1].power
    assert power is not None
    margin, error, hard = CALIBRATION_PRIOR.margin, CALIBRATION_PRIOR.shared_error, 0.0
    if sums.known_log_probs.any():
        kept, error = choose_by_known(sums.known_log_probs, margin * power)
    elif annotator_model.one_coin:
        kept = margin * power
    else:
        found = [choose_power(log_probs) for log_probs in sums.log_probs]
        scores = np.array([score for _, score in found])
        best = int(scores.argmax()) if scores.max() > scores[0] + LEAST_GAIN else 0
        kept, hard = found[best][0], float(HARD_SHARES[best])
        kept *= CALIBRATION_PRIOR.hard_margin if hard else margin
    return Calibration((*rounds[:-1], CalibrationRound(model, kept, hard)), error, power)


def choose_power(log_probs: FloatArray) -> tuple[float, float]:
    """Power that predicts left-out labels best: the top of a parabola through the best of `POWERS` and its neighbours.

    The second value is the best log-posterior of the powers that were tried, nats.

    Parameters
    ----------
    log_probs
        float64 of shape (n_powers,), log-probability of left-out labels, nats.
    """
    logs = np.log(POWERS)
    scores = log_probs - (logs - np.log(CALIBRATION_PRIOR.power)) ** 2 / (
        2 * CALIBRATION_PRIOR.spread**2
    )
    best = int(scores.argmax())
    if best in (0, logs.size - 1):
        return float(POWERS[best]), float(scores[best])
    before, top, after = scores[best - 1 : best + 2]
    # between the neighbours, for the best is above both, or equal to one
    shift = 0.5 * (before - after) / min(before - 2 * top + after, -FLOOR)
    power = np.exp(logs[best] + np.clip(shift, -0.5, 0.5) * (logs[1] - logs[0]))
    return float(power), float(top)


def choose_by_known(log_probs: FloatArray, power: float) -> tuple[float, float]:
    """Power and share of shared errors that make known classes most probable.

    Parameters
    ----------
    log_probs
        float64 of shape (n_known_powers, n_shared_errors), log-probability of known classes, nats.
    power
        Power without known classes, which is the center of its prior.
    """
    allowed = CALIBRATION_PRIOR.shared_error
    belief = allowed * np.log(np.maximum(SHARED_ERRORS, allowed / 10))
    belief = CALIBRATION_PRIOR.known_tasks * (belief + (1 - allowed) * np.log1p(-SHARED_ERRORS))
    distance = np.log(KNOWN_POWERS / power)[:, None]
    scores = log_probs + belief - distance**2 / (2 * CALIBRATION_PRIOR.known_spread**2)
    index, error = np.unravel_index(int(scores.argmax()), scores.shape)
    return float(KNOWN_POWERS[index]), float(SHARED_ERRORS[error])


def _estimate(sums: LeftOutSums, annotator_model: AnnotatorModel) -> CalibrationRound:
    """Estimate shrunk confusion matrices from labels by posterior class, for any method."""
    model = update_crowd_model(sums.label_mass, sums.class_mass, annotator_model)
    for _ in range(PSEUDO_COUNT_UPDATES - 1):
        pseudo_count = model.pseudo_count
        model = update_crowd_model(sums.label_mass, sums.class_mass, annotator_model, pseudo_count)
    return CalibrationRound(model)


def _check_known(known: IntArray, posterior: FloatArray) -> None:
    n_tasks, n_classes = posterior.shape
    if known.shape != (n_tasks,):
        raise PmfError(f"known has shape {known.shape}; give a class for each of {n_tasks} tasks")
    if known.size and (known.min() < -1 or known.max() >= n_classes):
        raise PmfError(
            f"known has classes from {known.min()} to {known.max()}; give 0 to {n_classes - 1}, or -1 for unknown ones"
        )


N_BINS = 10
"""Limit of the number of bins of a diagram."""
LEAST_TASKS = 10
"""Tasks in a bin, if there are as many."""


def bin_confidence(confidence: FloatArray, right: BoolArray) -> list[dict[str, float]]:
    """Share of correct labels by confidence, in bins of equally many tasks.

    Parameters
    ----------
    confidence
        float64 of shape (n_tasks,), in [0, 1]; at least one task.
    right
        Whether the label of each task is correct, (n_tasks,).

    Returns
    -------
    For each of at most ten bins, in order: mean confidence (probability), share of correct labels (accuracy), and the
    standard error of that share (accuracy_error), with one correct and one wrong pseudo-task.
    """
    n_bins = min(max(confidence.size // LEAST_TASKS, 1), N_BINS)
    found = []
    for part in np.array_split(np.argsort(confidence, kind="stable"), n_bins):
        hits = int(right[part].sum())
        drawn_in = (hits + 1) / (part.size + 2)
        found.append(
            {
                "probability": float(confidence[part].mean()),
                "accuracy": hits / part.size,
                "accuracy_error": math.sqrt(drawn_in * (1 - drawn_in) / (part.size + 2)),
            }
        )
    return found


def assess_confidence(
    posterior: FloatArray, probabilities: FloatArray, known: IntArray
) -> dict[str, list[dict[str, float]]]:
    """Bins of the method's own posterior and of the calibrated probabilities, by known labels.

    Parameters
    ----------
    posterior
        float64 of shape (n_tasks, n_classes): probability of each class under the method's own model.
    probabilities
        float64 of shape (n_tasks, n_classes), calibrated.
    known
        int64 of shape (n_tasks,): true class of each task; -1 where it is unknown.

    Returns
    -------
    Bins as from `bin_confidence`, for "the method" and "calibrated".

    Raises
    ------
    PmfError
        If no class is known.
    """
    rows = np.flatnonzero(known >= 0)
    if not rows.size:
        raise PmfError(
            "known has only tasks whose labels aggregate knew; give true labels of other tasks"
        )
    sources = {"the method": posterior[rows], "calibrated": probabilities[rows]}
    return {
        name: bin_confidence(each.max(axis=1), each.argmax(axis=1) == known[rows])
        for name, each in sources.items()
    }
