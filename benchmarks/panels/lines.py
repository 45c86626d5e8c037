"""Lines of the panel: a measure of the product with its standard error, and how two panels compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

Better: TypeAlias = Literal["more", "less", "nearer .95", "seconds", "same"]

LEAST_CHANGE = 0.1
"""Share of processor seconds by which a line may grow."""


@dataclass(frozen=True)
class Line:
    """One measure.

    Parameters
    ----------
    name
        Section and measure.
    value
        A number; a text for digests.
    error
        Standard error over tables, seeds, rows or questions; of seconds, half the range of the repeats.
    better
        Which direction is better; "same" means that the value must not change.
    """

    name: str
    value: float | str
    error: float
    better: Better

    def show(self) -> str:
        """Return the line as text."""
        if isinstance(self.value, str):
            return self.value[:16]
        return f"{self.value:.4f} +- {self.error:.4f}"

    def is_worse(self, old: Line) -> bool:
        """Whether this line is worse than an old one by more than is allowed."""
        if self.better == "same" or isinstance(self.value, str) or isinstance(old.value, str):
            return self.value != old.value
        if math.isnan(self.value):
            return not math.isnan(old.value)
        if self.better == "seconds":
            return self.value > (1 + LEAST_CHANGE) * old.value
        error = max(self.error, old.error)
        if self.better == "nearer .95":
            return abs(self.value - 0.95) > abs(old.value - 0.95) + error
        sign = 1 if self.better == "more" else -1
        return sign * (old.value - self.value) > error


def average(name: str, values: Sequence[float] | np.ndarray, better: Better) -> Line:
    """Make a line of the mean of some values, with the standard error of that mean."""
    found = np.asarray(values, np.float64)
    error = found.std(ddof=1) / math.sqrt(found.size) if found.size > 1 else math.nan
    return Line(name, float(found.mean()), float(error), better)
