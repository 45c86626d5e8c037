"""Rake a model to known margins: the nearest joint PMF that has them."""

from __future__ import annotations

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.base.errors import PmfError, SchemaError
from pmflib.model import JointPMF
from pmflib.schema import Schema
from pmflib.surveys.margins.factors import ACCEPTED, MOST_STEPS, TOLERANCE
from pmflib.surveys.margins.margins import MarginTables, read_margins


def rake_model(model: JointPMF, margins: MarginTables) -> JointPMF:
    """Return the model raked to known margins of the population: the nearest joint PMF that has them.

    Parameters
    ----------
    model
        The model.
    margins
        Number of each level of some variables, or CSV files: `pmflib.surveys.margins.margins.read_margins`.

    Returns
    -------
    A model with the same states. Each PMF of a variable with a margin is multiplied by one factor for each level, and
    the prior by the sums, so that the joint PMF is the given one times a product of factors of the levels. Samples that
    are asked with it need a design of raked weights: `pmflib.surveys.rake`.

    Raises
    ------
    SchemaError
        If a variable or level is unknown, or the model gives a level probability 0 and the margins do not.
    PmfError
        If the model has forests, a margin is of two variables, or the margins cannot be reached.

    References
    ----------
    Csiszár (1975), Annals of Probability 3(1): iterative proportional fitting as a projection.
    """
    if why := model.unsupported.get("rake"):
        raise PmfError(f"the model {why}")
    raked = rake_factors(model.prior, model.factors, model.schema, margins)
    return JointPMF(*raked, model.schema, model.origin.add(raked=True))


def rake_factors(
    prior: FloatArray, factors: FloatArray, schema: Schema, margins: MarginTables
) -> tuple[FloatArray, FloatArray]:
    """Rake the prior and the factors of latent classes: see `rake_model`."""
    known = read_margins(margins, schema)[1]
    prior, factors = prior.copy(), factors.copy()
    for margin in known:
        if len(margin.positions) > 1:
            raise PmfError(
                f"margins of {' x '.join(margin.names)} are of two variables, and a model is raked to those of one; "
                "rake the samples, pmflib.surveys.rake, or leave this margin out"
            )
        now = factors[schema.rows_of(margin.positions[0])] @ prior
        if (lacking := np.flatnonzero((margin.shares > 0) & (now <= 0))).size:
            raise SchemaError(
                f"margins give {margin.name_cell(lacking[0])} the share {margin.shares[lacking[0]]:.4g}, and the model "
                "probability 0; merge it with another level, or fit with a larger pseudo-count"
            )
    for _ in range(MOST_STEPS):
        gap, worst = 0.0, ""
        for margin in known:
            rows = schema.rows_of(margin.positions[0])
            now = factors[rows] @ prior
            missed = np.abs(now - margin.shares)
            if missed.max() > gap:
                gap, worst = float(missed.max()), margin.name_cell(int(missed.argmax()))
            ratio = np.divide(margin.shares, now, out=np.zeros_like(now), where=now > 0)
            tilted = factors[rows] * ratio[:, None]
            sums = tilted.sum(axis=0)
            # a state without any mass left keeps its PMF, and has probability 0
            factors[rows] = np.where(
                sums > 0, tilted / np.where(sums > 0, sums, 1.0), factors[rows]
            )
            prior *= sums
            prior /= prior.sum()
        if gap <= TOLERANCE:
            break
    if gap > ACCEPTED:
        raise PmfError(
            f"margins cannot be reached: {worst} is {gap:.2g} from its share after {MOST_STEPS} steps, because the "
            "model gives combinations of their levels probability 0; leave a margin out, or merge levels"
        )
    return prior, factors
