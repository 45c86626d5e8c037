"""Prediction of a target on stored test samples, compared with logistic regression and others on the same rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pmflib.cluster.clients import Client
from pmflib.cluster.maps import run_blocks
from pmflib.core.arrays import FLOOR, FloatArray, IntArray
from pmflib.core.hashing import mix_hashes
from pmflib.counting.pair_counts import PairCounts
from pmflib.fitting.starts import read_naive_bayes
from pmflib.model import JointPMF
from pmflib.store.sample_blocks import BlockReference, group_blocks, read_blocks, scale_blocks
from pmflib_tasks.scoring.evaluation import make_partition_seed
from pmflib_tasks.scoring.target_report import (
    LOGISTIC,
    MAJORITY,
    MODEL,
    NAIVE_BAYES,
    TargetReport,
    compare_predictions,
)

MAX_ROWS = 50_000
"""Maximum number of training rows of logistic regression; more change its scores by less than their standard errors."""

MAX_WORK = 50_000_000
"""Maximum product of rows, variables and levels of the target: some seconds of work."""

PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Values of scikit-learn's C, the inverse strength of regularisation, that are compared on validation rows."""

DEFAULT_PENALTY = 1.0
"""Value of C without validation rows."""

MAX_STEPS = 300
"""Maximum number of iterations of a fit."""


@dataclass(frozen=True, eq=False)
class LogisticRegression:
    """A fitted multinomial logistic regression.

    Parameters
    ----------
    fitted
        Estimator of scikit-learn.
    classes
        Cardinality of the target.
    alone
        float64 of shape (classes,): marginal PMF of the target, used for levels without training rows.
    sizes
        int64 of shape (n_variables,): cardinality of every variable.
    target
        Position of the target.
    penalty
        The chosen value of `PENALTIES`.
    """

    fitted: Any
    classes: int
    alone: FloatArray
    sizes: IntArray
    target: int
    penalty: float

    def predict_proba(self, codes: IntArray) -> FloatArray:
        """Predict the PMF of the target in each row, float64 of shape (n_rows, classes); rows sum to 1."""
        pmf = np.tile(self.alone, (len(codes), 1))
        seen = self.fitted.classes_
        pmf[:, seen] = self.alone[seen].sum() * self.fitted.predict_proba(
            make_columns(codes, self.sizes, self.target)
        )
        return pmf


def find_fit_obstacle(codes: IntArray, target: int, classes: int) -> str:
    """Explain why logistic regression is left out; empty if it is not.

    Parameters
    ----------
    codes
        Training rows with the target observed, (n_rows, n_variables), -1 missing.
    target
        Position of the target.
    classes
        Its cardinality.
    """
    if codes.shape[1] < 2:
        return "there is no other variable to predict from"
    if np.unique(codes[:, target]).size < 2:
        return "the training rows hold fewer than two levels of the target"
    work = codes.size * classes
    if work > MAX_WORK:
        return (
            f"{len(codes):,} rows x {codes.shape[1]:,} variables x {classes:,} levels of the target are {work:,}, "
            f"above {MAX_WORK:,}"
        )
    return ""


def fit_logistic_regression(
    training: SampledRows, validation: SampledRows, sizes: IntArray, target: int, alone: FloatArray
) -> LogisticRegression:
    """Fit to training rows with the regularisation that predicts validation rows best.

    Parameters
    ----------
    training, validation
        Samples with the target observed; validation may have no rows.
    sizes
        int64 of shape (n_variables,): cardinality of every variable.
    target
        Position of the target.
    alone
        float64 of shape (cardinality,): PMF of the target alone, positive.

    Returns
    -------
    The fitted regression.
    """
    # loaded on first use: importing it takes longer than importing this package
    import sklearn.linear_model
    from threadpoolctl import threadpool_limits

    columns, truth = make_columns(training.codes, sizes, target), training.codes[:, target]
    best, best_score = None, -np.inf
    penalties = PENALTIES if len(validation.codes) else (DEFAULT_PENALTY,)
    # one thread, because the last bits of a product depend on the number of threads
    with warnings.catch_warnings(), threadpool_limits(1):
        # a fit that stops early is more regularised, and is evaluated on the validation rows like the others
        warnings.simplefilter("ignore")
        for penalty in penalties:
            fitted = sklearn.linear_model.LogisticRegression(C=penalty, max_iter=MAX_STEPS)
            fitted.fit(columns, truth, training.weights)
            found = LogisticRegression(fitted, len(alone), alone, sizes, target, penalty)
            score = -np.inf
            if len(validation.codes):
                pmf = found.predict_proba(validation.codes)
                chances = pmf[np.arange(len(pmf)), validation.codes[:, target]]
                logs = np.log(np.maximum(chances, FLOOR))
                score = float(np.average(logs, weights=validation.weights))
            if best is None or score > best_score:
                best, best_score = found, score
    assert best is not None
    return best


def make_columns(codes: IntArray, sizes: IntArray, target: int) -> Any:
    """Encode all variables but the target as sparse indicators of their levels and of missingness."""
    from scipy.sparse import csr_array

    others = np.delete(np.arange(len(sizes)), target)
    edges = np.concatenate([[0], np.cumsum(sizes[others] + 1)])
    # scikit-learn accepts only 32-bit indices
    columns = (codes[:, others].astype(np.int64) + 1 + edges[:-1]).astype(np.int32)
    rows = np.arange(len(codes) + 1, dtype=np.int32) * np.int32(others.size)
    ones = np.ones(columns.size)
    return csr_array((ones, columns.ravel(), rows), shape=(len(codes), int(edges[-1])))


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

    @staticmethod
    def merge(parts: Sequence[SampledRows]) -> SampledRows:
        """Concatenate parts, at least one, in order."""
        weights = [part.weights for part in parts if part.weights is not None]
        return SampledRows(
            np.concatenate([part.codes for part in parts]),
            tuple(map(np.concatenate, zip(*(part.predictions for part in parts), strict=True))),
            np.concatenate(weights) if weights else None,
        )


class Folds(NamedTuple):
    """Blocks of the training, validation and test samples."""

    training: Sequence[BlockReference]
    validation: Sequence[BlockReference]
    test: Sequence[BlockReference]


def evaluate_stored_target(
    client: Client, folds: Folds, counts: PairCounts, model: JointPMF, target: str, seed: int
) -> TargetReport:
    """Predict the target of the test samples, and compare with the majority class, naive Bayes and logistic regression.

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
    bayes = read_naive_bayes(counts.to_samples(), position)
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
        regression = fit_logistic_regression(
            training, validation, schema.cardinalities, position, bayes.prior
        )
        predictions[LOGISTIC] = regression.predict_proba(test.codes)
    truth = test.codes[:, position].astype(np.int64)
    found = compare_predictions(variable, truth, predictions, test.weights)
    return replace(found, left_out={LOGISTIC: reason} if reason else {})


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
        predictions = tuple(
            each.predict_hidden(shown, each.posterior(shown), target)
            if each.folding is None
            else each.predict_proba(shown, target)
            for each in models
        )
        weights = None if block.weights is None else block.weights[kept]
        parts.append(SampledRows(codes, predictions, weights))
    return SampledRows.merge(parts)
