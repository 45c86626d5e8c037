"""How good predictions of a target are where the truth is known: sums that add up over partitions, and measures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.level_blocks import FLOOR


@dataclass(frozen=True)
class TargetSums:
    """Sums over samples.

    Parameters
    ----------
    judged, missing
        Samples whose true level is known, and is not.
    correct
        Samples whose most probable level is the true one.
    losses, squares
        Sum of the log-losses, nats, and of their squares.
    """

    judged: int = 0
    missing: int = 0
    correct: int = 0
    losses: float = 0.0
    squares: float = 0.0

    @staticmethod
    def merge(parts: Sequence[TargetSums]) -> TargetSums:
        """Sums over several partitions, added in the order given."""
        return TargetSums(
            sum(part.judged for part in parts),
            sum(part.missing for part in parts),
            sum(part.correct for part in parts),
            math.fsum(part.losses for part in parts),
            math.fsum(part.squares for part in parts),
        )

    def measure(self) -> dict[str, float]:
        """Accuracy and log-loss (nats) with their standard errors; numbers of samples alone where none is judged."""
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


def judge_target(pmf: FloatArray, truths: IntArray) -> TargetSums:
    """Judge predictions of a target.

    Parameters
    ----------
    pmf
        float64 of shape (n_rows, cardinality), as `JointPMF.predict_proba` gives it.
    truths
        Codes of the true levels, shape (n_rows,); -1 where not known: such rows are counted, and not judged.
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
