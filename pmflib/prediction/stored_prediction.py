"""Prediction of a target on stored test samples, from all their other observed cells, against other predictors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.counting.pair_counts import PairCounts
from pmflib.fitting.naive_bayes import read_naive_bayes
from pmflib.hashing import mix_hashes
from pmflib.model import JointPMF
from pmflib.model.stored_evaluation import make_key
from pmflib.prediction.logistic_regression import MAX_ROWS, find_obstacle, fit_logistic_regression
from pmflib.prediction.predictor_comparison import (
    LOGISTIC,
    MAJORITY,
    MODEL,
    NAIVE_BAYES,
    compare_predictions,
)
from pmflib.running.clients import Client
from pmflib.running.grouping import group_blocks
from pmflib.running.maps import run_blocks
from pmflib.store.sample_blocks import BlockReference, read_blocks

MAX_TESTED = 200_000
"""Test samples that are predicted, at most: the standard errors of more are below the third digit."""

MAX_CELLS = 20_000_000
"""Codes of samples, or probabilities of their predictions, that are gathered in one place, at most."""


class DrawnRows(NamedTuple):
    """Samples with the target observed.

    Parameters
    ----------
    codes
        Shape (n_rows, n_variables), -1 missing.
    predictions
        Predicted PMFs of the target, (n_rows, cardinality), by each of some models.
    """

    codes: IntArray
    predictions: tuple[FloatArray, ...]

    @staticmethod
    def merge(parts: Sequence[DrawnRows]) -> DrawnRows:
        """Rows of all parts, at least one, in their order."""
        return DrawnRows(
            np.concatenate([part.codes for part in parts]),
            tuple(map(np.concatenate, zip(*(part.predictions for part in parts), strict=True))),
        )


class Folds(NamedTuple):
    """Blocks of the samples that train, that choose, and that judge."""

    training: Sequence[BlockReference]
    validation: Sequence[BlockReference]
    test: Sequence[BlockReference]


def judge_stored(
    client: Client, folds: Folds, counts: PairCounts, model: JointPMF, target: str, seed: int
) -> dict[str, Any]:
    """Predict the target of the test samples, and compare with the majority class, naive Bayes and logistic regression.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the report is the same bits.
    folds
        Stored samples; the folds of any part may be without any.
    counts
        Co-occurrence counts of the training samples: naive Bayes and the majority class are read off them.
    model
        The model.
    target
        Variable to predict; samples where it is missing are left out.
    seed
        Integer in [0, 2**64): which samples are drawn, by a hash of their place, where there are too many.

    Returns
    -------
    What `compare_predictions` returns, and the predictors that were left out with the reasons: left_out. Without a test
    sample that has the target: target, rows (0), left_out (empty) and verdict.
    """
    schema, place = model.schema, model.schema.position(target)
    bayes = read_naive_bayes(counts, place)
    variable = schema[place]
    most = min(MAX_TESTED, MAX_CELLS // max(schema.n_variables, variable.cardinality))
    test = draw_rows(client, folds.test, place, most, seed, (model, bayes))
    if not len(test.codes):
        verdict = f"no test sample has {target!r}: how well it is predicted is not known"
        return {"target": target, "rows": 0, "left_out": {}, "verdict": [verdict]}
    predictions = {
        MODEL: test.predictions[0],
        MAJORITY: np.tile(bayes.prior, (len(test.codes), 1)),
        NAIVE_BAYES: test.predictions[1],
    }
    most = min(MAX_ROWS, MAX_CELLS // schema.n_variables)
    training = draw_rows(client, folds.training, place, most, seed, (), schema.offsets).codes
    reason = find_obstacle(training, place, variable.cardinality)
    if not reason:
        validation = draw_rows(client, folds.validation, place, most, seed, (), schema.offsets)
        regression = fit_logistic_regression(
            training, validation.codes, schema.cardinalities, place, bayes.prior
        )
        predictions[LOGISTIC] = regression.predict_proba(test.codes)
    truth = test.codes[:, place].astype(np.int64)
    found = compare_predictions(variable, truth, predictions)
    return found | {"left_out": {LOGISTIC: reason} if reason else {}}


def draw_rows(
    client: Client,
    blocks: Sequence[BlockReference],
    target: int,
    most: int,
    seed: int,
    models: tuple[JointPMF, ...],
    offsets: IntArray | None = None,
) -> DrawnRows:
    """Gather samples that have the target, and predictions of it from their other cells.

    Parameters
    ----------
    client
        Dask client, or None.
    blocks
        Where the samples are, in the order of the dataset.
    target
        Place of the target.
    most
        About so many samples at most are drawn, by a hash of their place.
    seed
        Integer in [0, 2**64).
    models
        Models of one schema that predict; may be none, where ``offsets`` are given.
    offsets
        int64 of shape (n_variables + 1,).

    Returns
    -------
    The rows, in the order of the dataset.
    """
    offsets = models[0].schema.offsets if offsets is None else offsets
    groups = group_blocks(blocks)
    if not groups:
        empty = np.empty((0, offsets.size - 1), np.int64)
        nothing = np.empty((0, int(offsets[target + 1] - offsets[target])))
        return DrawnRows(empty, (nothing,) * len(models))
    share = min(1.0, most / max(1, sum(block.n_rows for block in blocks)))
    shared = target, share, seed, models, offsets
    return run_blocks(client, _draw_group, groups, DrawnRows.merge, *shared)


def _draw_group(
    group: Sequence[BlockReference],
    target: int,
    share: float,
    seed: int,
    models: tuple[JointPMF, ...],
    offsets: IntArray,
) -> DrawnRows:
    parts = []
    for reference, block in zip(group, read_blocks(group), strict=True):
        codes = block.to_codes(offsets)
        kept = codes[:, target] >= 0
        if share < 1:
            drawn = mix_hashes(reference.rows, make_key(reference, seed)) >> np.uint64(11)
            kept &= drawn < np.uint64(share * 2**53)
        codes = codes[kept]
        shown = codes.copy()
        shown[:, target] = -1
        predictions = tuple(
            each.predict_hidden(shown, each.posterior(shown), target)
            if each.trait_model is None
            else each.predict_proba(shown, target)
            for each in models
        )
        parts.append(DrawnRows(codes, predictions))
    return DrawnRows.merge(parts)
