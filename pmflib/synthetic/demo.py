"""The demonstration: a dirty rating log with a known truth, and the distance of a fit from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pmflib.model import JointPMF
from pmflib.model.metrics import factor_mse, match_factors
from pmflib.schema import Schema, Variable
from pmflib.synthetic.datasets import LogSummary, write_rating_log
from pmflib.synthetic.planted_models import planted_factors

N_MOVIES = 20
N_RATINGS = 5
RANK = 4
"""Variables, levels of each, and latent states of the model that the demonstration draws its log from."""


def write_demo_log(folder: Path, *, n_users: int, seed: int) -> tuple[LogSummary, JointPMF]:
    """Write a rating log of a known model, a hundredth of its rows damaged in all ways of `write_rating_log`.

    Parameters
    ----------
    folder
        New or empty folder for the files.
    n_users
        Samples.
    seed
        Same seed, same bytes.

    Returns
    -------
    Account of the rows, and the model that they were drawn from.
    """
    rng = np.random.default_rng(seed)
    prior, factors = planted_factors([N_RATINGS] * N_MOVIES, RANK, rng, concentration=0.7)
    offsets = np.arange(N_MOVIES + 1, dtype=np.int64) * N_RATINGS
    summary = write_rating_log(
        folder,
        prior,
        factors,
        offsets,
        n_samples=n_users,
        ratings_per_sample=8,
        rng=rng,
        n_files=2,
        dirt=0.01,
    )
    values = tuple(float(level) for level in summary.levels)
    schema = Schema(tuple(Variable(name, summary.levels, values) for name in summary.variables))
    return summary, JointPMF(prior, factors, schema, {"method": "planted"})


def compare_with_truth(model: JointPMF, truth: JointPMF) -> dict[str, Any]:
    """Compare a fitted model with the one that the data were drawn from.

    Parameters
    ----------
    model
        The fitted model.
    truth
        The true one, with the same variables in any order.

    Returns
    -------
    "states": true and recovered prior of each latent state, and the largest error of its conditional probabilities;
    "factor_mse": the mean squared error of the factors plus that of the prior, up to the order of the states.
    """
    rows = np.concatenate(
        [
            np.arange(model.schema.n_levels)[model.schema.rows_of(name)]
            for name in truth.schema.names
        ]
    )
    factors = model.factors[rows]
    partner = match_factors(truth.prior, truth.factors, model.prior, factors)
    states = []
    for state, found in enumerate(partner.tolist()):
        worst = (
            float(np.abs(truth.factors[:, state] - factors[:, found]).max()) if found >= 0 else 1.0
        )
        recovered = float(model.prior[found]) if found >= 0 else 0.0
        states.append(
            {"true": float(truth.prior[state]), "recovered": recovered, "largest_error": worst}
        )
    mse = factor_mse(model.prior, factors, truth.prior, truth.factors, truth.schema.n_variables)
    return {"states": states, "factor_mse": mse}
