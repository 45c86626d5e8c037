"""Logistic regression on one-hot levels, missing being a level of its own: scikit-learn's, with bounds on its work."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.level_blocks import FLOOR

MAX_ROWS = 50_000
"""Rows that it learns from, at most: more change its scores by less than their standard errors."""

MAX_WORK = 50_000_000
"""Rows times variables times levels of the target, at most: some seconds of work."""

PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Penalties that are compared on other rows, as scikit-learn has them: C, the larger the less it is regularised."""

DEFAULT_PENALTY = 1.0
"""The one that is taken where there are no other rows."""

MAX_STEPS = 300
"""Steps of a fit, at most."""


@dataclass(frozen=True, eq=False)
class LogisticRegression:
    """A fitted logistic regression, of all levels of the target.

    Parameters
    ----------
    fitted
        Estimator of scikit-learn.
    classes
        Cardinality of the target.
    alone
        float64 of shape (classes,): PMF of the target alone, from which levels that were never seen have theirs.
    sizes
        int64 of shape (n_variables,): cardinality of every variable.
    target
        Place of the target.
    penalty
        The one of `PENALTIES` that was chosen.
    """

    fitted: Any
    classes: int
    alone: FloatArray
    sizes: IntArray
    target: int
    penalty: float

    def predict_proba(self, codes: IntArray) -> FloatArray:
        """PMF of the target in each row: float64 of shape (n_rows, classes), rows sum to 1."""
        pmf = np.tile(self.alone, (len(codes), 1))
        seen = self.fitted.classes_
        pmf[:, seen] = self.alone[seen].sum() * self.fitted.predict_proba(
            make_columns(codes, self.sizes, self.target)
        )
        return pmf


def find_obstacle(codes: IntArray, target: int, classes: int) -> str:
    """Say why logistic regression is left out; "" where nothing is in its way.

    Parameters
    ----------
    codes
        Training rows with the target observed, (n_rows, n_variables), -1 missing.
    target
        Place of the target.
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
    training: IntArray, validation: IntArray, sizes: IntArray, target: int, alone: FloatArray
) -> LogisticRegression:
    """Fit to training rows, with the regularisation that predicts validation rows best.

    Parameters
    ----------
    training, validation
        Codes with the target observed, (n_rows, n_variables), -1 missing; validation may have no rows.
    sizes
        int64 of shape (n_variables,): cardinality of every variable.
    target
        Place of the target.
    alone
        float64 of shape (cardinality,): PMF of the target alone, positive.

    Returns
    -------
    The fitted regression.
    """
    # loaded on first use: it takes longer to load than all of this package
    import sklearn.linear_model
    from threadpoolctl import threadpool_limits

    columns = make_columns(training, sizes, target)
    best, best_score = None, -np.inf
    penalties = PENALTIES if len(validation) else (DEFAULT_PENALTY,)
    # one thread, for the last bits of a product depend on their number
    with warnings.catch_warnings(), threadpool_limits(1):
        # stopped early it is a little more regularised, which the validation rows judge like the rest
        warnings.simplefilter("ignore")
        for penalty in penalties:
            fitted = sklearn.linear_model.LogisticRegression(C=penalty, max_iter=MAX_STEPS)
            fitted.fit(columns, training[:, target])
            found = LogisticRegression(fitted, len(alone), alone, sizes, target, penalty)
            score = -np.inf
            if len(validation):
                pmf = found.predict_proba(validation)
                chances = pmf[np.arange(len(pmf)), validation[:, target]]
                score = float(np.log(np.maximum(chances, FLOOR)).mean())
            if best is None or score > best_score:
                best, best_score = found, score
    assert best is not None
    return best


def make_columns(codes: IntArray, sizes: IntArray, target: int) -> Any:
    """One column for each level of every variable but the target, and one where it is missing: sparse, of 0 and 1."""
    from scipy.sparse import csr_array

    others = np.delete(np.arange(len(sizes)), target)
    edges = np.concatenate([[0], np.cumsum(sizes[others] + 1)])
    # 32 bits: scikit-learn takes no other indices
    places = (codes[:, others].astype(np.int64) + 1 + edges[:-1]).astype(np.int32)
    rows = np.arange(len(codes) + 1, dtype=np.int32) * np.int32(others.size)
    ones = np.ones(places.size)
    return csr_array((ones, places.ravel(), rows), shape=(len(codes), int(edges[-1])))
