"""Classifiers that a model of a target is compared with: multinomial logistic regression and gradient boosting."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.blocks import DenseBlock, weigh_rows
from pmflib.base.codes import Codes
from pmflib.base.comparison import compare_samples
from pmflib.fits.em_fit import N_FOLDS
from pmflib.fits.fit_result import FitResult
from pmflib.fits.target_pool import TargetPool
from pmflib.model import JointPMF
from pmflib.schema import Schema

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
    alone: FloatArray
    sizes: IntArray
    target: int
    penalty: float

    def predict_proba(self, codes: IntArray) -> FloatArray:
        """Predict the PMF of the target in each row, float64 of shape (n_rows, classes); rows sum to 1."""
        chances = self.fitted.predict_proba(make_columns(codes, self.sizes, self.target))
        return spread_levels(chances, self.fitted.classes_, self.alone)


def spread_levels(chances: FloatArray, seen: IntArray, alone: FloatArray) -> FloatArray:
    """Add the levels without training rows, which get their marginal probability, to PMFs of the ``seen`` ones."""
    pmf = np.tile(alone, (len(chances), 1))
    pmf[:, seen] = alone[seen].sum() * chances
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
    training: DenseBlock, validation: DenseBlock, sizes: IntArray, target: int, alone: FloatArray
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
    penalties = PENALTIES if len(validation) else (DEFAULT_PENALTY,)
    # one thread, because the last bits of a product depend on the number of threads
    with warnings.catch_warnings(), threadpool_limits(1):
        # a fit that stops early is more regularised, and is evaluated on the validation rows like the others
        warnings.simplefilter("ignore")
        for penalty in penalties:
            fitted = sklearn.linear_model.LogisticRegression(C=penalty, max_iter=MAX_STEPS)
            fitted.fit(columns, truth, training.weights)
            found = LogisticRegression(fitted, alone, sizes, target, penalty)
            score = -np.inf
            if len(validation):
                logs = score_rows(found.predict_proba(validation.codes), validation, target)
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


def score_rows(pmf: FloatArray, rows: DenseBlock, target: int) -> FloatArray:
    """Return the log-probability of the target of each row, nats: (n_rows,)."""
    return np.asarray(np.log(np.maximum(pmf[np.arange(len(pmf)), rows.codes[:, target]], FLOOR)))


MAX_BOOSTED = 10_000
"""Maximum number of training rows of gradient boosting."""
BOOSTED_TREES = 100
"""Number of trees per level of the target, of which validation rows choose how many are used."""
MAX_CATEGORIES = 255
"""Cardinality above which scikit-learn's boosting takes a variable for ordered."""


@dataclass(frozen=True, eq=False)
class Boosting:
    """Fitted gradient boosting.

    Parameters
    ----------
    fitted
        Estimator of scikit-learn.
    alone, target
        As for `LogisticRegression`.
    """

    fitted: Any
    alone: FloatArray
    target: int

    def predict_proba(self, codes: IntArray) -> FloatArray:
        """Predict the PMF of the target in each row, float64 of shape (n_rows, classes); rows sum to 1."""
        chances = self.fitted.predict_proba(hide_target(codes, self.target))
        return spread_levels(chances, self.fitted.classes_, self.alone)


def hide_target(codes: IntArray, target: int) -> FloatArray:
    """Return all variables but the target as numbers, NaN where missing."""
    columns = np.delete(codes, target, axis=1).astype(np.float64)
    columns[columns < 0] = np.nan
    return columns


