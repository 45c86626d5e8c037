"""Checks and small steps that the iterative pairwise solvers share."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pmflib.arrays import BoolArray, FloatArray, IntArray, Parameters
from pmflib.errors import PmfError, RankError, SchemaError

S = TypeVar("S", bound=np.generic)

FLOOR = 1e-300
"""Sums at most this large are no mass."""


def check_pairs(marginals: FloatArray, offsets: IntArray, observed: BoolArray) -> None:
    """Refuse marginals, as `fit_spa` describes them, whose shapes or signs do not fit.

    Raises
    ------
    SchemaError
        If a shape differs from what ``offsets`` tells, or ``observed`` is not symmetric.
    PmfError
        If a marginal is negative or not finite.
    """
    n_levels, n_variables = int(offsets[-1]), offsets.size - 1
    square = (n_variables, n_variables)
    if marginals.shape != (n_levels, n_levels) or observed.shape != square:
        raise SchemaError(
            f"marginals has shape {marginals.shape} and observed {observed.shape}, not "
            f"{(n_levels, n_levels)} and {square} as offsets tells"
        )
    if np.diagonal(observed).any() or not np.array_equal(observed, observed.T):
        raise SchemaError("observed must be symmetric and False on its diagonal")
    check_nonnegative("marginals", marginals, marginals.shape)


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
    """Refuse a rank without a latent state."""
    if rank < 1:
        raise RankError(f"rank is {rank}, below 1; ask for at least one latent state")


def normalise_blocks(stacked: FloatArray, offsets: IntArray, instead: FloatArray) -> FloatArray:
    """Scale each variable's rows to sum 1 by column.

    Parameters
    ----------
    stacked
        float64 of shape (n_levels, n_columns), nonnegative.
    offsets
        int64 of shape (n_variables + 1,).
    instead
        float64, broadcast to the shape of ``stacked``: taken where a column has no mass.
    """
    sizes = np.diff(offsets)
    mass = np.repeat(np.add.reduceat(stacked, offsets[:-1], axis=0), sizes, axis=0)
    full = mass > FLOOR
    return np.where(full, stacked / np.where(full, mass, 1.0), instead)


def read_singles(marginals: FloatArray, offsets: IntArray) -> FloatArray:
    """PMF of each variable, from the diagonal blocks; uniform where it was never seen.

    Returns
    -------
    float64 of shape (n_levels,).
    """
    sizes = np.diff(offsets)
    uniform = np.repeat(1.0 / sizes, sizes)[:, None]
    return normalise_blocks(np.diagonal(marginals)[:, None], offsets, uniform)[:, 0]


def spread_pairs(by_pair: NDArray[S], offsets: IntArray) -> NDArray[S]:
    """Repeat what is given per pair of variables over the pair's levels: (n_levels, n_levels)."""
    sizes = np.diff(offsets)
    return np.repeat(np.repeat(by_pair, sizes, axis=0), sizes, axis=1)
