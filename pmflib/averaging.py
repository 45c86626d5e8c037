"""Averaging models: several fits of one rank, their latent states matched, made one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmflib.errors import PmfError, RankError, SchemaError
from pmflib.metrics import match_factors
from pmflib.model import JointPMF


def average_models(models: Sequence[JointPMF]) -> JointPMF:
    """Average the parameters of models, each state with the one it matches in the first model.

    Fits of few samples from different starts end at different optima around the truth; their mean is
    nearer to it than most of them. Fits that disagree on what the states are have no meaningful mean:
    compare it with them on held-out samples.

    Parameters
    ----------
    models
        At least one, of one schema and one rank.

    Returns
    -------
    A model of the same rank.

    Raises
    ------
    PmfError
        If there is no model.
    SchemaError, RankError
        If schemas or ranks differ.
    """
    if not models:
        raise PmfError("models is empty; give at least one")
    first = models[0]
    if len({model.schema.digest for model in models}) > 1:
        raise SchemaError("models have different schemas; average models of the same variables")
    if len({model.rank for model in models}) > 1:
        ranks = sorted({model.rank for model in models})
        raise RankError(f"models have ranks {ranks}; average models of one rank")
    prior, factors = np.zeros_like(first.prior), np.zeros_like(first.factors)
    for model in models:
        order = match_factors(first.prior, first.factors, model.prior, model.factors)
        prior += model.prior[order] / len(models)
        factors += model.factors[:, order] / len(models)
    return JointPMF(prior, factors, first.schema, {"method": "average", "models": len(models)})
