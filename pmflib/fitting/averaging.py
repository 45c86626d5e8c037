"""Averaging parameters: several fits of one rank, their latent states matched, made one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmflib.arrays import Parameters
from pmflib.model.metrics import match_factors


def average_parameters(models: Sequence[Parameters]) -> Parameters:
    """Average the parameters of models, each state with the one it matches in the first model.

    Fits of few samples from different starts end at different optima around the truth; their mean is
    nearer to it than most of them. Fits that disagree on what the states are have no meaningful mean:
    compare it with them on held-out samples.

    Parameters
    ----------
    models
        Priors (rank,) and factors (n_levels, rank), at least one, all of one shape.

    Returns
    -------
    Prior and factors of the same shapes.
    """
    first = models[0]
    prior, factors = np.zeros_like(first[0]), np.zeros_like(first[1])
    for model in models:
        order = match_factors(*first, *model)
        prior += model[0][order] / len(models)
        factors += model[1][:, order] / len(models)
    return prior, factors