def fit_boosting(
    training: DenseBlock, validation: DenseBlock, schema: Schema, target: int, alone: FloatArray
) -> Boosting:
    """Fit gradient boosting of trees, as many as predict validation rows best.

    Parameters
    ----------
    training, validation, target, alone
        As for `fit_logistic_regression`; of more than ``MAX_BOOSTED`` training rows, some are used.
    schema
        Variables; those without values of their levels are unordered.
    """
    # loaded on first use, as above
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    if len(training) > MAX_BOOSTED:
        training = training[np.linspace(0, len(training) - 1, MAX_BOOSTED).astype(np.int64)]
    others = np.delete(np.arange(schema.n_variables), target)
    is_unordered = [
        schema[place].values is None and 2 < schema[place].cardinality <= MAX_CATEGORIES
        for place in others.tolist()
    ]

    def fit(n_trees: int) -> Any:
        boosted = HistGradientBoostingClassifier(
            max_iter=n_trees,
            categorical_features=is_unordered,
            early_stopping=False,
            random_state=0,
        )
        with threadpool_limits(1):
            return boosted.fit(
                hide_target(training.codes, target), training.codes[:, target], training.weights
            )

    fitted = fit(BOOSTED_TREES)
    if not len(validation):
        return Boosting(fitted, alone, target)
    columns = hide_target(validation.codes, target)
    scores = [
        float(
            np.average(
                score_rows(spread_levels(each, fitted.classes_, alone), validation, target),
                weights=validation.weights,
            )
        )
        for each in fitted.staged_predict_proba(columns)
    ]
    best = int(np.argmax(scores)) + 1
    return Boosting(fitted if best == BOOSTED_TREES else fit(best), alone, target)


LEAST_COMPARED = 200
"""Number of rows below which the held-out fold is too small for a comparison; not tuned."""
MOST_COMPARED = 20_000
"""Maximum number of rows for a comparison."""
LEAST_ERRORS = 2.0
"""Minimum difference, in standard errors, that is called one."""


def find_trial(result: FitResult) -> JointPMF | TargetPool | None:
    """Return what predicts the target without having seen the first held-out fold; None if nothing was held out."""
    return result.trial if result.pool is None else result.pool.trial


def compare_with_rivals(
    block: DenseBlock, schema: Schema, target: int, model: JointPMF | TargetPool | None
) -> tuple[str, ...]:
    """Compare a model of a target with logistic regression and boosting on the fold that it was not fitted to.

    Parameters
    ----------
    block
        All samples, with the target observed.
    schema
        Variables.
    target
        Position of the target.
    model
        Model fitted without the first fold, from `find_trial`; None compares nothing.

    Returns
    -------
    A sentence with the differences in log-loss; none if there are too few samples to compare, or too much work.
    """
    if model is None or len(block) < LEAST_COMPARED:
        return ()
    folds = block.assign_folds(N_FOLDS)
    if len(block) > MOST_COMPARED:
        some = np.linspace(0, len(block) - 1, MOST_COMPARED).astype(np.int64)
        block, folds = block[some], folds[some]
    test, validation, training = (block[rows] for rows in (folds == 0, folds == 1, folds > 1))
    n_classes = schema[target].cardinality
    if not len(test) or find_fit_obstacle(training.codes, target, n_classes):
        return ()
    counted = np.bincount(training.codes[:, target], weigh_rows(training), minlength=n_classes)
    alone = (counted + 1) / (counted + 1).sum()
    rivals: dict[str, LogisticRegression | Boosting] = {
        "logistic regression": fit_logistic_regression(
            training, validation, schema.cardinalities, target, alone
        ),
        "boosting": fit_boosting(training, validation, schema, target, alone),
    }
    hidden = test.codes.copy()
    hidden[:, target] = -1
    mine = score_rows(model.predict_proba(Codes(hidden), target), test, target)
    weights = weigh_rows(test) / weigh_rows(test).mean()
    parts, better = [], []
    for name, rival in rivals.items():
        theirs = score_rows(rival.predict_proba(test.codes), test, target)
        loss, error = compare_samples(theirs * weights, mine * weights)
        parts.append(f"{name} {loss:+.3f} +- {error:.3f}")
        better += [name] if loss > LEAST_ERRORS * error else []
    held_out = (
        f"log-loss on {len(test):,} held-out rows minus that of a rival, nats: {', '.join(parts)}"
    )
    if better:
        verb = "predict" if len(better) > 1 else "predicts"
        return (f"{' and '.join(better)} {verb} {schema.names[target]!r} better: {held_out}",)
    return (held_out,)
