"""Measures of predicted PMFs against the truth: sums that can be merged over partitions, and standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray


@dataclass(frozen=True)
class TargetSums:
    """Sums over samples for the evaluation of a target.

    Parameters
    ----------
    judged, missing
        Numbers of samples whose true level is known, and unknown.
    correct
        Number of samples whose most probable level is the true one.
    losses, squares
        Sums of the log-losses, in nats, and of their squares.
    """

    judged: int = 0
    missing: int = 0
    correct: int = 0
    losses: float = 0.0
    squares: float = 0.0

    @staticmethod
    def merge(parts: Sequence[TargetSums]) -> TargetSums:
        """Merge the sums of several partitions, added in the order given."""
        return TargetSums(
            sum(part.judged for part in parts),
            sum(part.missing for part in parts),
            sum(part.correct for part in parts),
            math.fsum(part.losses for part in parts),
            math.fsum(part.squares for part in parts),
        )

    def measure(self) -> dict[str, float]:
        """Return accuracy and log-loss (nats) with standard errors; only sample counts if no sample is evaluated."""
        found: dict[str, float] = {"judged": self.judged, "truth_missing": self.missing}
        if not self.judged:
            return found
        n, accuracy, loss = self.judged, self.correct / self.judged, self.losses / self.judged
        found |= {
            "accuracy": accuracy,
            "accuracy_error": math.sqrt(accuracy * (1 - accuracy) / n),
            "log_loss": loss,
        }
        if n > 1:
            variance = max(self.squares / n - loss * loss, 0.0)
            found["log_loss_error"] = math.sqrt(variance / (n - 1))
        return found


def score_target(pmf: FloatArray, truths: IntArray) -> TargetSums:
    """Evaluate predictions of a target.

    Parameters
    ----------
    pmf
        float64 of shape (n_rows, cardinality), as returned by `JointPMF.predict_proba`.
    truths
        Codes of the true levels, shape (n_rows,); rows with -1 (unknown) are counted but not evaluated.
    """
    rows = np.flatnonzero(truths >= 0)
    if not rows.size:
        return TargetSums(missing=len(truths))
    known = truths[rows].astype(np.int64)
    losses = -np.log(np.maximum(pmf[rows, known], FLOOR))
    return TargetSums(
        int(rows.size),
        len(truths) - int(rows.size),
        int((pmf[rows].argmax(axis=1) == known).sum()),
        float(losses.sum()),
        float(losses @ losses),
    )


N_BINS = 10
"""Number of equal-width calibration bins, by the probability of the most probable level."""


@dataclass(frozen=True, eq=False)
class Measure:
    """A measure of some predictions.

    Parameters
    ----------
    value
        Value of the measure; NaN if the rows do not define it.
    influences
        float64 of shape (n_rows,), of mean 0: influence of each row on the measure, times the number of rows.
    """

    value: float
    influences: FloatArray

    @property
    def error(self) -> float:
        """Standard error over rows; NaN for fewer than two rows."""
        return _take_error(self.influences)

    def less(self, other: Measure) -> tuple[float, float]:
        """Return the difference from the same measure of other predictions of the same rows, and its standard error."""
        return self.value - other.value, _take_error(self.influences - other.influences)


def measure_all(
    pmf: FloatArray, truth: IntArray, weights: FloatArray | None = None
) -> dict[str, Measure]:
    """Compute all measures of some predictions.

    Parameters
    ----------
    pmf
        float64 of shape (n_rows, cardinality), at least one row; rows sum to 1.
    truth
        int64 of shape (n_rows,), in [0, cardinality).
    weights
        float64 of shape (n_rows,), positive: weights for means, shares and their standard errors; None weights all rows
        equally.

    Returns
    -------
    accuracy
        Share of rows whose most probable level, the first one if tied, is the true one.
    log_loss
        Mean negative log-probability of the true level, nats.
    auc
        Area under the receiver operating characteristic of each level against the others, averaged over the levels that
        are true for some rows and not for others.
    brier
        Mean over rows of the sum over levels of squared differences from the truth, in [0, 2].
    calibration_error
        Expected calibration error: for each bin, the absolute difference between the mean probability of the most
        probable level and the share of rows where it is true, averaged over rows.

    References
    ----------
    DeLong, DeLong, Clarke-Pearson (1988) for the standard errors of areas; Guo et al. (2017), "On calibration of modern
    neural networks", for the calibration error; its influences treat the sign of each bin's difference as fixed.
    """
    n_rows = len(truth)
    rows = np.arange(n_rows)
    correct = (pmf.argmax(axis=1) == truth).astype(np.float64)
    chances = pmf[rows, truth]
    # the squared difference is expanded, to avoid a second array of this size
    brier = (pmf**2).sum(axis=1) - 2 * chances + 1
    return {
        "accuracy": _average(correct, weights),
        "log_loss": _average(-np.log(np.maximum(chances, FLOOR)), weights),
        "auc": _measure_area(pmf, truth, weights),
        "brier": _average(brier, weights),
        "calibration_error": _measure_calibration(pmf, correct, weights),
    }


def count_confusion(pmf: FloatArray, truth: IntArray) -> IntArray:
    """Compute the confusion matrix: int64 (cardinality, cardinality), true levels in rows, predicted in columns."""
    n = pmf.shape[1]
    return np.bincount(truth * n + pmf.argmax(axis=1), minlength=n * n).reshape(n, n)


def sum_bins(pmf: FloatArray, truth: IntArray, weights: FloatArray | None = None) -> FloatArray:
    """Compute sums for calibration by bin of the probability of the most probable level; sums of parts can be added.

    Parameters
    ----------
    pmf, truth
        As for `measure_all`; may have no rows.
    weights
        float64 of shape (n_rows,): number of samples that each row represents; None means one each.

    Returns
    -------
    float64 of shape (N_BINS, 3): number of rows, sum of their probabilities of that level, number of rows where it is
    true.
    """
    confidence, correct = pmf.max(axis=1), pmf.argmax(axis=1) == truth
    bins = _find_bins(confidence)
    parts: tuple[Any, ...] = (None, confidence, correct)
    if weights is not None:
        parts = (weights, weights * confidence, weights * correct)
    return np.stack([np.bincount(bins, each, N_BINS).astype(np.float64) for each in parts], axis=1)


def describe_bins(sums: FloatArray) -> list[dict[str, float]]:
    """Describe the calibration in each nonempty bin, from the output of `sum_bins`.

    Returns
    -------
    For each bin: edges (from, to), number of rows, mean probability, share of rows where that level is true (accuracy),
    and the standard error of that share, computed with one pseudo-row each for true and false.
    """
    found = []
    for index, (n, confidence, hits) in enumerate(sums.tolist()):
        if not n:
            continue
        drawn_in = (hits + 1) / (n + 2)
        found.append(
            {
                "from": index / N_BINS,
                "to": (index + 1) / N_BINS,
                "rows": int(n),
                "probability": confidence / n,
                "accuracy": hits / n,
                "accuracy_error": math.sqrt(drawn_in * (1 - drawn_in) / (n + 2)),
            }
        )
    return found


def _take_error(influences: FloatArray) -> float:
    n = influences.size
    return float(influences.std()) / math.sqrt(n - 1) if n > 1 else math.nan


def _average(values: FloatArray, weights: FloatArray | None) -> Measure:
    mean = float(np.average(values, weights=weights))
    shares = 1.0 if weights is None else weights / weights.mean()
    return Measure(mean, shares * (values - mean))


def _find_bins(confidence: FloatArray) -> IntArray:
    return np.minimum((confidence * N_BINS).astype(np.int64), N_BINS - 1)


def _measure_calibration(
    pmf: FloatArray, correct: FloatArray, weights: FloatArray | None
) -> Measure:
    confidence = pmf.max(axis=1)
    bins = _find_bins(confidence)
    surplus = confidence - correct
    weighed = surplus if weights is None else weights * surplus
    signs = np.sign(np.bincount(bins, weighed, N_BINS))
    return _average(signs[bins] * surplus, weights)


def _measure_area(pmf: FloatArray, truth: IntArray, weights: FloatArray | None) -> Measure:
    n_rows, mass = len(truth), np.ones(len(truth)) if weights is None else weights
    areas, influences = [], np.zeros(n_rows)
    for level in range(pmf.shape[1]):
        is_level = truth == level
        n_own = int(is_level.sum())
        if not 0 < n_own < n_rows:
            continue
        own, others = ((pmf[mine, level], mass[mine]) for mine in (is_level, ~is_level))
        # for each row, the share of the rows of the other class that it is ranked correctly against; ties count half
        below = _rank_among(*others, own[0])
        above = 1 - _rank_among(*own, others[0])
        area = float(np.average(below, weights=own[1]))
        areas.append(area)
        influences[is_level] += (below - area) * (own[1] * n_rows / own[1].sum())
        influences[~is_level] += (above - area) * (others[1] * n_rows / others[1].sum())
    if not areas:
        return Measure(math.nan, np.full(n_rows, math.nan))
    return Measure(sum(areas) / len(areas), influences / len(areas))


def _rank_among(others: FloatArray, weights: FloatArray, values: FloatArray) -> FloatArray:
    """Compute the weighted share of other values below each value; ties count half."""
    order = np.argsort(others)
    below = np.concatenate([[0.0], np.cumsum(weights[order])])
    left, right = (np.searchsorted(others[order], values, side=side) for side in _SIDES)
    share: FloatArray = (below[left] + below[right]) / (2 * below[-1])
    return share


_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
