"""Pseudo-counts of levels and latent states, and what they add to a log-likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError
from pmflib.level_blocks import FLOOR, repeat_blocks


@dataclass(frozen=True, eq=False)
class PseudoCounts:
    """Pseudo-counts: parameters of Dirichlet distributions, less one.

    Parameters
    ----------
    levels
        float64 of shape (n_levels,), added to every latent state's mass of each level.
    state
        Added to the mass of every latent state.
    """

    levels: FloatArray
    state: float = 0.0

    @classmethod
    def shaped_by(cls, singles: FloatArray, offsets: IntArray, pseudo_count: float) -> PseudoCounts:
        """Pseudo-counts in proportion to the variables' own PMFs, on average ``pseudo_count`` per level.

        A state itself gets as many as it has, on average, for a variable: many pseudo-counts of levels alone empty
        states into one another.

        Parameters
        ----------
        singles
            float64 of shape (n_levels,), PMF of each variable.
        offsets
            int64 of shape (n_variables + 1,).
        pseudo_count
            Mean pseudo-count of a level, at least 0; 0 is maximum likelihood.

        Raises
        ------
        PmfError
            If it is negative or not finite.
        """
        if not 0 <= pseudo_count < math.inf:
            raise PmfError(f"pseudo_count is {pseudo_count}; give a pseudo-count of at least 0")
        sizes = np.diff(offsets)
        levels = pseudo_count * singles * repeat_blocks(sizes, offsets)
        return cls(levels, pseudo_count * float(sizes.mean()))

    def log_penalty(self, prior: FloatArray, factors: FloatArray) -> float:
        """Log-density of the pseudo-counts' Dirichlet at a model, up to a constant; nats."""
        weighted = self.levels > 0
        penalty = float(
            self.levels[weighted] @ np.log(np.maximum(factors[weighted], FLOOR)).sum(axis=1)
        )
        if self.state:
            penalty += self.state * float(np.log(np.maximum(prior, FLOOR)).sum())
        return penalty
