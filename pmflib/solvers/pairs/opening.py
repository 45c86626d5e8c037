"""Starts near a fit, with nothing ruled out: EM and multiplicative updates never leave a zero."""

from __future__ import annotations

from pmflib.arrays import FloatArray, Parameters


def open_start(
    parameters: Parameters, toward: FloatArray, *, prior_share: float, factor_share: float
) -> Parameters:
    """Mix a share of the uniform prior and of positive PMFs into a start.

    Parameters
    ----------
    parameters
        Prior (rank,) and factors (n_levels, rank).
    toward
        float64, broadcast to the shape of the factors: PMFs of every variable, such as its own, (n_levels, 1), or
        perturbed ones, which also separate states that came out equal.
    prior_share, factor_share
        Shares of the mixture, in [0, 1].

    Returns
    -------
    Prior and factors of the same shapes.
    """
    prior, factors = parameters
    opened = (1 - prior_share) * prior + prior_share / prior.size
    return opened, (1 - factor_share) * factors + factor_share * toward
