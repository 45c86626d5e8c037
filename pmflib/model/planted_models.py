"""Random models from which samples with known parameters are drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.base.constraints import Interval, OneOf, at_least, check
from pmflib.base.errors import RankError, SchemaError

SEPARABILITY = {0.1: 0.0005, 0.2: 0.015, 0.3: 0.030}
"""Off-diagonal entries of the separable variable, by the label used in the published experiments."""


def planted_factors(
    cardinalities: Sequence[int],
    rank: int,
    rng: np.random.Generator,
    *,
    concentration: float = 1.0,
) -> tuple[FloatArray, FloatArray]:
    """Draw a random model.

    Parameters
    ----------
    cardinalities
        Number of levels of each variable, each >= 1.
    rank
        Number of latent states, >= 1.
    rng
        Random generator.
    concentration
        Concentration of the Dirichlet distribution of every column, > 0; small values give sharp, distinct states.

    Returns
    -------
    The prior (rank,), from Dirichlet(5, ..., 5) so that no state is very rare, and the factors (n_levels, rank).

    Raises
    ------
    SchemaError, RankError, PmfError
        If an argument is below its minimum.
    """
    if len(cardinalities) == 0 or min(cardinalities) < 1:
        raise SchemaError(f"cardinalities is {cardinalities!r}: pass integers >= 1, at least one")
    check(at_least(1), RankError, rank=rank)
    check(Interval(0, closed="right", hint="1 is flat"), concentration=concentration)
    prior = rng.dirichlet(np.full(rank, 5.0))
    blocks = [rng.dirichlet(np.full(size, concentration), rank).T for size in cardinalities]
    return prior, np.vstack(blocks)


def published_factors(
    n_variables: int,
    n_levels_each: int,
    rank: int,
    rng: np.random.Generator,
    separability: float | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Draw a model as in the published synthetic experiments.

    Parameters
    ----------
    n_variables, n_levels_each, rank
        Sizes; the papers use (5, 10, 5) and (15, 10, 10).
    rng
        Random generator.
    separability
        None, or the papers' label 0.1, 0.2 or 0.3: one variable after the third then has `rank` nearly pure levels. The
        label is not the distance from purity; see Notes.

    Returns
    -------
    The prior (rank,), uniform, and the factors (n_variables * n_levels_each, rank).

    Raises
    ------
    SchemaError, RankError, PmfError
        If a size is too small or the label is unknown.

    Notes
    -----
    Rows are drawn from Dirichlet(1, ..., 1) over the states, then columns are scaled to sum to 1. Labels 0.1, 0.2 and
    0.3 mean off-diagonal entries 0.0005, 0.015 and 0.030 with a diagonal of 0.4.

    References
    ----------
    Ibrahim and Fu (2021), IEEE Trans. Signal Processing, section V, as in the released code.
    """
    check(at_least(1), SchemaError, n_variables=n_variables, n_levels_each=n_levels_each)
    check(at_least(1), RankError, rank=rank)
    factors = rng.dirichlet(np.ones(rank), (n_variables, n_levels_each))
    factors /= factors.sum(axis=1, keepdims=True)
    if separability is not None:
        check(OneOf(SEPARABILITY), separability=separability)
        check(at_least(4, "or separability None"), SchemaError, n_variables=n_variables)
        check(at_least(rank, "or separability None"), SchemaError, n_levels_each=n_levels_each)
        _make_separable(factors[rng.integers(3, n_variables)], SEPARABILITY[separability])
    return np.full(rank, 1 / rank), factors.reshape(-1, rank)


def _make_separable(factor: FloatArray, impurity: float) -> None:
    rank = factor.shape[1]
    pure, rest = factor[:rank], factor[rank:]
    pure[:] = impurity
    np.fill_diagonal(pure, 0.4)
    if rest.size:
        rest *= (1 - 0.4 - (rank - 1) * impurity) / rest.sum(axis=0)
    factor /= factor.sum(axis=0)
