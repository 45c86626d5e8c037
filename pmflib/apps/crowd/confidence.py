"""Calibrated probabilities of tasks: posteriors tempered by what left-out labels, and other logs, show.

The posteriors of all methods are overconfident, for three reasons. Labels are scored by confusion matrices that they
were used to estimate; labels of a task are dependent given its class; and matrices that were estimated from
overconfident posteriors overestimate the workers. Therefore every task is scored under matrices without its own share,
with the power that predicts left-out labels best (`pmflib.apps.crowd.left_out_labels`). The matrices are estimated
again
from the resulting posteriors, and the power is chosen again. The result is averaged with the method's own posterior,
tempered by the same power.

Labels cannot show errors that all workers of a task share. How much less the evidence is worth for this reason, and how
many tasks look like any class, is taken from other logs whose truth is known (`CalibrationPrior`), until known labels
of this log correct it. The label of a task is the class that is then most probable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from pmflib.apps.crowd.left_out_labels import (
    KNOWN_POWERS,
    LEAST_LABELS,
    POWERS,
    SHARED_ERRORS,
    CalibrationRound,
    LeftOutSums,
    add_block_sums,
    follow_rounds,
    start_sums,
    temper,
)
from pmflib.apps.crowd.m_step import update_crowd_model
from pmflib.apps.crowd.pairs.annotator_model import AnnotatorModel
from pmflib.base.arrays import FLOOR, BoolArray, FloatArray, IntArray
from pmflib.base.blocks import SparseBlock
from pmflib.base.constraints import Interval, check_entries, check_shapes
from pmflib.base.errors import PmfError

MOST_PREDICTED = 10_000
"""Approximate number of tasks whose left-out labels are predicted; larger logs are thinned evenly. A few hundred tasks
already determine the power to a tenth."""
METHOD_SHARE = 0.6
"""Share of the method's own tempered posterior in the probabilities. Chosen on the tuned half of
benchmarks/crowd/regimes.py and the seven public logs there: from 0.4 to 0.7 labels are equally accurate, and on the
public logs no less accurate than by the posterior alone."""
PSEUDO_COUNT_UPDATES = 6
"""Updates after which the pseudo-count of a round has converged."""


@dataclass(frozen=True)
class CalibrationPrior:
    """Prior of powers and shared errors.

    Values marked [drawn] were chosen on drawn logs, those marked [logs] on public logs with known truth: see
    benchmarks/crowd/calibration.py.

    Parameters
    ----------
    power, spread
        Median of the power of left-out labels, and standard deviation of its logarithm; they matter for logs with few
        labels [drawn].
    evidence, evidence_spread
        Median of the factor by which the power must be lower than that of left-out labels, and standard deviation of
        its logarithm [logs and drawn]: the public logs alone choose .45 (benchmarks/crowd/left_out.py), drawn ones 1
        (regimes of benchmarks/panel.py), and with .7 both have a higher log-likelihood than with 1 or without prior.
    shared_error, known_tasks
        Share of the tasks that look like any class, however many labels they have and however well these agree, and the
        number of known labels that this share is worth [logs].
    """

    power: float = 0.7
    spread: float = 0.5
    evidence: float = 0.7
    evidence_spread: float = 0.35
    shared_error: float = 0.04
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
        Rounds in order, all with a power; that of the last one predicts left-out labels best, and is about 1 where
        labels are independent given the class.
    evidence
        Factor of this power in the probabilities.
    shared_error
        Share of the tasks that look like any class.
    method_share
        Share of the method's own posterior, tempered, in the probabilities.
    """

    rounds: tuple[CalibrationRound, ...]
    evidence: float = CALIBRATION_PRIOR.evidence
    shared_error: float = CALIBRATION_PRIOR.shared_error
    method_share: float = METHOD_SHARE

    @property
    def left_out_power(self) -> float:
        """Power of the labels that predicts left-out labels best."""
        power = self.rounds[-1].power
        assert power is not None
        return power

    def without_prior(self) -> Calibration:
        """Calibration by left-out labels alone, without what other logs or known labels show."""
        return replace(self, evidence=1.0, shared_error=0.0)

    @property
    def power(self) -> float:
        """Power of the labels in the probabilities."""
        return self.evidence * self.left_out_power

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(one.nbytes for one in self.rounds)

    def apply(
        self, labels: SparseBlock, posterior: FloatArray, known: IntArray | None = None
    ) -> FloatArray:
        """Probability of each class of the tasks of a block, float64 of shape (n_rows, n_classes).

        It is a weighted mean of the posterior under matrices without the task's own share and the method's posterior,
        tempered, and mixed with the uniform distribution. A task without labels has the prior, a known task is certain,
        and for a task with a single label the first posterior is used alone.

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
        prior, lengths = self.rounds[-1].model.prior, np.diff(labels.indptr)[:, None]
        shares = follow_rounds(labels, posterior, self.rounds, known)
        several = self.method_share * (lengths >= LEAST_LABELS)
        mixed = (1 - several) * shares + several * temper(posterior, prior, self.left_out_power)
        error = self.shared_error * (lengths > 0)
        mixed = (1 - error) * temper(mixed, prior, self.evidence) + error / prior.size
        return mixed if known is None else np.where(known[:, None] >= 0, shares, mixed)


DIGITS_OF_VOTES = 12
"""Digits of a probability that is computed from numbers of votes."""
WORKERS_APART = AnnotatorModel()
"""Model of the calibration: a shrunk confusion matrix for each worker."""
WORKERS_ALIKE = AnnotatorModel(one_coin=True, evenness=1.0)
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

    def without_prior(self) -> VoteCalibration:
        """As for `Calibration`."""
        return VoteCalibration(self.calibration.without_prior())

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
        rounds = (*rounds, CalibrationRound(unknown.model, choose_power(sums.log_probs)))
    found = Calibration(rounds)
    if not sums.known_log_probs.any():
        return found
    evidence, error = choose_by_known(sums.known_log_probs, found.left_out_power)
    return replace(found, evidence=evidence, shared_error=error)


def choose_power(log_probs: FloatArray) -> float:
    """Power that predicts left-out labels best: the top of a parabola through the best of `POWERS` and its neighbours.

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
        return float(POWERS[best])
    before, top, after = scores[best - 1 : best + 2]
    # between the neighbours, for the best is above both, or equal to one
    shift = 0.5 * (before - after) / min(before - 2 * top + after, -FLOOR)
    return float(np.exp(logs[best] + np.clip(shift, -0.5, 0.5) * (logs[1] - logs[0])))


