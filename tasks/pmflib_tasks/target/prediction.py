"""Prediction of a target on stored test samples, compared with other predictors on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.hashing import mix_hashes
from pmflib.cluster.clients import Client
from pmflib.cluster.maps import run_blocks
from pmflib.counts.pair_counts import PairCounts
from pmflib.fits.starts import StoredCounts, make_naive_bayes_of
from pmflib.inference.target.rivals import find_fit_obstacle, fit_boosting, fit_logistic_regression
from pmflib.model import JointPMF
from pmflib.store.sample_blocks import BlockReference, group_blocks, read_blocks, scale_blocks
from pmflib_tasks.stages.evaluation import Folds, make_partition_seed
from pmflib_tasks.target.target_report import (
    BOOSTING,
    LOGISTIC,
    MAJORITY,
    MODEL,
    NAIVE_BAYES,
    TargetReport,
    compare_predictions,
)

MAX_ROWS = 50_000
"""Maximum number of training rows of logistic regression; more change its scores by less than their standard errors."""

MAX_TESTED = 200_000
"""Maximum number of predicted test samples: more do not change the third digit."""

MAX_CELLS = 20_000_000
"""Maximum number of codes, or of predicted probabilities, gathered in this process."""


class SampledRows(NamedTuple):
    """Samples with the target observed.

    Parameters
    ----------
    codes
        Shape (n_rows, n_variables), -1 missing.
    predictions
        Predicted PMFs of the target by each model, shape (n_rows, cardinality).
    weights
        float64 of shape (n_rows,); None without weights.
    """

    codes: IntArray
    predictions: tuple[FloatArray, ...] = ()
    weights: FloatArray | None = None

    @property
    def block(self) -> DenseBlock:
        """Return the samples without predictions."""
        return DenseBlock(self.codes, self.weights)

    @staticmethod
    def merge(parts: Sequence[SampledRows]) -> SampledRows:
        """Concatenate parts, at least one, in order."""
        weights = [part.weights for part in parts if part.weights is not None]
        return SampledRows(
            np.concatenate([part.codes for part in parts]),
            tuple(map(np.concatenate, zip(*(part.predictions for part in parts), strict=True))),
            np.concatenate(weights) if weights else None,
        )


def evaluate_stored_target(
    client: Client,
    folds: Folds,
    counts: PairCounts | StoredCounts,
    model: JointPMF,
    target: str,
    seed: int,
) -> TargetReport:
    """Predict the target of the test samples, and compare with other predictors.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the report has the same bits.
    folds
        Stored samples; each part may be empty. Fits and measures use their weights.
    counts
        Co-occurrence counts of the training samples, from which naive Bayes and the majority class follow.
    model
        The model.
    target
        Variable to predict; samples without it are left out.
    seed
        Integer in [0, 2**64) that determines which samples are drawn, if there are too many.

    Returns
    -------
    The report, with the predictors that were left out; it has 0 rows if no test sample has the target.
    """
    schema, position = model.schema, model.schema.position(target)
    bayes = make_naive_bayes_of(counts, schema, position)
    folds = Folds(*map(scale_blocks, folds))
    variable = schema[position]
    most = min(MAX_TESTED, MAX_CELLS // max(schema.n_variables, variable.cardinality))
    test = sample_rows(client, folds.test, position, most, seed, (model, bayes))
    if not len(test.codes):
        sentence = f"no test sample has {target!r}: how well it is predicted is not known"
        return TargetReport(target, 0, [sentence])
    predictions = {
        MODEL: test.predictions[0],
        MAJORITY: np.tile(bayes.prior, (len(test.codes), 1)),
        NAIVE_BAYES: test.predictions[1],
    }
    most = min(MAX_ROWS, MAX_CELLS // schema.n_variables)
    training = sample_rows(client, folds.training, position, most, seed, (), schema.offsets)
    reason = find_fit_obstacle(training.codes, position, variable.cardinality)
    if not reason:
        validation = sample_rows(client, folds.validation, position, most, seed, (), schema.offsets)
        parts = training.block, validation.block
        regression = fit_logistic_regression(*parts, schema.cardinalities, position, bayes.prior)
        predictions[LOGISTIC] = regression.predict_proba(test.codes)
        boosted = fit_boosting(*parts, schema, position, bayes.prior)
        predictions[BOOSTING] = boosted.predict_proba(test.codes)
    truth = test.codes[:, position].astype(np.int64)
    found = compare_predictions(variable, truth, predictions, test.weights)
    return replace(found, left_out=dict.fromkeys((LOGISTIC, BOOSTING), reason) if reason else {})


def sample_rows(
    client: Client,
    blocks: Sequence[BlockReference],
    target: int,
    most: int,
    seed: int,
    models: tuple[JointPMF, ...],
    offsets: IntArray | None = None,
) -> SampledRows:
    """Gather samples with the target, and its predictions from their other cells.

    Parameters
    ----------
    client
        Dask client, or None.
    blocks
        Blocks of the samples, in the order of the dataset.
    target
        Position of the target.
    most
        Approximate maximum number of samples, drawn by a hash of their position.
    seed
        Integer in [0, 2**64).
    models
        Models with the same schema; may be empty if ``offsets`` are given.
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
        return SampledRows(empty, (nothing,) * len(models))
    share = min(1.0, most / max(1, sum(block.n_rows for block in blocks)))
    shared = target, share, seed, models, offsets
    return run_blocks(client, _draw_group, groups, SampledRows.merge, *shared)


def _draw_group(
    group: Sequence[BlockReference],
    target: int,
    share: float,
    seed: int,
    models: tuple[JointPMF, ...],
    offsets: IntArray,
) -> SampledRows:
    parts = []
    for reference, block in zip(group, read_blocks(group), strict=True):
        codes = block.to_codes(offsets)
        kept = codes[:, target] >= 0
        if share < 1:
            drawn = mix_hashes(reference.rows, make_partition_seed(reference, seed)) >> np.uint64(
                11
            )
            kept &= drawn < np.uint64(share * 2**53)
        codes = codes[kept]
        shown = codes.copy()
        shown[:, target] = -1
        is_hidden = np.zeros(shown.shape, np.bool_)
        is_hidden[:, target] = True
        predictions = tuple(
            each.make_predictor(shown, is_hidden)(target, np.arange(len(shown))) for each in models
        )
        weights = None if block.weights is None else block.weights[kept]
        parts.append(SampledRows(codes, predictions, weights))
    return SampledRows.merge(parts)
