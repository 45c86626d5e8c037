"""Held-out scores: predictions of hidden cells, compared with the distributions of single variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pmflib.base.arrays import FLOOR, BoolArray, FloatArray, IntArray
from pmflib.base.codes import Codes
from pmflib.cluster.clients import Client
from pmflib.cluster.maps import run_blocks
from pmflib.model import JointPMF
from pmflib.model.measures import N_BINS, describe_bins, sum_bins
from pmflib.model.sampling import draw_cells
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    BlockReference,
    group_blocks,
    read_blocks,
    scale_blocks,
)
from pmflib_tasks.gate.value_errors import ERRORS, describe_errors, find_scales

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
"""Columns of `HeldOutScores.sums`; the last sums the squared difference of log-probability to the baseline."""

BIN_SUMS = ("cells", "probability", "correct")
"""Columns of `HeldOutScores.bins`: see `sum_bins`."""


class Folds(NamedTuple):
    """Blocks of the training, validation and test samples."""

    training: Sequence[BlockReference]
    validation: Sequence[BlockReference]
    test: Sequence[BlockReference]


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Sums over hidden cells by variable, additive over blocks.

    Parameters
    ----------
    sums
        float64 of shape (n_variables, len(MEASURES)); errors are 0 for variables without values.
    log_likelihood
        Sum over whole rows, without hidden cells, nats.
    n_rows
        Number of samples; with weights, their effective number.
    bins
        float64 of shape (N_BINS, len(BIN_SUMS)): sums over the hidden cells of all variables by bin of the probability
        of the most probable level.
    """

    sums: FloatArray
    log_likelihood: float
    n_rows: float
    bins: FloatArray

    @classmethod
    def zero(cls, n_variables: int) -> HeldOutScores:
        """Build the scores of no samples, the identity of `merge`."""
        sums, bins = np.zeros((n_variables, len(MEASURES))), np.zeros((N_BINS, len(BIN_SUMS)))
        return cls(sums, 0.0, 0, bins)

    @staticmethod
    def merge(parts: Sequence[HeldOutScores]) -> HeldOutScores:
        """Sum scores, at least one, in the given order."""
        return HeldOutScores(
            np.sum([part.sums for part in parts], axis=0),
            sum(part.log_likelihood for part in parts),
            sum(part.n_rows for part in parts),
            np.sum([part.bins for part in parts], axis=0),
        )

    def summarise(self, schema: Schema) -> dict[str, Any]:
        """Compute means over all hidden cells, and errors by scale.

        Parameters
        ----------
        schema
            Variables scored.

        Returns
        -------
        Log-probability per cell (nats) and accuracy, for the model and for the baseline; log-likelihood per row (nats);
        and, for hidden cells of variables whose levels are numbers, ``ERRORS``: for each scale of `find_scales` the
        number of cells, and the root mean squared and mean absolute error of the expected value, for both likewise.
        """
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
        errors = {}
        for name, positions in find_scales(schema).items():
            sums = dict(zip(MEASURES, self.sums[positions].sum(axis=0).tolist(), strict=True))
            if n_own := sums["cells"]:
                found = {"cells": n_own}
                for who in ("", "baseline_"):
                    both = sums[f"{who}squared_error"], sums[f"{who}absolute_error"]
                    measured = describe_errors(n_own, *both)
                    found |= {f"{who}{measure}": value for measure, value in measured.items()}
                errors[name] = found
        return {**out, ERRORS: errors} if errors else out

    def to_json(self, schema: Schema) -> dict[str, object]:
        """Convert to plain JSON types: sums by variable and measure, and the bins of the calibration."""
        return {
            "variables": {
                variable.name: dict(zip(MEASURES, sums.tolist(), strict=True))
                for variable, sums in zip(schema.variables, self.sums, strict=True)
            },
            "calibration": describe_bins(self.bins),
        }


def choose_hidden(codes: IntArray, rows: IntArray, share: float, seed: int) -> BoolArray:
    """Choose observed cells to hide, by a hash of their position, the same for any partition into blocks.

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
    bool of shape (n_rows, n_variables), True for observed cells to hide.
    """
    drawn = draw_cells(codes.shape, rows, seed) >> np.uint64(11)
    hidden: BoolArray = (codes >= 0) & (drawn < np.uint64(share * 2**53))
    return hidden


