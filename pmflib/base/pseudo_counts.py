"""Solvers for the factors and the prior given marginals: their common result, argument checks, and pseudo-counts."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray, Parameters, repeat_blocks
from pmflib.base.comparison import Comparison
from pmflib.base.constraints import NONNEGATIVE, at_least, check, check_entries, check_shapes
from pmflib.base.errors import RankError, RankWarning, SchemaError


@dataclass(frozen=True, eq=False)
class SolverResult:
    """Result of a solver: prior, factors and the history of the fit.

    Parameters
    ----------
    prior
        float64 of shape (rank,), probabilities of the latent states; sums to 1.
    factors
        float64 of shape (n_levels, rank), conditional probabilities of all variables, stacked;
        each variable's rows sum to 1 in every column.
    loss_history
        Loss per iteration, as defined by the solver; the last entry is the loss of this result.
    n_iter
        Number of iterations, at least 0.
    converged
        Whether the stopping criterion was met before the limit of iterations; True for a direct solver.
    notes
        One sentence for each automatic choice or repair.
    method
        Method that produced the result, if it differs from the one called; otherwise empty.
    comparisons
        Comparisons on held-out data made during the fit.
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
        """Prepend notes on earlier steps, and set the name of the method."""
        return replace(self, notes=(*notes, *self.notes), method=method or self.method)


def check_start(initial: Parameters, n_levels: int) -> None:
    """Check that starting values have the right shapes and entries.

    Raises
    ------
    SchemaError
        If the shapes are not (rank,) and (n_levels, rank).
    PmfError
        If an entry is negative or not finite.
    """
    prior, factors = initial
    check_shapes(
        "take both from one model of these variables",
        prior=(prior, ("rank",)),
        factors=(factors, (n_levels, "rank")),
    )
    check(at_least(1), SchemaError, rank=prior.size)
    check_entries(NONNEGATIVE, prior=prior, factors=factors)


def check_nonnegative(name: str, array: FloatArray | IntArray, shape: tuple[int, ...]) -> None:
    """Check the shape of an array and that its entries are finite and non-negative."""
    check_shapes(**{name: (array, shape)})
    check_entries(NONNEGATIVE, **{name: array})


def check_limits(max_iter: int, tol: float) -> None:
    """Check the limit of iterations and the tolerance."""
    check(at_least(0), max_iter=max_iter, tol=tol)


def check_rank(rank: int) -> None:
    """Check that the rank is an integer of at least 1."""
    check(at_least(1, "the number of latent states", whole=True), RankError, rank=rank)


def warn_of_rank(rank: int, n_rows: int) -> None:
    """Warn if a user asks for more latent states than there are samples."""
    if 0 < n_rows < rank:
        warnings.warn(
            f"rank is {rank:,}, above the {n_rows:,} samples: lower the rank, or pass rank='auto'",
            RankWarning,
            stacklevel=3,
        )


@dataclass(frozen=True, eq=False)
class PseudoCounts:
    """Pseudo-counts: parameters of Dirichlet priors minus one.

    Parameters
    ----------
    levels
        float64 of shape (n_levels,): added to the mass of each level in every latent state.
    state
        Added to the mass of every latent state.
    """

    levels: FloatArray
    state: float = 0.0

    @classmethod
    def shaped_by(cls, singles: FloatArray, offsets: IntArray, pseudo_count: float) -> PseudoCounts:
        """Make pseudo-counts proportional to the PMF of each variable, with mean ``pseudo_count`` per level.

        Each state receives the mean pseudo-count of a variable: with pseudo-counts of levels only, states would lose
        their mass to one another.

        Parameters
        ----------
        singles
            float64 of shape (n_levels,), PMF of each variable.
        offsets
            int64 of shape (n_variables + 1,).
        pseudo_count
            Mean pseudo-count per level, at least 0; 0 gives maximum likelihood.

        Raises
        ------
        PmfError
            If ``pseudo_count`` is negative or not finite.
        """
        check(NONNEGATIVE, pseudo_count=pseudo_count)
        sizes = np.diff(offsets)
        levels = pseudo_count * singles * repeat_blocks(sizes, offsets)
        return cls(levels, pseudo_count * float(sizes.mean()))

    def log_penalty(self, prior: FloatArray, factors: FloatArray) -> float:
        """Compute the log-density of the Dirichlet prior at a model, up to a constant, nats."""
        weighted = self.levels > 0
        penalty = float(
            self.levels[weighted] @ np.log(np.maximum(factors[weighted], FLOOR)).sum(axis=1)
        )
        if self.state:
            penalty += self.state * float(np.log(np.maximum(prior, FLOOR)).sum())
        return penalty
