"""scikit-learn's own checks: all that apply to these estimators, with no failure expected."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import (
    check_global_output_transform_pandas,
    check_global_set_output_transform_polars,
    check_set_output_transform,
    check_set_output_transform_pandas,
    check_set_output_transform_polars,
    check_transformer_get_feature_names_out,
    check_transformer_get_feature_names_out_pandas,
    parametrize_with_checks,
)

import pmflib as pmf

ESTIMATORS = (pmf.PMFClassifier, pmf.apps.PMFDensity, pmf.PMFImputer, pmf.apps.PMFTransformer)
SKIPPED_WITHOUT_SCIPY_ARRAYS = "check_array_api_input"


def expect_failures(estimator):
    """Weights are of a survey, and no numbers of rows."""
    return {
        "check_sample_weight_equivalence_on_dense_data": "weights are no repetitions",
        "check_classifiers_one_label_sample_weights": "weights of zero are refused",
    }


# ranks are given: the choice of one is tested elsewhere, and takes most of the time of these fits
@parametrize_with_checks(
    [
        pmf.PMFClassifier(rank=3),
        pmf.apps.PMFDensity(rank=1, members=1),
        pmf.PMFImputer(rank=1, members=1),
        pmf.apps.PMFTransformer(rank=1),
        pmf.PMFImputer(rank=1, members=1, dependence="tree"),
        pmf.apps.PMFTransformer(rank=3, method="traits", dimensions=0),
    ],
    expected_failed_checks=expect_failures,
)
def test_estimator__passes_the_checks_of_scikit_learn(estimator, check):
    if check.func.__name__ == SKIPPED_WITHOUT_SCIPY_ARRAYS:
        pytest.skip("asks for an environment variable of SciPy")
    with warnings.catch_warnings():
        # what the checks give holds few rows, and columns of one value
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.parametrize("estimator", [pmf.PMFImputer(rank=2), pmf.apps.PMFTransformer(rank=2)])
@pytest.mark.parametrize(
    "check",
    [
        check_set_output_transform,
        check_set_output_transform_pandas,
        check_set_output_transform_polars,
        check_global_output_transform_pandas,
        check_global_set_output_transform_polars,
        check_transformer_get_feature_names_out,
        check_transformer_get_feature_names_out_pandas,
    ],
)
def test_transform__gives_what_set_output_asks_for(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(type(estimator).__name__, estimator)


@pytest.mark.parametrize("estimator_class", ESTIMATORS)
def test_clone__same_parameters_not_fitted(estimator_class):
    schema = pmf.Schema((pmf.Variable("x0", ("a", "b")),))
    options = dict(rank=2, schema=schema, bins=4, members=2, dependence="tree", random_state=5)
    if estimator_class is not pmf.PMFClassifier:
        options |= {"method": "traits", "dimensions": 1}
    estimator = estimator_class(**options)
    assert estimator.get_params().items() >= options.items()
    copied = clone(estimator)
    assert copied.get_params() == estimator.get_params()
    assert not hasattr(copied, "model_")


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("container", ["pandas", "polars", "default"])
def test_set_output__imputed_frame_of_another_kind(make, container):
    rows = {"a": ["x", "y", None, "x"] * 20, "b": [1.0, None, 2.0, 1.0] * 20}
    imputer = pmf.PMFImputer(rank=2).set_output(transform=container)
    filled = imputer.fit_transform(make(rows))
    expected = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "default": type(make(rows))}[
        container
    ]
    assert isinstance(filled, expected)
    assert list(getattr(filled, "column_names", filled.columns)) == ["a", "b"]
    assert set(np.asarray(filled["a"])) == {"x", "y"}
    assert np.asarray(filled["b"]).dtype == np.float64