def score_hidden(
    codes: IntArray,
    hidden: BoolArray,
    model: JointPMF,
    baseline: FloatArray,
    weights: FloatArray | None = None,
) -> HeldOutScores:
    """Predict hidden cells of samples from their other cells.

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
    weights
        float64 of shape (n_rows,): number of samples that each row represents; None is 1 each.

    Returns
    -------
    The scores; guesses are most probable levels, expected values means of the levels' values. A model with traits folds
    rows in, as `JointPMF.predict_proba` does; the log-likelihood of whole rows is that of its states.
    """
    sums = np.zeros((model.schema.n_variables, len(MEASURES)))
    bins = np.zeros((N_BINS, len(BIN_SUMS)))
    predict = model.make_predictor(np.where(hidden, -1, codes).astype(codes.dtype), hidden)
    for position, variable in enumerate(model.schema.variables):
        rows = np.flatnonzero(hidden[:, position])
        if not rows.size:
            continue
        truth = codes[rows, position].astype(np.int64)
        mine = np.ones(rows.size) if weights is None else weights[rows]
        sums[position, 0] = mine.sum()
        own = baseline[model.schema.rows_of(position)]
        guesses = (
            predict(position, rows),
            np.broadcast_to(own, (rows.size, own.size)),
        )
        logs = []
        for pmf, column in zip(guesses, (1, 3), strict=True):
            chances = pmf[np.arange(rows.size), truth]
            logs.append(np.log(np.maximum(chances, FLOOR)))
            sums[position, column] = (mine * logs[-1]).sum()
            sums[position, column + 1] = mine[pmf.argmax(axis=1) == truth].sum()
        sums[position, -1] = (mine * (logs[0] - logs[1]) ** 2).sum()
        bins += sum_bins(guesses[0], truth, mine)
        if variable.values is not None:
            values = variable.numeric_values()
            for pmf, column in zip(guesses, (5, 7), strict=True):
                error = (pmf * values).sum(axis=1) - values[truth]
                sums[position, column] = (mine * error**2).sum()
                sums[position, column + 1] = (mine * np.abs(error)).sum()
    scores = model.log_prob(Codes(codes))
    if weights is None:
        return HeldOutScores(sums, float(scores.sum()), len(codes), bins)
    return HeldOutScores(sums, float((weights * scores).sum()), float(weights.sum()), bins)


SCORES = "scores.json"
"""File of an artefact with scores by variable and calibration, from `HeldOutScores.to_json`."""


def evaluate_stored(
    client: Client,
    blocks: Sequence[BlockReference],
    model: JointPMF,
    baseline: FloatArray,
    share: float,
    seed: int,
) -> HeldOutScores:
    """Hide observed cells of stored samples, predict them from the others, and sum the scores.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the scores have the same bits.
    blocks
        Test samples, in the order of the dataset; may be empty. Weights are scaled to sum to Kish's effective number of
        samples.
    model
        The model.
    baseline
        float64 of shape (n_levels,): PMF of each variable alone.
    share
        Expected share of the observed cells to hide, in [0, 1].
    seed
        Integer in [0, 2**64) that determines which cells are hidden.

    Returns
    -------
    The scores.
    """
    groups = group_blocks(scale_blocks(blocks))
    if not groups:
        return HeldOutScores.zero(model.schema.n_variables)
    shared = model, baseline, share, seed
    return run_blocks(client, score_group, groups, HeldOutScores.merge, *shared)


def score_group(
    group: Sequence[BlockReference], model: JointPMF, baseline: FloatArray, share: float, seed: int
) -> HeldOutScores:
    """Score a group; the hidden cells depend on their position in their partition and on the seed."""
    parts = []
    for reference, block in zip(group, read_blocks(group), strict=True):
        codes = block.to_codes(model.schema.offsets)
        hidden = choose_hidden(codes, reference.rows, share, make_partition_seed(reference, seed))
        parts.append(score_hidden(codes, hidden, model, baseline, block.weights))
    return HeldOutScores.merge(parts)


def make_partition_seed(block: BlockReference, seed: int) -> int:
    """Derive the seed of a block's partition from its digest, the name of its folder."""
    return int(Path(block.path).parent.name[:12], 16) ^ seed
