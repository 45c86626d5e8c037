"""Peers of the estimators, each as its documentation has it for categorical columns, with nothing else changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logsumexp
from sklearn.covariance import EllipticEnvelope
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB
from sklearn.neighbors import KNeighborsClassifier, LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from sklearn.svm import OneClassSVM

import pmflib as pmf
from benchmarks.models.ratings import Split, factorise_tuned

Predict = Callable[[pd.DataFrame, np.ndarray, pd.DataFrame], np.ndarray]
"""Probabilities of classes in test rows, from training rows and their classes."""

Impute = Callable[[np.ndarray], np.ndarray]
"""A table of numbers whose missing cells are filled."""

ScoreRows = Callable[[np.ndarray], np.ndarray]
"""How unusual each row of codes is, from the rows themselves."""


def _predict(model: Any) -> Predict:
    def predict(train: pd.DataFrame, classes: np.ndarray, test: pd.DataFrame) -> np.ndarray:
        return np.asarray(model().fit(train, classes).predict_proba(test))

    return predict


def _encode_one_hot(model: Any) -> Any:
    return make_pipeline(OneHotEncoder(handle_unknown="ignore", sparse_output=False), model)


def _encode_codes(train: pd.DataFrame, test: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Codes from 1, 0 where missing or new."""
    encoder = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1
    )
    return encoder.fit_transform(train) + 1, encoder.transform(test) + 1


def _predict_naive_bayes(
    train: pd.DataFrame, classes: np.ndarray, test: pd.DataFrame
) -> np.ndarray:
    codes, asked = _encode_codes(train, test)
    model = CategoricalNB(min_categories=codes.max(axis=0).astype(int) + 1)
    return np.asarray(model.fit(codes, classes).predict_proba(asked))


def _predict_boosted(train: pd.DataFrame, classes: np.ndarray, test: pd.DataFrame) -> np.ndarray:
    types = {name: pd.CategoricalDtype(train[name].dropna().unique()) for name in train}
    model = HistGradientBoostingClassifier()
    return np.asarray(model.fit(train.astype(types), classes).predict_proba(test.astype(types)))


def _predict_stepmix(train: pd.DataFrame, classes: np.ndarray, test: pd.DataFrame) -> np.ndarray:
    from stepmix.stepmix import StepMix

    codes, asked = _encode_codes(train, test)
    codes, asked = (np.where(each == 0, np.nan, each - 1) for each in (codes, asked))
    names, numbers = np.unique(classes, return_inverse=True)
    model = StepMix(
        n_components=names.size,
        measurement="categorical_nan",
        structural="categorical",
        random_state=0,
        progress_bar=0,
        verbose=0,
    )
    model.fit(codes, numbers)
    return np.asarray(model.predict_proba_Y(asked))


CLASSIFIERS: Mapping[str, Predict] = {
    "PMFClassifier": _predict(pmf.PMFClassifier),
    "LogisticRegression": _predict(lambda: _encode_one_hot(LogisticRegression())),
    "RandomForest": _predict(lambda: _encode_one_hot(RandomForestClassifier(random_state=0))),
    "HistGradientBoosting": _predict_boosted,
    "CategoricalNB": _predict_naive_bayes,
    "KNeighbors": _predict(lambda: _encode_one_hot(KNeighborsClassifier())),
    "StepMix": _predict_stepmix,
}
"""Classifiers by name."""


def _impute_by_factors(table: np.ndarray) -> np.ndarray:
    """Biased matrix factorisation; an eighth of the known ratings chooses its penalties and rank."""
    known = np.nan_to_num(table).astype(np.int64)
    held_out = np.random.default_rng(0).random(known.shape) < 1 / 8
    split = Split(np.where(held_out, 0, known), np.where(held_out, known, 0), np.zeros_like(known))
    return np.asarray(factorise_tuned(split))


IMPUTERS: Mapping[str, Impute] = {
    "PMFImputer, mean": pmf.PMFImputer(strategy="mean").fit_transform,
    "PMFImputer, mode": pmf.PMFImputer(strategy="mode").fit_transform,
    "SimpleImputer, mean": SimpleImputer().fit_transform,
    "SimpleImputer, mode": SimpleImputer(strategy="most_frequent").fit_transform,
    "KNNImputer": KNNImputer().fit_transform,
    "IterativeImputer": IterativeImputer(random_state=0).fit_transform,
    "biased factorisation": _impute_by_factors,
}
"""Imputers by name; the last is for ratings."""


def _score_one_hot(score: Callable[[np.ndarray], np.ndarray]) -> ScoreRows:
    def score_rows(codes: np.ndarray) -> np.ndarray:
        return -score(OneHotEncoder(sparse_output=False).fit_transform(codes))

    return score_rows


def _score_neighbours(rows: np.ndarray) -> np.ndarray:
    return np.asarray(LocalOutlierFactor().fit(rows).negative_outlier_factor_)


def _score_stepmix(codes: np.ndarray) -> np.ndarray:
    from stepmix.stepmix import StepMix

    model = StepMix(measurement="categorical", random_state=0, progress_bar=0, verbose=0)
    model.fit(codes)
    joint = model._mm.log_likelihood(codes) + np.log(model.weights_)
    return -np.asarray(logsumexp(joint, axis=1))


DETECTORS: Mapping[str, ScoreRows] = {
    "PMFDensity": lambda codes: -pmf.PMFDensity().fit(codes).score_samples(codes),
    "IsolationForest": _score_one_hot(
        lambda rows: IsolationForest(random_state=0).fit(rows).score_samples(rows)
    ),
    "LocalOutlierFactor": _score_one_hot(_score_neighbours),
    "EllipticEnvelope": _score_one_hot(
        lambda rows: EllipticEnvelope(random_state=0).fit(rows).score_samples(rows)
    ),
    "OneClassSVM": _score_one_hot(lambda rows: OneClassSVM().fit(rows).score_samples(rows)),
    "StepMix": _score_stepmix,
}
"""Detectors of unusual rows by name."""