def choose_by_known(log_probs: FloatArray, power: float) -> tuple[float, float]:
    """Factor of the power that makes known classes most probable, and the shared error.

    Parameters
    ----------
    log_probs
        float64 of shape (n_known_powers, n_shared_errors), log-probability of known classes, nats.
    power
        Power that predicts left-out labels best.
    """
    prior, logs = CALIBRATION_PRIOR, np.log(KNOWN_POWERS / power)
    belief = prior.shared_error * np.log(np.maximum(SHARED_ERRORS, prior.shared_error / 10))
    belief += (1 - prior.shared_error) * np.log1p(-SHARED_ERRORS)
    distance = (logs - np.log(prior.evidence))[:, None] / prior.evidence_spread
    scores = log_probs + prior.known_tasks * belief - distance**2 / 2
    index, error = np.unravel_index(int(scores.argmax()), scores.shape)
    return float(np.exp(logs[index])), float(SHARED_ERRORS[error])


def _estimate(sums: LeftOutSums, annotator_model: AnnotatorModel) -> CalibrationRound:
    """Estimate shrunk confusion matrices from labels by posterior class, for any method."""
    model = update_crowd_model(sums.label_mass, sums.class_mass, annotator_model)
    for _ in range(PSEUDO_COUNT_UPDATES - 1):
        pseudo_count = model.pseudo_count
        model = update_crowd_model(sums.label_mass, sums.class_mass, annotator_model, pseudo_count)
    return CalibrationRound(model)


def _check_known(known: IntArray, posterior: FloatArray) -> None:
    n_tasks, n_classes = posterior.shape
    check_shapes("pass a class for each task", PmfError, known=(known, (n_tasks,)))
    check_entries(Interval(-1, n_classes - 1, hint="-1 for unknown ones"), known=known)


LEFT_OUT_GAP = 0.09
"""Root mean square of the calibration errors of ten public logs, each left out in turn, by
benchmarks/crowd/left_out.py."""


def describe_confidence(confidence: float, n_known: int) -> str:
    """Say how many labels are expected to be right, and how far off confidence has been on other logs.

    Parameters
    ----------
    confidence
        Mean calibrated probability of the labels of all tasks.
    n_known
        Number of known labels. They narrow the error as more data of the same kind would, if what other logs show is
        worth `CalibrationPrior.known_tasks`.
    """
    gap = LEFT_OUT_GAP / math.sqrt(1 + n_known / CALIBRATION_PRIOR.known_tasks)
    return (
        f"{100 * confidence:.0f} % of the labels are expected to be right, give or take {100 * gap:.0f} "
        "points: so far off was confidence on public logs that had no part in its calibration"
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
            "known has only tasks whose labels aggregate knew; pass true labels of other tasks"
        )
    sources = {"the method": posterior[rows], "calibrated": probabilities[rows]}
    return {
        name: bin_confidence(each.max(axis=1), each.argmax(axis=1) == known[rows])
        for name, each in sources.items()
    }
