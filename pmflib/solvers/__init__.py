"""From marginals to factors and a prior: functions of arrays; what they return, check, and their pseudo-counts."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np

from pmflib.core.arrays import FLOOR, FloatArray, IntArray, Parameters, name_type, repeat_blocks
from pmflib.core.comparison import Comparison
from pmflib.core.errors import PmfError, RankError, RankWarning, SchemaError


@dataclass(frozen=True, eq=False)
class SolverResult:
    """A fitted prior and its factors, with the story of the fit.

    Parameters
    ----------
    prior
        float64 of shape (rank,), probabilities of the latent states; sums to 1.
    factors
        float64 of shape (n_levels, rank), conditional probabilities of all variables, stacked;
        each variable's rows sum to 1 in every column.
    loss_history
        The solver's loss as its docstring defines it; the last entry is the loss of this result.
    n_iter
        Iterations made, at least 0.
    converged
        Whether the stopping rule was met before the limit of iterations; True for a direct solver.
    notes
        One sentence for each choice or repair that the solver made by itself.
    method
        Name of what made the result, where it is another than the method that was called; else empty.
    comparisons
        What was chosen on held-out data on the way.
    """

    prior: FloatArray
    factors: FloatArray
    loss_history: tuple[float, ...]
    n_iter: int
    converged: bool
    notes: tuple[str, ...] = ()
    method: str = ""
    comparisons: tuple[Comparison, ...] = ()

    def with_notes(self, notes: tuple[str, ...], method: str = "") -> SolverResult:
        """Put notes on what went before it ahead of its own, and name what made it."""
        return replace(self, notes=(*notes, *self.notes), method=method or self.method)


def check_start(initial: Parameters, n_levels: int) -> None:
    """Refuse a start that is no model of the variables.

    Raises
    ------
    SchemaError
        If the shapes are not (rank,) and (n_levels, rank).
    PmfError
        If an entry is negative or not finite.
    """
    prior, factors = initial
    if prior.ndim != 1 or not prior.size or factors.shape != (n_levels, prior.size):
        raise SchemaError(
            f"initial has shapes {prior.shape} and {factors.shape}, not (rank,) and "
            f"({n_levels}, rank); take both from one model of these variables"
        )
    check_nonnegative("initial prior", prior, prior.shape)
    check_nonnegative("initial factors", factors, factors.shape)


def check_nonnegative(name: str, array: FloatArray | IntArray, shape: tuple[int, ...]) -> None:
    """Refuse an array of another shape, or with an entry that is negative or not finite."""
    if array.shape != shape:
        raise SchemaError(f"{name} has shape {array.shape}, not {shape}")
    if not (np.isfinite(array) & (array >= 0)).all():
        raise PmfError(f"{name} holds a negative or not finite entry; give numbers of at least 0")


def check_limits(max_iter: int, tol: float) -> None:
    """Refuse a negative limit of iterations or tolerance."""
    if max_iter < 0:
        raise PmfError(f"max_iter is {max_iter}; give at least 0")
    if not tol >= 0:
        raise PmfError(f"tol is {tol}; give at least 0")


def check_rank(rank: int) -> None:
    """Refuse a rank that is no whole number, or without a latent state."""
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer):
        raise RankError(f"rank is {rank!r}, {name_type(rank)}; give a whole number")
    if rank < 1:
        raise RankError(f"rank is {rank}, below 1; give at least one latent state")


def warn_of_rank(rank: int, n_rows: int) -> None:
    """Warn the caller of a public function that there are more latent states than samples."""
    if 0 < n_rows < rank:
        warnings.warn(
            f"rank is {rank:,}, above the {n_rows:,} samples: no state could have one of its own; lower the rank, or "
            "leave it to 'auto'",
            RankWarning,
            stacklevel=3,
        )


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
