"""Held-out scores: hide known cells, predict them from the others, compare with the single-variable baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.blocks import DenseBlock
from pmflib.hashing import HashArray, mix_hashes
from pmflib.level_blocks import FLOOR
from pmflib.model import JointPMF
from pmflib.prediction.measures import N_BINS, describe_bins, sum_bins
from pmflib.schema import Schema

MEASURES = (
    "cells",
    "log_prob",
    "correct",
    "baseline_log_prob",
    "baseline_correct",
    "squared_error",
    "absolute_error",
    "baseline_squared_error",
    "baseline_absolute_error",
    "squared_gain",
)
"""Columns of `HeldOutScores.sums`; the last is of the log-probability less that of the baseline."""

BIN_SUMS = ("cells", "probability", "correct")
"""Columns of `HeldOutScores.bins`: see `sum_bins`."""


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Sums over hidden cells, by variable: additive over blocks.

    Parameters
    ----------
    sums
        float64 of shape (n_variables, len(MEASURES)); the errors stay 0 for a variable without values.
    log_likelihood
        Sum over whole rows, before anything is hidden; nats.
    n_rows
        Number of samples.
    bins
        float64 of shape (N_BINS, len(BIN_SUMS)): sums over the hidden cells of all variables by bin of the probability
        of the most probable level.
    """

    sums: FloatArray
    log_likelihood: float
    n_rows: int
    bins: FloatArray

    @classmethod
    def zero(cls, n_variables: int) -> HeldOutScores:
        """Scores of no samples: the identity of `merge`."""
        sums, bins = np.zeros((n_variables, len(MEASURES))), np.zeros((N_BINS, len(BIN_SUMS)))
        return cls(sums, 0.0, 0, bins)

    @staticmethod
    def merge(parts: Sequence[HeldOutScores]) -> HeldOutScores:
        """Sum of scores, at least one, in the order given."""
        return HeldOutScores(
            np.sum([part.sums for part in parts], axis=0),
            sum(part.log_likelihood for part in parts),
            sum(part.n_rows for part in parts),
            np.sum([part.bins for part in parts], axis=0),
        )

    def summarise(self, schema: Schema) -> dict[str, float]:
        """Means over all hidden cells.

        Parameters
        ----------
        schema
            Variables scored; the errors are taken over those with values.

        Returns
        -------
        Log-probability per cell (nats) and accuracy, for the model and for the baseline; root mean squared and mean
        absolute error of the expected value, likewise, if any variable is ordinal; log-likelihood per row (nats).
        """
        ordinal = np.array([variable.values is not None for variable in schema.variables])
        total = dict(zip(MEASURES, self.sums.sum(axis=0).tolist(), strict=True))
        n_cells = max(total["cells"], 1.0)
        out = {
            "rows": float(self.n_rows),
            "log_likelihood_per_row": self.log_likelihood / max(self.n_rows, 1),
            "hidden_cells": total["cells"],
        }
        for who in ("", "baseline_"):
            out[f"{who}log_prob_per_cell"] = total[f"{who}log_prob"] / n_cells
            out[f"{who}accuracy"] = total[f"{who}correct"] / n_cells
        n_ordinal = float(self.sums[ordinal, 0].sum())
        if n_ordinal:
            for who in ("", "baseline_"):
                out[f"{who}rmse"] = float(np.sqrt(total[f"{who}squared_error"] / n_ordinal))
                out[f"{who}mae"] = total[f"{who}absolute_error"] / n_ordinal
        return out

    def to_json(self, schema: Schema) -> dict[str, Any]:
        """Plain JSON types: sums by name of the variable and of the measure, and the calibration, bin by bin."""
        return {
            "variables": {
                variable.name: dict(zip(MEASURES, sums.tolist(), strict=True))
                for variable, sums in zip(schema.variables, self.sums, strict=True)
            },
            "calibration": describe_bins(self.bins),
        }


