"""How precisely the samples of a fit determine an answer if the model is right: no answer of it is surer than that.

How many rows a model counts for is learnt from random questions to unseen rows, most of which have conditions that many
samples meet. Of conditions that hardly any sample meets, a model that is right on average says less than that: its
parameters were estimated from the same samples as all else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.blocks import DenseBlock
from pmflib.counting.conditional_tables import TableRequest
from pmflib.model.conditions import Conditions
from pmflib.model.information import (
    iterate_scores,
    list_pmfs,
    sum_information,
)
from pmflib.model.mixture import Mixture
from pmflib.model.questions.evidence import Evidence
from pmflib.schema.variable import MISSING
from pmflib.solvers.numeric.information import PMFCovariance, PMFInformation, find_covariance

MAX_ENTRIES = 400
"""Entries of prior and tables up to which their information is inverted for an answer: a tenth of a second."""
MAX_ROWS = 1 << 12
"""Combinations of levels, of what is asked for and given, whose scores are found for an answer."""
LEAST_DRAWN = 2000
"""Rows drawn from the model, at least, that stand for the samples."""
DRAWN_PER_ENTRY = 10
"""Rows drawn for each entry, at least."""


def is_measurable(model: Mixture) -> bool:
    """Whether the precision of a model's answers is found: of single fits of classes and forests that are not large."""
    if model.trait_model is not None or model.origin.get("final"):
        return False
    return model.rank + model.parameters.tables.size <= MAX_ENTRIES


def list_singles(model: Mixture) -> list[TableRequest]:
    """Tables that the precision of answers takes: how many samples hold each variable."""
    if not is_measurable(model):
        return []
    return [TableRequest((position,)) for position in range(model.schema.n_variables)]


def find_known_rows(
    model: Mixture,
    evidence: Evidence,
    n_fitted: float,
    by: Sequence[int],
    targets: Sequence[int],
    given: Conditions,
) -> FloatArray:
    """Rows that say as much of a table as the samples do through the parameters of a model that is right.

    Parameters
    ----------
    model
        The model, of which `is_measurable` holds.
    evidence
        What it was fitted to, which says how many samples hold each variable.
    n_fitted
        Samples that it was fitted to.
    by, targets
        Positions of the variables that have a table given each of their levels, perhaps none, and of those of it.
    given
        Codes of further variables that are given.

    Returns
    -------
    float64 of shape (n_by,), at least 0: sum of p (1 - p) over the sum of the variances of p, both over the cells of a
    table, less 1, as of a Dirichlet. Infinite where that is not known: of large tables, and of what is not determined.

    Notes
    -----
    Variances are those of the delta method. The information of the parameters is that of drawn rows, whose cells are
    hidden at random as often as those of the samples are; the derivative of the logarithm of a probability is the score
    of a row in which only that is observed.
    """
    sizes = [int(model.schema.cardinalities[each]) for each in (*by, *targets)]
    n_by = math.prod(sizes[: len(by)])
    n_cells = math.prod(sizes)
    if n_cells * math.prod(len(codes) for codes in given.values()) > MAX_ROWS:
        return np.full(n_by, np.inf)
    shares = tuple(
        float(evidence.find(request).sum()) / max(evidence.n_rows, 1)  # type: ignore[union-attr]
        for request in list_singles(model)
    )
    covariance = _find_covariance(model, min(n_fitted, float(evidence.n_rows)), shares)
    chances, slopes = _find_slopes(model, (*by, *targets), given)
    chances, slopes = chances.reshape(n_by, -1), slopes.reshape(n_by, n_cells // n_by, -1)
    totals = chances.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        chances = chances / totals
        slopes = (slopes - chances[:, :, None] * slopes.sum(axis=1, keepdims=True)) / totals[
            :, :, None
        ]
        errors, _ = covariance.spread(np.nan_to_num(slopes).reshape(n_cells, -1))
        variances = np.square(errors).reshape(n_by, -1).sum(axis=1)
        rows = (chances * (1 - chances)).sum(axis=1) / variances - 1
    found: FloatArray = np.where(np.isfinite(rows), np.maximum(rows, 0.0), np.inf)
    return found


@lru_cache(maxsize=4)
def _find_covariance(model: Mixture, n_rows: float, shares: tuple[float, ...]) -> PMFCovariance:
    """Covariance of prior and tables, of so many samples of the model that hold these shares of the variables."""
    parameters = model.parameters
    entries, starts = list_pmfs(parameters)
    rng = np.random.default_rng(0)
    n_drawn = max(LEAST_DRAWN, DRAWN_PER_ENTRY * entries.size)
    codes = _draw_rows(model, n_drawn, rng)
    codes[rng.random(codes.shape) >= np.array(shares)] = MISSING
    drawn = sum_information([DenseBlock(codes)], parameters)
    each = n_rows / n_drawn
    information = PMFInformation(each * drawn.outer, None, each * drawn.gradient, each * drawn.mass)
    return find_covariance(entries, starts, information, np.zeros(entries.size))


def _find_slopes(
    model: Mixture, positions: Sequence[int], given: Conditions
) -> tuple[FloatArray, FloatArray]:
    """Probabilities of the cells of a table and what is given, and their derivatives: (n_cells, n_entries)."""
    parameters, schema = model.parameters, model.schema
    levels = [range(int(schema.cardinalities[each])) for each in positions]
    cells, conditions = list(product(*levels)), list(product(*given.values()))
    rows = np.full((len(cells), len(conditions), schema.n_variables), MISSING, np.int64)
    for position, codes in zip(
        given, np.array(conditions, np.int64).reshape(len(conditions), -1).T, strict=True
    ):
        rows[:, :, position] = codes
    possible = np.ones(rows.shape[:2], bool)
    for position, codes in zip(
        positions, np.array(cells, np.int64).reshape(len(cells), -1).T, strict=True
    ):
        # what is asked for may be given as well
        possible &= (rows[:, :, position] == MISSING) | (rows[:, :, position] == codes[:, None])
        rows[:, :, position] = codes[:, None]
    flat = rows.reshape(-1, schema.n_variables)
    asked = sorted({*positions, *given})
    chances = np.where(possible.ravel(), model.weigh_combinations(asked, flat[:, asked]), 0.0)
    scores = np.concatenate(
        [each.scores for each in iterate_scores([DenseBlock(flat)], parameters)]
    )
    slopes = (chances[:, None] * scores).reshape(len(cells), len(conditions), -1).sum(axis=1)
    return chances.reshape(len(cells), -1).sum(axis=1), slopes


def _draw_rows(model: Mixture, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Samples of a model: of latent classes without compiled code, which takes longer to load than an answer."""
    if model.parameters.forest.n_edges:
        return np.asarray(model.sample(n_rows, rng), np.int64)
    states = rng.choice(model.rank, n_rows, p=model.prior / model.prior.sum())
    columns = []
    for position in range(model.schema.n_variables):
        ends = model.factor(position).cumsum(axis=0)[:-1, states]
        columns.append((rng.random(n_rows) > ends).sum(axis=0))
    return np.stack(columns, axis=1)
