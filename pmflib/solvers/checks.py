"""Checks of the arguments that several solvers take."""

from __future__ import annotations

import numpy as np

from pmflib.argument_checks import name_type
from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.errors import PmfError, RankError, SchemaError


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