def choose_hidden(codes: IntArray, rows: IntArray, share: float, seed: int) -> BoolArray:
    """Choose observed cells to hide, by a hash of their place: the same in every run, however rows are cut.

    Parameters
    ----------
    codes
        Shape (n_rows, n_variables), -1 missing.
    rows
        int64 of shape (n_rows,): numbers of the rows, distinct.
    share
        In [0, 1], expected share of the observed cells.
    seed
        Integer in [0, 2**64).

    Returns
    -------
    bool of shape (n_rows, n_variables), True where an observed cell is to be hidden.
    """
    drawn = draw_cells(codes.shape, rows, seed) >> np.uint64(11)
    hidden: BoolArray = (codes >= 0) & (drawn < np.uint64(share * 2**53))
    return hidden


def draw_cells(shape: tuple[int, ...], rows: IntArray, seed: int) -> HashArray:
    """Draw a number for every cell by a hash of its place.

    Parameters
    ----------
    shape
        (n_rows, n_variables).
    rows
        int64 of shape (n_rows,): numbers of the rows, distinct.
    seed
        Integer in [0, 2**64).

    Returns
    -------
    uint64 of that shape.
    """
    cells = rows[:, None] * np.int64(shape[1]) + np.arange(shape[1])
    return mix_hashes(cells, seed)


def score_hidden(
    codes: IntArray, hidden: BoolArray, model: JointPMF, baseline: FloatArray
) -> HeldOutScores:
    """Predict hidden cells of some samples from their other cells.

    Parameters
    ----------
    codes
        Shape (n_rows, n_variables), -1 missing.
    hidden
        bool of the same shape: observed cells to predict.
    model
        The model.
    baseline
        float64 of shape (n_levels,): PMF of each variable alone.

    Returns
    -------
    The scores; a guess is the most probable level, an expected value the mean over the levels' values. Cells of a model
    with traits are predicted by folding the rows in, as its `JointPMF.predict_proba` does; the log-likelihood of whole
    rows is that of its states.
    """
    sums = np.zeros((model.schema.n_variables, len(MEASURES)))
    bins = np.zeros((N_BINS, len(BIN_SUMS)))
    predict = _predict_hidden(np.where(hidden, -1, codes).astype(codes.dtype), hidden, model)
    for place, variable in enumerate(model.schema.variables):
        rows = np.flatnonzero(hidden[:, place])
        if not rows.size:
            continue
        truth = codes[rows, place].astype(np.int64)
        sums[place, 0] = rows.size
        own = baseline[model.schema.rows_of(place)]
        guesses = (
            predict(place, rows),
            np.broadcast_to(own, (rows.size, own.size)),
        )
        logs = []
        for pmf, column in zip(guesses, (1, 3), strict=True):
            chances = pmf[np.arange(rows.size), truth]
            logs.append(np.log(np.maximum(chances, FLOOR)))
            sums[place, column] = logs[-1].sum()
            sums[place, column + 1] = np.count_nonzero(pmf.argmax(axis=1) == truth)
        sums[place, -1] = ((logs[0] - logs[1]) ** 2).sum()
        bins += sum_bins(guesses[0], truth)
        if variable.values is not None:
            values = variable.numeric_values()
            for pmf, column in zip(guesses, (5, 7), strict=True):
                error = (pmf * values).sum(axis=1) - values[truth]
                sums[place, column] = (error**2).sum()
                sums[place, column + 1] = np.abs(error).sum()
    return HeldOutScores(sums, float(model.log_prob(codes).sum()), len(codes), bins)


def _predict_hidden(
    left: IntArray, hidden: BoolArray, model: JointPMF
) -> Callable[[int, IntArray], FloatArray]:
    """Function that gives the PMFs of a variable in the rows where it is hidden, from what is left."""
    if model.trait_model is None:
        posteriors = model.posterior(left)
        return lambda place, rows: model.predict_hidden(left[rows], posteriors[rows], place)
    rows, variables = np.nonzero(hidden)
    chances = model.trait_model.predict_cells(DenseBlock(left), rows, variables)
    cardinalities = model.schema.cardinalities
    return lambda place, _: chances[variables == place, : cardinalities[place]]
